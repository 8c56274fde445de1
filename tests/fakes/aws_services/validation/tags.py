"""What AWS refuses of tags, on whatever and by whatever service they are put: every call that carries any is looked at.

Each service has its own words for the same rules: https://docs.aws.amazon.com/tag-editor/latest/userguide/tagging.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from stacks.local.wire.aws_protocol import Refused

_MOST: Final = 50
_KEY, _VALUE = 128, 256
_PLAIN: Final = re.compile(r"[\w\s_.:/=+\-@]*")
"""Letters, digits, spaces and these, in any alphabet. EC2 and Auto Scaling alone take every character."""
_ANY_CHARACTER: Final = ("ec2", "autoscaling")
_CODES: Final[Mapping[str, tuple[str, str]]] = {
    # service: (a tag that is wrong, more than it takes)
    "autoscaling": ("ValidationError", "LimitExceeded"),
    "ec2": ("InvalidParameterValue", "TagLimitExceeded"),
    "eks": ("InvalidParameterException", "InvalidParameterException"),
    "elasticloadbalancing": ("ValidationError", "TooManyTags"),
    "iam": ("InvalidInput", "LimitExceeded"),
    "kms": ("TagException", "TagException"),
    "logs": ("InvalidParameterException", "InvalidParameterException"),
    "s3": ("InvalidTag", "BadRequest"),
    "secretsmanager": ("InvalidParameterException", "LimitExceededException"),
    "ssm": ("ValidationException", "TooManyTagsError"),
}
_LISTS: Final = ("Tags", "Tag", "tags", "TagList")
_INSIDE: Final = ("TagSpecifications", "TagSpecification", "LaunchTemplateData")


def check_tags(service: str, asked: Mapping[str, Any]) -> None:
    """Raise ``Refused`` for the first list of tags in the call that the service would refuse."""
    invalid, too_many = _CODES.get(service, ("ValidationException", "TooManyTagsException"))
    for listed in _tags_in(asked):
        own = [key for key, _ in listed]
        if len(own) > _MOST:
            raise Refused(too_many, "The maximum number of Tags for a resource has been reached.")
        twice = next((key for key in own if own.count(key) > 1), None)
        if twice is not None and service != "autoscaling":
            raise Refused(invalid, f"Duplicate tag key '{twice}' specified.")
        for key, value in listed:
            _check_one(key, value, code=invalid, plain=service not in _ANY_CHARACTER)


def _check_one(key: str, value: str, *, code: str, plain: bool) -> None:
    if not 1 <= len(key) <= _KEY:
        raise Refused(code, f"Tag key exceeds the maximum length of {_KEY} characters: {key!r}")
    if len(value) > _VALUE:
        raise Refused(code, f"Tag value exceeds the maximum length of {_VALUE} characters: {value!r}")
    if key.lower().startswith("aws:"):
        raise Refused(code, f"Value ( {key} ) for parameter key is invalid. Tag keys starting with 'aws:' are reserved")
    for what in (key, value):
        if plain and not _PLAIN.fullmatch(what):
            raise Refused(code, f"The tag {key}={value} holds characters other than letters, digits, spaces, _.:/=+-@")


def _tags_in(asked: Mapping[str, Any]) -> Iterator[list[tuple[str, str]]]:
    for name in _LISTS:
        if asked.get(name):
            yield _pairs(asked[name])
    for name in _INSIDE:
        inner = asked.get(name)
        for one in inner if isinstance(inner, list) else [inner]:
            if isinstance(one, Mapping):
                yield from _tags_in(one)


def _pairs(tags: Any) -> list[tuple[str, str]]:
    """From a mapping, or from a list in one of the spellings that services have."""
    if isinstance(tags, Mapping):
        return [(str(key), str(value)) for key, value in tags.items()]
    listed: Sequence[Any] = tags if isinstance(tags, Sequence) and not isinstance(tags, str) else ()
    return [
        (
            str(tag.get("Key", tag.get("TagKey", tag.get("key", "")))),
            str(tag.get("Value", tag.get("TagValue", tag.get("value", ""))) or ""),
        )
        for tag in listed
        if isinstance(tag, Mapping)
    ]
