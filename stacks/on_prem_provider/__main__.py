"""What the engine starts: ``python stacks/on_prem_provider ADDRESS-OF-THE-ENGINE``; the first line out is the port."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
# A folder that is run puts itself first on the path; its modules are found as those of the package, and those of this
# checkout, whichever one the environment has installed.
sys.path[:] = [str(HERE.parents[1]), *(entry for entry in sys.path if entry != str(HERE))]


def main() -> None:
    """Serve the engine that started this process."""
    from stacks.on_prem_provider.grpc_server import serve  # noqa: PLC0415
    from stacks.on_prem_provider.provider import OnPremProvider  # noqa: PLC0415 - once it can be found

    serve(OnPremProvider(), arguments=sys.argv[1:])


if __name__ == "__main__":
    main()
