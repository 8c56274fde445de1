"""A compose file as a job: services ``ROLE-INDEX`` are a role's tasks. The plain form, and Aliyun's of version 2.

https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from autoscaler.model.errors import BadInput
from images.importers.compose_service import Task, decoded, read_service
from images.importers.compose_words import generalized, labels, unescaped
from images.importers.reading import Foreign, Imported
from images.job_roles import PORT
from images.launcher import views

_DIRECTORIES: Final = {"DATA_DIR": "data_dir", "TRAIN_DIR": "train_dir"}


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no compose file, or says what no job of ours can."""
    source = Foreign(unescaped(document), what="compose file")
    version = str(source.take("version", default=""))
    is_batch = labels(source, ("labels",), "aliyun.project_type") == "batch"
    for claim in source.mapped("volumes"):
        source.take("volumes", claim, "name")
    text = json.dumps(document.get("services"), ensure_ascii=False)
    tasks = [read_service(source, key) for key in source.mapped("services") or source.need("services")]
    _keep_names(tasks)
    if any("SPILLWAY_CLUSTER" in task.told for task in tasks):
        source.take("configs", "launcher", "content")
    name = source.take("name") or _name(source, tasks)
    data: dict[str, Any] = {"name": name, "kind": "batch" if is_batch or not version.startswith("2") else "service"}
    data |= _together(source, tasks, is_batch=is_batch)
    cluster = _cluster(source, tasks, text)
    roles: dict[str, Any] = {}
    for role in dict.fromkeys(task.role for task in tasks):
        alike = sorted((task for task in tasks if task.role == role), key=lambda task: task.index)
        _tell_of_names(source, alike, [task.container for task in tasks if task.container != task.key])
        roles[role] = _role(alike, {name: addresses for name, (addresses, _port) in cluster.items()}) | {
            "port": cluster[role][1]
        }
    _write_essential(roles, tasks)
    return source.imported(data | {"roles": roles})


def _keep_names(tasks: Sequence[Task]) -> None:
    """A service such as ``resnet50`` is no task 50 of a role where there is no task 0."""
    begun = {task.role for task in tasks if task.index == 0}
    for task in tasks:
        if task.role not in begun:
            task.role, task.index = task.key, 0


def _name(source: Foreign, tasks: Sequence[Task]) -> str:
    """What the containers' names begin with."""
    found = {re.sub(rf"-?{re.escape(task.role)}-?\d*$", "", task.container) for task in tasks}
    if len(found) == 1 and "" not in found:
        return found.pop()
    source.tell("name: none is written, and the containers' names have none in common: imported")
    return "imported"


def _together(source: Foreign, tasks: Sequence[Task], *, is_batch: bool) -> dict[str, Any]:
    """What services say one by one and a job says once."""
    found: dict[str, Any] = {}
    restarts = {task.restarts for task in tasks if task.data["restart"] == "on-failure"} - {None}
    if restarts:
        found["failure"] = {"restarts": max(number for number in restarts if number is not None)}
    if len(restarts) > 1:
        source.tell("services.restart: their numbers of restarts differ: the most counts for each role")
    if {task.host_network for task in tasks} == {True}:
        found["network"] = "host"
    elif any(task.host_network for task in tasks):
        raise BadInput("this compose file has services with network_mode: host and without: a job has one network")
    if is_batch:
        found["retain"] = "0s" if any(task.keeps == "remove-all" for task in tasks) else "forever"
    after = _steps(source, tasks, is_batch=is_batch)
    launched = [task for task in tasks if "SPILLWAY_NEEDS" in task.told]
    if after or (launched and all(task.told["SPILLWAY_NEEDS"] == "{}" for task in launched)):
        found["gang"] = False
    for variable, key in _DIRECTORIES.items():
        said = {task.told[variable] for task in tasks if variable in task.told}
        if len(said) > 1:
            raise BadInput(f"the services of this compose file have {len(said)} values of {variable}: a job has one")
        found |= {key: said.pop()} if said else {}
    places = [task.told.get("SPILLWAY_STATE") or task.told.get("SPILLWAY_LOGS") for task in tasks]
    logs = {place.rsplit("/", 2)[0] for place in places if place}
    first = any(task.told.get("SPILLWAY_SUCCESS") == "first" for task in tasks)
    return (
        found
        | ({"depends_on": after} if after else {})
        | ({"logs": logs.pop()} if logs else {})
        | ({"success": "first"} if first else {})
    )


def _steps(source: Foreign, tasks: Sequence[Task], *, is_batch: bool) -> dict[str, list[str]]:
    """Returns by role the roles that it waits for."""
    role_of = {task.key: task.role for task in tasks}
    for task in tasks:
        for other in task.after:
            if other not in role_of:
                raise BadInput(f"services.{task.key} of this compose file waits for {other}, which is no service of it")
        if task.keeps and not is_batch:
            source.tell(f"services.{task.key}.labels aliyun.remove_containers: it is of batch jobs: it is left out")
    return {task.role: list(dict.fromkeys(role_of[other] for other in task.after)) for task in tasks if task.after}


def _cluster(source: Foreign, tasks: Sequence[Task], text: str) -> dict[str, tuple[list[str], int]]:
    """Returns by role the addresses that the file's words have for its tasks, and the port of the role."""
    found: dict[str, tuple[list[str], set[int]]] = {}
    for number, task in enumerate(tasks):
        names = "|".join(re.escape(one) for one in sorted({task.container, task.key}, key=len, reverse=True))
        said = re.search(rf"(?<![-\w])({names}):(\d+)", text)
        port = int(said[2]) if said else None
        addresses, ports = found.setdefault(task.role, ([], set()))
        addresses.append(f"{said[1] if said else task.container}:{port or PORT}")
        ports |= {port - (number if task.host_network else 0)} if port else set()
    for role, (_addresses, ports) in found.items():
        if len(ports) > 1:
            source.tell(f"services of role {role}: they listen at {len(ports)} ports: {min(ports)} is taken for all")
    return {role: (addresses, min(ports, default=PORT)) for role, (addresses, ports) in found.items()}


def _role(alike: Sequence[Task], cluster: Mapping[str, list[str]]) -> dict[str, Any]:
    """One role out of its tasks, which differ in what they are told alone."""
    first = alike[0]
    words = ("entry", "args", "env")
    for number, task in enumerate(alike):
        rest = {key: value for key, value in task.data.items() if key not in words}
        if task.index != number or rest != {key: first.data[key] for key in rest}:
            raise BadInput(
                f"services.{task.key} of this compose file is unlike the other tasks of role {first.role}, "
                f"which are {first.role}-0, {first.role}-1 and so on: give it a role of its own"
            )
    if len(alike) > 1 and first.data["count"] > 1:
        raise BadInput(f"services.{first.key} is scaled, and there are others of role {first.role}: write one of both")
    made = first.data | {"count": str(first.data["count"] if len(alike) == 1 else len(alike))}
    if "SPILLWAY_CLUSTER" in first.told:  # the launcher fills words in when it starts
        return made
    told = [views(cluster, task.role, task.index) for task in alike]
    names = list(first.data["env"])
    if any(list(task.data["env"]) != names for task in alike):
        raise BadInput(f"the tasks of role {first.role} of this compose file have different variables: split them")
    at = f"services.{first.key}"
    values = generalized([[*task.data["env"].values()] for task in alike], told, what=f"{at}.environment")
    more = [task.data["env"] | {key: task.told[key] for key in _DIRECTORIES if key in task.told} for task in alike]
    known = [one | other for one, other in zip(told, more, strict=True)]
    for key in ("entry", "args"):
        made[key] = generalized([task.data[key] for task in alike], known, what=f"{at}.{key}")
    return made | {"env": dict(zip(names, values, strict=True))}


def _tell_of_names(source: Foreign, alike: Sequence[Task], containers: Sequence[str]) -> None:
    """Tells of words with a container's name and no port, which no task is told."""
    for task in alike:
        for word in (*task.data["entry"], *task.data["args"], *task.data["env"].values()):
            for name in containers:
                if re.search(rf"(?<![-\w.]){re.escape(name)}(?![-\w.:])", word):
                    source.tell(
                        f"services.{task.key}: {word!r} names the container {name}, which has another name there"
                    )


def _write_essential(roles: dict[str, Any], tasks: Sequence[Task]) -> None:
    """Where the launcher of a serving task knows another end than that of the chief, or the workers."""
    leaders = [role for role in ("chief", "worker") if role in roles]
    for task in tasks:
        said = decoded(task.told, "SPILLWAY_ESSENTIAL", {})
        if said and [*said] != leaders[:1]:
            for role in said:
                roles[role]["essential"] = True
