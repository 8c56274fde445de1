"""What boto3 knows of AWS's services: each session reads it anew, half a second for EC2; a process of tests, once."""

from __future__ import annotations

from functools import cache
from typing import Any

import boto3
from botocore.loaders import Loader

_read = Loader.load_data_with_path


def read_once(*services: str) -> None:
    """From now on, in this process and in those that are forked from it; what clients of ``services`` need, now."""
    Loader.load_data_with_path = lambda self, name: _kept(tuple(self.search_paths), tuple(self.extras_types), name)
    keys = {"aws_access_key_id": "none", "aws_secret_access_key": "none", "region_name": "us-east-1"}
    session: Any = boto3.session.Session(**keys)  # its types know one signature per service
    for service in services:
        session.client(service)


@cache
def _kept(folders: tuple[str, ...], _extras: tuple[str, ...], name: str) -> Any:
    """What is read in these folders, for loaders that add the same to it: moto's add something else to SQS's."""
    return _read(Loader(extra_search_paths=folders, include_default_search_paths=False), name)
