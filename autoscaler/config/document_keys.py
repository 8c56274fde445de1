"""The keys of a file's model: when an edit of each takes effect, its unit, default and meaning, as a table.

A key says so with a mark in its annotation (``max: Annotated[int, live("nodes")]``). What stands below a marked key is
as the key itself: the taints of a group need no marks of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.annotated_handlers import GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic.json_schema import JsonSchemaValue

from autoscaler.config.documents import span_in_words

Effect = Literal["live", "infrastructure"]


@dataclass(frozen=True, slots=True)
class Mark:
    """When an edit of a key takes effect, and the unit of its value."""

    effect: Effect
    unit: str = ""

    def __get_pydantic_json_schema__(self, schema: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The key's schema, with the mark beside its description."""
        return handler(schema) | {"x-takes-effect": self.effect}


def live(unit: str = "") -> Mark:
    """A key that the running autoscaler takes over at once."""
    return Mark("live", unit)


def infrastructure(unit: str = "") -> Mark:
    """A key that ``pulumi up`` builds from: its edit is pending until then."""
    return Mark("infrastructure", unit)


@dataclass(frozen=True, slots=True)
class Key:
    """One row of the table."""

    path: str
    """As people write it: ``groups[].max``."""
    effect: Effect | None
    unit: str
    default: str
    meaning: str


def keys_of(model: type[BaseModel], *, above: str = "", mark: Mark | None = None) -> Iterator[Key]:
    """Every key of the model, and of the models within, in the order of the code."""
    for name, field in model.model_fields.items():
        path = f"{above}{field.alias or name}"
        own = next((one for one in field.metadata if isinstance(one, Mark)), mark)
        inner = _model_in(field.annotation)
        if inner is None or field.description:
            yield Key(path, own.effect if own else None, own.unit if own else "", _default(field), _meaning(field))
        if inner is not None:
            yield from keys_of(inner, above=f"{path}{_step_into(field.annotation)}.", mark=own)


def as_markdown(keys: Iterator[Key]) -> str:
    """The table, a row for each key."""
    rows = [
        f"| `{key.path}` | {key.effect or ''} | {key.unit} | {key.default} | {key.meaning} |".replace("  |", " |")
        for key in keys
    ]
    return "\n".join(["| key | an edit is | unit | default | meaning |", "|---|---|---|---|---|", *rows]) + "\n"


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for inner in get_args(annotation) if (found := _model_in(inner)) is not None), None)


def _step_into(annotation: Any) -> str:
    """``[]`` for a list, ``.NAME`` for a mapping from names."""
    origin = get_origin(annotation)
    return "[]" if origin is tuple else ".NAME" if origin is dict else ""


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = field.get_default(call_default_factory=True)
    if value is None:
        return "none"
    return f"`{_as_written(value)}`" if value != "" else "empty"


def _as_written(value: object) -> str:
    """The value as it would stand in the file."""
    if isinstance(value, timedelta):
        return span_in_words(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, BaseModel):
        return "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(_as_written, value))}]"
    return str(value)


def _meaning(field: FieldInfo) -> str:
    choices = [f"`{one}`" for one in get_args(field.annotation) if isinstance(one, str)]
    return "; ".join(filter(None, ((field.description or "").replace("|", "\\|"), " or ".join(choices))))
