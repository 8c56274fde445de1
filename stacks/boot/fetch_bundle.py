"""Fetches the bundle of the roles from S3: ``fetch_bundle.py URL SHA256 FILE``.

For a bare machine: nothing but Python's own library. It asks with the rights of the instance's role (Signature Version
4), and again while it is refused or not answered: a role's rights take a while to be known everywhere. What arrives is
believed by its digest alone. Exit status: 0 it is there, 1 it could not be had.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import sys
import time
import urllib.request
from datetime import datetime, timezone

METADATA = "http://169.254.169.254/latest"
PATIENCE = 600.0
"""Seconds."""
_NOBODYS_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(url: str, sha256: str, file: str) -> int:
    """Try until it is there."""
    end, wait = time.monotonic() + PATIENCE, 1.0
    while True:
        try:
            fetch(url, sha256, file)
        except (OSError, ValueError, KeyError) as error:
            print(f"spillway: {url}: {error}", flush=True)
        else:
            return 0
        if time.monotonic() + wait > end:
            return 1
        time.sleep(wait)
        wait = min(30.0, wait * 2)


def fetch(url: str, sha256: str, file: str) -> None:
    """Fetches the file once. Raises ``OSError`` or ``ValueError``."""
    request = urllib.request.Request(url, headers=signed(url, datetime.now(timezone.utc)))  # noqa: S310, UP017 - https of ours; of any Python 3
    with _NOBODYS_PROXY.open(request, timeout=60) as answer:
        content = answer.read()
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ValueError(f"its digest is {found}, and should be {sha256}")
    with open(file + ".part", "wb") as part:  # noqa: PTH123 - a few lines without pathlib
        part.write(content)
    os.replace(file + ".part", file)  # noqa: PTH105 - as above


def signed(url: str, now: datetime) -> dict[str, str]:
    """Returns signed headers: docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html."""
    region = json.loads(metadata("dynamic/instance-identity/document"))["region"]
    role = metadata("meta-data/iam/security-credentials/").split()[0]
    keys = json.loads(metadata("meta-data/iam/security-credentials/" + role))
    stamp, nothing = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(b"").hexdigest()
    host, _, path = url.partition("://")[2].partition("/")
    headers = {
        "host": host,
        "x-amz-content-sha256": nothing,
        "x-amz-date": stamp,
        "x-amz-security-token": keys["Token"],
    }
    names = ";".join(sorted(headers))
    lines = "".join(name + ":" + headers[name] + "\n" for name in sorted(headers))
    asked = "GET\n/" + path + "\n\n" + lines + "\n" + names + "\n" + nothing
    scope = stamp[:8] + "/" + region + "/s3/aws4_request"
    text = "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hashlib.sha256(asked.encode()).hexdigest()
    key = ("AWS4" + keys["SecretAccessKey"]).encode()
    for part in (stamp[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), "sha256").digest()
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    by = "AWS4-HMAC-SHA256 Credential=" + keys["AccessKeyId"] + "/" + scope
    return {**headers, "authorization": by + ", SignedHeaders=" + names + ", Signature=" + signature}


def metadata(path: str) -> str:
    """Asks the metadata service, as IMDSv2 wants it."""
    wanted = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    asked = urllib.request.Request(METADATA + "/api/token", method="PUT", headers=wanted)  # noqa: S310 - our own constant
    with _NOBODYS_PROXY.open(asked, timeout=5) as answer:
        token = {"X-aws-ec2-metadata-token": answer.read().decode()}
    with _NOBODYS_PROXY.open(urllib.request.Request(METADATA + "/" + path, headers=token), timeout=5) as answer:  # noqa: S310 - our own constant
        return str(answer.read().decode())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
