"""The HTTP door of a running autoscaler: metrics, health, status, and answers about what it decided last."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from autoscaler.model.errors import BadInput, Unavailable

ERROR: Final = "error"
"""Key of an answer that says why there is none."""

Answer = Callable[[tuple[str, ...], Mapping[str, str]], Any]
"""What answers as JSON: given the rest of the path and the query. Raises ``BadInput`` or ``Unavailable``."""


def open_door(
    port: int, *, metrics: Any, why_not_alive: Callable[[], str], answers: Mapping[str, Answer] | None = None
) -> None:
    """Answer on the port from now on: ``/metrics``; ``/healthz``: 503 with a reason where the loop hangs.

    ``metrics``: the WSGI application of Prometheus. ``answers``: by the beginning of the path, of one part or two.
    Raises ``BadInput`` where the port is taken.
    """
    from wsgiref.simple_server import WSGIRequestHandler, make_server  # noqa: PLC0415 - only where wanted

    from prometheus_client.exposition import ThreadingWSGIServer  # noqa: PLC0415

    class Silent(WSGIRequestHandler):
        """Logs no requests."""

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name in the base class
            """Nothing."""

    def reply(environ: dict[str, Any], start: Any) -> Any:
        path = [unquote(part) for part in environ.get("PATH_INFO", "").strip("/").split("/")]
        for parts in (1, 2):
            answer = answers.get("/".join(path[:parts])) if answers else None
            if answer is not None:
                query = {key: values[0] for key, values in parse_qs(environ.get("QUERY_STRING", "")).items()}
                start("200 OK", [("Content-Type", "application/json")])
                return [_answered(answer, tuple(path[parts:]), query)]
        if path == ["metrics"]:
            return metrics(environ, start)
        if path != ["healthz"]:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"there are /metrics, /healthz and /status\n"]
        why = why_not_alive()
        start("503 Service Unavailable" if why else "200 OK", [("Content-Type", "text/plain")])
        return [(why or "ok\n").encode()]

    try:
        server = make_server("", port, reply, ThreadingWSGIServer, handler_class=Silent)
    except OSError as error:
        raise BadInput(f"--metrics-port {port}: {error.strerror or error}: choose another port") from None
    threading.Thread(target=server.serve_forever, name="door", daemon=True).start()


def _answered(answer: Answer, rest: tuple[str, ...], query: Mapping[str, str]) -> bytes:
    """What cannot be answered is said in the answer: a proxy on the way would put its own words for a status."""
    try:
        said = answer(rest, query)
    except (BadInput, Unavailable) as why:
        said = {ERROR: str(why)}
    return json.dumps(said, default=str).encode()
