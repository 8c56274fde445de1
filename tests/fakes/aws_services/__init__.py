"""Services that moto lacks or knows in part, and the requests that AWS refuses and moto accepts."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import parse_qs

import moto.elbv2.models
import moto.s3.models
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_network_interfaces import NetworkInterfaceBackend

from stacks.local.wire.aws_protocol import Call, Reply
from tests.fakes.aws_services.addresses import create_interface, delete_interface, deregister
from tests.fakes.aws_services.buckets import permission, put_policy
from tests.fakes.aws_services.eks import Eks
from tests.fakes.aws_services.stock import Inventory
from tests.fakes.aws_services.systems_manager import SystemsManager
from tests.fakes.aws_services.validation.validate import check
from tests.fakes.aws_services.vpn import Vpn

PLACES: Final[list[tuple[Any, str, Any]]] = [
    (NetworkInterfaceBackend, "create_network_interface", create_interface),
    (NetworkInterfaceBackend, "delete_network_interface", delete_interface),
    (moto.elbv2.models.FakeTargetGroup, "deregister", deregister),
    (moto.s3.models.FakeBucket, "get_permission", permission),
    (moto.s3.models.S3Backend, "put_bucket_policy", put_policy),
]
"""What takes the place of moto's own while the stand-in serves: where, its name, and what."""


class Services:
    """What the stand-in asks before moto, holding its lock."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._eks, self._systems_manager, self._vpn = Eks(account), SystemsManager(account), Vpn(account)

    def check(self, call: Call) -> None:
        """Raise ``Refused`` where AWS would refuse the call."""
        check(call, Inventory(ec2_backends[self._account][call.region]))

    def answer(self, call: Call, environ: dict[str, Any]) -> Reply | None:
        """Answers of the services, or calls, that moto does not know; ``None`` for all that it does."""
        if call.service == "ssm":
            return self._systems_manager.answer(call)
        if call.service == "ec2":
            return self._vpn.answer(call)
        if call.service != "eks":
            return None
        return self._eks.answer(
            region=call.region,
            method=environ["REQUEST_METHOD"],
            path=environ["RAW_URI"].partition("?")[0],  # an ARN in it keeps its slashes
            query=parse_qs(environ.get("QUERY_STRING", "")),
            body=environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)),
        )
