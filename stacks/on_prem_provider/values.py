"""Pulumi's property values as plain ones, and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.rpc import UNKNOWN

Plain = dict[str, Any]
Properties = dict[str, PropertyValue]
_UNKNOWN: Final = str(UNKNOWN)


def plain(properties: Mapping[str, PropertyValue]) -> Plain:
    """Returns values without the marks of secrets; integers as such, which the wire knows as floats only."""
    return {key: _plain(value.value) for key, value in properties.items() if not key.startswith("__")}


def is_known(value: Any) -> bool:
    """Whether nothing in it is still to be made by another resource, as in a first preview."""
    if isinstance(value, dict):
        return all(is_known(inner) for inner in value.values())
    if isinstance(value, list):
        return all(is_known(inner) for inner in value)
    return bool(value != _UNKNOWN)


def properties_of(values: Mapping[str, Any], *, secret: Collection[str] = ()) -> Properties:
    """Returns values for the engine; what ``secret`` names is encrypted in the state and hidden in what it prints."""
    return {key: _property(value).with_secret(key in secret) for key, value in values.items() if value is not None}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(inner.value) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(inner.value) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _property(value: Any) -> PropertyValue:
    if isinstance(value, Mapping):
        return PropertyValue({key: _property(inner) for key, inner in value.items() if inner is not None})
    if isinstance(value, (list, tuple)):
        return PropertyValue([_property(inner) for inner in value])
    if isinstance(value, int) and not isinstance(value, bool):
        return PropertyValue(float(value))
    return PropertyValue(value)
