"""The regression of the founding documents as a Marathon group, run by a stand-in: no build of Marathon can be had."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import images
from images.cli import TEMPLATES
from tests.fakes.hosts import why_not
from tests.fakes.marathon import marathon
from tests.live.hybrid import until
from tests.training.frameworks import activate, environment
from tests.training.line import fitted, free_port, params, typed

pytestmark = pytest.mark.training
PROGRAM = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"


def test_a_group_trains_and_ends_when_it_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is rendered, by the names of Mesos-DNS; a worker that has ended is started again until then."""
    if reason := why_not():
        pytest.skip(reason)
    activate(monkeypatch, environment("tensorflow"))
    given = params("name=line", "image=none", "cpus=1", "memory=1Gi", "server_cpus=1", "server_memory=1Gi", "gpus=0")
    template = str(TEMPLATES / "parameter-server-host-network.yaml")
    own = params(f"program={PROGRAM}", f"port={free_port()}")
    group = json.loads(typed("render", template, *given, *own, "--to", "marathon"))
    with marathon(tmp_path, cpus=3, mem=3072, gpus=0) as server:
        assert ask("POST", f"{server.url}/v2/groups", group)[0] == 201
        assert ask("POST", f"{server.url}/v2/groups", group)[0] == 409
        said = {app["id"]: server.agent.sandbox(app["id"]) / "stdout" for app in group["apps"]}
        assert {*said} == {"/line/worker-0", "/line/worker-1", "/line/ps-0"}
        for index in (0, 1):
            log = said[f"/line/worker-{index}"]
            until(partial(says, log, "w = "), within=240, told=lambda: tail_of(said))
            fitted(log.read_text(), f"worker {index}")
        status, seen = ask("GET", f"{server.url}/v2/groups//line")
        assert (status, {one["id"]: one["tasksRunning"] for one in seen["apps"]}["/line/ps-0"]) == (200, 1)
        assert ask("DELETE", f"{server.url}/v2/groups//line")[0] == 200
        assert "ps 0 serves at" in said["/line/ps-0"].read_text()
        assert not [path for path in Path("/proc").glob("[0-9]*/cwd") if is_in(path, tmp_path)], "nothing is left"


def test_an_app_waits_for_what_the_agent_lacks(tmp_path: Path) -> None:
    """It is run when another one has gone."""
    if reason := why_not():
        pytest.skip(reason)
    first, second = (
        {"id": f"/{name}", "apps": [{"id": f"/{name}/a", "cpus": 1, "args": ["sleep", "600"]}]} for name in ("x", "y")
    )
    with marathon(tmp_path, cpus=1) as server:
        for group in (first, second):
            assert ask("POST", f"{server.url}/v2/groups", group)[0] == 201
            until(lambda: sum(one.running for tasks in server.groups.values() for one in tasks) == 1)
        assert not server.groups["/y"][0].running
        ask("DELETE", f"{server.url}/v2/groups//x")
        until(lambda: server.groups["/y"][0].running)
        assert ask("POST", f"{server.url}/v2/groups", {"id": "/z", "apps": [{"id": "/z/a", "gpus": 0.5}]})[0] == 422


def ask(method: str, url: str, body: object = None) -> tuple[int, Any]:
    """Status and answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=method)  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the stand-in
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.load(refused)


def says(log: Path, words: str) -> bool:
    """Whether they are in it."""
    return log.exists() and words in log.read_text()


def tail_of(said: dict[str, Path]) -> str:
    """What each app said last."""
    return "".join(f"{app}: {log.read_text()[-500:]}\n" for app, log in said.items() if log.exists())


def is_in(path: Path, folder: Path) -> bool:
    """Whether a process works in the folder."""
    try:
        return path.readlink().is_relative_to(folder)
    except OSError:
        return False
