"""Files that people write (policy, inventory, job): read, checked, and refused in words that help.

One file becomes one pydantic model, or one ``BadInput`` that lists every mistake with file, line, entry, key, value
and what would be right.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    SecretStr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from autoscaler.model.errors import BadInput


class Document(BaseModel):
    """Base of every file's model: frozen, strict about keys that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_answer_for_a_number(cls, data: object) -> object:
        """YAML reads ``yes`` as true, which pydantic would take for 1: as text it is refused by the field."""
        if not isinstance(data, dict):
            return data
        fields = _by_written_name(cls)
        answers = {key: value for key, value in data.items() if isinstance(value, bool) and key in fields}
        numbers = {key for key in answers if {int, float} & {fields[key].annotation, *get_args(fields[key].annotation)}}
        return data | {key: str(data[key]) for key in numbers}


D = TypeVar("D", bound=Document)

_PLAINLY = {
    "model_type": "must be a mapping of keys to values",
    "dict_type": "must be a mapping of keys to values",
    "model_attributes_type": "must be a mapping of keys to values",
    "too_short": "must not be empty",
    "finite_number": "must be a number",
    "tuple_type": "must be a list, e.g. [a, b]",
    "list_type": "must be a list, e.g. [a, b]",
    "string_type": "must be text: put it in quotes",
    "string_too_short": "must not be empty",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
}
"""Pydantic's kinds of mistake whose own words speak of Python, in words of the file."""

_MERGE = "tag:yaml.org,2002:merge"
_SPANS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_span(text: object) -> timedelta:
    """``90s``, ``10m``, ``1h``, ``250ms``, ``2d`` as a span of time. Raises ``ValueError`` naming the text."""
    if isinstance(text, timedelta):
        return text
    raw = str(text).strip()
    number = raw.rstrip("mshd")
    try:
        span = timedelta(seconds=float(number) * _SPANS[raw[len(number) :]])
    except (KeyError, ValueError, OverflowError):
        span = timedelta(days=-1)
    if span < timedelta(0):
        message = "must be a span of time such as 90s, 10m or 1h"
        raise ValueError(message)
    return span


def span_in_words(span: timedelta) -> str:
    """A span of time as a person writes it: ``10m``, ``250ms``; the shortest that says it exactly."""
    milliseconds = round(span.total_seconds() * 1000)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds and milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms" if milliseconds else "0s"


Span = Annotated[
    timedelta,
    BeforeValidator(parse_span),
    PlainSerializer(lambda span: f"{span.total_seconds()!r}s", when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^\d+(\.\d+)?(ms|s|m|h|d)$"}),
]
"""A field that a person writes as ``10m``."""


def read_document(path: Path, model: type[D], *, what: str) -> D:
    """Read the YAML file at ``path`` as ``model``; ``what`` names its kind in messages (``policy``).

    Raises ``BadInput`` where the file is missing, is not YAML, or does not fit the model.
    """
    return parse_document(read_text(path, what=what), model, what=what, source=str(path))


def read_text(path: Path, *, what: str) -> str:
    """The text of a file. Raises ``BadInput`` where it is missing or is not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        message = f"{path}: cannot read this {what} file: {error.strerror}"
        raise BadInput(message) from None
    except UnicodeDecodeError:
        message = f"{path}: this {what} file is not UTF-8 text"
        raise BadInput(message) from None


def parse_document(text: str, model: type[D], *, what: str, source: str) -> D:
    """Reads a document from text, as :func:`read_document` does; ``source`` stands for the file's name."""
    data, root = read_mapping(text, what=what, source=source)
    known = {field.alias or name for name, field in model.model_fields.items()}
    if data and not data.keys() & known:  # another file, which may be a secret one: no line of it
        keys = "its one key is none" if len(data) == 1 else f"none of its {len(data)} keys is one"
        raise BadInput(f"{source}: is no {what} file: {keys} of {', '.join(sorted(known))}")
    return parse_data(data, model, source=source, written=lambda: root)


def read_mapping(text: str, *, what: str, source: str) -> tuple[dict[str, Any], yaml.Node | None]:
    """The values in the text, and what they were read from. Raises ``BadInput`` where it is no YAML mapping."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = _UniqueKeys(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date or a number that is none; too deep
        line, wrong = _not_yaml(error, text)
        where = f"{source}:{line}" if line else source
        raise BadInput(f"{where}: this {what} file {wrong}") from None
    if not isinstance(data, dict):
        message = f"{source}: {_article(what)} {what} file is a mapping of keys to values; this one is {_kind(data)}"
        raise BadInput(message)
    return data, root


def parse_data(
    data: dict[str, Any],
    model: type[D],
    *,
    source: str,
    entry: str = "",
    written: Callable[[], yaml.Node | None] = lambda: None,
) -> D:
    """Reads a document from values that were parsed already; ``entry`` says which part of the file they are.

    ``written`` gives what they were read from, for the line numbers; it is asked only where there is a mistake.
    """
    try:
        return model.model_validate(data)
    except ValidationError as invalid:
        root = written()
        lines = [_mistake(error, model, root, data, (source, entry)) for error in invalid.errors(include_url=False)]
        raise BadInput("\n".join(lines)) from None


def _not_yaml(error: Exception, text: str) -> tuple[int, str]:
    """The line (1-based; 0 where it is not known), and what is wrong there."""
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return line, f"has the character {chr(error.character)!r}, which YAML does not allow"
    mark = getattr(error, "problem_mark", None)
    line = mark.line + 1 if mark else 0
    problem = getattr(error, "problem", None)
    if problem == "but found another document":
        return line, "begins a second document (---) here: write each into a file of its own"
    return line, f"is not YAML: {problem or error}"


class _UniqueKeys(yaml.SafeLoader):
    """Keys are text, also ``on`` and ``1``; a mapping that says one twice is a mistake, not a silent last-one-wins."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:  # noqa: FBT001, FBT002 - PyYAML's
        """Constructs a mapping as the safe loader does, and refuses keys that are given twice."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a word", key.start_mark)
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key.value!r} is given twice", key.start_mark
                )
            seen.add(key.value)
            key.tag = key.tag if key.tag == _MERGE else self.DEFAULT_SCALAR_TAG
        return super().construct_mapping(node, deep)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> Any:
        """Constructs an integer as the safe loader; ``20:30`` is a time of day, not of base sixty."""
        return node.value if ":" in node.value else super().construct_yaml_int(node)


_UniqueKeys.add_constructor("tag:yaml.org,2002:int", _UniqueKeys.construct_yaml_int)


def _mistake(error: Any, model: type[Document], root: yaml.Node | None, data: Any, of: tuple[str, str]) -> str:
    """One line: ``policy.yaml:12: groups[1] (gpu-a10g).max = -1: must be ...``; ``of`` is the file and the entry."""
    path = _as_written(error["loc"], data)
    line, shown, value = _locate(path, root, data)
    where = ": ".join(filter(None, (f"{of[0]}:{line}" if line else of[0], of[1])))
    kind = error["type"]
    if kind == "missing":
        return f"{where}: {shown} is missing: {_wanted(model, path, data)}"
    if kind == "extra_forbidden":
        return f"{where}: {shown} is not a key here{_did_you_mean(model, path, data)}"
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        said = f" = {value['kind']!r}:" if isinstance(value, dict) and "kind" in value else ""
        return f"{where}: {shown}.kind{said} must be one of {', '.join(_kinds(model, path, data))}"
    reason = (
        _PLAINLY.get(kind)
        or _unlike(error, model, path, data)
        or error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    )
    given = "" if isinstance(value, (dict, list)) or _is_secret(model, path, data) else f" = {value!r}"
    place = f"{shown}{given}: " if shown else ""
    return f"{where}: {place}{reason[:1].lower()}{reason[1:]}"


def _unlike(error: Any, model: type[Document], path: list[Any], data: Any) -> str:
    """Says what stands there instead of what should, in the words of the field."""
    named = path[:-1] if path and isinstance(path[-1], int) else path  # one of a list: what the list holds
    field = _fields(model, named, data).get(str(named[-1])) if named else None
    if error["type"] != "string_pattern_mismatch" or not (field and field.description):
        return ""
    return f"should match pattern {error['ctx']['pattern']!r}: {field.description}"


def _as_written(loc: Sequence[Any], data: Any) -> list[Any]:
    """Where a mistake is, as people wrote it: without pydantic's own steps, such as the kind of a tagged union."""
    path, here = [], data
    for part in loc:
        is_kind = isinstance(here, dict) and part not in here and part == here.get("kind")
        if is_kind or (isinstance(part, str) and "[" in part):
            continue
        path.append(part)
        here = _below(here, part)
    return path


def _below(data: Any, part: Any) -> Any:
    try:
        return data[part]
    except (KeyError, IndexError, TypeError):
        return None


def _locate(path: list[Any], root: yaml.Node | None, data: Any) -> tuple[int, str, Any]:
    """Line number (1-based; the nearest one known), the path as people write it, and the value there."""
    node, line, shown = root, (root.start_mark.line + 1 if root else 0), ""
    for part in path:
        found = None
        if isinstance(node, yaml.MappingNode):
            for key, child in node.value:
                if key.value == str(part):
                    found, line = child, key.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            found = node.value[part]
            line = found.start_mark.line + 1
        node = found
        data = _below(data, part)
        if isinstance(part, int):
            name = data.get("name") if isinstance(data, dict) else None
            shown += f"[{part}]" + (f" ({name})" if isinstance(name, str) else "")
        else:
            shown += f".{part}" if shown else str(part)
    return line, shown, data


def _fields(model: type[Document], path: list[Any], data: Any) -> dict[str, FieldInfo]:
    """The fields of the model that the last part of ``path`` would be a key of."""
    current: Any = model
    is_free_key = False
    for part in path[:-1]:
        data = _below(data, part)
        if isinstance(part, int) or is_free_key:
            is_free_key = False
            current = _of_kind(current, data)
            continue
        field = _by_written_name(_of_kind(current, None)).get(part)
        if field is None:
            return {}
        current = _of_kind(field.annotation, data)
        is_free_key = get_origin(field.annotation) is dict
    return _by_written_name(current)


def _by_written_name(model: Any) -> dict[str, FieldInfo]:
    """The fields of a model by the key that people write."""
    return {field.alias or name: field for name, field in getattr(model, "model_fields", {}).items()}


def _of_kind(annotation: Any, data: Any) -> Any:
    """The model in an annotation; of a tagged union, the one whose ``kind`` the data say."""
    found = list(_models(annotation))
    kind = data.get("kind") if isinstance(data, dict) else None
    fitting = [model for model in found if kind is not None and kind in _kinds_of(model)]
    return next(iter([*fitting, *found]), None)


def _models(annotation: Any) -> Iterator[Any]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models(inner)


def _kinds_of(model: Any) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field else ()


def _kinds(model: type[Document], path: list[Any], data: Any) -> list[str]:
    """What the ``kind`` at ``path`` may be."""
    field = _fields(model, path, data).get(str(path[-1])) if path else None
    return [str(kind) for one in _models(field.annotation if field else None) for kind in _kinds_of(one)]


def _is_secret(model: type[Document], path: list[Any], data: Any) -> bool:
    """Whether the value must not be told."""
    field = _fields(model, path, data).get(str(path[-1])) if path else None
    return field is not None and (field.annotation is SecretStr or SecretStr in get_args(field.annotation))


def _wanted(model: type[Document], path: list[Any], data: Any) -> str:
    field = _fields(model, path, data).get(str(path[-1]))
    return field.description if field is not None and field.description else "it has no default"


def _did_you_mean(model: type[Document], path: list[Any], data: Any) -> str:
    known = sorted(_fields(model, path, data))
    close = difflib.get_close_matches(str(path[-1]), known, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; the keys here are: {', '.join(known)}" if known else ""


def _article(noun: str) -> str:
    return "an" if noun[:1] in "aeiou" else "a"


def _kind(data: object) -> str:
    return {type(None): "empty", list: "a list", str: "a piece of text"}.get(type(data), f"a {type(data).__name__}")
