"""`spillway top`: the cluster at a glance in a terminal, from the replica that acts, again and again."""

from __future__ import annotations

import contextlib
import io
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler.kube import client as k8s
from autoscaler.model import node_states as states
from autoscaler.model.errors import Unavailable
from autoscaler.planner.explanation.overview import GroupLine, NodeLine, Overview, Use, WaitLine, overview
from autoscaler.replica.acting_replica import acting_replica, asked
from autoscaler.views.explain import decide_here

_WIDE: Final = 150
"""Columns from which on every column is shown."""
_LOW: Final = 30
"""Lines of a terminal in which every reason takes one."""
_COLORS: Final = {
    states.BUSY: "green",
    states.READY: "cyan",
    states.RESERVED: "cyan",
    states.JOINING: "blue",
    states.UNDER_USED: "yellow",
    states.IDLE: "yellow",
    states.DRAINING: "yellow",
    states.MINIMUM: "cyan",
    states.REPAIRING: "magenta",
    states.INTERRUPTED: "red",
    states.DETACHED: "red",
    states.DEAD: "red",
    states.GONE: "bright_black",
}
_URGENT: Final = (
    *(states.DEAD, states.INTERRUPTED, states.DETACHED, states.DRAINING, states.JOINING, states.REPAIRING),
    *(states.UNDER_USED, states.IDLE, states.RESERVED, states.BUSY, states.MINIMUM, states.READY, states.GONE),
)
"""States in the order in which nodes are shown where there is no room for all."""


def top(*, kubeconfig: Path | None, namespace: str, every: float, once: bool, console: Console) -> None:
    """Show it until Ctrl-C, or ``once``. Raises ``BadInput`` or ``Unavailable`` where there is nothing to show."""
    kube = k8s.Kube.connect(kubeconfig)
    if once:
        head, seen = _seen(kube, namespace)
        console.print(frame(seen, head, width=console.width))
        return
    with contextlib.suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_next(kube, namespace, console), refresh=True)
            time.sleep(every)


def _next(kube: k8s.Kube, namespace: str, console: Console) -> RenderableType:
    """A frame; what goes wrong meanwhile is shown in its place."""
    try:
        head, seen = _seen(kube, namespace)
    except Unavailable as error:
        return Text(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC {error}", style="red")
    return frame(seen, head, width=console.width, height=console.height)


def _seen(kube: k8s.Kube, namespace: str) -> tuple[str, Overview]:
    """Which replica acts, in words; and what is seen by it, or here. Raises ``BadInput`` or ``Unavailable``."""
    now = datetime.now(UTC)
    try:
        replica = acting_replica(kube, namespace=namespace)
    except k8s.Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    head = replica.in_words(now)
    if replica.acts:
        try:
            return head, msgspec.convert(asked(kube, replica, "top", namespace=namespace), Overview, strict=False)
        except Unavailable as silent:
            head = f"{head}; {silent}: worked out here"
    here = decide_here(kube, namespace)
    return head, overview(here.cluster, here.policy, here.plan)


def frame(seen: Overview, head: str, *, width: int, height: int | None = None) -> RenderableType:
    """All of it in ``width`` columns; with a ``height`` in so many lines, and what is left out is counted."""
    folds = height is None or height > _LOW
    told = (*seen.pauses, *seen.warnings)
    parts: list[RenderableType] = [_head(seen, head)]
    parts += [Text(line, "bold red", no_wrap=not folds, overflow="fold" if folds else "ellipsis") for line in told]
    parts += [Text(), _group_table([one for one in seen.groups if one.states or one.closed or width >= _WIDE], width)]
    room = None if height is None else height - _lines(parts, width) - _OF_A_TABLE - 1
    parts += _waits(seen.waiting, width, room, folds=folds)
    room = None if height is None else height - _lines(parts, width) - _OF_A_TABLE
    return Group(*parts, *_rows(seen.nodes, width, room))


def _waits(waiting: Sequence[WaitLine], width: int, room: int | None, *, folds: bool) -> Iterator[RenderableType]:
    """Yields as many reasons as there is room for, at least one."""
    shown = list(waiting)
    while room is not None and len(shown) > 1 and _lines([_waiting_table(shown, width, folds=folds)], width) > room:
        shown.pop()
    if shown:
        yield from (Text(), _waiting_table(shown, width, folds=folds))
        yield from _more(len(waiting) - len(shown), "reasons to wait")


def _rows(nodes: Sequence[NodeLine], width: int, room: int | None) -> Iterator[RenderableType]:
    """Yields as many nodes as there is room for, at least one; those that a person should look at first."""
    ordered = sorted(nodes, key=lambda one: (_URGENT.index(one.state), one.group, one.name))
    shown = ordered if room is None or room >= len(ordered) else ordered[: max(room, 1)]
    if shown:
        yield from (Text(), _node_table(shown, width))
        yield from _more(len(nodes) - len(shown), "nodes")


_OF_A_TABLE: Final = 4
"""Lines of the nodes' table beside the nodes: an empty one, the head, what is left out, and the cursor's."""


def _lines(parts: list[RenderableType], width: int) -> int:
    """How many lines they take."""
    return len(Console(width=width, file=io.StringIO()).render_lines(Group(*parts)))


def _more(many: int, what: str) -> Iterator[Text]:
    if many > 0:
        yield Text(f"  and {many} more {what}", style="bright_black")


def _head(seen: Overview, head: str) -> Text:
    gpus = sum((one.gpus for one in seen.groups), Use())
    nodes = sum(one.many for one in seen.nodes)
    waits = sum(one.pods for one in seen.waiting)
    line = Text(overflow="fold")
    line.append(head, style="bold" if head.startswith("acting") else "bold red")
    line.append(f"   decided {seen.decided:%Y-%m-%d %H:%M:%S} UTC\n", style="bright_black")
    line.append(f"{seen.usd_per_hour:.2f} $/h", style="bold")
    line.append(f"   {nodes} nodes   ")
    line.append_text(_bar(gpus, 12))
    line.append(f" {gpus.held} of {gpus.total} GPUs held   ")
    line.append("1 pod waits" if waits == 1 else f"{waits} pods wait", style="bold yellow" if waits else "")
    return line


def _table(*columns: tuple[str, str]) -> Table:
    """Columns with a name and how they are set: ``<``, ``>``, or ``*`` for what gets the room that is left."""
    table = Table(box=None, pad_edge=False, expand=True, header_style="bold")
    for name, how in columns:
        last = how == "*"
        table.add_column(
            name,
            justify="right" if how == ">" else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
        )
    return table


def _group_table(groups: Iterable[GroupLine], width: int) -> Table:
    wide = width >= _WIDE
    more = (("TYPE", "<"), ("CPU", "<"), ("MEMORY", "<")) if wide else ()
    table = _table(("GROUP", "<"), *more, ("GPUS", "<"), ("$/H", ">"), ("NODES", "*"))
    for one in groups:
        cells = (Text(one.kind), _use(one.cpu, 8, 1000), _use(one.memory, 8, 2**30, "Gi")) if wide else ()
        told = Text(", ").join(Text(f"{many} {state}", style=_COLORS[state]) for state, many in one.states.items())
        if one.closed:
            told.append(f"{'; ' if one.states else ''}{one.closed}", style="red")
        table.add_row(one.name, *cells, _use(one.gpus, 8), f"{one.usd_per_hour:.2f}", told or Text("-", "bright_black"))
    return table


def _waiting_table(waiting: Iterable[WaitLine], width: int, *, folds: bool) -> Table:
    more = (("PODS", "<"),) if width >= _WIDE else ()
    table = _table(("WAIT", ">"), ("CAUSE", "<"), *more, ("WHY", "*"))
    table.columns[-1].no_wrap = not folds  # what is to be changed stands at its end
    for one in waiting:
        name = one.names[0] + (f" and {one.pods - 1} more" if one.pods > 1 else "")
        change = f"; it would fit if {one.would_fit_if}" if one.would_fit_if else ""
        why = one.because + change if more else f"{name}: {one.because}{change}"
        table.add_row(str(one.pods), Text(one.cause, "yellow"), *((name,) if more else ()), why)
    return table


def _node_table(nodes: Iterable[NodeLine], width: int) -> Table:
    wide = width >= _WIDE
    more = (("GROUP", "<"), ("CPU", "<"), ("MEMORY", "<"), ("PODS", ">"), ("$/H", ">")) if wide else (("PODS", ">"),)
    table = _table(("NODE", "<"), ("STATE", "<"), ("GPUS", "<"), *more, ("WHY", "*"))
    nodes = list(nodes)
    hosts = Counter(_host(one) for one in nodes)
    for one in nodes:
        until = f" (until {one.until:%Y-%m-%d %H:%M:%S} UTC)" if one.until is not None else ""
        cells: tuple[str | Text, ...] = (str(one.pods),)
        if wide:
            cells = (
                one.group,
                _use(one.cpu, 8, 1000),
                _use(one.memory, 8, 2**30, "Gi"),
                *cells,
                f"{one.usd_per_hour:.2f}",
            )
        name = one.name if wide or hosts[_host(one)] > 1 else _host(one)
        bar = _use(one.gpus, 8 if wide else 4)
        table.add_row(name, Text(one.state, _COLORS[one.state]), bar, *cells, one.why + until)
    return table


def _host(one: NodeLine) -> str:
    """Its name without a domain."""
    return one.name.partition(".")[0]


def _use(use: Use, width: int, unit: int = 1, suffix: str = "") -> Text:
    """A bar, and how much of how much."""
    if not use.total:
        return Text("-", "bright_black")
    return _bar(use, width).append(f" {use.held / unit:.0f}/{use.total / unit:.0f}{suffix}")


def _bar(use: Use, width: int) -> Text:
    full = round(width * min(use.held, use.total) / use.total) if use.total else 0
    full = max(full, 1) if use.held > 0 else full
    return Text("█" * full, "green").append("░" * (width - full), "bright_black")
