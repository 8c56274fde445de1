"""What an EC2 instance knows of itself, and what its role lets it read: plain HTTP, no SDK on a bare machine.

Metadata service: IMDSv2 (a session token first, so that no open proxy on the machine gives its keys away). Parameters:
the Systems Manager API, signed with Signature Version 4.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import urllib3

from autoscaler.model.errors import Unavailable

METADATA: Final = "http://169.254.169.254"
_DOMAIN: Final = "amazonaws.com"
_DOMAIN_IN_CHINA: Final = "amazonaws.com.cn"
_TARGET: Final = "AmazonSSM.GetParameter"
_JSON: Final = "application/x-amz-json-1.1"
_OK: Final = 200
_POOL: Final = urllib3.PoolManager(retries=urllib3.Retry(3, backoff_factor=0.5), timeout=urllib3.Timeout(5))


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of this instance."""

    id: str
    name: str
    """Private DNS name, which is its node's name."""
    address: str
    zone: str
    region: str
    type: str = ""
    """E.g. ``p4d.24xlarge``."""

    @property
    def gpu_product(self) -> str:
        """Returns the name that GPU feature discovery gives its GPUs; empty where this list is older than the type."""
        return _PRODUCTS.get(self.type.partition(".")[0], "")


_PRODUCTS: Final = {
    "g4dn": "Tesla-T4",
    "g5": "NVIDIA-A10G",
    "g6": "NVIDIA-L4",
    "g6e": "NVIDIA-L40S",
    "p3": "Tesla-V100-SXM2-16GB",
    "p3dn": "Tesla-V100-SXM2-32GB",
    "p4d": "NVIDIA-A100-SXM4-40GB",
    "p4de": "NVIDIA-A100-SXM4-80GB",
    "p5": "NVIDIA-H100-80GB-HBM3",
    "p5e": "NVIDIA-H200",
    "p5en": "NVIDIA-H200",
    "p6-b200": "NVIDIA-B200",
    "p6-b300": "NVIDIA-B300-SXM6-AC",
}


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials of the instance's role, good for some hours."""

    access: str
    secret: str = field(repr=False)
    session: str = field(repr=False)


def identity() -> Identity:
    """Asks the metadata service for the instance. Raises ``Unavailable``."""
    document = json.loads(_metadata("dynamic/instance-identity/document"))
    return Identity(
        id=document["instanceId"],
        name=_metadata("meta-data/local-hostname").split()[0],
        address=document["privateIp"],
        zone=document["availabilityZone"],
        region=document["region"],
        type=document.get("instanceType", ""),
    )


def gpus_on_the_bus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA's display and 3D controllers: there before any driver is."""
    return sum(
        _word(device / "vendor") == "0x10de" and _word(device / "class")[:6] in ("0x0300", "0x0302")
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def _word(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def credentials() -> Keys:
    """Asks for the keys of the role that the instance's profile names. Raises ``Unavailable``."""
    role = _metadata("meta-data/iam/security-credentials/").split()[0]
    found = json.loads(_metadata(f"meta-data/iam/security-credentials/{role}"))
    return Keys(found["AccessKeyId"], found["SecretAccessKey"], found["Token"])


def parameter(name: str, *, region: str, keys: Keys, patience: float = 0.0) -> str:
    """The decrypted value; asked for again, while it is not there, for ``patience`` seconds. Raises ``Unavailable``."""
    url = f"https://ssm.{region}.{_DOMAIN_IN_CHINA if region.startswith('cn-') else _DOMAIN}"
    body = json.dumps({"Name": name, "WithDecryption": True}).encode()
    end = time.monotonic() + patience
    while True:
        headers = signed(url, body, target=_TARGET, region=region, service="ssm", keys=keys, now=datetime.now(UTC))
        try:
            answer = _POOL.request("POST", url + "/", body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise Unavailable(f"Systems Manager at {url} does not answer ({type(error).__name__})") from None
        said: dict[str, Any] = json.loads(answer.data or b"{}")
        if answer.status == _OK:
            return str(said["Parameter"]["Value"])
        if "ParameterNotFound" not in str(said.get("__type", "")) or time.monotonic() > end:
            raise Unavailable(f"parameter {name}: {said.get('__type')}: {said.get('message') or said.get('Message')}")
        time.sleep(2)


def signed(
    url: str, body: bytes, *, target: str, region: str, service: str, keys: Keys, now: datetime
) -> dict[str, str]:
    """The headers of a POST, signed: docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request."""
    stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
    headers = {
        "content-type": _JSON,
        "host": urlsplit(url).netloc,
        "x-amz-date": stamp,
        "x-amz-security-token": keys.session,
        "x-amz-target": target,
    }
    names = ";".join(sorted(headers))
    canonical = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"POST\n/\n\n{canonical}\n{names}\n{hashlib.sha256(body).hexdigest()}"
    scope = f"{day}/{region}/{service}/aws4_request"
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{keys.secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    credential = f"Credential={keys.access}/{scope}"
    authorization = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={signature}"
    return {**headers, "authorization": authorization}


def _metadata(path: str) -> str:
    try:
        token = _POOL.request(
            "PUT", f"{METADATA}/latest/api/token", headers={"X-aws-ec2-metadata-token-ttl-seconds": "300"}
        )
        answer = _POOL.request(
            "GET", f"{METADATA}/latest/{path}", headers={"X-aws-ec2-metadata-token": token.data.decode()}
        )
    except urllib3.exceptions.HTTPError as error:
        raise Unavailable(f"the metadata service at {METADATA} does not answer ({type(error).__name__})") from None
    if answer.status != _OK:
        raise Unavailable(f"the metadata service at {METADATA} says {answer.status} to {path}")
    return answer.data.decode()
