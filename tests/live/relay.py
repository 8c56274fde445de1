"""A relay between the engine and the stand-in for AWS that keeps one call on its way: the caller may die meanwhile."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import urllib3

Holds = Callable[[str, str, bytes], bool]
"""Whether a call is the one, by its method, its path with the query, and its body."""


class Relay:
    """Passes calls on; the first one that is held waits until it is let go, or is lost."""

    def __init__(self, target: str, holds: Holds) -> None:
        self.caught = threading.Event()
        self._target, self._holds = target, holds
        self._go, self._lost = threading.Event(), False
        self._pool = urllib3.PoolManager(maxsize=32)
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                """One call; its caller may be gone, or the target ended meanwhile."""
                with contextlib.suppress(ConnectionError, urllib3.exceptions.HTTPError):
                    super().handle_one_request()

            def log_message(self, *_: object) -> None:
                """Nothing."""

            def pass_on(self) -> None:
                """To the target, and the answer back."""
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if not relay.takes(self.command, self.path, body):
                    self.close_connection = True
                    return
                status, headers, content = relay.ask(self.command, self.path, dict(self.headers), body)
                self.send_response(status)
                for name, value in headers.items():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = pass_on  # noqa: N815 - names of the library's

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def takes(self, method: str, path: str, body: bytes) -> bool:
        """Whether the call is to be passed on, which may be known only later."""
        if self._holds(method, path, body) and not self._go.is_set():
            self.caught.set()
            self._go.wait()
            return not self._lost
        return True

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and content of the target's answer."""
        answer = self._pool.request(
            method, self._target + path, headers=headers, body=body, retries=False, redirect=False, decode_content=False
        )
        return answer.status, dict(answer.headers), answer.data

    def let_go(self) -> None:
        """What is held arrives now."""
        self._go.set()

    def lose(self) -> None:
        """What is held never arrives."""
        self._lost = True
        self._go.set()

    def close(self) -> None:
        """End it."""
        self.lose()
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def relay(target: str, *, holds: Holds) -> Iterator[Relay]:
    """A relay to that URL."""
    made = Relay(target, holds)
    try:
        yield made
    finally:
        made.close()
