"""`spillway jobs`: training jobs from the command line."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from autoscaler.kube.client import Kube
    from images.jobs import TrainingJob

_kubeconfig = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: $KUBECONFIG, ~/.kube/config, or the pod's account."
)
_namespace = click.option("-n", "--namespace", default="default", show_default=True)
_set = click.option(
    "--set", "changes", multiple=True, metavar="KEY=VALUE", help="Change a key, e.g. tasks.worker.count=8."
)
_file = click.argument("file", type=click.Path(path_type=Path))


@click.group()
def jobs() -> None:
    """Render and submit training jobs from short files."""


@jobs.command()
def new() -> None:
    """Print a commented job file to start from."""
    example = Path(__file__).parent / "examples" / "new.yaml"
    click.echo(example.read_text(encoding="utf-8"), nl=False)


@jobs.command()
@_file
@_set
@click.option("--target", default="kubernetes", show_default=True, help="What will run it.")
def render(file: Path, changes: tuple[str, ...], target: str) -> None:
    """Print what a job becomes, without touching a cluster."""
    import yaml  # noqa: PLC0415 - slow imports wait until they are needed, here and below

    from images.templates import RENDERERS  # noqa: PLC0415

    if target not in RENDERERS:
        raise click.BadParameter(f"{target!r} is none of: {', '.join(sorted(RENDERERS))}", param_hint="--target")
    click.echo(yaml.safe_dump_all(RENDERERS[target](_job(file, changes)), sort_keys=False), nl=False)


@jobs.command()
@_file
@_set
@_kubeconfig
def submit(file: Path, changes: tuple[str, ...], kubeconfig: Path | None) -> None:
    """Create a job in the cluster: as a whole or not at all."""
    from images.submit import submit as create  # noqa: PLC0415

    job = _job(file, changes)
    made = create(_kube(kubeconfig), job)
    tasks = "1 task" if job.size == 1 else f"{job.size} tasks"
    click.echo(f"submitted {job.name}: {tasks} asking for {job.requests()}")
    for name in made:
        click.echo(f"  {name}")


@jobs.command(name="list")
@click.option("-n", "--namespace", help="Default: all.")
@_kubeconfig
def list_(namespace: str | None, kubeconfig: Path | None) -> None:
    """Show every training job, by role."""
    from rich.console import Console  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    from images.submit import states  # noqa: PLC0415

    found = states(_kube(kubeconfig), namespace=namespace)
    if not found:
        click.echo("no training jobs; `spillway jobs new` prints a file to start from")
        return
    table = Table(box=None, pad_edge=False)
    for column in _WORDS:
        table.add_column(column, overflow="fold", no_wrap=column == "STATE")
    for column in _COUNTS:
        table.add_column(column, justify="right", no_wrap=True)
    for one in found:
        state = f"{one.state} for {_age(datetime.now(UTC) - one.since)}"
        counts = (one.waiting, one.running, one.succeeded, one.failed, one.gpus)
        table.add_row(one.namespace, one.job, one.role, state, *map(str, counts))
    console = Console()
    (console if console.is_terminal else Console(width=_WIDE)).print(table)


_WORDS = ("NAMESPACE", "JOB", "ROLE", "STATE")
_COUNTS = ("WAIT", "RUN", "DONE", "FAIL", "GPUS")
"""So short that a terminal of 80 columns has room for the words."""
_WIDE = 1000
"""Columns, where a program reads: no name is cut."""


def _age(span: timedelta) -> str:
    """In the biggest unit that leaves at least two of it: 90 s, 15 min, 3 h, 2 d."""
    seconds = max(0, int(span.total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


@jobs.command()
@click.argument("job")
@click.option("--role", default="worker", show_default=True)
@click.option("--index", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@_namespace
@_kubeconfig
def logs(job: str, role: str, index: int, follow: bool, namespace: str, kubeconfig: Path | None) -> None:  # noqa: FBT001, PLR0917 - click gives them by name
    """Print the log of one task."""
    from images.submit import logs as lines  # noqa: PLC0415

    for line in lines(_kube(kubeconfig), namespace=namespace, name=job, role=role, index=index, follow=follow):
        click.echo(line)


@jobs.command()
@click.argument("job")
@_namespace
@_kubeconfig
def delete(job: str, namespace: str, kubeconfig: Path | None) -> None:
    """Delete a job and everything that belongs to it."""
    from images.submit import delete as remove  # noqa: PLC0415

    is_gone = remove(_kube(kubeconfig), namespace=namespace, name=job)
    click.echo(f"deleted {job}" if is_gone else f"deleted {job}; the cluster is still clearing up after it")


def _kube(kubeconfig: Path | None) -> Kube:
    from autoscaler.kube.client import Kube  # noqa: PLC0415

    return Kube.connect(kubeconfig)


def _job(file: Path, changes: tuple[str, ...]) -> TrainingJob:
    """The job in the file (``-``: standard input), with ``--set`` applied."""
    import yaml  # noqa: PLC0415

    from autoscaler.config.documents import parse_data  # noqa: PLC0415
    from images.jobs import TrainingJob, parse_job, read_job  # noqa: PLC0415

    if str(file) == "-":
        text, source = sys.stdin.read(), "standard input"
        job = parse_job(text, source=source)
    else:
        job, source = read_job(file), str(file)
        text = file.read_text(encoding="utf-8") if changes else ""
    if not changes:
        return job
    data = yaml.safe_load(text)
    for change in changes:
        _apply(data, change)
    return parse_data(data, TrainingJob, source=f"{source} with {' '.join(f'--set {one}' for one in changes)}")


_FREE_KEYS = {"env", "annotations", "node_selector"}
"""Below these a key may hold dots of its own, and values are text."""


def _apply(data: dict[str, object], change: str) -> None:
    path, equals, value = change.partition("=")
    if not equals or not path:
        raise click.BadParameter(f"{change!r} is not KEY=VALUE, e.g. tasks.worker.count=8", param_hint="--set")
    *parents, last = path.split(".")
    place = data
    for number, key in enumerate(parents):
        inner = place.setdefault(key, {})
        if not isinstance(inner, dict):
            raise click.BadParameter(f"{change!r}: {key} holds no keys", param_hint="--set")
        place = inner
        if key in _FREE_KEYS:
            place[".".join([*parents[number + 1 :], last])] = value
            return
    place[last] = _value(change, value)


def _value(change: str, text: str) -> object:
    import yaml  # noqa: PLC0415

    try:
        value: object = yaml.safe_load(text)
    except yaml.YAMLError:
        raise click.BadParameter(f"{change!r}: the value is not YAML", param_hint="--set") from None
    return value
