"""The HTTP door of a running autoscaler: metrics, health, status, and answers about what it decided last."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from autoscaler.model.errors import BadInput, Unavailable

ERROR: Final = "error"
"""Key of an answer that says what is wrong with the question."""
UNAVAILABLE: Final = "unavailable"
"""Key of an answer that says why there is none for now."""

_MOST: Final = 64 * 2**20
"""Bytes of a question at most."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked at the door."""

    path: tuple[str, ...] = ()
    """The rest of it, after the answer's name."""
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


Answer = Callable[[Question], Any]
"""What answers as JSON. Raises ``BadInput`` or ``Unavailable``."""


class Door:
    """The port on which a running autoscaler answers."""

    def __init__(self, port: int | None = None) -> None:
        """``port``: on every address of the host; ``None``: a free one that only this host reaches.

        Raises ``BadInput`` where the port is taken.
        """
        from wsgiref.simple_server import WSGIRequestHandler, make_server  # noqa: PLC0415 - where an autoscaler runs

        from prometheus_client.exposition import ThreadingWSGIServer  # noqa: PLC0415

        class Silent(WSGIRequestHandler):
            """A request handler that logs nothing."""

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
                """Logs nothing."""

        try:
            where = ("", port) if port is not None else ("127.0.0.1", 0)
            self._server = make_server(*where, _nothing, ThreadingWSGIServer, handler_class=Silent)
        except OSError as error:
            raise BadInput(f"--metrics-port {port}: {error.strerror or error}: choose another port") from None
        self.port: int = self._server.server_port

    def open(
        self, *, metrics: Any, why_not_alive: Callable[[], str], answers: Mapping[str, Answer] | None = None
    ) -> None:
        """Answer from now on: ``/metrics``; ``/healthz``: 503 with a reason where the loop hangs.

        ``metrics``: the WSGI application of Prometheus. ``answers``: by the beginning of the path, of one part or two.
        """

        def reply(environ: dict[str, Any], start: Any) -> Any:
            path = [unquote(part) for part in environ.get("PATH_INFO", "").strip("/").split("/")]
            for parts in (1, 2):
                answer = answers.get("/".join(path[:parts])) if answers else None
                if answer is not None:
                    start("200 OK", [("Content-Type", "application/json")])
                    return [_answered(answer, _question(environ, path[parts:]))]
            if path == ["metrics"]:
                return metrics(environ, start)
            if path != ["healthz"]:
                return _nothing(environ, start)
            why = why_not_alive()
            start("503 Service Unavailable" if why else "200 OK", [("Content-Type", "text/plain")])
            return [(why or "ok\n").encode()]

        self._server.set_app(reply)
        threading.Thread(target=self._server.serve_forever, name="door", daemon=True).start()


def _nothing(_environ: dict[str, Any], start: Any) -> list[bytes]:
    start("404 Not Found", [("Content-Type", "text/plain")])
    return [b"there are /metrics, /healthz and /status\n"]


def _question(environ: dict[str, Any], rest: Sequence[str]) -> Question:
    query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
    length = min(int(environ.get("CONTENT_LENGTH") or 0), _MOST)
    return Question(tuple(rest), query, environ["wsgi.input"].read(length) if length else b"")


def _answered(answer: Answer, question: Question) -> bytes:
    """What cannot be answered is said in the answer: a proxy on the way would put its own words for a status."""
    try:
        said = answer(question)
    except BadInput as why:
        said = {ERROR: str(why)}
    except Unavailable as why:
        said = {UNAVAILABLE: str(why)}
    return json.dumps(said, default=str).encode()
