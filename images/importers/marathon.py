"""A Marathon group as a job: its apps ``ROLE-INDEX`` are a role's tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from autoscaler.model.errors import BadInput
from images.importers.reading import Foreign, Imported
from images.job_roles import PORT
from images.launcher import GRACE, VIEWS

_APP: Final = re.compile(r"(?:.*/)?([a-z][-a-z0-9]*?)(?:-(\d+))?")


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no group of apps."""
    source = Foreign(document, what="Marathon group")
    name = str(source.need("id")).strip("/").replace("/", "-")
    many = len(source.records("apps") or source.need("apps"))
    roles: dict[str, dict[str, Any]] = {}
    for number in range(many):
        role, index, port, task = _app(source, number)
        if role not in roles:
            roles[role] = task | {"port": port - number}
        elif index != roles[role]["count"] or {**roles[role], "count": 1, "port": 0} != {**task, "port": 0}:
            raise BadInput(
                f"apps[{number}] of this Marathon group is unlike the other tasks of role {role}: split them"
            )
        else:
            roles[role]["count"] += 1
    selector = {key: value for number in range(many) for key, value in _selected(source, number)}
    told = [task.pop("told") for task in roles.values()]
    said = told[0] | {"name": name, "gang": False, "network": "host", "kind": "service", "node_selector": selector}
    return source.imported(said | {"roles": roles})


def _app(source: Foreign, number: int) -> tuple[str, int, int, dict[str, Any]]:
    app = ("apps", number)
    found = _APP.fullmatch(str(source.need(*app, "id")))
    if found is None:
        raise BadInput(f"apps[{number}].id of this Marathon group is not ROLE-INDEX, e.g. worker-0")
    source.skip(*app, "networks", as_in=([{"mode": "host"}],))
    source.skip(*app, "requirePorts", as_in=(True,))
    source.skip(*app, "portDefinitions", 0, "protocol", as_in=("tcp",))
    source.take(*app, "portDefinitions", 0, "name")
    source.take(*app, "container", "type")
    command = source.take(*app, "cmd")
    environment = source.mapped(*app, "env")
    source.take(*app, "env")
    return (
        found[1],
        int(found[2] or 0),
        source.whole(source.take(*app, "portDefinitions", 0, "port", default=PORT + number), *app, "portDefinitions"),
        {
            "count": source.take(*app, "instances", default=1),
            "image": source.need(*app, "container", "docker", "image"),
            "cpus": source.take(*app, "cpus", default=1),
            "memory": f"{source.take(*app, 'mem', default=128)}Mi",
            "gpus": source.take(*app, "gpus", default=0),
            "entry": ["sh", "-c", command] if command else [],
            "args": source.take(*app, "args", default=[]),
            "env": {key: value for key, value in environment.items() if key not in VIEWS},
            "told": {key.lower(): environment[key] for key in ("DATA_DIR", "TRAIN_DIR") if key in environment},
            "restart": "always",
            "grace": f"{source.take(*app, 'taskKillGracePeriodSeconds', default=GRACE)}s",
        },
    )


def _selected(source: Foreign, number: int) -> list[tuple[str, str]]:
    source.expect("apps", number, "constraints", kinds=(list,))
    found = []
    for at, constraint in enumerate(source.peek("apps", number, "constraints") or []):
        match constraint:
            case [str(key), "LIKE" | "CLUSTER", value]:
                source.take("apps", number, "constraints", at)
                found.append((key, value))
    return found
