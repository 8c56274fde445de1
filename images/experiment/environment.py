"""The job in whose tasks a function runs: from a template or a job file, and what the call says otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from images.job_files import read_job
from images.job_roles import SERVING
from images.jobs import Job, as_data

_TEMPLATES: Final = Path(__file__).parents[1] / "templates"
_SMALL: Final[Mapping[str, Any]] = {"cpus": 1, "memory": "1Gi"}
"""What a task gets where nothing says more."""
_NAME_MAX: Final = 40
"""Letters: roles and indexes are added to it, and a host name has 63."""


class Environment(TypedDict, total=False):
    """What ``launch`` and ``map`` take beside the function; a job file's words, and over those of its template."""

    template: str | Path
    """A job file, or the name of one that ships; its tasks run the function instead of their ``entry``."""
    params: Mapping[str, object]
    """Of the template."""
    image: str
    python: str
    cpus: float | str
    memory: str
    gpus: int
    """Of each task of the roles that do the work: parameter servers need none."""
    env: Mapping[str, str]
    job: Mapping[str, Any]
    """Anything else of a job file, e.g. ``{"patience": "30m", "failure": {"restarts": 2}}``."""


_OF_TASKS: Final = ("image", "python", "cpus", "memory")


def job_of(
    name: str,
    roles: Mapping[str, object] | None,
    given: Environment,
    *,
    program: Callable[[str | None], list[str]],
    env: Mapping[str, str],
    logs: str | None,
) -> Job:
    """The job; ``roles``: how many tasks, or a mapping as in a job file. Raises ``BadInput``.

    ``program``: what runs in a task, by its ``python``; ``env``: what it has to be told; ``logs``: where lines go,
    if not where the template says.

    A role that the template has is as there; another one is as its main role. Without a template nothing that fails is
    started again, as a function mostly raises the same again.
    """
    for key in given:
        if key not in Environment.__annotations__:
            raise BadInput(f"there is no {key!r} to be given: it is one of {', '.join(Environment.__annotations__)}")
    base = _template(given)
    told: dict[str, Any] = as_data(base) if base else {"failure": {"restarts": 0}}
    there: Mapping[str, Any] = told["roles"] if base else {}
    counts: Mapping[str, object] = roles or (dict.fromkeys(there) if base else {"worker": 1})
    main = there[base.main_role] if base else _SMALL
    made: dict[str, Any] = {}
    for role, wanted in counts.items():
        like = there.get(role)
        task: dict[str, Any] = {
            key: value for key, value in (like or main).items() if like or key not in ("count", "essential")
        }
        task |= {key: given[key] for key in _OF_TASKS if key in given}
        if "gpus" in given and role not in SERVING:
            task["gpus"] = given["gpus"]
        task |= dict(wanted) if isinstance(wanted, Mapping) else {} if wanted is None else {"count": wanted}
        task["env"] = {**task.get("env", {}), **given.get("env", {}), **env}
        made[role] = task | {"entry": program(task.get("python")), "args": []}
    told = {**told, **given.get("job", {}), "name": name, "roles": made} | ({"logs": logs} if logs else {})
    return parse_data(told, Job, source=name)


def _template(given: Environment) -> Job | None:
    place = given.get("template")
    if place is None:
        return None
    path = Path(place)
    if not path.suffix and (_TEMPLATES / f"{place}.yaml").exists():
        path = _TEMPLATES / f"{place}.yaml"
    return read_job(path, {key: str(value) for key, value in given.get("params", {}).items()})


def name_for(function: object) -> str:
    """A job's name that says which function it runs."""
    word = re.sub(r"[^a-z0-9]+", "-", str(getattr(function, "__name__", "call")).lower()).strip("-")
    return f"f-{word}"[:_NAME_MAX] if not word[:1].isalpha() else word[:_NAME_MAX].rstrip("-")
