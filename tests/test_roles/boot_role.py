"""A machine that prepares itself twice, of which the first try fails: ``python -m tests.test_roles.boot_role FOLDER``.

Prints, as JSON, what was kept of the machine as it was before, after each try.
"""

from gevent import monkey

monkey.patch_all()

import json  # noqa: E402 - the patch comes first
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from pyinfra.operations import server  # noqa: E402

from autoscaler.model.errors import Unavailable  # noqa: E402
from roles.first_boot.boot import become  # noqa: E402
from roles.operations import files  # noqa: E402

FOLDER = Path(sys.argv[1])


def role() -> None:
    """A file, and something that answers from the second try on."""
    files.place(name="file", dest=f"{FOLDER}/file", content="new\n", user=None, group=None)
    server.shell(name="a mirror answers", commands=[f"[ -e {FOLDER}/asked ] || {{ touch {FOLDER}/asked; false; }}"])


def tried() -> dict[str, object]:
    """One boot."""
    try:
        become({"state_directory": str(FOLDER / "state"), "run_directory": str(FOLDER / "run")}, role)
        failed = ""
    except Unavailable as outage:
        failed = str(outage)
    kept = FOLDER / f"state/last-good/files{FOLDER}/file"
    return {"failed": failed, "kept": kept.read_text(encoding="utf-8") if kept.exists() else ""}


(FOLDER / "file").write_text("bare\n", encoding="utf-8")
print(json.dumps([tried(), tried()]))
