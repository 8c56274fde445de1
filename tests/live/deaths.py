"""A rolling change whose controller, a process of its own, is killed again and again; and what must not happen then.

Machines are real (sshd, an overlay root), so are the API server and what is written there; their kubelets are KWOK's.
The controller is `spillway nodes apply`, ended by SIGKILL once its journal has grown by so many entries, and some
milliseconds later: in the middle of what the last entry announced.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.rollout.journal import why_broken
from roles.rollout.node_state import NODES, OUTCOME, PHASE
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from tests.live.conftest import Plane
from tests.live.deaths_role import FILES
from tests.live.hybrid import gpu_pod, until
from tests.live.machines import Bench
from tests.live.operating import Operator

NAMES: Final = tuple(f"d{number}" for number in range(6))
MAX_DOWN: Final = 3
ADMINS: Final = "d5"
"""Closed by a person before it began, and for good."""
PROTECTED: Final = {"kept": "d2", "worker-0": "d3"}
"""Pods that must stay: one that says so, one of a running gang. Their machines wait."""
EVICTED: Final = {"notebook": "d1"}
_MERGE: Final = "application/merge-patch+json"
_PODS: Final = "/api/v1/namespaces/default/pods"
_OPTIONS: Final = ("--ignore", "systemd", "--batch", "2", "--max-down", str(MAX_DOWN), "--health-seconds", "20")
_LIFE: Final = 120.0


@dataclass
class Watched:
    """What went over the API while controllers came and went."""

    worst: int = 0
    """Most nodes that were closed or not Ready at one time."""
    harm: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Campaign:
    """What came of it."""

    deaths: int
    versions: int
    """Changes that went through the fleet meanwhile."""
    at: Counter[str]
    """What the journal's last entry was when a controller died."""
    worst: int
    harm: tuple[str, ...]


def campaign(plane: Plane, bench: Bench, folder: Path, *, deaths: int, first: int = 0) -> Campaign:
    """Kill so many controllers, then let one come to its end. Raises ``AssertionError`` where that one does not.

    ``first``: where in the row of points the deaths begin, for a campaign in pieces.
    """
    hosts = {host.name: host for host in bench.light(*NAMES)}
    folder.mkdir(parents=True, exist_ok=True)
    role, rolling = "tests.live.deaths_role:prepare", ("--kubeconfig", str(plane.kubeconfig), *_OPTIONS)
    operator = Operator(hosts, folder, role=role, rolling=rolling)
    _furnish(plane)
    at: Counter[str] = Counter()
    version = 0
    with _watched(plane.kube) as seen:
        while at.total() < deaths:
            version += 1
            operator.environment["WANTED"] = str(version)
            _make_pods(plane.kube, EVICTED)
            while at.total() < deaths and (entry := _killed(operator, first + at.total())):
                at[entry] += 1
        status, said = operator.call("apply")
        assert status == 2, said  # two machines wait for pods that must stay
        status, said = operator.call("apply")
        assert status == 2, said
    harm = [*seen.harm, *_left_over(plane.kube)]
    if broken := why_broken(folder / "state" / "journal.jsonl"):
        harm.append(broken)
    for name, host in hosts.items():
        there = [(host.upper / path.lstrip("/")).exists() for path in FILES]
        if any(there) is (name in PROTECTED.values()):
            harm.append(f"{name} was {'changed under pods that must stay' if any(there) else 'not changed'}")
        elif any(there) and any(_version(host.upper, path) != version for path in FILES):
            harm.append(f"{name} is not of version {version}")
    return Campaign(deaths=at.total(), versions=version, at=at, worst=seen.worst, harm=tuple(harm))


def _killed(operator: Operator, number: int) -> str:
    """One life; gives what its journal said last before the kill, or nothing where it came to its end first."""
    book = operator.folder / "state" / "journal.jsonl"
    target = _entries(book) + 2 + number % 9
    delay = number % 7 * 0.02
    process = operator.start("apply")
    end = time.monotonic() + _LIFE
    while process.poll() is None and _entries(book) < target:
        assert time.monotonic() < end, "a controller does not get on"
        time.sleep(0.002)
    time.sleep(delay)
    alive = process.poll() is None
    process.kill()
    said = "".join(process.communicate())
    if not alive:
        assert process.returncode == 2, said  # nothing but what waits is left
        return ""
    last = json.loads(book.read_text(encoding="utf-8").rpartition("\n")[0].rpartition("\n")[2])
    return f"{last['kind']} {last.get('step', '')}".strip()


def _entries(book: Path) -> int:
    return book.read_bytes().count(b"\n") if book.exists() else 0


def _version(upper: Path, path: str) -> int:
    return int((upper / path.lstrip("/")).read_text(encoding="utf-8").split()[-1])


def _furnish(plane: Plane) -> None:
    for number, name in enumerate(NAMES):
        plane.fake_node(name, gpu="8")
        rack = {"metadata": {"labels": {words.RACK: f"r{number // 3}"}}}
        plane.kube.send("PATCH", f"/api/v1/nodes/{name}", rack, content=_MERGE)
    plane.kube.send("PATCH", f"/api/v1/nodes/{ADMINS}", {"spec": {"unschedulable": True}}, content=_MERGE)
    _make_pods(plane.kube, PROTECTED)
    until(lambda: all(_is_ready(node) for node in plane.kube.get("/api/v1/nodes")["items"]))
    until(lambda: all(pod["status"].get("phase") == "Running" for pod in plane.kube.get(_PODS)["items"]))


def _make_pods(kube: KubeHttp, names: dict[str, str]) -> None:
    """On their nodes, past the scheduler. One that is there already stays."""
    marks: dict[str, dict[str, Any]] = {
        "kept": {"annotations": {words.DO_NOT_DISRUPT: "true"}},
        "worker-0": {"labels": {words.GANG: "train"}},
    }
    for name, node in names.items():
        pod = gpu_pod(name, gpus=1, **marks.get(name, {}))
        pod["spec"] |= {"nodeName": node, "terminationGracePeriodSeconds": 0}
        with contextlib.suppress(KubeRefusedError):
            kube.send("POST", _PODS, pod)


@contextlib.contextmanager
def _watched(kube: KubeHttp) -> Iterator[Watched]:
    """Every event of nodes and pods, for the length of the block."""
    seen, over = Watched(), threading.Event()
    threads = [threading.Thread(target=follow, args=(kube, path, seen, over), daemon=True) for path in _WATCHED]
    for thread in threads:
        thread.start()
    try:
        yield seen
    finally:
        time.sleep(0.5)
        over.set()
        for thread in threads:
            thread.join(timeout=6)


_WATCHED: Final = ("/api/v1/nodes", _PODS)


def follow(kube: KubeHttp, path: str, seen: Watched, over: threading.Event) -> None:
    """Judge every event, and after one that says that what it was to go on from is forgotten, what is there."""
    objects: dict[str, Any] = {}
    version = ""
    while not over.is_set():
        try:
            version = version or _listed(kube, path, objects, seen)
            for event in kube.stream(f"{path}?watch=1&timeoutSeconds=3&resourceVersion={version}"):
                if event["type"] == "ERROR":
                    version = ""
                    break
                one = event["object"]
                version = one["metadata"]["resourceVersion"]
                objects[one["metadata"]["name"]] = one
                _judge(path, event["type"], one["metadata"]["name"], objects, seen)
        except Unavailable as outage:
            seen.harm.append(f"the watch broke: {outage}")


def _listed(kube: KubeHttp, path: str, objects: dict[str, Any], seen: Watched) -> str:
    """Bring ``objects`` up to what is there now. Gives the version to go on from."""
    found = kube.get(path)
    there = {one["metadata"]["name"]: one for one in found["items"]}
    gone = objects.keys() - there.keys()
    objects |= there
    for name in (*gone, *there):
        _judge(path, "DELETED" if name in gone else "MODIFIED", name, objects, seen)
    for name in gone:
        del objects[name]
    return str(found["metadata"]["resourceVersion"])


def _judge(path: str, kind: str, name: str, objects: dict[str, Any], seen: Watched) -> None:
    if path == _PODS:
        leaving = kind == "DELETED" or objects[name]["metadata"].get("deletionTimestamp")
        if name in PROTECTED and leaving:
            seen.harm.append(f"{name} was evicted")
        return
    down = sorted(node for node, one in objects.items() if one["spec"].get("unschedulable") or not _is_ready(one))
    seen.worst = max(seen.worst, len(down))
    if len(down) > MAX_DOWN:
        seen.harm.append(f"{', '.join(down)} are down")
    if not objects[ADMINS]["spec"].get("unschedulable"):
        seen.harm.append(f"the cordon of a person on {ADMINS} was lifted")


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _left_over(kube: KubeHttp) -> Iterator[str]:
    """What a run must not leave on nodes."""
    for node in kube.get("/api/v1/nodes")["items"]:
        name, marks = node["metadata"]["name"], node["metadata"]["annotations"]
        if node["spec"].get("unschedulable", False) is not (name == ADMINS):
            yield f"{name} was left {'closed' if name != ADMINS else 'open'}"
        if left := {PHASE, OUTCOME, words.CORDONED_BY} & marks.keys():
            yield f"{name} still bears {', '.join(sorted(left))} of {NODES}"
