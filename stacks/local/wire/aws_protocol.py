"""The AWS protocols as far as the stand-in must read a call or refuse one before moto sees it."""

from __future__ import annotations

import io
import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

Reply = tuple[int, str, bytes]
"""HTTP status, content type, body."""

_SCOPE: Final = re.compile(r"Credential=([^/]*)/\d+/([^/]+)/([^/]+)/aws4_request")
_READS: Final = ("Describe", "Get", "List", "Head", "Search", "Lookup", "Decode", "Simulate")


class Refused(Exception):  # noqa: N818 - reads as what it is at the raise site
    """A call that AWS would answer with this error."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.status = status


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an AWS API."""

    service: str
    """As in the signature: ``ec2``, ``autoscaling``, ``ssm``, ``s3``, ..."""
    action: str
    """``RunInstances``; for APIs that have none (S3): method and path."""
    region: str
    access_key: str = ""
    user_agent: str = ""
    json_protocol: bool = False
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """As sent: flat names such as ``Tags.member.1.Key`` in the query protocols."""

    @property
    def changes_something(self) -> bool:
        """Whether it is more than a question."""
        return not self.action.startswith((*_READS, "GET ", "HEAD ", "OPTIONS "))


def read_call(environ: dict[str, Any]) -> Call:
    """The call in a WSGI request. The body can be read again afterwards."""
    form, payload = _body(environ)
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    target = environ.get("HTTP_X_AMZ_TARGET", "")
    action = form.pop("Action", "") or target.rpartition(".")[2]
    form.pop("Version", None)
    return Call(
        service=scope.group(3) if scope else "",
        action=action or f"{environ.get('REQUEST_METHOD', '')} {environ.get('PATH_INFO', '')}",
        region=scope.group(2) if scope else "us-east-1",
        access_key=scope.group(1) if scope else "",
        user_agent=environ.get("HTTP_USER_AGENT", ""),
        json_protocol=bool(target or payload),
        parameters=payload or form,
    )


def nested(flat: Mapping[str, str]) -> dict[str, Any]:
    """Flat names of the query protocols as the structure they stand for.

    ``{"Tags.member.1.Key": "a"}`` and EC2's ``{"Tag.1.Key": "a"}`` become lists of mappings.
    """
    tree: dict[str, Any] = {}
    for name, value in flat.items():
        *path, last = [part for part in name.split(".") if part != "member"]
        here = tree
        for part in path:
            below = here.setdefault(part, {})
            here = below if isinstance(below, dict) else {}
        here[last] = value
    listed = _lists(tree)
    return listed if isinstance(listed, dict) else {}


def refusal(call: Call, refused: Refused) -> Reply:
    """The error as the call's protocol writes it."""
    code, message, request = refused.code, str(refused), str(uuid.uuid4())
    if call.json_protocol:
        body = json.dumps({"__type": code, "message": message})
        return refused.status, "application/x-amz-json-1.1", body.encode()
    error = f"<Code>{escape(code)}</Code><Message>{escape(message)}</Message>"
    if call.service == "ec2":
        xml = f"<Response><Errors><Error>{error}</Error></Errors><RequestID>{request}</RequestID></Response>"
    elif call.service == "s3":
        xml = f"<Error>{error}<RequestId>{request}</RequestId></Error>"
    else:
        xml = (
            f"<ErrorResponse><Error><Type>Sender</Type>{error}</Error><RequestId>{request}</RequestId></ErrorResponse>"
        )
    return refused.status, "text/xml", f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}'.encode()


def error_in(status: int, body: bytes) -> str:
    """The error code of an answer; empty where it is not an error."""
    if status < 400:  # noqa: PLR2004 - where HTTP's errors begin
        return ""
    found = re.search(rb"<Code>([^<]+)</Code>", body) or re.search(rb'"__type":\s*"(?:[^"#]*#)?([^"]+)"', body)
    return found.group(1).decode() if found else str(status)


def _body(environ: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """A form's fields, or a JSON object; neither for other contents, which are left unread."""
    kind, length = environ.get("CONTENT_TYPE", ""), int(environ.get("CONTENT_LENGTH") or 0)
    is_form, is_json = kind.startswith("application/x-www-form-urlencoded"), "json" in kind
    if not length or not (is_form or is_json):
        return dict(parse_qsl(environ.get("QUERY_STRING", ""))), {}
    raw = environ["wsgi.input"].read(length)
    environ["wsgi.input"] = io.BytesIO(raw)
    if is_form:
        return dict(parse_qsl(raw.decode(), keep_blank_values=True)), {}
    try:
        payload = json.loads(raw)
    except ValueError:
        payload = {}
    return {}, payload if isinstance(payload, dict) else {}


def _lists(tree: Any) -> Any:
    """Mappings whose keys are all numbers become lists in that order."""
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdigit() for key in tree):
        return [_lists(tree[key]) for key in sorted(tree, key=int)]
    return {key: _lists(value) for key, value in tree.items()}
