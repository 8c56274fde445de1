"""What the demo shows: a live board on a terminal, plain lines where there is none, and the report at the end."""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from autoscaler.model.errors import Unavailable
from stacks.local.demo.claims import Claim, Figures, GroupSeen, InstanceSeen, NodeSeen, PodSeen
from stacks.local.demo.recorder import Recorder

_TIME: Final = re.compile(r"^\S+ ")
"""The time that a log line begins with: the story has its own."""


class View:
    """The live board: jobs, machines, groups, dollars per hour. Lines said scroll above it."""

    def __init__(self, *, console: Console, recorder: Recorder, voice: Path) -> None:
        """``voice``: the autoscaler's log, told along as it grows."""
        self._voice = voice
        self._heard = 0
        self._console = console
        self._recorder = recorder
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._thread = threading.Thread(target=self._redraw, daemon=True)

    def __enter__(self) -> Self:
        """Begins to draw."""
        if self._live:
            self._live.start()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        self._stopping.set()
        self._thread.join()
        if self._live:
            self._live.stop()

    def scene(self, title: str) -> None:
        """A new part of the story."""
        self._console.print(f"\n[bold]{title}[/]", soft_wrap=True)

    def say(self, line: str) -> None:
        """Prints one thing that happened, with its time."""
        self._console.print(f"  {time.monotonic() - self._began:5.1f} s  {line}", soft_wrap=True)

    def _redraw(self) -> None:
        """A fresh board three times a second, and what the autoscaler said meanwhile."""
        while not self._stopping.wait(0.3):
            self._tell_along()
            try:
                picture = self._board() if self._live else None
            except (Unavailable, OSError):
                continue  # the ground is going down; the story tells of it
            if self._live and picture:
                self._live.update(picture, refresh=True)
        self._tell_along()

    def _tell_along(self) -> None:
        try:
            with self._voice.open(encoding="utf-8", errors="replace") as log:
                log.seek(self._heard)
                while (line := log.readline()).endswith("\n"):
                    self._heard = log.tell()
                    self.say(f"[cyan]autoscaler[/] {escape(_TIME.sub('', line.rstrip()))}")
        except FileNotFoundError:
            return

    def _board(self) -> RenderableType:
        pods, nodes = self._recorder.pods(), self._recorder.nodes()
        instances, groups = self._recorder.instances(), self._recorder.groups()
        return Group(Text(), jobs_table(pods), machines_table(nodes, pods), groups_table(groups, instances))


def jobs_table(pods: Sequence[PodSeen]) -> Table:
    """Pods of each job by state."""
    table = Table(title="jobs", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("job", "waiting", "running", "done", "GPUs held"):
        table.add_column(column, justify="left" if column == "job" else "right")
    by_job: dict[str, list[PodSeen]] = defaultdict(list)
    for pod in pods:
        by_job[pod.job].append(pod)
    for job, members in by_job.items():
        done = [pod for pod in members if pod.finished_at is not None or pod.gone]
        running = [pod for pod in members if pod.bound_at is not None and pod not in done]
        table.add_row(
            job,
            str(len(members) - len(done) - len(running)),
            str(len(running)),
            str(len(done)),
            str(sum(pod.gpus for pod in running)),
        )
    return table


def machines_table(nodes: Sequence[NodeSeen], pods: Sequence[PodSeen]) -> Table:
    """Which pods hold the GPUs of each machine."""
    table = Table(title="machines", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("machine", "where", "GPUs", "held by"):
        table.add_column(column)
    for node in sorted(nodes, key=lambda one: (not one.on_prem, one.name)):
        if node.gone:
            continue
        here = [pod for pod in pods if pod.node == node.name and pod.finished_at is None and not pod.gone]
        used = sum(pod.gpus for pod in here)
        bar = "█" * used + "·" * (node.gpus - used)
        holders = ", ".join(sorted({pod.job for pod in here})) or ("-" if node.ready_at else "starting")
        table.add_row(node.name, "on-prem" if node.on_prem else "EC2", f"{bar} {used}/{node.gpus}", holders)
    return table


def groups_table(groups: Sequence[GroupSeen], instances: Sequence[InstanceSeen]) -> Table:
    """EC2 groups that have or want instances, and what they cost."""
    alive = [instance for instance in instances if instance.ended_at is None]
    rate = sum(instance.usd_per_hour for instance in alive)
    table = Table(title=f"EC2 groups: {rate:.2f} $/h", title_justify="left", box=box.SIMPLE_HEAD)
    for column in ("group", "desired", "instances", "$/h"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in groups:
        mine = [instance for instance in alive if instance.group == group.name]
        if group.desired or mine:
            cost = sum(instance.usd_per_hour for instance in mine)
            table.add_row(group.name, str(group.desired), str(len(mine)), f"{cost:.2f}")
    return table


def report(console: Console, verdicts: Sequence[Claim], numbers: Figures, *, boot_delay: float, took: float) -> None:
    """The short report: each claim with its evidence, then the figures."""
    console.print("\n[bold]What was claimed, and what the API server and EC2 say[/]")
    for verdict in verdicts:
        mark = "[green]held[/]  " if verdict.held else "[bold red]FAILED[/]"
        console.print(f"  {mark} {verdict.text}\n         [dim]{verdict.evidence}[/]", soft_wrap=True)
    console.print("\n[bold]Figures[/]")
    console.print(f"  pod pending to EC2 request  {_seconds(numbers.pending_to_request)}")
    console.print(
        f"  pod pending to all bound    {_seconds(numbers.pending_to_bound)} (instances boot in {boot_delay:g} s here)"
    )
    console.print(f"  peak cost of EC2            {numbers.peak_usd_per_hour:.2f} $/h")
    console.print(f"  total cost of EC2           {numbers.total_usd:.4f} $")
    console.print(f"  instances launched, left    {numbers.instances}, {numbers.left_behind or 'none'}")
    console.print(f"  the whole demo took         {took:.0f} s")


def _seconds(span: float | None) -> str:
    return "never" if span is None else f"{span:.2f} s"
