"""A stand-in for Marathon, of which no build can be had: its API for groups, and one agent that is this machine.

It is not Marathon. What it refuses is what Marathon publishes of its API: its RAML types of 1.7, as a JSON Schema. None
of its packages that can be had carries them, so that those which concern our groups stand here, each with its file in
1.7/docs/rest-api/public/api/v2/types of https://github.com/mesosphere/marathon (at commit 76950213). A key that a type
has not is refused, as Marathon does not know it.

An app whose ports, CPUs, memory or GPUs the agent lacks waits, one that ends is started again, and the names of
Mesos-DNS hold for what it starts. Containers are plain processes: images, limits of resources and constraints do
nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from tests.fakes.hosts import WITH_HOSTS

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
WORDS: Final[Schema] = {"type": "array", "items": TEXT}
LABEL: Final = "([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])"
# stringTypes.raml
PATH: Final[Schema] = {"type": "string", "pattern": rf"^(/?((\.\.)|({LABEL}\.)*{LABEL})?($|/))+$"}
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}


def thing(needs: tuple[str, ...] = (), **keys: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "properties": keys, "required": list(needs), "additionalProperties": False}


PORT: Final = thing(  # network.raml, PortDefinition; numberTypes.raml
    port={"type": "integer", "minimum": 0, "maximum": 65535}, name=NAME, protocol={"enum": ["tcp", "udp", "udp,tcp"]}
)
VOLUME: Final = thing(  # volumes.raml, AppHostVolume
    ("containerPath", "hostPath", "mode"),
    containerPath={"type": "string", "minLength": 1},
    hostPath={"type": "string", "minLength": 1},
    mode={"enum": ["RO", "RW"]},
)
CONTAINER: Final = thing(  # appContainer.raml; without a type it were DOCKER, which knows no GPUs
    ("type",),
    type={"enum": ["MESOS", "DOCKER"]},
    docker=thing(("image",), image={"type": "string", "minLength": 1}),
    volumes={"type": "array", "items": VOLUME},
)
CONSTRAINT: Final[Schema] = {  # constraint.raml, AppConstraint
    "type": "array",
    "prefixItems": [TEXT, {"enum": ["UNIQUE", "CLUSTER", "GROUP_BY", "LIKE", "UNLIKE", "MAX_PER", "IS"]}, TEXT],
    "minItems": 2,
    "items": False,
}
APP: Final = thing(  # app.raml
    ("id",),
    id=PATH,
    args=WORDS,
    cmd={"type": "string", "minLength": 1},
    constraints={"type": "array", "items": CONSTRAINT, "uniqueItems": True},
    container=CONTAINER,
    cpus={"type": "number", "minimum": 0.001},
    env={"type": "object", "additionalProperties": TEXT},  # environmentVariable.raml, but for secrets
    gpus={"type": "integer", "minimum": 0},
    instances={"type": "integer", "minimum": 0},
    mem={"type": "number", "minimum": 0},
    networks={"type": "array", "items": thing(mode={"enum": ["container", "container/bridge", "host"]})},
    portDefinitions={"type": "array", "items": PORT},
    requirePorts={"type": "boolean"},
) | {"not": {"required": ["cmd", "args"]}}
GROUP: Final = thing(("id",), id=PATH, apps={"type": "array", "items": APP, "uniqueItems": True})  # group.raml

DOMAIN: Final = "marathon.mesos"
_AGAIN: Final = 1.0
"""Seconds from an app's end to its next start: ``backoffSeconds``."""
_GRACE: Final = 3.0
"""From SIGTERM to SIGKILL: ``taskKillGracePeriodSeconds``."""


def faults(group: Any) -> list[str]:
    """What Marathon would refuse."""
    found = [f"{fault.json_path}: {fault.message}" for fault in Draft202012Validator(GROUP).iter_errors(group)]
    apps = group["apps"]
    if len({app["id"] for app in apps}) < len(apps):
        found.append("two apps have one id")
    found += [f"{app['id']} is not of the group" for app in apps if not app["id"].startswith(f"{group['id']}/")]
    found += [
        f"{app['id']}: GPUs need the Mesos containerizer"  # AppValidation.scala, complyWithGpuRules
        for app in apps
        if app.get("gpus") and app.get("container", {}).get("type") != "MESOS"
    ]
    return found


class Task:
    """The one instance of an app, until it is ended."""

    def __init__(self, app: dict[str, Any], agent: Agent) -> None:
        self.app = app
        self.running = False
        self._agent = agent
        self._ending = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Of it and all that it has started nothing is left."""
        self._ending.set()
        self._tell(signal.SIGTERM)
        self._thread.join(_GRACE)
        self._tell(signal.SIGKILL)
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            if self._agent.takes(self.app):
                try:
                    self._once()
                finally:
                    self._agent.gives_back(self.app)
            self._ending.wait(_AGAIN)

    def _once(self) -> None:
        said = self._agent.sandbox(self.app["id"]) / "stdout"
        command = ["sh", "-c", self.app["cmd"]] if "cmd" in self.app else self.app["args"]
        with said.open("ab") as out:
            process = self._process = subprocess.Popen(
                ["unshare", "--mount", *WITH_HOSTS, str(self._agent.hosts), *command],
                env={"PATH": os.environ["PATH"], **self.app.get("env", {}), "MARATHON_APP_ID": self.app["id"]},
                cwd=said.parent,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        if self._ending.is_set():  # it was told before there was a process
            self._tell(signal.SIGKILL)
        self.running = True
        process.wait()
        self.running = False
        self._tell(signal.SIGKILL)  # what it left in its session

    def _tell(self, number: int) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


class Agent:
    """A machine of Mesos: so much of it, and sandboxes in a folder."""

    def __init__(self, folder: Path, **has: float) -> None:
        self.hosts = folder / "hosts"
        self._folder = folder
        self._free = has
        self._lock = threading.Lock()

    def sandbox(self, app: str) -> Path:
        """Where its instances run, one after the other; ``stdout`` has what they said."""
        place = self._folder / "sandboxes" / app.strip("/").replace("/", "_")
        place.mkdir(parents=True, exist_ok=True)
        return place

    def takes(self, app: dict[str, Any]) -> bool:
        """Set aside what an instance asks for; false: there is not as much."""
        asked = {name: app.get(name, 0) for name in self._free}
        ports = [one["port"] for one in app.get("portDefinitions", ())]
        with self._lock:
            if any(asked[name] > self._free[name] for name in asked) or not all(map(_is_free, ports)):
                return False
            self._free = {name: self._free[name] - asked[name] for name in asked}
        return True

    def gives_back(self, app: dict[str, Any]) -> None:
        """What it had."""
        with self._lock:
            self._free = {name: self._free[name] + app.get(name, 0) for name in self._free}


class Marathon(ThreadingHTTPServer):
    """Groups, by id."""

    daemon_threads = True

    def __init__(self, agent: Agent) -> None:
        super().__init__(("127.0.0.1", 0), _Api)
        self.agent = agent
        self.groups: dict[str, list[Task]] = {}
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        """Of its API."""
        return f"http://127.0.0.1:{self.server_port}"

    def create(self, group: dict[str, Any]) -> tuple[int, Any]:
        """Status and answer of ``POST /v2/groups``."""
        if wrong := faults(group):
            return 422, {"message": "Object is not valid", "details": [{"errors": wrong}]}
        with self.lock:
            if group["id"] in self.groups:
                return 409, {"message": f"Group {group['id']} is already created. Use PUT to change this group."}
            apps = group.get("apps", [])
            names = {_name_of(app["id"]) for app in apps} | {"localhost", socket.gethostname()}
            self.agent.hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in sorted(names)), encoding="utf-8")
            self.groups[group["id"]] = [Task(app, self.agent) for app in apps for _ in range(app.get("instances", 1))]
        return 201, {"version": "1"}

    def delete(self, group: str) -> tuple[int, Any]:
        """Status and answer of ``DELETE /v2/groups/ID``."""
        with self.lock:
            tasks = self.groups.pop(group, None)
            if tasks is None:
                return 404, {"message": f"Group '{group}' does not exist"}
            for task in tasks:
                task.end()
        return 200, {"version": "2"}


class _Api(BaseHTTPRequestHandler):
    server: Marathon

    def do_POST(self) -> None:
        told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(*(self.server.create(told) if self.path == "/v2/groups" else (404, {})))

    def do_GET(self) -> None:
        tasks = self.server.groups.get(self.path.removeprefix("/v2/groups/"))
        if tasks is None:
            return self._answer(404, {"message": "Group does not exist"})
        apps = [{**task.app, "tasksRunning": int(task.running)} for task in tasks]
        return self._answer(200, {"apps": apps})

    def do_DELETE(self) -> None:
        self._answer(*self.server.delete(self.path.removeprefix("/v2/groups/")))

    def log_message(self, *_: object) -> None:
        """Nothing."""

    def _answer(self, status: int, body: Any) -> None:
        told = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)


@contextlib.contextmanager
def marathon(folder: Path, **has: float) -> Iterator[Marathon]:
    """One with an agent that has so many ``cpus``, ``mem`` (MiB) and ``gpus``; all groups end with it."""
    with Marathon(Agent(folder, **has)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            for group in [*server.groups]:
                server.delete(group)
            server.shutdown()
            thread.join()


def _name_of(app: str) -> str:
    """By Mesos-DNS: ``/line/worker-0`` is ``worker-0-line.marathon.mesos``.

    https://mesosphere.github.io/mesos-dns/docs/naming.html
    """
    return f"{'-'.join(reversed(app.strip('/').split('/')))}.{DOMAIN}"


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
        return True
    return False
