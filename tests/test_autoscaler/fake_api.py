"""A stand-in for an API server that says what a test tells it to: a script of answers over plain HTTP.

Only for answers that a real one gives too seldom: 410 in the middle of a watch, a cut connection, an expired token.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any = None


@dataclass
class Answer:
    """What to say: one JSON object, bytes as they are, or the lines of a watch, after which ``cut`` breaks it."""

    body: Any = None
    status: int = 200
    stream: tuple[Any, ...] | None = None
    cut: bool = False
    held: threading.Event | None = None
    """A watch stays open after its lines until this is set."""


@dataclass
class FakeApi:
    """The server; ``answer`` decides, ``asked`` remembers."""

    url: str = ""
    answer: Callable[[Asked], Answer] = lambda _asked: Answer(body={}, status=404)
    asked: list[Asked] = field(default_factory=list)

    def kubeconfig(self, directory: Path, *, user: dict[str, Any] | None = None) -> Path:
        """A kubeconfig of it."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.url}}],
            "users": [{"name": "u", "user": user or {"token": "secret"}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        path = directory / "kubeconfig"
        path.write_text(json.dumps(config))
        return path


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """A server for the length of a ``with`` block."""
    api = FakeApi()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            parts = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            query = {key: values[0] for key, values in parse_qs(parts.query).items()}
            asked = Asked(self.command, parts.path, query, dict(self.headers.items()), body)
            api.asked.append(asked)
            self._say(api.answer(asked))

        def _say(self, answer: Answer) -> None:
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            if answer.stream is None:
                data = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)
                return
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for line in answer.stream:
                data = json.dumps(line).encode() + b"\n"
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()
            if answer.held is not None:
                answer.held.wait(20)
            if answer.cut:
                self.close_connection = True
            else:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - the server's names

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        api.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield api
        finally:
            server.shutdown()
            thread.join()
