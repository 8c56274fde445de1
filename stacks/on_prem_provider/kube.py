"""The only door to the API server that machines are registered at."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import urllib3

from autoscaler.kube.credentials import Account
from autoscaler.model.errors import Unavailable

MERGE: Final = "application/merge-patch+json"
NOT_FOUND: Final = 404
CONFLICT: Final = 409
TOO_MANY: Final = 429


class RefusedError(Exception):
    """The API server answered with an error: ``status`` is HTTP's, the message its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Kube:
    """Requests to one API server, as the kubeconfig says."""

    def __init__(self, kubeconfig: str) -> None:
        """Connects by the content of a kubeconfig. Raises ``BadInput`` where it is not usable."""
        descriptor, path = tempfile.mkstemp(prefix="spillway-", suffix=".kubeconfig")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(kubeconfig)
            self._account = Account(Path(path))
        finally:
            Path(path).unlink()
        made: dict[str, Any] = {"retries": False, "maxsize": 16}
        if self._account.tls is not None:
            made |= {"ssl_context": self._account.tls, "server_hostname": self._account.server_name}
            made |= {"assert_hostname": self._account.server_name} if self._account.server_name else {}
        proxy = self._account.proxy
        self._pool = urllib3.ProxyManager(proxy, **made) if proxy else urllib3.PoolManager(**made)
        self.url = self._account.url
        self.authorities = self._account.authorities

    def get(self, path: str, **query: str) -> Any:
        """The object or list at ``path``."""
        return self.send("GET", f"{path}?{urlencode(query)}" if query else path)

    def find(self, path: str) -> Any | None:
        """The object at ``path``; ``None`` where there is none."""
        try:
            return self.get(path)
        except RefusedError as refused:
            if refused.status == NOT_FOUND:
                return None
            raise

    def send(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Any:
        """One request. Raises ``RefusedError`` on an error answer, ``Unavailable`` where nothing answers."""
        headers = self._account.headers() | {"Accept": "application/json", "User-Agent": "spillway-onprem"}
        if body is not None:
            headers["Content-Type"] = content
        try:
            answer = self._pool.request(
                method,
                self.url + path,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                timeout=urllib3.Timeout(connect=5, read=30),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(
                f"the API server at {self.url} does not answer ({type(error).__name__}), so that machines can be "
                "neither registered nor drained: is it running, and does the kubeconfig name the right one?"
            ) from None
        if answer.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            raise RefusedError(answer.status, _message(answer.data))
        return json.loads(answer.data) if answer.data else None

    def delete(self, path: str, **options: Any) -> None:
        """What is at ``path`` goes; if it is gone already, that is what was wanted."""
        try:
            self.send("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **options})
        except RefusedError as refused:
            if refused.status != NOT_FOUND:
                raise


def _message(data: bytes) -> str:
    """Its own words, with the causes, which are all that a refused eviction tells of the budget."""
    try:
        status = json.loads(data)
        causes = [cause.get("message", "") for cause in (status.get("details") or {}).get("causes") or ()]
        return " ".join([str(status["message"]), *(f"({cause})" for cause in causes if cause)])
    except (ValueError, KeyError, TypeError, AttributeError):
        return data.decode(errors="replace")[:300]
