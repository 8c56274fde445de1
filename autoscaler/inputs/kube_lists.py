"""Kubernetes objects in a file: a List, a stream of documents, or one alone, in JSON or YAML, as kubectl writes them.

JSON is the fast way: each object is read straight into what is wanted of it. YAML is parsed by libyaml, where there is
one.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Final, TypeVar

import msgspec

from autoscaler.model.errors import BadInput

Made = TypeVar("Made")
_VARIABLE: Final = re.compile(r"\$(\w+|\{\w+\})")


NAMESPACE: Final = "default"
"""Of an object that says none: kubectl's, unless its context has another."""


class _HeadMeta(msgspec.Struct, gc=False):
    namespace: str | None = None


class _Head(msgspec.Struct, gc=False):
    """What an object says that it is."""

    kind: str | None = None
    api_version: str = msgspec.field(default="", name="apiVersion")
    metadata: _HeadMeta | None = None


class _List(msgspec.Struct, gc=False):
    items: list[msgspec.Raw] | msgspec.UnsetType | None = msgspec.UNSET


@dataclass(frozen=True, slots=True)
class Written:
    """One object, as it is written."""

    source: str
    kind: str | None
    """``None``: it does not say, or it is no object at all."""
    api_version: str
    raw: Any

    @property
    def api_group(self) -> str:
        """The API group: empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def is_object(self) -> bool:
        """Says whether this is an object with fields, not a bare value."""
        return isinstance(self.raw, (dict, msgspec.Raw))

    def told(self) -> str:
        """What it is, for a message."""
        return repr(self.kind if self.is_object else self.raw)

    def plain(self) -> Any:
        """All of it, as JSON reads it."""
        return _decoded(self.raw) if isinstance(self.raw, msgspec.Raw) else self.raw

    def read(self, model: Any) -> Any:
        """Reads the object as ``model``; a mistake is told with the object's name. What is null is absent."""
        return self.made(model, lambda parsed: parsed)

    def made(self, model: Any, make: Callable[[Any], Made]) -> Made:
        """The same, made into a value of the model; a value that means nothing is told in the same way."""
        try:
            return make(self._parsed(model))
        except ValueError as error:
            found = self.plain()
            if self.kind is None and isinstance(found, dict) and "metadata" not in found:
                fields = shorten(", ".join(map(str, found)), 80) or "no fields"
                what = f"this is no object of Kubernetes: it has neither kind nor metadata, but {fields}"
                raise BadInput(f"{self.source}: {what}") from None
            variable = _variable_in(found)
            filled = f"; {variable} is a variable, which is filled in first: envsubst < FILE" if variable else ""
            raise BadInput(f"{self.source}: {self.named()}: {error}{filled}") from None

    def amounts_left_out(self) -> list[str]:
        """Resources that it names without a number, which the API server reads as 0: a template's value was empty."""
        return sorted(set(_amounts_left_out(self.raw)))  # what is not parsed yet has been through the API server

    def named(self) -> str:
        """Its kind and name, for a message."""
        meta = self.plain().get("metadata")
        names = [meta.get("name"), meta.get("generateName")] if isinstance(meta, dict) else []
        return f"{self.kind or 'object'} {next(filter(None, names), 'without a name')}"

    def _parsed(self, model: Any) -> Any:
        raw = self.raw
        if isinstance(raw, msgspec.Raw):
            try:
                return msgspec.json.decode(raw, type=model, strict=False)
            except msgspec.ValidationError:
                raw = _decoded(raw)
        return msgspec.convert(_plain(raw), model, strict=False)


def objects_in(text: str, source: str) -> Iterator[Written]:
    """Yields each object of a file of JSON or YAML, those of its Lists among them."""
    try:
        found = msgspec.json.decode(text, type=_List | list[msgspec.Raw])
    except msgspec.DecodeError as error:
        yield from (object_of(one, source) for one in _unlisted(_documents(text, source, error)))
        return
    items = found.items if isinstance(found, _List) else found
    several = [msgspec.Raw(text.encode())] if items is msgspec.UNSET else items or ()
    yield from (_unread(one, source) for one in several)


def _decoded(raw: msgspec.Raw | str) -> Any:
    """Decodes JSON; an integer of more digits than Python reads becomes a float, which no field of an object takes."""
    try:
        return msgspec.json.decode(raw)
    except msgspec.ValidationError:
        return json.loads(raw if isinstance(raw, str) else bytes(raw), parse_int=_number)


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < sys.get_int_max_str_digits() else float(digits)


def _unread(raw: msgspec.Raw, source: str) -> Written:
    try:
        head = msgspec.json.decode(raw, type=_Head)
    except msgspec.ValidationError:
        return object_of(_decoded(raw), source)
    if head.metadata is not None and not head.metadata.namespace:
        return object_of(_decoded(raw), source)
    return Written(source, head.kind, head.api_version, raw)


def object_of(raw: Any, source: str, *, namespace: str = NAMESPACE) -> Written:
    """One object that is parsed already. ``namespace``: where it says none."""
    if not isinstance(raw, dict):
        return Written(source, None, "", raw)
    kind, meta = raw.get("kind"), raw.get("metadata")
    if isinstance(meta, dict) and not meta.get("namespace"):
        raw = {**raw, "metadata": {**meta, "namespace": namespace}}
    return Written(source, None if kind is None else str(kind), str(raw.get("apiVersion", "")), raw)


def _documents(text: str, source: str, error: msgspec.DecodeError) -> list[Any]:
    """Every document, of JSON where it fails to be objects of ours alone."""
    if isinstance(error, msgspec.ValidationError):
        with contextlib.suppress(msgspec.DecodeError):  # one that begins as JSON does
            return [_decoded(text)]
    return _yaml(text, source)


def _yaml(text: str, source: str) -> list[Any]:
    """Every document of a stream."""
    import yaml  # noqa: PLC0415 - not needed for JSON

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return list(yaml.load_all(text, Loader=loader))
    except (yaml.YAMLError, ValueError) as error:  # the latter: a time or a number that is none
        mark = getattr(error, "problem_mark", None)
        where = f"{source}:{mark.line + 1}" if mark else source
        why = getattr(error, "problem", None) or error
        render = "; a template is rendered first: helm template CHART" if "{{" in text else ""
        raise BadInput(f"{where}: this is neither YAML nor JSON: {why}{render}") from None


def _unlisted(documents: Iterable[Any]) -> Iterable[Any]:
    for document in documents:
        if isinstance(document, dict) and "items" in document:
            yield from document["items"] or ()
        elif isinstance(document, list):
            yield from document
        elif document is not None:
            yield document


def _amounts_left_out(value: Any) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, dict) else ():
        if key in ("requests", "limits") and isinstance(inner, dict):
            yield from (resource for resource, amount in inner.items() if amount is None)
        else:
            yield from _amounts_left_out(inner)
    for inner in value if isinstance(value, list) else ():
        yield from _amounts_left_out(inner)


def _variable_in(value: Any) -> str:
    """The first value that is nothing but a variable of a shell; empty where there is none."""
    if isinstance(value, str):
        return value if _VARIABLE.fullmatch(value) else ""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next(filter(None, map(_variable_in, inner)), "")


def _plain(value: Any) -> Any:
    """YAML reads times as times; the API writes them as text. What is null is absent."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    return value.isoformat() if hasattr(value, "isoformat") else value
