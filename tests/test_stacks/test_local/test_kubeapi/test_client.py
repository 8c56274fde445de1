"""The ground's own client of the Kubernetes API."""

from __future__ import annotations

import base64
import json
import socket
import threading
from pathlib import Path

import pytest
import yaml

from autoscaler.model.errors import Unavailable
from stacks.local.kubeapi.client import KubeHttp

EVENT = json.dumps({"type": "ADDED", "object": {}}).encode() + b"\n"
HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_watch_that_breaks_off_is_an_outage_like_any_other(tmp_path: Path) -> None:
    """Its callers catch one error: a thread that dies of another would follow no more, and say nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_answer_in_part, args=(server,), daemon=True).start()
        events = _client(tmp_path, server.getsockname()[1]).stream("/api/v1/pods?watch=1")
        assert next(events) == {"type": "ADDED", "object": {}}
        with pytest.raises(Unavailable, match="broke off"):
            next(events)


def _answer_in_part(server: socket.socket) -> None:
    connection, _ = server.accept()
    with connection:
        connection.recv(2**16)
        connection.sendall(HEAD + b"%x\r\n%b\r\n" % (len(EVENT), EVENT))


def _client(folder: Path, port: int) -> KubeHttp:
    authority = base64.b64encode(b"none").decode()
    cluster = {"server": f"http://127.0.0.1:{port}", "certificate-authority-data": authority}
    config = {"clusters": [{"cluster": cluster}], "users": [{"user": {"token": "t"}}]}
    (folder / "kubeconfig").write_text(yaml.safe_dump(config), encoding="utf-8")
    return KubeHttp(folder / "kubeconfig")
