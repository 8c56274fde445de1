"""A notebook by its template under a real Jupyter server with a real kernel: it gives back what nobody uses.

In an environment that a researcher would have activated; the notebook's directory is one that outlives the job.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from images.backends import local
from images.cli import TEMPLATES
from tests.live.hybrid import until
from tests.training.frameworks import activate, environment
from tests.training.local_jobs import delete_all, typed

pytestmark = pytest.mark.training
COMPUTE = """\
import json, sys, uuid, websocket
address, token, code = sys.argv[1:]
link = websocket.create_connection(f"ws://{address}/channels?token={token}")
header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "session": "s", "username": "u", "version": "5.3"}
content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
link.send(json.dumps({"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}))
while True:
    answer = json.loads(link.recv())
    if answer["parent_header"].get("msg_id") == header["msg_id"] and answer["msg_type"] == "execute_reply":
        sys.exit(answer["content"]["status"] != "ok")
"""
"""As a browser has a kernel run a cell; run by the environment's own Python, which speaks to websockets."""


@pytest.fixture(autouse=True)
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """That of a user with Jupyter first on the path, on a machine without GPUs."""
    frameworks = environment("jupyter")
    activate(monkeypatch, frameworks)
    for name, place in (("XDG_STATE_HOME", "state"), ("HOME", "home"), ("JUPYTER_CONFIG_DIR", "config")):
        monkeypatch.setenv(name, str(tmp_path / place))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    for name in ("notebooks", "config", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "config" / "jupyter_server_config.py").write_text("c.ServerApp.allow_root = True\n")
    monkeypatch.chdir(tmp_path)
    yield frameworks / "bin" / "python"
    delete_all()


def lines() -> str:
    """Of the notebook's task."""
    return typed("logs", "notebook", "--role", "notebook")


@dataclass(frozen=True)
class Server:
    """A Jupyter server, as its user reaches it."""

    address: str
    token: str

    @staticmethod
    def submit(folder: Path, *, idle: str, warning: str) -> Server:
        """By the template; found as users find it, in the lines."""
        given = {"directory": folder, "idle": idle, "warning": warning, "image": "none"}
        typed("submit", str(TEMPLATES / "notebook.yaml"), *(f"-p{key}={value}" for key, value in given.items()))
        found = until(
            lambda: re.search(r"http://127\.0\.0\.1:(\d+)/\S*\?token=(\w+)", lines()),
            told=lines,
        )
        server = Server(f"127.0.0.1:{found[1]}", found[2])
        until(server.answers, told=lines)  # it says where it is before it listens
        return server

    def answers(self) -> bool:
        """Whether it listens."""
        try:
            self.ask("status")
        except urllib.error.URLError:
            return False
        return True

    def ask(self, path: str, given: object = None) -> Any:
        """Of its API."""
        data = None if given is None else json.dumps(given).encode()
        request = urllib.request.Request(
            f"http://{self.address}/api/{path}", data=data, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - of this machine
            return json.loads(answer.read())

    def run(self, code: str, *, python: Path) -> None:
        """A cell of a notebook with a kernel of its own, which stays; returns when it has run."""
        notebook = {"path": "line.ipynb", "name": "", "type": "notebook", "kernel": {"name": "python3"}}
        kernel = self.ask("sessions", notebook)["kernel"]["id"]
        words = [str(python), "-c", COMPUTE, f"{self.address}/api/kernels/{kernel}", self.token, code]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr + lines()


def test_an_idle_notebook_ends_after_a_warning_and_submitted_again_finds_its_files(
    tmp_path: Path, python: Path
) -> None:
    """What computes is not idle, though no GPU works and nothing is printed; then it is said, then it ends well."""
    folder = tmp_path / "notebooks"
    server = Server.submit(folder, idle="8s", warning="4s")
    server.run("import time; time.sleep(11); open('found.txt', 'w').write('w = 2'); w = 2", python=python)
    assert not notes(folder), "a cell that runs for longer than the limit is not idle"

    until(lambda: any(name.startswith("IDLE-ENDS-AT-") for name in notes(folder)), told=lines)
    seen_in_browser = [one["name"] for one in server.ask("contents")["content"]]
    assert {"found.txt", *notes(folder)} == {*seen_in_browser}, "the file browser shows it while there is time"
    until(lambda: [(one.state, one.succeeded) for one in local.states()] == [("done", 1)])
    assert notes(folder) == ["IDLE-HAS-ENDED-notebook-notebook-0.txt"]
    said = lines()
    assert re.search(r"notebook-0 has been idle since .*: at .* UTC it ends and its GPUs are given back", said)
    assert f"files in {folder} stay: submit the job again" in said
    typed("delete", "notebook")

    again = Server.submit(folder, idle="1h", warning="10m")
    assert [one["name"] for one in again.ask("contents")["content"]] == ["found.txt"]
    again.run("assert open('found.txt').read() == 'w = 2'", python=python)


def notes(folder: Path) -> list[str]:
    """What the launcher has left beside the notebooks."""
    return sorted(path.name for path in folder.glob("IDLE-*"))
