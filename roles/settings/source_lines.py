"""Where a setting stands in an inventory file, for messages: the file is read once more only where one is told."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import yaml


class Written:
    """An inventory file that was read without a mistake of its own; without one, no line is known."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file

    def settings(self, machine: str = "", *, layer: str = "settings") -> yaml.Node | None:
        """The settings of a machine over the fleet's, or those of another ``layer`` of the file over them."""
        over = _below(self._machine(machine), "settings") if machine else _below(self._root, layer)
        return _merged(_below(self._root, "settings"), over)

    def setting(self, key: str, *, machine: str = "", layer: str = "settings") -> yaml.Node | None:
        """One of a machine's settings, or of another layer's."""
        return _below(self.settings(machine, layer=layer), key)

    def line(self, *keys: str, machine: str = "") -> str:
        """``:12`` for the line of a machine's key, else of its entry."""
        node, mark = self._machine(machine), ""
        for key in ("", *keys):
            node = _below(node, key) if key else node
            mark = f":{node.start_mark.line + 1}" if node and node.start_mark else mark
        return mark

    def line_of_setting(self, *keys: str, machine: str) -> str:
        """The same for a setting; of the nearest key above it that is written."""
        node, mark = self.settings(machine), ""
        for key in keys:
            found = _pair(node, key)
            if not found:
                break
            mark, node = f":{found[0].start_mark.line + 1}", found[1]
        return mark or self.line(machine=machine)

    def _machine(self, name: str) -> yaml.Node | None:
        machines = _below(self._root, "machines")
        entries = machines.value if isinstance(machines, yaml.SequenceNode) else ()
        return next((one for one in entries if _text(_below(one, "name")) == name), None)

    @cached_property
    def _root(self) -> yaml.Node | None:
        if self._file is None:
            return None
        found = yaml.compose(self._file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
        return found if isinstance(found, yaml.Node) else None


def _merged(below: yaml.Node | None, over: yaml.Node | None) -> yaml.Node | None:
    """Merges nodes as :func:`roles.settings.machine.merged` merges what was read from these."""
    if not (isinstance(below, yaml.MappingNode) and isinstance(over, yaml.MappingNode)):
        return over or below
    made = {key.value: (key, value) for key, value in below.value}
    for key, value in over.value:
        under = made.get(key.value)
        made[key.value] = (key, _merged(under[1], value) if under else value)
    return yaml.MappingNode(over.tag, list(made.values()), start_mark=over.start_mark)


def _below(node: yaml.Node | None, key: str) -> yaml.Node | None:
    found = _pair(node, key)
    return found[1] if found else None


def _pair(node: yaml.Node | None, key: str) -> tuple[yaml.Node, yaml.Node] | None:
    pairs = node.value if isinstance(node, yaml.MappingNode) else ()
    return next(((one, value) for one, value in pairs if one.value == key), None)


def _text(node: yaml.Node | None) -> str:
    return str(node.value) if isinstance(node, yaml.ScalarNode) else ""
