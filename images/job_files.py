"""Job files: a job, and the ``params`` that a template leaves open, with types, defaults and help.

``${NAME}`` stands for a parameter, ``$${`` for a ``${``. A value that is nothing else keeps the parameter's type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import Field, model_validator

from autoscaler.config.documents import Document, parse_data, read_mapping, read_text
from autoscaler.model.errors import BadInput
from images.jobs import Job

Value = str | int | float | bool
_OPEN: Final = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_TEXT: Final = re.compile(r"\.(?:entry|args|checkpoint)\[|(?:^|\.)(?:env|annotations|node_selector)\.")
"""Keys below which every value is text, a parameter's too."""
_TYPES: Final[Mapping[str, str]] = {
    "int": "a whole number, e.g. 8",
    "float": "a number, e.g. 0.01",
    "bool": "true or false",
    "str": "text",
}


class Param(Document):
    """A parameter of a template."""

    type: Literal["str", "int", "float", "bool"] = "str"
    default: Value | None = Field(default=None, description="what holds unless it is given; none: it must be given")
    help: str = Field(default="", description="one line")
    choices: tuple[str, ...] = Field(default=(), description="what it may be")

    @model_validator(mode="after")
    def _default_is_of_its_type(self) -> Param:
        if self.default is not None:
            self.parse(str(self.default))
        return self

    def parse(self, text: str) -> Value:
        """The value that the text says. Raises ``ValueError`` with what would be right."""
        if self.choices and text not in self.choices:
            raise ValueError(f"{text!r} is none of: {', '.join(self.choices)}")
        try:
            if self.type == "bool":
                return {"true": True, "false": False}[text.lower()]
            return int(text) if self.type == "int" else float(text) if self.type == "float" else text
        except (ValueError, KeyError):
            raise ValueError(f"{text!r} is not {_TYPES[self.type]}") from None


class _Template(Document):
    """The part of the file that says what is open."""

    params: dict[str, Param] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _names_are_words(self) -> _Template:
        for name in self.params:
            if not _NAME.fullmatch(name):
                raise ValueError(f"params has the name {name!r}: write lower-case letters, digits and underscores")
        return self


def read_job(path: Path, given: Mapping[str, str] | None = None) -> Job:
    """Read and check a job file, with parameters as a user gave them. Raises ``BadInput``."""
    return parse_job(read_text(path, what="job"), given, source=str(path))


def parse_job(text: str, given: Mapping[str, str] | None = None, *, source: str) -> Job:
    """Reads a job from text, as :func:`read_job` does from a file."""
    data, root = read_mapping(text, what="job", source=source)
    params = _params(data, source=source, root=root)
    values = _values(params, given or {}, source=source)
    filled = {key: _filled(value, values, source=source, at=key) for key, value in data.items() if key != "params"}
    return parse_data(filled, Job, source=source, written=lambda: root)


def params_of(text: str, *, source: str) -> dict[str, Param]:
    """What the file leaves open."""
    data, root = read_mapping(text, what="job", source=source)
    return _params(data, source=source, root=root)


def _params(data: Mapping[str, Any], *, source: str, root: Any) -> dict[str, Param]:
    only = {key: value for key, value in data.items() if key == "params"}
    return parse_data(only, _Template, source=source, written=lambda: root).params


def _values(params: Mapping[str, Param], given: Mapping[str, str], *, source: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name in given:
        if name not in params:
            known = f"the parameters here are: {', '.join(params)}" if params else "this file has none"
            raise BadInput(f"{source}: -p {name}: there is no such parameter; {known}")
    for name, param in params.items():
        if name not in given and param.default is None:
            why = f" ({param.help})" if param.help else ""
            raise BadInput(f"{source}: params.{name} has no default{why}: give -p {name}=...")
        try:
            values[name] = param.parse(given.get(name, str(param.default)))
        except ValueError as wrong:
            raise BadInput(f"{source}: -p {name}: {wrong}") from None
    return values


def _filled(value: Any, values: Mapping[str, Value], *, source: str, at: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(one, values, source=source, at=f"{at}.{key}") for key, one in value.items()}
    if isinstance(value, list):
        return [_filled(one, values, source=source, at=f"{at}[{i}]") for i, one in enumerate(value)]
    if not isinstance(value, str):
        return value
    filled = _filled_text(value, values, source=source, at=at)
    return _said(filled) if _TEXT.search(at) else filled


def _filled_text(text: str, values: Mapping[str, Value], *, source: str, at: str) -> Value:
    for name in filter(None, (found[1] for found in _OPEN.finditer(text))):
        if name not in values:
            known = f"; the parameters here are: {', '.join(values)}" if values else ""
            raise BadInput(
                f"{source}: {at} = {text!r}: there is no parameter {name}: declare it under params, "
                f"or write $${{ for a plain ${{{known}"
            )
    whole = _OPEN.fullmatch(text)
    if whole and whole[1]:
        return values[whole[1]]
    return _OPEN.sub(lambda found: "${" if found[0] == "$${" else _said(values[found[1]]), text)


def _said(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def schema() -> dict[str, Any]:
    """JSON Schema of a job file, for editors: every value may be a parameter instead."""
    job, template = Job.model_json_schema(), _Template.model_json_schema()
    definitions = job.get("$defs", {})
    for model in (job, *definitions.values()):
        model["properties"] = {key: _or_param(value) for key, value in model.get("properties", {}).items()}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Spillway job",
        "type": "object",
        "additionalProperties": False,
        "required": job["required"],
        "properties": template["properties"] | job["properties"],
        "$defs": definitions | template["$defs"],
    }


def _or_param(field: dict[str, Any]) -> dict[str, Any]:
    if field.get("type") in ("object", "array"):
        return field
    told = {key: field.pop(key) for key in ("description", "default", "title") if key in field}
    return {"anyOf": [field, {"type": "string", "pattern": r"^\$\{[a-z][a-z0-9_]*\}$"}]} | told
