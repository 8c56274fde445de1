"""Proxies at the doors of a live autoscaler: each call is a point before and after which something can be done to it.

A process is killed or stopped by its id when a certain call arrives, and the call is lost; or once the call has had its
effect, and the answer is lost. The proxies know no more of the process than its id: it runs as it is.
"""

from __future__ import annotations

import contextlib
import http.client
import re
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal
from urllib.parse import parse_qs, urlsplit

from autoscaler.model import labels as words

When = Literal["before", "after"]
BEFORE: Final[When] = "before"
AFTER: Final[When] = "after"
_HOPS: Final = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "host"})
_PATH: Final = re.compile(
    r"^/(?:api/v1|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+(?=/[^/]))?/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?(?P<sub>/[a-z]+)?$"
)
_OWN_MAPS: Final = re.compile(rf"^{words.AUTOSCALER}-(?P<what>[a-z-]+?)(?:-\d+)?$")


class LostError(Exception):
    """The caller gets no answer."""


Hook = Callable[[str, When], None]
"""Told of each point: kind of the call, and whether it is to have its effect yet. Raises ``LostError``."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where calls go on to."""

    host: str
    port: int
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, url: str, *, authority: str | None = None) -> Target:
        """``authority``: in PEM, for ``https``."""
        parts = urlsplit(url)
        tls = ssl.create_default_context(cadata=authority) if authority else None
        return cls(parts.hostname or "", parts.port or 443, tls)

    def connect(self) -> http.client.HTTPConnection:
        """A connection of its own for each of a caller's."""
        if self.tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=400)
        return http.client.HTTPSConnection(self.host, self.port, timeout=400, context=self.tls)


class Proxy:
    """Listens on a port of its own and tells ``hook`` of each call."""

    def __init__(self, target: Target, hook: Hook) -> None:
        self._target, self._hook = target, hook
        self._streams: set[socket.socket] = set()
        self._is_away = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()

    def go_away(self, *, away: bool) -> None:
        """Connections break and new ones are cut at once; or not any more."""
        self._is_away = away
        if away:
            self.cut_watches()

    def cut_watches(self) -> None:
        """Every answer that is being given breaks off."""
        for one in tuple(self._streams):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it."""
        self.go_away(away=True)
        self._server.shutdown()
        self._server.server_close()

    def pass_on(self, handler: BaseHTTPRequestHandler, upstream: http.client.HTTPConnection) -> None:
        """One call there, and its answer back. Raises ``LostError``."""
        if self._is_away:
            raise LostError
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        kind = kind_of(handler.command, handler.path, dict(handler.headers), body)
        self._hook(kind, BEFORE)
        headers = {name: value for name, value in handler.headers.items() if name.lower() not in _HOPS}
        try:
            upstream.request(handler.command, handler.path, body=body or None, headers=headers)
            answer = upstream.getresponse()
            streams = answer.chunked and kind.startswith("watch")
            content = b"" if streams else answer.read()
        except (OSError, http.client.HTTPException):
            raise LostError from None
        self._hook(kind, AFTER)
        handler.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in _HOPS:
                handler.send_header(name, value)
        if streams:
            self._stream(handler, answer)
            return
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    def _stream(self, handler: BaseHTTPRequestHandler, answer: http.client.HTTPResponse) -> None:
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        connection: socket.socket = handler.connection
        self._streams.add(connection)
        try:
            while data := answer.read1(2**16):
                handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            handler.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            raise LostError from None
        finally:
            self._streams.discard(connection)


def _handler(proxy: Proxy) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self) -> None:
            super().setup()
            self.upstream = proxy._target.connect()

        def finish(self) -> None:
            self.upstream.close()
            with contextlib.suppress(OSError):
                super().finish()

        def log_message(self, *_: object) -> None:
            """Nothing."""

        def handle_one_request(self) -> None:
            """One call; its caller may be gone."""
            with contextlib.suppress(ConnectionError):
                super().handle_one_request()

        def _pass_on(self) -> None:
            try:
                proxy.pass_on(self, self.upstream)
            except (LostError, OSError):
                self.close_connection = True
                with contextlib.suppress(OSError):
                    self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_PATCH = do_HEAD = _pass_on  # noqa: N815 - names of the library's

    return Handler


def kind_of(method: str, path: str, headers: dict[str, str], body: bytes) -> str:
    """What a call is, in two or three words: ``PATCH pods/status``, ``PUT memory``, ``LaunchInstances``."""
    target = next((value for name, value in headers.items() if name.lower() == "x-amz-target"), "")
    if target:
        return target.rpartition(".")[2]
    parts = urlsplit(path)
    found = _PATH.match(parts.path)
    if found is None:
        action = parse_qs(body.decode(errors="replace")).get("Action", [""])[0]
        return action or f"{method} {parts.path}"
    query = parse_qs(parts.query)
    kind, name = found["kind"], found["name"]
    if not name:
        verb = "watch" if "watch" in query else {"GET": "list", "DELETE": "DELETE all"}.get(method, method)
        return f"{verb} {kind}"
    own = _OWN_MAPS.match(name) if kind == "configmaps" else None
    return f"{method} {own['what'] if own else kind}{found['sub'] or ''}"


class Points:
    """Counts points, and acts at chosen ones: each once. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen: Counter[tuple[str, When]] = Counter()
        self._armed: dict[tuple[str, When, int], Callable[[Any], bool]] = {}
        self.also: Hook = lambda _kind, _when: None
        """Told of every point, too."""

    def arm(self, kind: str, when: When, nth: int, act: Callable[[Any], bool]) -> None:
        """At the n-th such point ``act`` is called with what ``hook`` was made for; it says if the call is lost."""
        with self._lock:
            self._armed[kind, when, nth] = act

    def unmet(self) -> list[tuple[str, When, int]]:
        """Points that never came."""
        with self._lock:
            return sorted(self._armed)

    def disarm(self) -> None:
        """Nothing happens any more."""
        with self._lock:
            self._armed.clear()

    def hook(self, who: Any) -> Hook:
        """For the proxies of one process."""

        def at(kind: str, when: When) -> None:
            with self._lock:
                self.seen[kind, when] += 1
                act = self._armed.pop((kind, when, self.seen[kind, when]), None)
            if act is not None and act(who):
                raise LostError
            self.also(kind, when)

        return at


@contextlib.contextmanager
def proxied(target: Target, hook: Hook) -> Iterator[Proxy]:
    """A proxy for the length of a ``with`` block."""
    made = Proxy(target, hook)
    try:
        yield made
    finally:
        made.close()
