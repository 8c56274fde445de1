"""The only door to the Kubernetes API: requests, lists in pages, and watches.

Raw HTTP with typed decoding: the stock client's objects would cost 740 MB for ten thousand pods. Its configuration
loader is used (kubeconfig with exec plugins, or the account of a pod), its models are not. What the autoscaler writes
through it is in ``writes.py``.

Three things can go wrong, named by what the caller does next: ``Unavailable`` (try again), ``Refused`` (this one
request cannot be had), ``Expired`` (the version asked for is compacted away: list again).
"""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import urlencode

import msgspec
import urllib3

from autoscaler.kube.credentials import Account
from autoscaler.kube.schema.core import Json
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable

PAGE: Final = 500
WATCH_SECONDS: Final = (240, 300)
"""A watch is asked to end by itself within this range, so that they do not all end at once."""
_KEEPALIVE: Final = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
"""A peer that is gone without a word is noticed within half a minute, on a watch that is silent for hours too."""
_JSON: Final = "application/json"


class Refused(Exception):  # noqa: N818 - reads as what it is at the raise site
    """The API server answered with an error: ``status`` is HTTP's, the message its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Expired(Exception):  # noqa: N818 - as above
    """410 Gone: the version that a list or watch was to go on from is compacted away."""


class Change(Json, frozen=True):
    """One event of a watch; ``object`` is the JSON."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _ListMeta(Json, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Page(Json, frozen=True):
    metadata: _ListMeta = _ListMeta()
    items: tuple[msgspec.Raw, ...] = ()


class _Cause(Json, frozen=True):
    reason: str = ""
    message: str = ""


class _Details(Json, frozen=True):
    causes: tuple[_Cause, ...] = ()


class _Status(Json, frozen=True):
    code: int = 0
    message: str = ""
    details: _Details = _Details()

    def budget(self) -> str:
        """Which PodDisruptionBudget forbids an eviction, in the API server's words; empty where none does."""
        return next((one.message for one in self.details.causes if one.reason == "DisruptionBudget"), "")


_PAGE_DECODER: Final = msgspec.json.Decoder(_Page)
_CHANGE_DECODER: Final = msgspec.json.Decoder(Change)
_STATUS_DECODER: Final = msgspec.json.Decoder(_Status)


class Kube:
    """Requests to one API server. Safe to use from several threads."""

    def __init__(self, account: Account, *, connections: int = 16) -> None:
        self._account = account
        self.url = account.url
        made: dict[str, Any] = {"num_pools": 2, "maxsize": connections, "block": False, "retries": False}
        if account.tls is not None:
            made |= {"ssl_context": account.tls, "server_hostname": account.server_name}
            made |= {"assert_hostname": account.server_name} if account.server_name else {}
        made["socket_options"] = list(_KEEPALIVE)
        self._watches: set[urllib3.BaseHTTPResponse] = set()
        self._pool = urllib3.ProxyManager(account.proxy, **made) if account.proxy else urllib3.PoolManager(**made)

    @classmethod
    def connect(cls, kubeconfig: Path | None = None) -> Kube:
        """Connects by ``kubeconfig``, else $KUBECONFIG, else ~/.kube/config, else as the pod that we run in.

        Raises ``BadInput`` where there is no usable configuration, ``Unavailable`` where the server does not answer.
        """
        kube = cls(Account(kubeconfig))
        kube.get("/version")
        return kube

    def get(self, path: str, **query: str | int) -> bytes:
        """The answer to a GET."""
        return self.send("GET", _with_query(path, query))

    def send(self, method: str, path: str, body: object = None, *, content: str = _JSON) -> bytes:
        """One request. Raises ``Refused``, ``Expired`` or ``Unavailable``."""
        data = None if body is None else msgspec.json.encode(body)
        answer = self._open(method, path, data=data, content=content, timeout=urllib3.Timeout(connect=5, read=30))
        return answer.data

    def pages(self, path: str, **query: str | int) -> Iterator[tuple[tuple[msgspec.Raw, ...], str]]:
        """Every object at ``path`` in pages, each with the version that a watch goes on from."""
        go_on = ""
        while True:
            part: dict[str, str | int] = {"limit": PAGE} | ({"continue": go_on} if go_on else {})
            page = _PAGE_DECODER.decode(self.get(path, **query, **part))
            yield page.items, page.metadata.resource_version
            go_on = page.metadata.continue_
            if not go_on:
                return

    @contextlib.contextmanager
    def watch(self, path: str, version: str) -> Iterator[Iterator[Change]]:
        """What changes at ``path`` after ``version``, until the server ends the watch.

        Raises ``Expired`` where the version is compacted away, ``Unavailable`` where the connection breaks.
        """
        query: dict[str, str | int] = {
            "watch": 1,
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": random.randint(*WATCH_SECONDS),  # noqa: S311 - jitter
        }
        timeout = urllib3.Timeout(connect=5, read=WATCH_SECONDS[1] + 30)
        answer = self._open("GET", _with_query(path, query), timeout=timeout, stream=True)
        self._watches.add(answer)
        try:
            yield self._changes(answer)
        finally:
            self._watches.discard(answer)
            answer.close()

    def close(self) -> None:
        """End every open watch, in whatever thread it is read."""
        for answer in tuple(self._watches):
            with contextlib.suppress(OSError, ValueError, RuntimeError):
                answer.shutdown()

    def lines(self, path: str) -> Iterator[bytes]:
        """Each line of an answer that grows, such as a log that is followed."""
        answer = self._open("GET", path, timeout=urllib3.Timeout(connect=5, read=None), stream=True)
        try:
            yield from _lines(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(f"the answer of the API server at {self.url} broke off ({reason_of(error)})") from None
        finally:
            answer.close()

    def _changes(self, answer: urllib3.BaseHTTPResponse) -> Iterator[Change]:
        try:
            for line in _lines(answer):
                if line:
                    yield _change(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unavailable(f"the watch on the API server at {self.url} broke ({reason_of(error)})") from None

    def _open(
        self,
        method: str,
        path: str,
        *,
        timeout: urllib3.Timeout,
        data: bytes | None = None,
        content: str = _JSON,
        stream: bool = False,
        again: bool = True,
    ) -> urllib3.BaseHTTPResponse:
        headers = self._account.headers() | {"Accept": _JSON, "User-Agent": words.AUTOSCALER}
        if data is not None:
            headers["Content-Type"] = content
        try:
            answer = self._pool.request(
                method, self.url + path, body=data, headers=headers, timeout=timeout, preload_content=not stream
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unavailable(
                f"the API server at {self.url} does not answer ({reason_of(error)}): is it running, and is "
                "the kubeconfig the right one?"
            ) from None
        if answer.status == 401 and again:  # noqa: PLR2004 - our token is not known: perhaps it was replaced
            self._account.renew()
            return self._open(method, path, timeout=timeout, data=data, content=content, stream=stream, again=False)
        if answer.status >= 400:  # noqa: PLR2004 - where HTTP's errors begin
            raise _refusal(answer, self.url)
        return answer


def _with_query(path: str, query: Mapping[str, str | int]) -> str:
    return f"{path}{'&' if '?' in path else '?'}{urlencode(query)}" if query else path


def _lines(answer: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    rest = b""
    for chunk in answer.stream(2**16):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _change(line: bytes) -> Change:
    change = _CHANGE_DECODER.decode(line)
    if change.type == "ERROR":
        status = _STATUS_DECODER.decode(change.object)
        if status.code == 410:  # noqa: PLR2004 - Gone
            raise Expired(status.message)
        raise Unavailable(f"the API server ended a watch: {status.message or status.code}")
    return change


_RIGHTS: Final = re.compile(r'User "[^"]*" cannot ')
"""RBAC's words; quotas and admission refuse with the same status, and no role changes that."""


def _refusal(answer: urllib3.BaseHTTPResponse, url: str) -> Exception:
    try:
        told = _STATUS_DECODER.decode(answer.data)
    except (msgspec.DecodeError, urllib3.exceptions.HTTPError):
        told = _Status()
    message = told.message or f"HTTP status {answer.status}"
    answer.release_conn()
    match answer.status:
        case 429 if told.budget():
            return Refused(429, told.budget())
        case 410:
            return Expired(message)
        case 401:
            return Unavailable(
                f"the API server at {url} does not know us ({message}): are the kubeconfig's credentials valid?"
            )
        case 403:
            return Refused(403, f"{message}: apply autoscaler/rbac.yaml" if _RIGHTS.search(message) else message)
        case 429 | 500 | 502 | 503 | 504:
            return Unavailable(f"the API server at {url} is not able to answer now ({message})")
        case status:
            return Refused(status, message)


def reason_of(error: Exception) -> str:
    """The shortest true word for what broke a connection."""
    text = str(error).lower()
    for known in ("connection refused", "timed out", "certificate verify failed", "name or service not known"):
        if known in text:
            return known
    return type(error).__name__
