"""One service of a compose file, read."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.model.errors import BadInput
from images.importers.compose_words import labels, pairs
from images.importers.reading import Foreign
from images.launcher import GRACE, VIEWS
from images.renderers.aliyun_compose import RESCHEDULE
from images.renderers.kubernetes import LAUNCHER

_SERVICE: Final = re.compile(r"([a-z][-a-z0-9]*?)(?:-?(\d+))?")
_SIZE: Final = re.compile(r"(\d+)\s*([kmg]?)b?")
_UNITS: Final = {"": "", "k": "Ki", "m": "Mi", "g": "Gi"}
_OURS: Final = "SPILLWAY_"
_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("environment", "labels", "depends_on"), (dict, list)),
    **dict.fromkeys(("command", "entrypoint"), (str, list)),
    "volumes": (list,),
    "deploy": (dict,),
}
_RESCHEDULES, _, _RESCHEDULE_POLICY = RESCHEDULE.partition("=")


@dataclass(slots=True)
class Task:
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


def read_service(source: Foreign, key: str) -> Task:
    """The service of that name, taken out of the file. Raises ``BadInput`` where no job could say what it says."""
    at = ("services", key)
    found = _SERVICE.fullmatch(str(key))
    if found is None:
        parts = "letters, digits and dashes: a role, or ROLE-INDEX, e.g. worker-0"
        raise BadInput(f"services.{key} of this compose file is not made of {parts}: rename it")
    if source.peek(*at, "image") is None and source.peek(*at, "build") is not None:
        raise BadInput(
            f"services.{key} of this compose file is built from a folder: build it, and name its image there"
        )
    image = source.need(*at, "image")
    for word, kinds in _KINDS.items():
        source.expect(*at, word, kinds=kinds)
    environment = pairs(source, (*at, "environment"))
    entry, args = (_words(source, (*at, word)) for word in ("entrypoint", "command"))
    if entry[:2] == ["python3", LAUNCHER]:
        entry = entry[2:]
        source.take(*at, "configs")
    policy, _, restarts = str(source.take(*at, "restart") or "no").partition(":")  # YAML reads a bare no as false
    when = labels(source, (*at, "labels"), _RESCHEDULES)
    if when not in ("", _RESCHEDULE_POLICY):
        source.tell(f"services.{key}.labels {_RESCHEDULES}: {when} is not what a job knows: it is left out")
    network = source.take(*at, "network_mode")
    if network not in (None, "host", "bridge", "default"):
        source.tell(f"services.{key}.network_mode: {network} is no network of a job: it is left out")
    if policy == "unless-stopped":
        source.tell(f"services.{key}.restart: it starts again also after it was stopped: always")
        policy = "always"
    return Task(
        key=key,
        role=found[1],
        index=int(found[2] or 0),
        container=str(source.take(*at, "container_name", default=key)),
        data={
            "image": image,
            "entry": entry,
            "args": args,
            "env": {name: value for name, value in environment.items() if not _is_ours(name)},
            "restart": "node-failure"
            if (policy, when) == ("no", _RESCHEDULE_POLICY)
            else "never"
            if policy == "no"
            else policy,
            "volumes": [_volume(source, (*at, "volumes", n)) for n in range(len(source.peek(*at, "volumes") or ()))],
            "checkpoint": decoded(environment, "SPILLWAY_CHECKPOINT", []),
            "grace": _grace(source, at, environment),
            "idle": _idle(decoded(environment, "SPILLWAY_IDLE", None)),
            "count": _copies(source, at),
            **_amounts(source, at),
        },
        told={name: value for name, value in environment.items() if _is_ours(name)},
        restarts=source.whole(restarts, *at) if restarts else None,
        host_network=network == "host",
        after=tuple(_after(source, key)),
        keeps=labels(source, (*at, "labels"), "aliyun.remove_containers"),
    )


def decoded(told: Mapping[str, str], variable: str, otherwise: Any) -> Any:
    """What a variable of the launcher says."""
    try:
        return json.loads(told[variable]) if variable in told else otherwise
    except json.JSONDecodeError:
        raise BadInput(f"{variable} of this compose file is not what Spillway writes there: leave it out") from None


def _grace(source: Foreign, at: tuple[str, str], environment: Mapping[str, str]) -> str:
    """The launcher's, which is less than its container's; else the container's."""
    of_container = source.take(*at, "stop_grace_period")
    if "SPILLWAY_ROLE" in environment:
        return f"{decoded(environment, 'SPILLWAY_GRACE', GRACE)}s"
    return str(of_container or f"{GRACE}s")


def _idle(told: Any) -> Any:
    """Returns the rule for idleness as a job file says it."""
    if not isinstance(told, dict):
        return told
    return {key: f"{value}s" if key in ("after", "warning") else value for key, value in told.items() if key != "job"}


def _is_ours(variable: str) -> bool:
    return variable in VIEWS or variable.startswith(_OURS)


def _words(source: Foreign, at: tuple[str, ...]) -> list[str]:
    """The words of a command, which may be one text."""
    given = source.take(*at, default=[])
    try:
        return shlex.split(given) if isinstance(given, str) else [str(word) for word in given]
    except ValueError as error:
        raise BadInput(f"{'.'.join(at)} of this compose file is no command: {error}") from None


def _copies(source: Foreign, at: tuple[str, ...]) -> int:
    said = [source.take(*at, "scale"), source.take(*at, "deploy", "replicas")]
    said.append(labels(source, (*at, "labels"), "aliyun.scale"))
    return max(source.whole(number or 1, *at) for number in said)


def _amounts(source: Foreign, at: tuple[str, ...]) -> dict[str, Any]:
    """CPUs, memory and GPUs, in either form."""
    limits, reserved = ((*at, "deploy", "resources", word) for word in ("limits", "reservations"))
    shares = source.take(*at, "cpu_shares")
    cpus = [source.take(*reserved, "cpus"), source.take(*at, "cpus"), source.take(*limits, "cpus")]
    cpus.append(f"{source.whole(shares, *at) / 1024:g}" if shares else None)
    memory = [source.take(*limits, "memory"), source.take(*at, "mem_limit"), source.take(*reserved, "memory")]
    found = {"cpus": next((str(one) for one in cpus if one), "1"), "memory": next((one for one in memory if one), "1g")}
    for word, said in (("cpus", cpus), ("memory", memory)):
        if not any(said):
            source.tell(f"services.{at[1]}: it asks for no {word}: {found[word]} is assumed")
        elif len({str(one) for one in said if one}) > 1:
            source.tell(f"services.{at[1]}: it has two amounts of {word}: {found[word]} is taken")
    size = _SIZE.fullmatch(str(found["memory"]).lower())
    if size is None:
        raise BadInput(f"services.{at[1]}: {found['memory']!r} is no amount of memory, e.g. 16g")
    gpus = source.whole(labels(source, (*at, "labels"), "aliyun.gpu") or 0, *at)
    for number, device in enumerate(source.records(*reserved, "devices")):
        source.expect(*reserved, "devices", number, "capabilities", kinds=(list,))
        if "gpu" in (device.get("capabilities") or ()) and (
            isinstance(device.get("count"), int) or isinstance(device.get("device_ids"), list)
        ):
            source.take(*reserved, "devices", number)
            gpus += device["count"] if isinstance(device.get("count"), int) else len(device["device_ids"])
    return {"cpus": found["cpus"], "memory": f"{size[1]}{_UNITS[size[2]]}", "gpus": gpus}


def _volume(source: Foreign, at: tuple[str | int, ...]) -> dict[str, Any]:
    given = source.take(*at)
    if isinstance(given, str):
        place, mount, modes = [*given.split(":"), ""][:3] if ":" in given else ("", given, "")
        given = {"source": place, "target": mount, "read_only": "ro" in modes.split(",")}
    if not isinstance(given, dict):
        raise BadInput(f"services.{at[1]}.volumes of this compose file has {given!r}, which is no volume")
    place = str(given.get("source") or "")
    if not place or place[0] in ".~":
        where = (
            f"is at {place}: write that folder from / on"
            if place
            else "needs a directory that begins with /, or a name"
        )
        raise BadInput(f"{at[0]}.{at[1]}: the volume {given.get('target')} {where}")
    read_only = {"read_only": True} if given.get("read_only") else {}
    if place.startswith("/"):
        return {"mount": given.get("target"), "host": place} | read_only
    claim = re.sub(r"[^a-z0-9]+", "-", place.lower()).strip("-")
    if claim != place:
        source.tell(f"services.{at[1]}: the volume {place} becomes the claim {claim}, as Kubernetes spells names")
    return {"mount": given.get("target"), "claim": claim} | read_only


def _after(source: Foreign, key: str) -> Iterator[str]:
    """Services that must have ended well before this one starts; of others only the order of starting is lost."""
    at = ("services", key, "depends_on")
    others = list(source.peek(*at) or ())
    ended = [other for other in others if source.peek(*at, other, "condition") == "service_completed_successfully"]
    source.take(*at)
    for other in others:
        if other in ended:
            yield other
        else:
            source.tell(f"services.{key}.depends_on.{other}: tasks start together, and wait for each other there")
