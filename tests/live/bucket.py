"""A stand-in for S3 with a bucket for lines of jobs, which can be away for a while."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import boto3
from moto.server import ThreadedMotoServer

KEPT: Final = "s3://team/logs"
"""As `logs` of a job file names it."""
_NAME: Final = "team"


@dataclass
class Bucket:
    """Served at one address until it is closed; what was put there stays while it is away."""

    address: str
    url: str = ""
    _server: ThreadedMotoServer | None = field(default=None, repr=False)
    _back: threading.Timer | None = field(default=None, repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """What its users are told."""
        keys = {"AWS_ACCESS_KEY_ID": "local", "AWS_SECRET_ACCESS_KEY": "local"}
        return keys | {"AWS_ENDPOINT_URL": self.url, "AWS_DEFAULT_REGION": "us-east-1"}

    def open(self) -> None:
        """Answer; at the port of the last time, if there was one."""
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it would tell each request
        port = int(self.url.rpartition(":")[2] or 0) if self.url else 0
        self._server = ThreadedMotoServer(ip_address=self.address, port=port, verbose=False)
        self._server.start()
        self.url = "http://{}:{}".format(*self._server.get_host_and_port())

    def close(self) -> None:
        """Answer no more."""
        self.wait()
        if self._server:
            self._server.stop()
            self._server = None

    def wait(self) -> None:
        """Until it answers again."""
        if self._back:
            self._back.join()

    def away(self, seconds: float) -> None:
        """Refuse connections for so long. Raises ``ProcessLookupError`` where it does so already."""
        if self._server is None:
            raise ProcessLookupError
        self.close()
        self._back = threading.Timer(seconds, self.open)
        self._back.start()


@contextlib.contextmanager
def bucket(address: str = "127.0.0.1") -> Iterator[Bucket]:
    """With the bucket, for the length of a ``with`` block."""
    made = Bucket(address)
    made.open()
    try:
        told = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=made.url, **told).create_bucket(Bucket=_NAME)  # type: ignore[call-overload]
        yield made
    finally:
        made.close()
