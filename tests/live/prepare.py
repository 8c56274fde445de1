"""Plans, or plans and applies, ``roles.node.prepare``: ``python -m tests.live.prepare INVENTORY [apply]`` prints JSON.

Nothing of a rollout is in it (no drain, no batches): what a role does to a machine, and what it says.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - gevent's patch comes before every other import
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from roles.engine import connected  # noqa: E402
from roles.inventory import read_machines  # noqa: E402
from roles.node import prepare  # noqa: E402


def main() -> None:
    """One object per machine: what was planned, what was refused, what failed."""
    with connected(read_machines(Path(sys.argv[1])), prepare) as fleet:
        plans = fleet.plan()
        said = {
            name: {
                "planned": [change.resource.rpartition(" | ")[2] for change in plan.changes],
                "refused": [refusal.reason for refusal in plan.refused],
                "failed": plan.failed or plan.unreachable,
            }
            for name, plan in plans.items()
        }
        if sys.argv[2:] == ["apply"]:
            for done in fleet.apply([name for name in plans if not said[name]["failed"]]):
                said[done.host]["failed"] = done.failed
    print(json.dumps(said))


main()
