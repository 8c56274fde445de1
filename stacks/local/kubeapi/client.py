"""The local ground's door to the Kubernetes API: plain JSON over HTTPS, with the token of a kubeconfig file.

Only for the ground and its witness, whose kubeconfig this project writes itself; users' kubeconfigs (exec plugins,
in-cluster accounts) are the autoscaler's business.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
import yaml

from autoscaler.model.errors import Unavailable


class KubeRefusedError(Exception):
    """The API server answered with an error; ``status`` is the HTTP status, the message the server's own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class KubeHttp:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, kubeconfig: Path, *, connections: int = 16) -> None:
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = config["clusters"][0]["cluster"]
        self.url: str = cluster["server"]
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        self._pool = urllib3.PoolManager(
            num_pools=2,
            maxsize=connections,
            retries=False,
            ca_cert_data=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        )

    def get(self, path: str) -> Any:
        """The object or list at ``path``."""
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> Any:
        """One request. Raises ``KubeRefusedError`` on an error answer, ``Unavailable`` where nothing answers."""
        data = None if body is None else json.dumps(body).encode()
        try:
            answer = self._pool.request(
                method, self.url + path, body=data, headers=self._headers | {"Content-Type": content}, timeout=30
            )
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"the API server at {self.url} does not answer ({type(error).__name__})") from None
        if answer.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            raise KubeRefusedError(answer.status, _message(answer.data))
        return json.loads(answer.data) if answer.data else None

    def stream(self, path: str) -> Iterator[Any]:
        """Each JSON line of a watch, until the server ends it. Raises ``Unavailable`` where it breaks off."""
        try:
            yield from self._stream(path)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"the API server at {self.url} broke off ({type(error).__name__})") from None

    def _stream(self, path: str) -> Iterator[Any]:
        answer = self._pool.request(
            "GET",
            self.url + path,
            headers=self._headers,
            preload_content=False,
            timeout=urllib3.Timeout(connect=5, read=330),
        )
        try:
            rest = b""
            for chunk in answer.read_chunked() if answer.chunked else answer.stream():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line:
                        yield json.loads(line)
        finally:
            answer.release_conn()


def _message(data: bytes) -> str:
    try:
        return str(json.loads(data)["message"])
    except (ValueError, KeyError, TypeError):
        return data.decode(errors="replace")[:300]
