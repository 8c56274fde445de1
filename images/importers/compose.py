"""A compose file as a job: services ``ROLE-INDEX`` are a role's tasks. The plain form, and Aliyun's of version 2.

https://github.com/compose-spec/compose-spec/blob/main/spec.md
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.model.errors import BadInput
from images.importers.compose_words import generalized, labels, pairs, unescaped
from images.importers.reading import Foreign, Imported
from images.jobs import PORT
from images.launcher import VIEWS, views
from images.renderers.aliyun_compose import RESCHEDULE
from images.renderers.kubernetes import LAUNCHER

_SERVICE: Final = re.compile(r"([a-z][-a-z0-9]*?)(?:-?(\d+))?")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?")
_UNITS: Final = {"": "", "k": "Ki", "m": "Mi", "g": "Gi"}
_OURS: Final = "SPILLWAY_"
_DIRECTORIES: Final = {"DATA_DIR": "data_dir", "TRAIN_DIR": "train_dir"}
_RESCHEDULES, _, _RESCHEDULE_POLICY = RESCHEDULE.partition("=")


@dataclass(slots=True)
class _Task:
    """One service."""

    key: str
    role: str
    index: int
    container: str
    data: dict[str, Any]
    """What tasks of one role have in common."""
    told: dict[str, str]
    """Its environment, as far as we would write it."""
    restarts: int | None
    host_network: bool
    after: tuple[str, ...]
    keeps: str
    """Aliyun's: what becomes of its container."""


def read(document: Mapping[str, Any]) -> Imported:
    """The job. Raises ``BadInput`` where the document is no compose file, or says what no job of ours can."""
    source = Foreign(unescaped(document), what="compose file")
    version = str(source.take("version", default=""))
    is_batch = labels(source, ("labels",), "aliyun.project_type") == "batch"
    for claim in source.peek("volumes") or {}:
        source.take("volumes", claim, "name")
    text = json.dumps(document.get("services"), ensure_ascii=False)
    tasks = [_task(source, key) for key in source.peek("services") or source.need("services")]
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
        roles[role] = _role(alike, {name: addresses for name, (addresses, _port) in cluster.items()}) | {
            "port": cluster[role][1]
        }
    _write_essential(roles, tasks)
    return source.imported(data | {"roles": roles})


def _task(source: Foreign, key: str) -> _Task:
    at = ("services", key)
    found = _SERVICE.fullmatch(key)
    if found is None:
        raise BadInput(f"services.{key} of this compose file is not ROLE-INDEX, e.g. worker-0: rename it")
    image = source.need(*at, "image")
    environment = pairs(source, (*at, "environment"))
    entry, args = (_words(source, (*at, word)) for word in ("entrypoint", "command"))
    if entry[:2] == ["python3", LAUNCHER]:
        entry = entry[2:]
        for ours in ("configs", "stop_grace_period"):
            source.take(*at, ours)
    policy, _, restarts = str(source.take(*at, "restart") or "no").partition(":")  # YAML reads a bare no as false
    reschedules = labels(source, (*at, "labels"), _RESCHEDULES) == _RESCHEDULE_POLICY
    if policy == "unless-stopped":
        source.tell(f"services.{key}.restart: it starts again also after it was stopped: always")
        policy = "always"
    return _Task(
        key=key,
        role=found[1],
        index=int(found[2] or 0),
        container=str(source.take(*at, "container_name", default=key)),
        data={
            "image": image,
            "entry": entry,
            "args": args,
            "env": {name: value for name, value in environment.items() if not _is_ours(name)},
            "restart": "node-failure" if policy == "no" and reschedules else "never" if policy == "no" else policy,
            "volumes": [_volume(source, (*at, "volumes", n)) for n in range(len(source.peek(*at, "volumes") or ()))],
            "checkpoint": json.loads(environment.get("SPILLWAY_CHECKPOINT", "[]")),
            "count": _copies(source, at),
            **_amounts(source, at),
        },
        told={name: value for name, value in environment.items() if _is_ours(name)},
        restarts=_whole(restarts, at) if restarts else None,
        host_network=source.take(*at, "network_mode") == "host",
        after=tuple(_after(source, key)),
        keeps=labels(source, (*at, "labels"), "aliyun.remove_containers"),
    )


def _keep_names(tasks: Sequence[_Task]) -> None:
    """A service such as ``resnet50`` is no task 50 of a role where there is no task 0."""
    begun = {task.role for task in tasks if task.index == 0}
    for task in tasks:
        if task.role not in begun:
            task.role, task.index = task.key, 0


def _is_ours(variable: str) -> bool:
    return variable in VIEWS or variable.startswith(_OURS)


def _words(source: Foreign, at: tuple[str, ...]) -> list[str]:
    """The words of a command, which may be one text."""
    given = source.take(*at, default=[])
    return shlex.split(given) if isinstance(given, str) else [str(word) for word in given]


def _copies(source: Foreign, at: tuple[str, ...]) -> int:
    said = [source.take(*at, "scale"), source.take(*at, "deploy", "replicas")]
    said.append(labels(source, (*at, "labels"), "aliyun.scale"))
    return max(_whole(number or 1, at) for number in said)


def _whole(number: object, at: tuple[str, ...]) -> int:
    try:
        return int(str(number))
    except ValueError:
        raise BadInput(f"{'.'.join(at)} of this compose file has {number!r} where a number goes") from None


def _amounts(source: Foreign, at: tuple[str, ...]) -> dict[str, Any]:
    """CPUs, memory and GPUs, in either form."""
    limits, reserved = ((*at, "deploy", "resources", word) for word in ("limits", "reservations"))
    shares = source.take(*at, "cpu_shares")
    cpus = [source.take(*reserved, "cpus"), source.take(*at, "cpus"), source.take(*limits, "cpus")]
    cpus.append(f"{_whole(shares, at) / 1024:g}" if shares else None)
    memory = [source.take(*limits, "memory"), source.take(*at, "mem_limit"), source.take(*reserved, "memory")]
    found = {"cpus": next((str(one) for one in cpus if one), "1"), "memory": next((one for one in memory if one), "1g")}
    for word, said in (("cpus", cpus), ("memory", memory)):
        if not any(said):
            source.tell(f"services.{at[1]}: it asks for no {word}: {found[word]} is assumed")
    size = _SIZE.fullmatch(str(found["memory"]).lower())
    if size is None:
        raise BadInput(f"services.{at[1]}: {found['memory']!r} is no amount of memory, e.g. 16g")
    gpus = _whole(labels(source, (*at, "labels"), "aliyun.gpu") or 0, at)
    for number, device in enumerate(source.peek(*reserved, "devices") or ()):
        if "gpu" in device.get("capabilities", ()) and isinstance(device.get("count"), int):
            source.take(*reserved, "devices", number)
            gpus += device["count"]
    return {"cpus": found["cpus"], "memory": f"{size[1]}{_UNITS[size[2]]}", "gpus": gpus}


def _volume(source: Foreign, at: tuple[str | int, ...]) -> dict[str, Any]:
    given = source.take(*at)
    if isinstance(given, str):
        place, mount, *modes = [*given.split(":"), ""][:3] if ":" in given else ("", given)
        given = {"source": place, "target": mount, "read_only": modes == ["ro"]}
    place = str(given.get("source") or "")
    if not place or place[0] in ".~":
        raise BadInput(
            f"{at[0]}.{at[1]}: the volume {given.get('target')} needs a directory that begins with /, or a name"
        )
    read_only = {"read_only": True} if given.get("read_only") else {}
    return {"mount": given.get("target"), "host" if place.startswith("/") else "claim": place} | read_only


def _after(source: Foreign, key: str) -> Iterator[str]:
    """Services that must have ended well before this one starts; of others only the order of starting is lost."""
    at = ("services", key, "depends_on")
    given = source.take(*at, default={})
    for other in given:
        if isinstance(given, dict) and (given[other] or {}).get("condition") == "service_completed_successfully":
            yield other
        else:
            source.tell(f"services.{key}.depends_on.{other}: tasks start together, and wait for each other there")


def _name(source: Foreign, tasks: Sequence[_Task]) -> str:
    """What the containers' names begin with."""
    found = {re.sub(rf"-?{re.escape(task.role)}-?\d*$", "", task.container) for task in tasks}
    if len(found) == 1 and "" not in found:
        return found.pop()
    source.tell("name: none is written, and the containers' names have none in common: imported")
    return "imported"


def _together(source: Foreign, tasks: Sequence[_Task], *, is_batch: bool) -> dict[str, Any]:
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
    role_of = {task.key: task.role for task in tasks}
    after = {task.role: list(dict.fromkeys(role_of[other] for other in task.after)) for task in tasks if task.after}
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


def _cluster(source: Foreign, tasks: Sequence[_Task], text: str) -> dict[str, tuple[list[str], int]]:
    """By role the addresses that the file's words have for its tasks, and the port of the role."""
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


def _role(alike: Sequence[_Task], cluster: Mapping[str, list[str]]) -> dict[str, Any]:
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


def _write_essential(roles: dict[str, Any], tasks: Sequence[_Task]) -> None:
    """Where the launcher of a serving task knows another end than that of the chief, or the workers."""
    leaders = [role for role in ("chief", "worker") if role in roles]
    for task in tasks:
        said = json.loads(task.told.get("SPILLWAY_ESSENTIAL", "{}"))
        if [*said] != leaders[:1]:
            for role in said:
                roles[role]["essential"] = True
