"""What the demo shows: a live board on a terminal, plain lines where there is none, and the report at the end."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from autoscaler.failures import Unavailable
from stacks.local.claims import Claim, Figures, GroupSeen, InstanceSeen, NodeSeen, PodSeen
from stacks.local.witness import Witness


class View:
    """The live board: jobs, machines, groups, dollars per hour. Lines said scroll above it."""

    def __init__(self, *, console: Console, witness: Witness) -> None:
        self._console = console
        self._witness = witness
        self._began = time.monotonic()
        self._stopping = threading.Event()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._thread = threading.Thread(target=self._redraw, daemon=True)

    def __enter__(self) -> Self:
        """Begin to draw."""
        if self._live:
            self._live.start()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        self._stopping.set()
        if self._live:
            self._thread.join()
            self._live.stop()

    def scene(self, title: str) -> None:
        """A new part of the story."""
        self._console.print(f"\n[bold]{title}[/]", soft_wrap=True)

    def say(self, line: str) -> None:
        """One thing that happened."""
        self._console.print(f"  {time.monotonic() - self._began:5.1f} s  {line}", soft_wrap=True)

    def _redraw(self) -> None:
        while self._live and not self._stopping.wait(0.5):
            try:
                picture = self._board()
            except (Unavailable, OSError):
                continue  # the ground is going down; the story tells of it
            self._live.update(picture, refresh=True)

    def _board(self) -> RenderableType:
        pods, nodes = self._witness.pods(), self._witness.nodes()
        instances, groups = self._witness.instances(), self._witness.groups()
        return Group(Text(), jobs_table(pods), machines_table(nodes, pods), groups_table(groups, instances))


def jobs_table(pods: Sequence[PodSeen]) -> Table:
    """Pods of each job by state."""
    table = Table(title="jobs", title_justify="left", expand=False)
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
    """Who holds the GPUs of each machine."""
    table = Table(title="machines", title_justify="left", expand=False)
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
    table = Table(title=f"EC2 groups: {rate:.2f} $/h", title_justify="left", expand=False)
    for column in ("group", "desired", "instances", "$/h"):
        table.add_column(column, justify="left" if column == "group" else "right")
    for group in groups:
        mine = [instance for instance in alive if instance.group == group.name]
        if group.desired or mine:
            cost = sum(instance.usd_per_hour for instance in mine)
            table.add_row(group.name, str(group.desired), str(len(mine)), f"{cost:.2f}")
    return table


def report(console: Console, verdicts: Sequence[Claim], numbers: Figures, *, took: float) -> None:
    """The short report: each claim with its evidence, then the figures."""
    console.print("\n[bold]What was claimed, and what the API server and EC2 say[/]")
    for verdict in verdicts:
        mark = "[green]held[/]  " if verdict.held else "[bold red]FAILED[/]"
        console.print(f"  {mark} {verdict.text}\n         [dim]{verdict.evidence}[/]", soft_wrap=True)
    console.print("\n[bold]Figures[/]")
    console.print(f"  pod pending to EC2 request  {_seconds(numbers.pending_to_request)}")
    console.print(f"  pod pending to all bound    {_seconds(numbers.pending_to_bound)} (machines boot in 3 s here)")
    console.print(f"  peak cost of EC2            {numbers.peak_usd_per_hour:.2f} $/h")
    console.print(f"  total cost of EC2           {numbers.total_usd:.4f} $")
    console.print(f"  instances launched, left    {numbers.instances}, {numbers.left_behind or 'none'}")
    console.print(f"  the whole demo took         {took:.0f} s")


def _seconds(span: float | None) -> str:
    return "never" if span is None else f"{span:.2f} s"
