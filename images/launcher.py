"""Runs one task of a job: waits for its peers, tells it the cluster, keeps its lines, reports its end. One file.

    python3 launcher.py PROGRAM ARGUMENTS...

Standard library only: the file is copied as it is to every machine and into every container. What it has to know stands
in its environment, as ``SPILLWAY_*`` (``Settings``). With a state directory that all tasks see it writes there

    up/ROLE-INDEX          the task has a machine
    logs/ROLE-INDEX.N.log  every line of attempt N: its number, when, and the text
    exits/ROLE-INDEX       the exit status of the last attempt

and a role that serves the others (ps, tensorboard) is ended there once all essential tasks have ended well. The exit
status is the program's; 0 for a server that was ended; 143 after SIGTERM; 75 where peers did not come in time.

With a bucket (``s3://...``) the same lines go there within a second, as objects

    logs/ROLE-INDEX.STARTED/00000001, 00000002, ...
    exits/ROLE-INDEX

It needs ``s3:PutObject``, and credentials: AWS_ACCESS_KEY_ID and its like, else the instance's role. With
``s3:GetObject`` a task that starts again learns of peers that have ended well, for which it would wait in vain. Until
lines are there they stand on the machine's own disk, too: what a keeper that was killed has left there the next task of
the same user takes to the bucket, or ``launcher.py --ship``.

Rank 0 of a Horovod job with Gloo serves, at its own port, the rendezvous of all ranks, as ``horovodrun`` would.

A task that is ended when it is idle says so beforehand: in its lines, and by a file ``IDLE-ENDS-AT-...txt`` beside its
files.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import hashlib
import hmac
import http.server
import json
import os
import re
import signal
import socket
import socketserver
import ssl
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

TF_ROLES = ("chief", "worker", "ps")
"""Those of the training cluster: https://www.tensorflow.org/guide/distributed_training."""
GRACE = 30
"""Seconds from SIGTERM to SIGKILL, where nothing else is said: as Kubernetes has it."""
RANKED = ("chief", "worker")
"""Those that have a rank in collective operations."""
VIEWS = frozenset({
    "TF_CONFIG", "TASK_ROLE", "TASK_INDEX", "WORKER_HOSTS", "PS_HOSTS", "CLUSTER_SPEC",
    "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
    "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
    "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT",
    "PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS", "PADDLE_CURRENT_ENDPOINT",
    "PADDLE_PSERVERS_IP_PORT_LIST", "TRAINING_ROLE", "DATA_DIR", "TRAIN_DIR",
})  # fmt: skip
"""What a program can find in its environment about its place among the others."""
PEERS_MISSING = 75
"""Exit status (EX_TEMPFAIL): another try may find them."""
_POLL = 0.1
_LOOK_EVERY = 5
"""Polls between two looks at what other tasks wrote: the state directory may be a file server's."""
_REPORT_EVERY = 10.0
_PR_SET_PDEATHSIG = 1
_SHIP_AFTER = 1.0
"""Seconds that a line waits for others: what a machine that is lost takes along."""
_SHIP_BYTES = 1 << 20
_PART_BYTES = 64 << 10
"""A part is put anew, with what was added, until it has so many: else who reads would ask for one each second."""
_HELD_BYTES = 64 << 20
"""Of lines that a bucket does not take."""
_HALF = ".half"
"""Of the name of a file that is not locked yet."""
_METADATA = "http://169.254.169.254"
_IDLE_EVERY = 10.0
"""Seconds between two looks at what a task does that is ended when it is idle."""
_ANYWHERE = ("", "*", "0.0.0.0", "::", "localhost")  # noqa: S104 - where a server listens that this machine reaches
_DIRECTLY = urllib.request.build_opener(
    urllib.request.ProxyHandler({}),
    urllib.request.HTTPSHandler(context=ssl._create_unverified_context()),  # noqa: S323, SLF001 - it asks itself
)
_GPU_USE = ("nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")

Cluster = Mapping[str, list[str]]
"""``HOST:PORT`` of every task by role."""


def tf_config(cluster: Cluster, role: str, index: int, *, sparse: bool = False) -> dict[str, Any]:
    """``TF_CONFIG`` of one task. Sparse: a worker is told of itself and all servers, so that others may come and go.

    A server is told of all workers that may come: of one that it does not know TensorFlow takes nothing.
    """
    known: dict[str, Any] = {name: list(cluster[name]) for name in TF_ROLES if name in cluster}
    if sparse and role in known and role != "ps":
        own = {role: {str(index): cluster[role][index]}}
        known = {name: known[name] for name in ("chief", "ps") if name in known} | own
    return {"cluster": known, "task": {"type": role, "index": index}}


def cluster_spec(cluster: Cluster) -> str:
    """``worker|a:2222;b:2222,ps|c:2222``, as ``grpc_tensorflow_server.py --cluster_spec`` takes it."""
    return ",".join(f"{role}|{';'.join(cluster[role])}" for role in TF_ROLES if role in cluster)


def views(cluster: Cluster, role: str, index: int, *, sparse: bool = False) -> dict[str, str]:
    """The cluster as each framework wants to be told of it, in variables."""
    ranked = [address for name in RANKED for address in cluster.get(name, ())]
    told = {
        "TASK_ROLE": role,
        "TASK_INDEX": str(index),
        "TF_CONFIG": json.dumps(tf_config(cluster, role, index, sparse=sparse), separators=(",", ":")),
        "WORKER_HOSTS": ",".join(cluster.get("worker", ())),
        "PS_HOSTS": ",".join(cluster.get("ps", ())),
        "CLUSTER_SPEC": cluster_spec(cluster),
    }
    if role in RANKED and role in cluster:
        rank = index + (len(cluster.get("chief", ())) if role == "worker" else 0)
        told |= _collective(ranked, rank)
    if role in ("worker", "ps") and role in cluster:
        told |= _paddle(cluster, role, index)
    return told


def _collective(ranked: list[str], rank: int) -> dict[str, str]:
    """One process a task: its local rank is always 0, as its GPU 0 is its own."""
    host, _, port = ranked[0].rpartition(":")
    size = str(len(ranked))
    return {
        "RANK": str(rank),
        "WORLD_SIZE": size,
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": size,
        "HOROVOD_LOCAL_RANK": "0",
        "HOROVOD_LOCAL_SIZE": "1",
        "HOROVOD_CROSS_RANK": str(rank),
        "HOROVOD_CROSS_SIZE": size,
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": port,
    }


def _paddle(cluster: Cluster, role: str, index: int) -> dict[str, str]:
    workers = cluster.get("worker", [])
    return {
        "PADDLE_TRAINER_ID": str(index),
        "PADDLE_TRAINERS_NUM": str(len(workers)),
        "PADDLE_TRAINER_ENDPOINTS": ",".join(workers),
        "PADDLE_CURRENT_ENDPOINT": cluster[role][index],
        "PADDLE_PSERVERS_IP_PORT_LIST": ",".join(cluster.get("ps", ())),
        "TRAINING_ROLE": "PSERVER" if role == "ps" else "TRAINER",
    }


def expand(text: str, known: Mapping[str, str]) -> str:
    """``$(NAME)`` filled in where the name is known, as a kubelet does it; ``$$`` is one ``$``."""
    return re.sub(
        r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)",
        lambda found: "$" if found[0] == "$$" else known.get(found[1], found[0]),
        text,
    )


@dataclass(frozen=True)
class Settings:
    """What the task has to know, from its environment."""

    role: str
    """``SPILLWAY_ROLE``."""
    index: int
    """``SPILLWAY_INDEX``."""
    cluster: Cluster
    """``SPILLWAY_CLUSTER``, JSON: addresses by role."""
    needs: Mapping[str, int]
    """``SPILLWAY_NEEDS``, JSON: how many tasks of each role must be there before this one starts its program."""
    essential: Mapping[str, int]
    """``SPILLWAY_ESSENTIAL``, JSON: the roles whose good end ends this task, and how many tasks each needs at least;
    empty where it ends by itself."""
    first: bool
    """``SPILLWAY_SUCCESS`` is ``first``: task 0 of the first of these roles is enough."""
    sparse: bool
    """``SPILLWAY_SPARSE``: tasks may come and go."""
    state: Path | None
    """``SPILLWAY_STATE``: a directory that all tasks see."""
    bucket: str
    """``SPILLWAY_LOGS``: ``s3://BUCKET/PREFIX``, where lines go; empty: to no bucket."""
    checkpoint: tuple[str, ...]
    """``SPILLWAY_CHECKPOINT``, JSON: a program run before this one is ended from outside."""
    grace: float
    """``SPILLWAY_GRACE``: seconds from SIGTERM to SIGKILL, half of them for the checkpoint."""
    patience: float
    """``SPILLWAY_PEERS_WITHIN``: seconds; 600."""
    idle: Mapping[str, Any]
    """``SPILLWAY_IDLE``, JSON: the task of the ``job`` ends ``after`` so many seconds without use, and says so
    ``warning`` seconds before; use is told ``by`` ``kernels`` or ``gpus``. Empty: it is not watched."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Reads ``SPILLWAY_*``. Raises ``KeyError`` where the role or its index is missing."""
        state = environment.get("SPILLWAY_STATE")
        return cls(
            role=environment["SPILLWAY_ROLE"],
            index=int(environment["SPILLWAY_INDEX"]),
            cluster=json.loads(environment.get("SPILLWAY_CLUSTER", "{}")),
            needs=json.loads(environment.get("SPILLWAY_NEEDS", "{}")),
            essential=json.loads(environment.get("SPILLWAY_ESSENTIAL", "{}")),
            first=environment.get("SPILLWAY_SUCCESS") == "first",
            sparse=environment.get("SPILLWAY_SPARSE") == "1",
            state=Path(state) if state else None,
            bucket=environment.get("SPILLWAY_LOGS", ""),
            checkpoint=tuple(json.loads(environment.get("SPILLWAY_CHECKPOINT", "[]"))),
            grace=float(environment.get("SPILLWAY_GRACE", GRACE)),
            patience=float(environment.get("SPILLWAY_PEERS_WITHIN", "600")),
            idle=json.loads(environment.get("SPILLWAY_IDLE", "{}")),
        )

    @property
    def task(self) -> str:
        """The task's name: ``worker-0``."""
        return f"{self.role}-{self.index}"


class _Stop:
    """Whether this task is to end. A plain flag: an ``Event`` may be locked just when the signal comes."""

    asked = False

    def ask(self, *_: object) -> None:
        """Notes the signal."""
        self.asked = True


def main(command: list[str]) -> int:
    """Run the program as the task that the environment says; returns the exit status."""
    settings = Settings.read(os.environ)
    known = os.environ | views(settings.cluster, settings.role, settings.index, sparse=settings.sparse)
    rendezvous = _Rendezvous(known) if _has_rendezvous(known) and known["HOROVOD_RANK"] == "0" else None
    since = _come(settings.state, settings.task) if settings.state else 0.0
    stop = _Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop.ask)
    if not _peers_came(settings, known, stop):
        status = 128 + signal.SIGTERM if stop.asked else PEERS_MISSING
    else:
        with _Log(settings) as log:
            status = _run(
                [expand(word, known) for word in command], known, settings, log, stop, rendezvous, since=since
            )
    said = {"status": status, "at": _now()}
    if settings.state:
        _note(settings.state / "exits" / settings.task, said)
    if settings.bucket:
        try:
            put(f"{settings.bucket}/exits/{settings.task}", json.dumps(said).encode(), os.environ)
        except (OSError, ValueError) as error:
            _tell(f"{settings.task}: its exit is not written down: {error}")
    return status


def _come(state: Path, task: str) -> float:
    """Mark that the task is there, and has not ended; returns from when on exits of others count, by the files' clock.

    Of a task that had ended well and starts again the whole job does, with the same directory: `docker compose up` of
    one file twice. What stands there of the others is of the run before.
    """
    had_ended_well = _exit_of(state, task) == 0
    (state / "exits" / task).unlink(missing_ok=True)
    _note(state / "up" / task, {"host": socket.gethostname()})
    return (state / "up" / task).stat().st_mtime if had_ended_well else 0.0


def _peers_came(settings: Settings, known: Mapping[str, str], stop: _Stop) -> bool:
    """Wait until all needed tasks are there; tells which it waits for, at first and then now and again."""
    began, told, ended = time.monotonic(), 0.0, set[str]()
    while missing := [
        task for task in _needed(settings) if task not in ended and not _is_there(task, settings)
    ] or _unanswered(known):
        waited = time.monotonic() - began
        if waited > settings.patience or stop.asked:
            _tell(f"{settings.task}: {len(missing)} tasks did not come in {waited:.0f} s: {', '.join(missing[:5])}")
            return False
        if waited >= told:
            _tell(f"{settings.task} waits for {len(missing)} tasks, {missing[0]} among them")
            told = waited + _REPORT_EVERY
            ended |= _ended_well(missing, settings) if waited > _REPORT_EVERY else set()
        time.sleep(_POLL)
    return True


def _needed(settings: Settings) -> list[str]:
    return [f"{role}-{index}" for role, count in settings.needs.items() for index in range(count)]


def _ended_well(tasks: Sequence[str], settings: Settings) -> set[str]:
    """Those of the first ones that the bucket says it of: only a task that starts again finds any."""
    found = set[str]()
    with contextlib.suppress(OSError, ValueError):  # it may not read, or there is none
        for task in tasks if settings.bucket else ():
            if json.loads(got(f"{settings.bucket}/exits/{task}", os.environ))["status"]:
                break
            found.add(task)
    return found


def _is_there(task: str, settings: Settings) -> bool:
    """Finds a task by its mark in the state directory; without one, by its host name, known once it has an address."""
    if settings.state:
        return (settings.state / "up" / task).exists()
    role, _, index = task.rpartition("-")
    host = settings.cluster[role][int(index)].rpartition(":")[0]
    try:
        socket.getaddrinfo(host, None)
    except OSError:
        return False
    return True


def _has_rendezvous(known: Mapping[str, str]) -> bool:
    return known.get("HOROVOD_CONTROLLER") == "gloo" and "HOROVOD_RANK" in known


def _unanswered(known: Mapping[str, str]) -> list[str]:
    """The task that serves the rendezvous, while it does not answer: Horovod itself would wait for a second."""
    if not _has_rendezvous(known) or known["HOROVOD_RANK"] == "0":
        return []
    host, port = known["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(known["HOROVOD_GLOO_RENDEZVOUS_PORT"])
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return [f"the rendezvous at {host}:{port}"]
    return []


class _Rendezvous(socketserver.ThreadingMixIn, http.server.HTTPServer):
    """Where the ranks of a Horovod job with Gloo find each other's addresses, as ``/SCOPE/RANK``.

    It listens as soon as it is made, and answers from when it is served: this process has one thread until its
    children are made.
    """

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, known: Mapping[str, str]) -> None:
        super().__init__(("", int(known["HOROVOD_GLOO_RENDEZVOUS_PORT"])), _Addresses)
        self.lock = threading.Lock()
        self.addresses: dict[str, bytes] = {}
        self.met: set[str] = set()
        """Of ranks that have found all others."""

    def serve(self) -> None:
        """Serves for the length of this process."""
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Addresses(http.server.BaseHTTPRequestHandler):
    """Answers Horovod's HTTP store: https://github.com/horovod/horovod/blob/v0.28.1/horovod/common/gloo/http_store.cc."""

    server: _Rendezvous
    timeout = 10

    def do_GET(self) -> None:
        """404 until the rank has come."""
        with self.server.lock:
            found = self.server.addresses.get(self.path)
        self._answer(404 if found is None else 200, found or b"")

    def do_PUT(self) -> None:
        """Takes the addresses of one rank."""
        told = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.addresses[self.path] = told
        self._answer(200)

    def do_DELETE(self) -> None:
        """A rank has found all others; when all have, they may meet anew."""
        scope = self.path.rpartition("/")[0]
        with self.server.lock:
            self.server.met.add(self.path)
            known = {path for path in self.server.addresses if path.rpartition("/")[0] == scope}
            if known <= self.server.met:
                self.server.met -= known
                for path in known:
                    del self.server.addresses[path]
        self._answer(200)

    def log_message(self, *_: object) -> None:
        """Logs nothing: ranks ask a hundred times a second."""

    def _answer(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _run(  # noqa: PLR0917 - one caller
    command: list[str],
    environment: Mapping[str, str],
    settings: Settings,
    log: _Log,
    stop: _Stop,
    rendezvous: _Rendezvous | None,
    *,
    since: float,
) -> int:
    (lines, said), (group, told) = os.pipe(), os.pipe()
    idleness = _Idleness(settings, environment, said) if settings.idle else None
    keeper = _keeper(log, lines, besides=(said, told), group=group)  # first: the program may speak at once
    os.close(lines)
    os.close(group)
    try:
        child = subprocess.Popen(
            command,
            env={**environment, **(idleness.told if idleness else {})},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=die_with(os.getpid(), signal.SIGKILL),  # noqa: PLW1509 - this process has one thread yet
        )
    except OSError as error:
        os.close(said)
        os.close(told)
        _until_kept(keeper, settings.grace)
        _tell(f"{settings.task}: cannot start {command[0]}: {error.strerror}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    os.write(told, str(child.pid).encode())
    os.close(told)
    if settings.state:
        _note(settings.state / "groups" / settings.task, {"group": child.pid})
    if rendezvous:
        rendezvous.serve()
    was_ended = _wait(child, settings, stop, idleness, since=since)
    _kill(child.pid, signal.SIGKILL)  # what it left running, in its own group
    os.close(said)
    _until_kept(keeper, settings.grace)
    if settings.state:
        (settings.state / "groups" / settings.task).unlink(missing_ok=True)
    if was_ended and not stop.asked:
        return 0
    if stop.asked:
        return 128 + signal.SIGTERM
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


class _EnoughError(Exception):
    """The keeper has waited long enough for the end of the program's lines."""


def _keeper(log: _Log, lines: int, *, besides: tuple[int, ...], group: int) -> int:
    """A process that keeps the lines until the last writer has closed its end, also where this one is killed.

    Then it kills the group of the program, whose children would hold that end for ever. ``group``: a descriptor from
    which it reads that group, or nothing where no program was started. ``besides``: descriptors of this one's, of the
    ends that are written to.
    """
    launcher = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # Slurm tells all processes of a step
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, _enough)
        signal.signal(signal.SIGUSR1, lambda *_: _kill_told(group))
        for one in besides:
            os.close(one)
        die_with(launcher, signal.SIGUSR1)()
        with log:
            with open(lines, "rb") as written, contextlib.suppress(_EnoughError):
                log.copy(written)
            signal.signal(signal.SIGALRM, signal.SIG_IGN)  # a bucket has a patience of its own
        status = 0
    finally:
        os._exit(status)


def _enough(*_: object) -> None:
    raise _EnoughError


def _kill_told(group: int) -> None:
    """The group that is to be read there: all that could be told has been, as the launcher is dead."""
    if told := os.read(group, 32):
        _kill(int(told), signal.SIGKILL)


def _until_kept(keeper: int, grace: float) -> None:
    """Bounded: a daemon that the program made may hold the pipe for ever."""
    end = time.monotonic() + grace
    while os.waitpid(keeper, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(keeper, signal.SIGALRM)
            os.waitpid(keeper, 0)
            return
        time.sleep(_POLL / 10)


def _wait(
    child: subprocess.Popen[bytes], settings: Settings, stop: _Stop, idleness: _Idleness | None, *, since: float
) -> bool:
    """Waits until the program has ended; returns whether it was ended from here."""
    next_run = _next_run(settings.state) if settings.state else None
    for poll in _count():
        if child.poll() is not None:
            break
        looks = poll % _LOOK_EVERY == 0
        if looks and next_run and next_run.exists():
            _tell(f"{settings.task}: its job runs anew, and this is a task of the run before: it ends")
            stop.ask()
        if stop.asked or (looks and _others_are_done(settings, since)) or (idleness and idleness.is_over()):
            _end(child, settings)
            return True
        time.sleep(_POLL)
    return False


def _next_run(state: Path) -> Path | None:
    """What is there once Slurm has started the job again, which tasks on a machine without slurmd are not told."""
    found = re.fullmatch(r"(\d+)\.(\d+)", state.name)
    return state.with_name(f"{found[1]}.{int(found[2]) + 1}") if found else None


def _others_are_done(settings: Settings, since: float) -> bool:
    """Whether every task that this one serves has ended well."""
    if not settings.state or not settings.essential:
        return False
    if settings.first:
        return _exit_of(settings.state, f"{next(iter(settings.essential))}-0", since) == 0
    return all(_is_done(settings.state, role, least, since) for role, least in settings.essential.items())


def _is_done(state: Path, role: str, least: int, since: float) -> bool:
    """Whether all tasks of an essential role that ever came have ended well, and enough have come."""
    came = [path.name for path in (state / "up").glob(f"{role}-*") if path.name.rpartition("-")[0] == role]
    return len(came) >= least and all(_exit_of(state, task, since) == 0 for task in came)


def _exit_of(state: Path, task: str, since: float = 0.0) -> int | None:
    """The status that the task has ended with, unless that was before."""
    try:
        with (state / "exits" / task).open() as file:
            status: int = json.load(file)["status"]
            return status if os.fstat(file.fileno()).st_mtime >= since else None
    except FileNotFoundError:
        return None


def _end(child: subprocess.Popen[bytes], settings: Settings) -> None:
    """Ends the program: runs its checkpoint command, sends SIGTERM, waits for the grace, sends SIGKILL."""
    end = time.monotonic() + settings.grace
    if settings.checkpoint:
        environment = os.environ | {"SPILLWAY_PID": str(child.pid)}
        words = [expand(word, environment) for word in settings.checkpoint]
        try:
            done = subprocess.run(words, env=environment, timeout=settings.grace / 2, check=False)
            _tell(f"{settings.task}: its checkpoint program ended with {done.returncode}")
        except (OSError, subprocess.TimeoutExpired) as error:
            _tell(f"{settings.task}: its checkpoint program failed: {error}")
    _kill(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(max(0.0, end - time.monotonic()))
        return
    _kill(child.pid, signal.SIGKILL)
    child.wait()


def _kill(group: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def die_with(parent: int, number: int) -> Callable[[], None]:
    """Returns what a child does first: be sent the signal when its parent dies. Linux alone has a way."""
    libc = ctypes.CDLL(None)

    def arrange() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, int(number))
        if os.getppid() != parent:  # it died before
            os.kill(os.getpid(), number)

    return arrange


class _Log:
    """Every line, numbered, in a file that nothing writes to but this attempt; and as it came to standard output."""

    def __init__(self, settings: Settings) -> None:
        self._file = _new_log(settings) if settings.state else None
        place = f"{settings.bucket}/logs/{settings.task}"
        self._shipper = _Shipper(place, patience=settings.grace) if settings.bucket else None

    def __enter__(self) -> _Log:  # noqa: PYI034 - Self is younger than the Pythons that run this
        return self

    def __exit__(self, *_: object) -> None:
        if self._file:
            with contextlib.suppress(OSError):
                os.fsync(self._file.fileno())
                self._file.close()
        if self._shipper:
            self._shipper.close()

    def copy(self, lines: IO[bytes]) -> None:
        """Copies lines until the last writer has closed its end."""
        for number, line in enumerate(lines, start=1):
            self._keep(b"%d %s %s\n" % (number, _now().encode(), line.rstrip(b"\n")))
            with contextlib.suppress(OSError):  # whatever reads it may be gone; the program goes on
                sys.stdout.buffer.write(line)
                sys.stdout.buffer.flush()

    def _keep(self, line: bytes) -> None:
        if self._shipper:
            self._shipper.keep(line)
        if not self._file:
            return
        try:
            self._file.write(line)
        except OSError as error:
            _tell(f"the log {self._file.name} is kept no longer: {error.strerror}")
            self._file = None


class _Idleness:
    """Whether the task has been idle for so long that it is to end; says so beforehand, and when it is used again.

    Use is told by what runs: kernels that execute and terminals of a Jupyter server, and GPUs that compute; or by GPUs
    alone. What cannot be asked counts as use, so that nothing is ended in ignorance.
    """

    def __init__(self, settings: Settings, environment: Mapping[str, str], said: int) -> None:
        """``said``: a descriptor; what is written there is kept among the lines of the program."""
        self._after, self._warning = float(settings.idle["after"]), float(settings.idle["warning"])
        self._by_gpus = settings.idle["by"] == "gpus"
        self._task, self._said, self._gpus = settings.task, said, environment.get("CUDA_VISIBLE_DEVICES")
        self._note = f"-{settings.idle['job']}-{settings.task}.txt"
        self._made = tempfile.TemporaryDirectory(prefix="spillway-jupyter-")  # for the length of this process
        self._runtime = Path(environment.get("JUPYTER_RUNTIME_DIR") or self._made.name)
        results = Path(environment.get("TRAIN_DIR") or ".")
        self._folder = results if results.is_dir() else Path()
        self._used = self._looked = time.time()
        self._warned: float | None = None
        self._has_complained = False
        self._leave_note()

    @property
    def told(self) -> dict[str, str]:
        """What its program is told: where a Jupyter server writes how it is reached, with its token."""
        return {"JUPYTER_RUNTIME_DIR": str(self._runtime)}

    def is_over(self) -> bool:
        """Asked often, it looks every ten seconds, or as often as the warning's length needs."""
        now = time.time()
        if 0 <= now - self._looked < min(_IDLE_EVERY, self._warning / 5):
            return False
        self._looked = now
        self._used = max(self._used, min(now, self._last_use(now)))
        if now - self._used < self._after - self._warning:
            self._take_back()
            return False
        if self._warned is None:
            self._warned = now
            at = max(self._used + self._after, now + self._warning)
            self._warn(datetime.fromtimestamp(at, timezone.utc))  # noqa: UP017 - older Pythons run this file
        return now - self._used >= self._after and now - self._warned >= self._warning and self._give_back()

    def _say(self, text: str) -> None:
        with contextlib.suppress(OSError):  # what keeps the lines is gone
            os.write(self._said, f"spillway: {text}\n".encode())

    def _warn(self, at: datetime) -> None:
        text = (
            f"{self._task} has been idle since {_clock(self._used)}: at {at:%H:%M:%S} UTC it ends and its GPUs are "
            f"given back, unless it is used before; files in {self._folder.resolve()} stay, variables are lost"
        )
        self._say(text)
        self._leave_note(f"IDLE-ENDS-AT-{at:%H.%M.%S}-UTC", text)

    def _take_back(self) -> None:
        if self._warned is not None:
            self._warned = None
            self._say(f"{self._task} is used again: it goes on")
            self._leave_note()

    def _give_back(self) -> bool:
        text = (
            f"{self._task} was idle since {_clock(self._used)}: it has ended and given its GPUs back; "
            f"files in {self._folder.resolve()} stay: submit the job again to go on with them"
        )
        self._say(text)
        self._leave_note("IDLE-HAS-ENDED", text)
        return True

    def _leave_note(self, name: str = "", text: str = "") -> None:
        """Replaces the note beside its files: a file browser shows its name, which says it all."""
        try:
            for old in (
                *self._folder.glob(f"IDLE-ENDS-AT-*{self._note}"),
                self._folder / f"IDLE-HAS-ENDED{self._note}",
            ):
                old.unlink(missing_ok=True)
            if name:
                (self._folder / f"{name}{self._note}").write_text(text + "\n")
        except OSError as error:
            _tell(f"{self._task}: no note in {self._folder}: {error.strerror}")

    def _last_use(self, now: float) -> float:
        """When it was used last, as far as can be told: ``now`` where nothing can be."""
        busiest = _gpu_use(self._gpus)
        if busiest:
            return now
        if self._by_gpus:
            return 0.0 if busiest is not None else self._complain(now, "nvidia-smi says of no GPU how much it is used")
        try:
            return max(self._kernels_used(now), self._terminals_used())
        except (OSError, ValueError, LookupError) as error:
            return self._complain(now, f"no Jupyter server of it can be asked ({error})")

    def _complain(self, now: float, why: str) -> float:
        if not self._has_complained and now - self._used > self._warning / 5:
            self._has_complained = True
            self._say(f"whether {self._task} is idle cannot be told, so that it goes on: {why}")
        return now

    def _kernels_used(self, now: float) -> float:
        kernels = self._ask("api/kernels")
        return max((now if one["execution_state"] == "busy" else _moment(one) for one in kernels), default=0.0)

    def _terminals_used(self) -> float:
        try:
            return max(map(_moment, self._ask("api/terminals")), default=0.0)
        except urllib.error.HTTPError:  # a server without terminals
            return 0.0

    def _ask(self, path: str) -> list[Any]:
        """Asks the youngest server. Raises ``OSError`` where none answers, ``LookupError`` where there is none."""
        files = sorted(self._runtime.glob("jpserver-*.json"), key=lambda file: file.stat().st_mtime)
        if not files:
            raise LookupError(f"none has written jpserver-*.json to {self._runtime}")
        server = json.loads(files[-1].read_text())
        self._folder = Path(server["root_dir"])
        host = "127.0.0.1" if server["hostname"] in _ANYWHERE else server["hostname"]
        url = f"http{'s' * server['secure']}://{host}:{server['port']}{server['base_url']}{path}?no_track_activity=1"
        request = urllib.request.Request(url, headers={"Authorization": f"token {server['token']}"})  # noqa: S310
        with _DIRECTLY.open(request, timeout=5) as answer:
            found: list[Any] = json.loads(answer.read())
        return found


def _moment(thing: Mapping[str, Any]) -> float:
    """When a kernel or a terminal was active last."""
    return datetime.fromisoformat(thing["last_activity"].replace("Z", "+00:00")).timestamp()  # noqa: FURB162 - older Pythons


def _clock(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, timezone.utc):%H:%M:%S} UTC"  # noqa: UP017 - older Pythons run this file


def _gpu_use(visible: str | None) -> int | None:
    """Percent of the last moment in which the busiest of these GPUs computed; ``None`` where none can be read."""
    if visible == "":
        return None
    chosen = () if visible is None else ("-i", visible)
    try:
        done = subprocess.run([*_GPU_USE, *chosen], capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return max(map(int, re.findall(r"^\d+$", done.stdout, re.MULTILINE)), default=None)  # a part of a GPU says [N/A]


class _Shipper:
    """Puts lines into a bucket, in parts. What it does not take is tried again, at the end for as long as a grace."""

    def __init__(self, place: str, *, after: float = _SHIP_AFTER, patience: float = 30.0) -> None:
        """``patience``: seconds at the end."""
        started = datetime.now(timezone.utc)  # noqa: UP017 - older Pythons run this file
        self._place = f"{place}.{started:%Y%m%dT%H%M%S.%f}"
        self._after, self._patience = after, patience
        self._lines: list[bytes] = []
        """Of the part that is not full yet, and what comes after it."""
        self._put_already, self._bytes, self._part, self._lost = 0, 0, 0, 0
        self._spool = _Spool(self._place)
        self._changed = threading.Condition()
        self._closed = self._failing = self._has_shipped_others = False
        self._thread: threading.Thread | None = None

    def keep(self, line: bytes) -> None:
        """Take a line; where too much is held already, it is lost, and counted."""
        with self._changed:
            if self._bytes + len(line) > _HELD_BYTES:
                self._lost += 1
                return
            self._lines.append(line)
            self._bytes += len(line)
            self._spool.write(self._part, line)
            if self._new() == 1 or self._bytes >= _SHIP_BYTES:
                self._changed.notify()
        if self._thread is None:  # not before the program runs: a process with threads should not fork
            self._thread = threading.Thread(target=self._ship, daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Ship what is left; tell what could not be."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(self._patience + 30)
        if lost := self._lost + self._new():
            _tell(f"{lost} lines are not in {self._place}{self._spool.in_words()}")
        if not self._new():
            self._spool.remove()

    def _new(self) -> int:
        """Lines that are in no part yet."""
        return len(self._lines) - self._put_already

    def _ship(self) -> None:
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._new())
                self._changed.wait_for(self._is_due, self._after)
            self._failing = not self._put()
            if not self._failing and not self._has_shipped_others:
                self._has_shipped_others = True
                ship_left(os.environ)
        end = time.monotonic() + self._patience
        while not self._put() and time.monotonic() < end:
            time.sleep(_POLL)

    def _is_due(self) -> bool:
        return self._closed or (self._bytes >= _SHIP_BYTES and not self._failing)

    def _put(self) -> bool:
        """Whether the bucket has all lines that there were."""
        with self._changed:
            lines = list(self._lines)
            if not self._new():
                return True
        body = b"".join(lines)
        try:
            put(f"{self._place}/{self._part:08d}", body, os.environ)
        except (OSError, ValueError) as error:
            _tell(f"{self._place} does not take lines now: {error}")
            return False
        with self._changed:
            self._put_already = len(lines)
            if len(body) >= _PART_BYTES:
                del self._lines[: len(lines)]
                self._bytes -= len(body)
                self._part += 1
                self._put_already = 0
                self._spool.remove()
                for line in self._lines:
                    self._spool.write(self._part, line)
        return True


class _Spool:
    """A part's lines on the machine's own disk until a bucket has them, in a file that is locked by what writes it.

    Its first line is the S3 and the part's place. Without a folder for it, or without room, lines are shipped alone.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._file: IO[bytes] | None = None
        self._path: Path | None = None
        self._works = True

    def write(self, part: int, line: bytes) -> None:
        """Writes a line of the part that is not full yet."""
        if not self._works:
            return
        try:
            if self._file is None:
                self._begin(f"{self._place}/{part:08d}")
            if self._file:
                self._file.write(line)
        except OSError:  # a file that lacks a line would be put over a part that has it
            self._works = False
            self.remove()

    def _begin(self, place: str) -> None:
        path = _spool_folder() / hashlib.sha256(place.encode()).hexdigest()[:32]
        half = path.with_suffix(_HALF)
        self._file = half.open("xb", buffering=0)
        self._path = half
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(f"{_endpoint(os.environ)} {place}\n".encode())
        half.rename(path)
        self._path = path

    def in_words(self) -> str:
        """Where it is, for a message; empty where there is none."""
        return f"; what was held of them is in {self._path}, for your next task here to ship" if self._path else ""

    def remove(self) -> None:
        """Removes the file, once the bucket has it."""
        if self._path:
            with contextlib.suppress(OSError):
                self._path.unlink()
        if self._file:
            self._file.close()
        self._file = self._path = None


def _spool_folder() -> Path:
    """One that nobody else writes to. Raises ``OSError`` where there is none."""
    folder = Path(tempfile.gettempdir()) / f"spillway-lines-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user's alone")
    return folder


def ship_left(environment: Mapping[str, str]) -> int:
    """Take to their buckets what keepers that were killed have left on this machine; returns how many parts stay."""
    stay = 0
    try:
        left = sorted(path for path in _spool_folder().iterdir() if path.suffix != _HALF)
    except OSError:
        return 0
    for path in left:
        with contextlib.suppress(OSError, ValueError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # else what writes it lives
            head, _, body = file.read().partition(b"\n")
            endpoint, place = head.decode().split(" ", 1)
            is_left = os.fstat(file.fileno()).st_nlink > 0  # else its writer has removed it meanwhile, and gone on
            if is_left and endpoint == _endpoint(environment):
                put(place, body, environment)
                path.unlink()
        stay += path.exists()
    return stay


def put(place: str, body: bytes, environment: Mapping[str, str]) -> None:
    """Write the object ``s3://BUCKET/KEY``. Raises ``OSError``, or ``ValueError`` where credentials are missing."""
    _asked_of_s3("PUT", place, body, environment)


def got(place: str, environment: Mapping[str, str]) -> bytes:
    """The object ``s3://BUCKET/KEY``. Raises as :func:`put` does."""
    return _asked_of_s3("GET", place, b"", environment)


def _asked_of_s3(method: str, place: str, body: bytes, environment: Mapping[str, str]) -> bytes:
    keys = _credentials(environment)
    region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1"
    base = _endpoint(environment) or f"https://s3.{region}.amazonaws.com"
    url = f"{base}/{urllib.parse.quote(place[len('s3://') :], safe='/-_.~')}"
    at = datetime.now(timezone.utc)  # noqa: UP017 - older Pythons run this file
    headers = signed(method, url, body, keys=keys, region=region, at=at)
    headers["Content-Type"] = "text/plain; charset=utf-8"  # else urllib says that it is a form
    request = urllib.request.Request(url, data=body or None, headers=headers, method=method)  # noqa: S310 - of S3
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
            found: bytes = answer.read()
    except urllib.error.HTTPError as refused:
        told = re.search(rb"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", refused.read(), re.DOTALL)
        why = b": ".join(told.groups()).decode(errors="replace") if told else refused.reason
        raise OSError(f"S3 answers {refused.code} ({why})") from None
    return found


def _endpoint(environment: Mapping[str, str]) -> str:
    """Returns the address of another S3 than Amazon's; empty: none."""
    return (environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or "").rstrip("/")


def signed(method: str, url: str, body: bytes, *, keys: Mapping[str, str], region: str, at: datetime) -> dict[str, str]:
    """The headers of a request to S3, signed: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html."""
    parts = urllib.parse.urlsplit(url)
    moment, digest = at.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers = {"host": parts.netloc, "x-amz-content-sha256": digest, "x-amz-date": moment}
    if keys.get("Token"):
        headers["x-amz-security-token"] = keys["Token"]
    names = ";".join(sorted(headers))
    said = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{parts.path}\n{parts.query}\n{said}\n{names}\n{digest}"
    scope = f"{moment[:8]}/{region}/s3/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{keys['SecretAccessKey']}".encode()
    for word in scope.split("/"):
        key = hmac.new(key, word.encode(), hashlib.sha256).digest()
    signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    signed = f"AWS4-HMAC-SHA256 Credential={keys['AccessKeyId']}/{scope}, SignedHeaders={names}, Signature={signature}"
    return headers | {"Authorization": signed}


def _credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the environment, else of the instance's role, which AWS renews."""
    if environment.get("AWS_ACCESS_KEY_ID"):
        return {
            "AccessKeyId": environment["AWS_ACCESS_KEY_ID"],
            "SecretAccessKey": environment.get("AWS_SECRET_ACCESS_KEY", ""),
            "Token": environment.get("AWS_SESSION_TOKEN", ""),
        }
    base = environment.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", _METADATA).rstrip("/")
    for_long = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = {"X-aws-ec2-metadata-token": _asked(f"{base}/latest/api/token", for_long, method="PUT").decode()}
    roles = f"{base}/latest/meta-data/iam/security-credentials/"
    role = _asked(roles, token).decode().split("\n")[0]
    found: dict[str, str] = json.loads(_asked(roles + role, token))
    return found


def _asked(url: str, headers: Mapping[str, str], *, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, headers=dict(headers), method=method)  # noqa: S310 - the instance's metadata
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310
            said: bytes = answer.read()
    except OSError as error:
        raise ValueError(f"no credentials: set AWS_ACCESS_KEY_ID, or give the instance a role ({error})") from None
    return said


def _new_log(settings: Settings) -> IO[bytes]:
    """The file of the next attempt, unbuffered: what was written stays, however this process ends."""
    assert settings.state  # noqa: S101 - asked only where there is one
    folder = settings.state / "logs"
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in _count():
        with contextlib.suppress(FileExistsError):
            return (folder / f"{settings.task}.{attempt}.log").open("xb", buffering=0)
    raise AssertionError


def _count() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1


def _note(path: Path, said: Mapping[str, Any]) -> None:
    """Written whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.write_text(json.dumps(said))
    half.rename(path)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")  # noqa: UP017 - older Pythons run this file


def _tell(text: str) -> None:
    print(f"spillway: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(min(ship_left(os.environ), 1) if sys.argv[1:] == ["--ship"] else main(sys.argv[1:]))
