"""What ``left_alone`` may name: every resource that a plan of :func:`roles.node.prepare` can have.

Which of them a machine has depends on its settings and on what is found on it, but each is written down in a role:
a deploy by its title, an operation by its ``name``. They are read there, so that a name that means nothing is told
before any machine is asked, and a list of the whole fleet may name what some machines have not.

They are not taken from a plan, where pyinfra has prepared every operation with its name: a plan is made of a machine
that answers, and has what this one can drift in by its settings and its state. A live test holds one against these.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import yaml

from autoscaler.model.errors import BadInput
from roles.node import prepare
from roles.settings.machine import MachineSettings
from roles.settings.source_lines import Written

_WORD, _VERSION = "\0", "\1"
_FILLED: Final = {_WORD: r"\S+", _VERSION: r"[0-9]\S*"}
"""What a role fills in: a path, an account; a version, which is never a slip of the pen in another name."""
_SHOWN: Final = 2


def refuse_unknown(machines: Mapping[str, MachineSettings], *, source: str, written: Written) -> None:
    """Raise ``BadInput`` for names that no plan has, each with its line and the names that are like it."""
    told: dict[str, str] = {}
    for name, machine in machines.items():
        found = written.setting("left_alone", machine=name)
        for line, said in _unknown(machine.left_alone, found):
            told.setdefault(f"{line} {said}", f"{source}{line}: machine {name}: settings: {said}")  # the fleet's: once
    if told:
        raise BadInput("\n".join(told.values()))


def refuse_unknown_of_instances(settings: Mapping[str, Any], *, source: str, written: Written) -> None:
    """The same of what a bundle is made with."""
    found = written.setting("left_alone", layer="ec2_settings")
    told = [
        f"{source}{line}: ec2_settings over settings: {said}"
        for line, said in _unknown(settings.get("left_alone", ()), found)
    ]
    if told:
        raise BadInput("\n".join(told))


def why_unknown(text: str) -> str:
    """Why no plan has a resource of that name; empty where one may."""
    known = names()
    if any(re.fullmatch(pattern, text) for pattern in known.values()):
        return ""
    shown = list(known)
    ends = [one for one in shown if one.rpartition(" | ")[2] == text.rpartition(" | ")[2]]
    close = ends or difflib.get_close_matches(text, shown, n=_SHOWN, cutoff=0.7)
    if close:
        return f"is no resource of a plan; did you mean {' or '.join(map(repr, close[:_SHOWN]))}?"
    return f"is no resource of a plan: write one as `spillway nodes plan` shows it, such as {shown[-1]!r}"


@cache
def names() -> dict[str, str]:
    """Returns the name of every resource of a plan, with dots where a role fills something in, and its expression."""
    found = (name.partition(" | ")[2] for name in _names(prepare, ()))
    return {re.sub(f"[{_WORD}{_VERSION}]", "...", name): _pattern(name) for name in found}


def _names(role: Callable[..., Any], above: tuple[str, ...]) -> Iterator[str]:
    """What a function calls that bears a name, and what those that it calls without one do in its place."""
    plain = inspect.unwrap(role)
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(plain))).body
    assert isinstance(definition, ast.FunctionDef)  # noqa: S101 - the source of a function
    titles = (*above, *(title for one in definition.decorator_list if (title := _title(one))))
    for node in ast.walk(definition):
        if not isinstance(node, ast.Call) or node in definition.decorator_list:
            continue
        name = next((text for word in node.keywords if word.arg == "name" and (text := _text(word.value))), "")
        called = plain.__globals__.get(node.func.id) if isinstance(node.func, ast.Name) else None
        if name:
            yield " | ".join((*titles, name))
        elif inspect.isfunction(called) and _lays_something(called):
            yield from _names(called, titles)


def _lays_something(called: Callable[..., Any]) -> bool:
    """Whether it is a deploy of ours, or a helper of one that gives names."""
    plain = inspect.unwrap(called)
    keywords = (word for words in plain.__code__.co_consts if isinstance(words, tuple) for word in words)
    return plain.__module__.startswith("roles.") and (plain is not called or "name" in keywords)


def _title(decorator: ast.expr) -> str:
    """Returns the title that a ``@deploy`` names; empty for other decorators."""
    is_deploy = (
        isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Name) and decorator.func.id == "deploy"
    )
    return _text(decorator.args[0]) if is_deploy and isinstance(decorator, ast.Call) else ""


def _text(written: ast.expr) -> str:
    if isinstance(written, ast.Constant):
        return str(written.value)
    parts = written.values if isinstance(written, ast.JoinedStr) else ()
    return "".join(str(part.value) if isinstance(part, ast.Constant) else _filled(part) for part in parts)


def _filled(part: ast.expr) -> str:
    said = ast.unparse(part)
    return _VERSION if "version" in said or "chosen." in said else _WORD


def _pattern(name: str) -> str:
    return "".join(_FILLED.get(letter) or re.escape(letter) for letter in name)


def _unknown(left_alone: Sequence[str], written: yaml.Node | None) -> Iterator[tuple[str, str]]:
    """The line of each, and what is wrong with it."""
    lines = [one.start_mark.line + 1 for one in written.value] if isinstance(written, yaml.SequenceNode) else []
    for number, text in enumerate(left_alone):
        if why := why_unknown(text):
            line = f":{lines[number]}" if number < len(lines) else ""
            yield line, f"left_alone[{number}] = {text!r}: {why}"
