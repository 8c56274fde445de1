"""`spillway jobs`: jobs from the command line, from short files to every backend."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from autoscaler.kube.client import Kube
    from images.backends.states import RoleState, Stage, TaskState
    from images.jobs import Job

TEMPLATES: Final = Path(__file__).parent / "templates"
TARGETS: Final = (
    "kubernetes", "jobset", "tfjob", "volcano", "compose", "aliyun-compose", "slurm", "marathon", "yarn", "local",
)  # fmt: skip
"""What `render` knows, spelled here too so that `--help` and completion import nothing."""
_MODELINE: Final = "# yaml-language-server: $schema="

_kubeconfig = click.option(
    "--kubeconfig", type=click.Path(path_type=Path), help="Default: $KUBECONFIG, ~/.kube/config, or the pod's account."
)
_namespace = click.option("-n", "--namespace", default="default", show_default=True)
_params = click.option(
    "-p", "--param", "params", multiple=True, metavar="NAME=VALUE", help="A parameter of the file, e.g. workers=8."
)
_INTERRUPTED: Final = 130
"""Exit status of what Ctrl-C has ended."""
_FILE: Final = click.Path(path_type=Path)
_file = click.argument("file", type=click.Path(path_type=Path))
_backend = click.option(
    "--to", "backend", type=click.Choice(("kubernetes", "local")), default="kubernetes", show_default=True,
    help="Where it runs: a cluster, or processes of this machine.",
)  # fmt: skip
_autoscaler = click.option(
    "--autoscaler-namespace", "autoscaler", default="spillway", show_default=True,
    help="Where the autoscaler's lease and memory are.",
)  # fmt: skip
_target = click.option(
    "--to", "target", type=click.Choice(TARGETS), default="kubernetes", show_default=True, help="What will run it."
)


@click.group()
def jobs() -> None:
    """Render, submit and follow jobs from short files."""


@jobs.command()
def templates() -> None:
    """Show the templates and their parameters."""
    from images.job_files import params_of  # noqa: PLC0415 - slow imports wait until they are needed, here and below

    for path in sorted(TEMPLATES.glob("*.yaml")):
        text = path.read_text(encoding="utf-8")
        told = next(line[2:] for line in text.splitlines() if line.startswith("# ") and _MODELINE not in line)
        click.echo(f"{path.stem}: {told}")
        for name, param in params_of(text, source=str(path)).items():
            holds = "must be given" if param.default is None else f"default {param.default}"
            click.echo(f"    -p {name}=  {param.help} ({holds})")


@jobs.command()
@click.argument("template", shell_complete=lambda _c, _p, typed: _names(typed))
@click.argument("file", type=click.Path(path_type=Path), required=False)
def init(template: str, file: Path | None) -> None:
    """Write a job file from a template; by default to TEMPLATE.yaml."""
    path = TEMPLATES / f"{template}.yaml"
    if template not in _names(""):
        raise click.BadParameter(f"{template!r} is none of: {', '.join(_names(''))}", param_hint="TEMPLATE")
    text = path.read_text(encoding="utf-8").replace(_MODELINE, f"{_MODELINE}{TEMPLATES}/", 1)
    target = file or Path(path.name)
    try:
        with target.open("x", encoding="utf-8") as made:
            made.write(text)
    except OSError as error:
        raise click.BadParameter(f"cannot write {target}: {error.strerror}", param_hint="FILE") from None
    click.echo(f"wrote {target}; `spillway jobs render {target}` shows what it becomes")


def _names(typed: str) -> list[str]:
    return sorted(path.stem for path in TEMPLATES.glob(f"{typed}*.yaml"))


@jobs.command(name="import")
@_file
@click.option(
    "--from", "origin", type=click.Choice(("tfjob", "compose", "marathon", "paddle")), required=True, help="Whose file."
)
def import_(file: Path, origin: str) -> None:
    """Print another system's file as a job file; on standard error, what of it is not in the job."""
    from autoscaler.config.documents import read_mapping, read_text  # noqa: PLC0415
    from images.importers import IMPORTERS  # noqa: PLC0415
    from images.jobs import as_data  # noqa: PLC0415
    from images.renderers.rendering import Rendering  # noqa: PLC0415

    data, _ = read_mapping(read_text(file, what=origin), what=origin, source=str(file))
    made = IMPORTERS[origin](data)
    click.echo(Rendering(documents=(as_data(made.job),)).text, nl=False)
    for loss in made.losses:
        click.echo(f"lost: {loss}", err=True)


@jobs.command()
def schema() -> None:
    """Print the JSON Schema of job files, for editors."""
    import json  # noqa: PLC0415

    from images.job_files import schema as made  # noqa: PLC0415

    click.echo(json.dumps(made(), indent=1))


@jobs.command()
@_file
@_params
@_target
def render(file: Path, params: tuple[str, ...], target: str) -> None:
    """Print what a job becomes, without touching anything; on standard error, what of it the target cannot say."""
    from images.renderers import RENDERERS  # noqa: PLC0415

    made = RENDERERS[target](_job(file, params))
    click.echo(made.text, nl=False)
    for loss in made.losses:
        click.echo(f"lost: {loss}", err=True)


@jobs.command()
@_file
@_params
@click.option("--catalog", help="CSV of instance types, or ec2:REGION; absent: the cluster's autoscaler is asked.")
@click.option("--nodes", type=_FILE, help="Machines that are free: CSV or a Kubernetes List.")
@click.option("--policy", type=_FILE, help="Buy only what this policy names, within its limits.")
@_autoscaler
@_kubeconfig
def plan(  # noqa: PLR0917 - click gives them by name
    file: Path,
    params: tuple[str, ...],
    catalog: str | None,
    nodes: Path | None,
    policy: Path | None,
    autoscaler: str,
    kubeconfig: Path | None,
) -> None:
    """Show what a job would cost, without touching anything; exit status 1 where it could not start now.

    Beside what runs in the cluster, as its autoscaler would have it; with --catalog from files alone.
    """
    from images.spending import plan as planned  # noqa: PLC0415
    from images.spending import plan_live  # noqa: PLC0415

    if catalog is None and (nodes or policy):
        raise click.UsageError("--nodes and --policy are read with --catalog: without it the cluster says both")
    job = _job(file, params)
    steps = job.by_step()
    if catalog is None:
        kube = _kube(kubeconfig, otherwise="--catalog prices.csv plans from files")
        found = {step: plan_live(one, kube, namespace=autoscaler) for step, one in steps.items()}
    else:
        read = partial(planned, catalog=catalog, nodes=nodes, policy=policy, tell=partial(click.echo, err=True))
        found = {step: read(one) for step, one in steps.items()}
    for step, spending in found.items():
        for line in spending.lines(step=step):
            click.echo(line)
    if not all(one.can_start for one in found.values()):
        sys.exit(1)


@jobs.command()
@_file
@_params
@_backend
@click.option("--anyway", is_flag=True, help="Also a job that nothing could ever host, as machines and policy stand.")
@click.option("-f", "--follow", "follows", is_flag=True, help="Go on as `follow` does.")
@_autoscaler
@_kubeconfig
def submit(  # noqa: PLR0917 - click gives them by name
    file: Path,
    params: tuple[str, ...],
    backend: str,
    anyway: bool,  # noqa: FBT001
    follows: bool,  # noqa: FBT001
    autoscaler: str,
    kubeconfig: Path | None,
) -> None:
    """Start a job: as a whole or not at all. One that nothing could ever host is refused with the reason."""
    job = _job(file, params)
    if backend != "local" and not anyway:
        from images.spending import refuse_hopeless  # noqa: PLC0415

        for step in job.by_step().values():
            unknown = refuse_hopeless(step, _kube(kubeconfig), namespace=autoscaler)
            if unknown:
                click.echo(f"not asked whether it can ever start: {unknown}", err=True)
                break
    if backend == "local":
        from images.backends.local import submit as start  # noqa: PLC0415

        made = start(job)
    else:
        from images.backends.kubernetes import submit as create  # noqa: PLC0415

        made = create(_kube(kubeconfig), job)
    tasks = "1 task" if job.size == 1 else f"{job.size} tasks"
    click.echo(f"submitted {job.name}: {tasks} asking for {job.requests()}")
    for name in made:
        click.echo(f"  {name}")
    if follows:
        _follow(job.name, backend=backend, namespace=job.namespace, autoscaler=autoscaler, kubeconfig=kubeconfig)


@jobs.command()
@click.argument("job")
@_backend
@_namespace
@_autoscaler
@_kubeconfig
def follow(job: str, backend: str, namespace: str, autoscaler: str, kubeconfig: Path | None) -> None:
    """Print a line each time a job gets further: queued, bought, booting, starting, running, ended.

    The exit status is that of the job: 0 where it has succeeded, else that of the task which failed last. Ctrl-C
    leaves the job alone.
    """
    _follow(job, backend=backend, namespace=namespace, autoscaler=autoscaler, kubeconfig=kubeconfig)


def _follow(job: str, *, backend: str, namespace: str, autoscaler: str, kubeconfig: Path | None) -> None:
    where = " --to local" if backend == "local" else "" if namespace == "default" else f" -n {namespace}"
    status: int | None = None
    try:
        for stage in _stages(job, backend, namespace, autoscaler, kubeconfig):
            click.echo(f"{datetime.now(UTC):%H:%M:%S} UTC {stage.word}: {stage.detail}")
            status = stage.status
    except KeyboardInterrupt:
        click.echo(f"\n{job} goes on; `spillway jobs follow {job}{where}` follows it again", err=True)
        sys.exit(_INTERRUPTED)
    sys.exit(status)


def _stages(job: str, backend: str, namespace: str, autoscaler: str, kubeconfig: Path | None) -> Iterator[Stage]:
    if backend == "local":
        from images.backends.local import follow as here  # noqa: PLC0415

        return here(name=job)
    from images.backends.following import follow as in_cluster  # noqa: PLC0415

    return in_cluster(_kube(kubeconfig), namespace=namespace, name=job, autoscaler=autoscaler)


@jobs.command(name="list")
@click.option("-n", "--namespace", help="Default: all.")
@click.option("--from", "place", help="Jobs of whatever backend, by what their launchers keep: `logs` of their files.")
@_backend
@_kubeconfig
def list_(namespace: str | None, place: str | None, backend: str, kubeconfig: Path | None) -> None:
    """Show every job, by role."""
    from images.tables import print_roles  # noqa: PLC0415

    found = _states(backend, namespace, kubeconfig, place=place)
    if not found:
        click.echo("no jobs; `spillway jobs templates` shows what there is to start from")
        return
    print_roles(found, now=datetime.now(UTC))


@jobs.command()
@click.argument("job")
@_backend
@_namespace
@_autoscaler
@_kubeconfig
def show(job: str, backend: str, namespace: str, autoscaler: str, kubeconfig: Path | None) -> None:
    """Show one job, task by task: since when, where, how often it was started, and what keeps it."""
    from images.tables import print_tasks  # noqa: PLC0415

    stage, tasks = _shown(job, backend, namespace, autoscaler, kubeconfig)
    click.echo(f"{job}: {stage.word}: {stage.detail}")
    print_tasks(tasks, now=datetime.now(UTC))


def _shown(
    job: str, backend: str, namespace: str, autoscaler: str, kubeconfig: Path | None
) -> tuple[Stage, list[TaskState]]:
    if backend == "local":
        from images.backends.local import show as here  # noqa: PLC0415

        return here(name=job)
    from images.backends.following import show as in_cluster  # noqa: PLC0415

    return in_cluster(_kube(kubeconfig), namespace=namespace, name=job, autoscaler=autoscaler)


def _states(backend: str, namespace: str | None, kubeconfig: Path | None, *, place: str | None) -> list[RoleState]:
    if place:
        from images.backends.kept import states as kept  # noqa: PLC0415

        return kept(place=place)
    if backend == "local":
        from images.backends.local import states  # noqa: PLC0415

        return states()
    from images.backends.kubernetes import states as in_cluster  # noqa: PLC0415

    return in_cluster(_kube(kubeconfig), namespace=namespace)


@jobs.command()
@click.argument("job")
@click.option("--role", default="worker", show_default=True)
@click.option("--index", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option("--from", "place", help="What the launcher kept: a directory or s3://BUCKET/PREFIX, `logs` of the file.")
@_backend
@_namespace
@_kubeconfig
def logs(  # noqa: PLR0917 - click gives them by name
    job: str,
    role: str,
    index: int,
    follow: bool,  # noqa: FBT001
    place: str | None,
    backend: str,
    namespace: str,
    kubeconfig: Path | None,
) -> None:
    """Print the log of one task; with --from also when the job, its pods and machines are gone."""
    if place:
        from images.backends.kept import lines as kept  # noqa: PLC0415

        if follow:
            raise click.UsageError("--follow reads what runs, and --from what was kept: give one of them")
        for line in kept(place=place, job=job, role=role, index=index):
            click.echo(line)
        return
    for line in _lines(job, role, index, follow=follow, backend=backend, namespace=namespace, kubeconfig=kubeconfig):
        click.echo(line)


def _lines(
    job: str, role: str, index: int, *, follow: bool, backend: str, namespace: str, kubeconfig: Path | None
) -> Iterator[str]:
    if backend == "local":
        from images.backends.local import logs as kept  # noqa: PLC0415

        return kept(name=job, role=role, index=index, follow=follow)
    from images.backends.kubernetes import logs as in_cluster  # noqa: PLC0415

    return in_cluster(_kube(kubeconfig), namespace=namespace, name=job, role=role, index=index, follow=follow)


@jobs.command()
@click.argument("job")
@_backend
@_namespace
@_kubeconfig
def stop(job: str, backend: str, namespace: str, kubeconfig: Path | None) -> None:
    """End a job, with grace for its tasks, and keep what there is to see of it."""
    if backend == "local":
        from images.backends.local import stop as end  # noqa: PLC0415

        was_running = end(name=job)
    else:
        from images.backends.kubernetes import stop as end_in_cluster  # noqa: PLC0415

        was_running = end_in_cluster(_kube(kubeconfig), namespace=namespace, name=job)
    click.echo(f"stopped {job}" if was_running else f"{job} had ended already")


@jobs.command()
@click.argument("job")
@_backend
@_namespace
@_kubeconfig
def delete(job: str, backend: str, namespace: str, kubeconfig: Path | None) -> None:
    """Delete a job and everything that belongs to it."""
    if backend == "local":
        from images.backends.local import delete as clear  # noqa: PLC0415

        clear(name=job)
        click.echo(f"deleted {job}")
        return
    from images.backends.kubernetes import delete as remove  # noqa: PLC0415

    is_gone = remove(_kube(kubeconfig), namespace=namespace, name=job)
    click.echo(f"deleted {job}" if is_gone else f"deleted {job}; the cluster is still clearing up after it")


def _kube(kubeconfig: Path | None, *, otherwise: str = "--to local means this machine") -> Kube:
    """Raises ``BadInput`` where no configuration is usable; where none is named, with what there is ``otherwise``."""
    from autoscaler.kube.client import Kube  # noqa: PLC0415
    from autoscaler.model.errors import BadInput  # noqa: PLC0415

    try:
        return Kube.connect(kubeconfig)
    except BadInput as error:
        if kubeconfig or os.environ.get("KUBECONFIG"):
            raise
        raise BadInput(f"{error}; without a cluster, {otherwise}") from None


def _job(file: Path, params: tuple[str, ...]) -> Job:
    """The job in the file (``-``: standard input), with its parameters as given."""
    from images.job_files import parse_job, read_job  # noqa: PLC0415

    given: dict[str, str] = {}
    for param in params:
        name, equals, value = param.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{param!r} is not NAME=VALUE, e.g. workers=8", param_hint="-p")
        given[name] = value
    if str(file) == "-":
        return parse_job(sys.stdin.read(), given, source="standard input")
    return read_job(file, given)
