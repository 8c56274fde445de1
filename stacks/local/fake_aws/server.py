"""The stand-in for AWS on one machine: ``python -m stacks.local.fake_aws.server --port P [--kubeconfig K]``.

It is not AWS. It is moto (EC2, Auto Scaling, IAM, SSM, S3, STS, ...) behind HTTP on 127.0.0.1, with a layer in the same
process that closes the gaps that matter to a cluster: groups that live in time (``auto_scaling.py``,
``reconciler.py``), instances that take a while to boot (``instances.py``) and become nodes (``boot.py``), faults by
script (``wire/faults.py``), and a record of what was asked (``ledger.py``). What only tests need of AWS, they add
(``wire/extension.py``):

    GET    /spillway/health
    GET    /spillway/requests?since=N     calls that were meant to change something
    GET    /spillway/instances            every instance ever, with its times
    GET    /spillway/faults               the script in force; PUT another, DELETE it
    POST   /spillway/interruptions        what EC2 is to tell of an instance, and to do (``interruptions.py``)
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import io
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import moto.autoscaling.models
import moto.autoscaling.urls
import moto.backends
import moto.core.responses
import moto.core.utils
import moto.ec2.urls
import moto.iam.models
import moto.sqs.models
from moto.autoscaling.models import AutoScalingBackend, autoscaling_backends
from moto.core.base_backend import BackendDict
from moto.ec2.models import EC2Backend, ec2_backends
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import ThreadedWSGIServer
from werkzeug.test import run_wsgi_app

from autoscaler.config.documents import parse_document, parse_span, read_document
from autoscaler.config.signals import on_first_of
from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.fake_aws.auto_scaling import AutoScaling, Group, Member
from stacks.local.fake_aws.auto_scaling_calls import AutoScalingCalls
from stacks.local.fake_aws.boot import Boot, Booted
from stacks.local.fake_aws.instances import Ec2, Ec2Response, World
from stacks.local.fake_aws.interruptions import Interruption, interrupt
from stacks.local.fake_aws.queues import set_attributes
from stacks.local.fake_aws.reconciler import Scaling
from stacks.local.wire.aws_protocol import Call, Refused, Reply, error_in, read_call, refusal
from stacks.local.wire.extension import extension
from stacks.local.wire.faults import Faults, Script

ACCOUNT: Final = "123456789012"
_PLENTY: Final = 100_000
"""vCPUs of each quota."""
_MORE: Final[Any] = extension("aws_services")
"""Services that moto lacks, and requests refused as AWS refuses them: what tests add."""
_UNAVAILABLE: Final = Refused("ServiceUnavailable", "Service is unable to handle request.", status=503)


class StandIn:
    """The WSGI application: what is asked of AWS, and what is asked of the stand-in itself."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._moto = DomainDispatcherApplication(create_backend_app)
        self._more: Any = _MORE and _MORE.Services(ACCOUNT)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        """Answers one request."""
        if environ.get("PATH_INFO", "").startswith("/spillway/"):
            return _send(start_response, self._answer_itself(environ))
        at, began = time.time(), time.monotonic()
        call = read_call(environ)
        gone = self._world.faults.gone()
        if gone == "reset":
            _cut(environ)
        if gone:
            return _send(start_response, refusal(call, _UNAVAILABLE), close=True)
        refused = self._refuse(call)
        if refused is not None:
            reply = refusal(call, refused)
            self._record(call, at=at, began=began, error=refused.code)
            return _send(start_response, reply, close=not call.parameters)
        with self._world.lock:
            own = self._answer_beside_moto(call, environ)
        if own is not None:
            self._record(call, at=at, began=began, error=error_in(own[0], own[2]))
            return _send(start_response, own)
        told, status, headers = self._moto_answers(call, environ)
        body = self._world.consistency.answered(call, status, told)
        headers["Content-Length"] = str(len(body))
        self._record(call, at=at, began=began, error=error_in(int(status.split()[0]), body))
        start_response(status, list(headers))
        return [body]

    def _moto_answers(self, call: Call, environ: dict[str, Any]) -> tuple[bytes, str, Any]:
        """A wait for a message is cut into short ones: others are answered in between."""
        waits = call.action == "ReceiveMessage"
        end = time.monotonic() + (float(call.parameters.get("WaitTimeSeconds") or 0) if waits else 0.0)
        asked = json.dumps({**call.parameters, "WaitTimeSeconds": 0}).encode() if waits else b""
        while True:
            if waits:
                environ |= {"wsgi.input": io.BytesIO(asked), "CONTENT_LENGTH": str(len(asked))}
            with self._world.lock:
                chunks, status, headers = run_wsgi_app(self._moto, environ, buffered=True)
            body = b"".join(chunks)
            if b"ReceiptHandle" in body or time.monotonic() >= end or not status.startswith("200"):
                return body, status, headers
            time.sleep(0.1)

    def _answer_beside_moto(self, call: Call, environ: dict[str, Any]) -> Reply | None:
        """Answers of the services, or calls, that moto does not know; ``None`` for all that it does."""
        if call.action == "GetServiceQuota":
            return 200, "application/x-amz-json-1.1", json.dumps(self._quota(call)).encode()
        answer: Reply | None = self._more and self._more.answer(call, environ)
        return answer

    def _quota(self, call: Call) -> dict[str, Any]:
        """Plenty, where no fault says otherwise: a new account of AWS has few vCPUs, and none with GPUs."""
        code, quota = call.parameters["QuotaCode"], self._world.faults.quota()
        value = float(_PLENTY if quota is None else quota)
        return {"Quota": {"ServiceCode": "ec2", "QuotaCode": code, "QuotaName": f"vCPUs of {code}", "Value": value}}

    def _refuse(self, call: Call) -> Refused | None:
        refused = self._world.faults.refuse(call) or self._world.consistency.refuse(call)
        if refused is not None or self._more is None:
            return refused
        try:
            with self._world.lock:
                self._more.check(call)
        except Refused as wrong:
            return wrong
        return None

    def _record(self, call: Call, *, at: float, began: float, error: str) -> None:
        if not call.changes_something:
            return
        self._world.ledger.write(
            at=at,
            at_monotonic=began,
            took=time.monotonic() - began,
            service=call.service,
            action=call.action,
            parameters=dict(call.parameters),
            access_key=call.access_key,
            user_agent=call.user_agent,
            error=error,
        )

    def _answer_itself(self, environ: dict[str, Any]) -> Reply:
        method, what = environ["REQUEST_METHOD"], environ["PATH_INFO"].removeprefix("/spillway/")
        query = {key: values[-1] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        since = query.get("since", "0")
        if not since.isdigit():
            return _json({"error": f"since={since} is not the number of a request"}, status=400)
        answers: dict[tuple[str, str], Callable[[], Reply]] = {
            ("GET", "health"): lambda: _json({"status": "ok", "pid": os.getpid(), "stand_in_for": "AWS"}),
            ("GET", "requests"): lambda: _json({"requests": self._world.ledger.requests(since=int(since))}),
            ("GET", "instances"): lambda: _json({"instances": self._world.ledger.instances()}),
            ("GET", "faults"): lambda: _json(self._world.faults.as_json()),
            ("PUT", "faults"): lambda: self._put_faults(body.decode(errors="replace")),
            ("DELETE", "faults"): lambda: self._put_faults("faults: []"),
            ("POST", "interruptions"): lambda: self._interrupt(body.decode(errors="replace")),
        }
        answer = answers.get((method, what))
        if answer is None:
            return _json({"error": f"{method} /spillway/{what} is not a request that the stand-in knows"}, status=404)
        return answer()

    def _interrupt(self, text: str) -> Reply:
        try:
            asked = parse_document(text, Interruption, what="interruption", source="POST /spillway/interruptions")
            with self._world.lock:
                interrupt(asked, _regions(), self._world)
        except BadInput as mistake:
            return _json({"error": str(mistake)}, status=400)
        self._world.changed()
        return _json({})

    def _put_faults(self, text: str) -> Reply:
        try:
            script = parse_document(text, Script, what="faults", source="PUT /spillway/faults")
        except BadInput as mistake:
            return _json({"error": str(mistake)}, status=400)
        self._world.faults.put(script)
        self._world.changed()
        return _json(self._world.faults.as_json())


@contextlib.contextmanager
def installed(world: World) -> Iterator[Scaling]:
    """This project's classes in the place of moto's, and moto's own again at the end."""
    if ec2_backends.backend is not EC2Backend:
        raise RuntimeError("moto's state belongs to its process: one stand-in at a time")
    # moto finds a backend's URLs by the name of its module
    ec2_class = type("Ec2", (Ec2,), {"world": world, "__module__": EC2Backend.__module__})
    scaling_class = type("AutoScaling", (AutoScaling,), {"world": world, "__module__": AutoScalingBackend.__module__})
    places: list[tuple[Any, str, Any]] = [
        (ec2_backends, "backend", ec2_class),
        (autoscaling_backends, "backend", scaling_class),
        (moto.autoscaling.models, "FakeAutoScalingGroup", Group),
        (moto.autoscaling.models, "InstanceState", Member),
        (moto.autoscaling.urls, "url_paths", {"{0}/$": AutoScalingCalls.dispatch}),
        (moto.ec2.urls, "url_paths", {"{0}/": Ec2Response.dispatch}),
        (moto.sqs.models.Queue, "_set_attributes", set_attributes),
        (moto.iam.models.IAMBackend, "_init_aws_policies", _aws_policies),
        # moto would look for the caller's key in five more partitions, and make all those policies for each of them
        (moto.iam.models, "get_account_id_from", lambda _key: ACCOUNT),
        # and read its own folder and the methods of a class for each request, for half of its time
        (moto.backends, "list_of_moto_modules", frozenset(moto.backends.list_of_moto_modules()).copy),
        (moto.core.responses, "method_names_from_class", functools.cache(moto.core.utils.method_names_from_class)),
        *(_MORE.PLACES if _MORE else ()),
    ]
    before = [(place, name, getattr(place, name)) for place, name, _ in places]
    _put(places)
    try:
        yield Scaling(world, _regions)
    finally:
        _put(before)


def _aws_policies(iam: moto.iam.models.IAMBackend) -> list[moto.iam.models.ManagedPolicy]:
    """AWS's own, such as AmazonEKSClusterPolicy, are there to be attached; how often each is, is counted in it."""
    return [copy.copy(one) for one in made_policies(iam.account_id, iam.region_name)]


@functools.cache
def made_policies(account: str, region: str) -> list[moto.iam.models.ManagedPolicy]:
    """Made once for a process: there are more than a thousand, which takes 0.2 s."""
    found = json.loads(aws_managed_policies_data).items()
    return [moto.iam.models.AWSManagedPolicy.from_data(name, account, region, data) for name, data in found]


def _put(places: Iterable[tuple[Any, str, Any]]) -> None:
    for place, name, value in places:
        setattr(place, name, value)
    _forget()  # a reset of the one makes the other anew, half-way through
    BackendDict.reset()
    _forget()


def _forget() -> None:
    for backends in (ec2_backends, autoscaling_backends):
        backends.clear()


class _Handler(MotoRequestHandler):
    """Connections stay open between calls, answers leave at once, and the log holds what went wrong only."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        if str(code).startswith("5"):
            super().log_request(code, size)


@contextlib.contextmanager
def serving(world: World, *, port: int = 0, kubeconfig: Path | None = None) -> Iterator[str]:
    """The stand-in, in threads of this process, until the block ends. Gives its URL."""
    server = _bind(port, StandIn(world))
    with server, installed(world) as scaling:
        hands: list[Scaling | Boot] = [scaling]
        if kubeconfig is not None:
            hands.append(Boot(kubeconfig, lambda: _booted(world), clock=world.clock))
        world.changed = _telling(hands)
        with world.lock:
            _ = ec2_backends[ACCOUNT]["us-east-1"]  # loads its catalogues now, not in the first call
        threads = [threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)]
        threads += [threading.Thread(target=hand.run, daemon=True) for hand in hands]
        for thread in threads:
            thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            for hand in hands:
                hand.stop()
            for thread in threads:
                thread.join(timeout=5)


def _regions() -> list[AutoScaling]:
    """Those in which anything was ever asked of EC2."""
    names = list(ec2_backends[ACCOUNT])
    return [autoscaling_backends[ACCOUNT][name] for name in names]  # type: ignore[misc]  # `installed` sees to it


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    asked = _parser().parse_args(arguments)
    stopping = threading.Event()
    died: list[object] = []

    def stop_on_death(death: threading.ExceptHookArgs) -> None:
        """Ends the stand-in: without one of its threads it would be a wrong answer that goes on."""
        threading.__excepthook__(death)
        died.append(death)
        stopping.set()

    threading.excepthook = stop_on_death
    on_first_of((signal.SIGTERM, signal.SIGINT), stopping.set)
    try:
        script = read_document(asked.faults, Script, what="faults") if asked.faults else Script()
        world = World(faults=Faults(script), boot_delay=asked.boot_delay, retry_after=asked.retry_after)
        with serving(world, port=asked.port, kubeconfig=asked.kubeconfig) as url:
            print(f"stand-in for AWS at {url}, process {os.getpid()}", flush=True)
            stopping.wait()
    except BadInput as mistake:
        print(f"stand-in for AWS: {mistake}", file=sys.stderr)
        return 2
    except Unavailable as outage:
        print(f"stand-in for AWS: {outage}", file=sys.stderr)
        return 1
    return 1 if died else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m stacks.local.fake_aws.server", description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, required=True, help="port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="cluster in which running instances become nodes")
    parser.add_argument("--boot-delay", type=_span, default="3s", help="from launch to running and joined, e.g. 3s")
    parser.add_argument("--retry-after", type=_span, default="5s", help="from a failed launch to the next try")
    parser.add_argument("--faults", type=Path, help="script of faults that is in force from the start")
    return parser


def _span(text: str) -> Any:
    try:
        return parse_span(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _bind(port: int, app: StandIn) -> ThreadedWSGIServer:
    try:
        return ThreadedWSGIServer("127.0.0.1", port, app, handler=_Handler)
    except (OSError, SystemExit) as error:
        reason = getattr(error, "strerror", None) or "taken by another process"
        raise Unavailable(f"cannot listen on 127.0.0.1:{port}: {reason}; choose another --port") from None


def _telling(hands: Iterable[Scaling | Boot]) -> Callable[[], None]:
    def tell() -> None:
        for hand in hands:
            hand.changed()

    return tell


def _booted(world: World) -> list[Booted]:
    with world.lock:
        return [booted for region in _regions() for booted in region.ec2_backend.booted()]


def _cut(environ: dict[str, Any]) -> None:
    """Reset the connection, as a host does that has no such service any more."""
    connection: socket.socket | None = environ.get("werkzeug.socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _json(answer: object, *, status: int = 200) -> Reply:
    return status, "application/json", json.dumps(answer).encode()


def _send(start_response: Any, reply: Reply, *, close: bool = False) -> list[bytes]:
    status, kind, body = reply
    headers = [("Content-Type", kind), ("Content-Length", str(len(body)))]
    start_response(f"{status} {HTTPStatus(status).phrase}", headers + [("Connection", "close")] * close)
    return [body]


if __name__ == "__main__":
    sys.exit(main())
