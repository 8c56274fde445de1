"""Runs on an EC2 instance, by itself: tells the API server what EC2 is about to do with it. Standard library alone.

Every two seconds it asks the instance metadata service (IMDSv2). What that says becomes an annotation of the Node,
written as its kubelet, which may change no Node but its own. The autoscaler then empties the node, also where no queue
tells it.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/rebalance-recommendations.html
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/viewing_scheduled_events.html
"""

from __future__ import annotations

import http.client
import json
import ssl
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

METADATA = "169.254.169.254"
EVERY = 2.0
"""Seconds between two questions; AWS recommends every five."""
_TIMEOUT = 5.0
Notice = tuple[str, str]
"""(``interruption``, ``rebalance`` or ``maintenance``; when EC2 acts, RFC 3339, or nothing where it does not say)."""
Get = Callable[[str], str | None]
"""What is said at a path; ``None``: nothing. Raises ``OSError`` where the service does not answer."""


@dataclass(frozen=True)
class Kubelet:
    """With what the Node is written: paths of kubeconfig, authority and certificate."""

    node: str
    kubeconfig: str
    authority: str
    certificate: str

    def annotate(self, key: str, value: str | None) -> None:
        """Set it at the Node, or take it away. Raises ``OSError``."""
        lines = (line.split() for line in Path(self.kubeconfig).read_text(encoding="utf-8").splitlines())
        server = urlsplit(next((words[1] for words in lines if words[:1] == ["server:"]), ""))
        context = ssl.create_default_context(cafile=self.authority)
        context.load_cert_chain(self.certificate)  # anew each time: the kubelet renews it
        line = http.client.HTTPSConnection(server.hostname or "", server.port, timeout=_TIMEOUT, context=context)
        body = json.dumps({"metadata": {"annotations": {key: value}}})
        _asked(line, "PATCH", f"/api/v1/nodes/{self.node}", body, {"Content-Type": "application/merge-patch+json"})


def main(annotation: str, kubelet: Kubelet) -> None:
    """Watch for ever. An outage is told once, and what could not be told is tried again."""
    told: Notice | None = None
    outage = ""
    while True:
        try:
            notice = notice_from(session())
            if notice != told:
                kubelet.annotate(annotation, value_of(notice))
                print(f"told: {notice}", flush=True)
                told = notice
            outage = ""
        except (OSError, ValueError) as error:
            if str(error) != outage:
                outage = str(error)
                print(f"cannot ask or tell: {outage}", file=sys.stderr, flush=True)
        time.sleep(EVERY)


def session() -> Get:
    """Asks the metadata service. Raises ``OSError``."""
    token = _metadata("PUT", "api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}) or ""
    return lambda path: _metadata("GET", f"meta-data/{path}", {"X-aws-ec2-metadata-token": token})


def notice_from(get: Get) -> Notice | None:
    """The gravest that is said. Raises ``OSError``, and ``ValueError`` for what is not as documented."""
    action = get("spot/instance-action")
    if action:
        return "interruption", _field(json.loads(action), "time")
    events = [one for one in json.loads(get("events/maintenance/scheduled") or "[]") if one.get("State") == "active"]
    if events:
        return "maintenance", _rfc3339(min(parsedate_to_datetime(_field(one, "NotBefore")) for one in events))
    return ("rebalance", "") if get("events/recommendations/rebalance") else None


def value_of(notice: Notice | None) -> str | None:
    """Returns the annotation's value: kind, when it was first seen, when EC2 acts."""
    if notice is None:
        return None
    kind, ends = notice
    return f"{kind} {_rfc3339(datetime.now(UTC))} {ends}".strip()


def _field(said: dict[str, Any], key: str) -> str:
    if not isinstance(said.get(key), str):
        raise ValueError(f"the metadata service says {said}, without a {key}")  # noqa: TRY004 - of what was said
    return str(said[key])


def _metadata(method: str, path: str, headers: dict[str, str]) -> str | None:
    line = http.client.HTTPConnection(METADATA, timeout=_TIMEOUT)
    return _asked(line, method, f"/latest/{path}", None, headers)


def _asked(
    line: http.client.HTTPConnection, method: str, path: str, body: str | None, headers: dict[str, str]
) -> str | None:
    """What it answers; ``None``: there is no such thing. Raises ``OSError``."""
    try:
        line.request(method, path, body=body, headers=headers)
        answer = line.getresponse()
        said = answer.read().decode()
    except http.client.HTTPException as error:
        raise OSError(f"{line.host} broke off: {error}") from None
    finally:
        line.close()
    if answer.status == HTTPStatus.NOT_FOUND and method == "GET":
        return None
    if answer.status != HTTPStatus.OK:
        raise OSError(f"{line.host} says {answer.status} to {method} {path}: {said[:200]}")
    return said


def _rfc3339(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


if __name__ == "__main__":
    main(sys.argv[1], Kubelet(*sys.argv[2:]))
