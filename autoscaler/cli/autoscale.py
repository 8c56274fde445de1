"""`spillway autoscale` and `spillway gpus`. Imports are late, so that help is instant."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import click

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_at = click.option("--at", metavar="14:02", help="At that time in UTC, as the log tells it; or 2026-11-23T14:02:31.")
kubeconfig_option = click.option(
    "--kubeconfig", type=_FILE, default=None, help="Else $KUBECONFIG, ~/.kube/config, or the pod's own account."
)


@click.group()
def autoscale() -> None:
    """Run the autoscaler, or ask what it would do and why."""


@autoscale.command()
@click.option(
    "--policy",
    required=True,
    metavar="FILE|configmap:NAMESPACE/NAME",
    help="The scaling policy: followed while it is edited.",
)
@kubeconfig_option
@click.option("--once", is_flag=True, help="Decide and act once, then exit.")
@click.option("--dry-run", is_flag=True, help="Decide, tell, and change nothing.")
@click.option("--namespace", default="spillway", show_default=True, help="Where the autoscaler's lease and memory are.")
@click.option("--identity", default=None, help="This autoscaler's name in the lease; else host name and a number.")
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default=None, help="Else text on a terminal, JSON elsewhere."
)
@click.option(
    "--metrics-port", type=click.IntRange(1, 65535), default=None,
    help="Serve Prometheus metrics and answers there; absent: on a free port that only this host reaches.",
)  # fmt: skip
@click.option("--record", type=_FOLDER, default=None, help="Write every decision down in this folder.")
@click.option(
    "--record-mib",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="The folder holds no more than that.",
)
def run(
    *,
    policy: str,
    kubeconfig: Path | None,
    once: bool,
    dry_run: bool,
    namespace: str,
    identity: str | None,
    log_format: str | None,
    metrics_port: int | None,
    record: Path | None,
    record_mib: int,
) -> None:
    """Watch the cluster and resize its EC2 groups, on every change."""
    from autoscaler.service import Settings, run_once, serve  # noqa: PLC0415 - see the module's docstring

    settings = Settings(
        policy=policy,
        kubeconfig=kubeconfig,
        namespace=namespace,
        identity=identity,
        dry_run=dry_run,
        log_format=log_format,
        metrics_port=metrics_port,
        record=record,
        record_bytes=record_mib * 2**20,
    )
    (run_once if once else serve)(settings)


@autoscale.command()
@click.option("--pods", required=True, help="CSV (cpu_milli, memory_mib, num_gpu, ...) or manifests; - is stdin.")
@click.option("--catalog", required=True, help="CSV of instance types (what they hold and cost), or ec2:REGION.")
@click.option("--nodes", type=_FILE, default=None, help="Machines that are there: CSV or a Kubernetes List.")
@click.option("--policy", type=_FILE, default=None, help="Buy only what this policy names, within its limits.")
@click.option("--zones", default="", help="Zones to buy in, parted by commas, where the catalogue names none.")
@click.option(
    "--capacity-type",
    type=click.Choice(["on-demand", "spot"]),
    default=None,
    help="Buy only such capacity; else any that the catalogue names.",
)
@click.option("--deadline", default="1s", show_default=True, help="Answer by then with the best plan found.")
@click.option("--json", "wants_json", is_flag=True, help="For programs.")
def plan(
    *,
    pods: str,
    catalog: str,
    nodes: Path | None,
    policy: Path | None,
    zones: str,
    capacity_type: str | None,
    deadline: str,
    wants_json: bool,
) -> None:
    """Plan the cheapest nodes for pods from a file; no cluster is asked."""
    from autoscaler.inputs.offline_plan import catalog_file, run_plan  # noqa: PLC0415

    run_plan(
        pods=pods,
        catalog=catalog_file(catalog, tell=partial(click.echo, err=True)),
        nodes=nodes,
        policy=policy,
        zones=tuple(zone for zone in zones.split(",") if zone),
        capacity_type=capacity_type,
        deadline=deadline,
        wants_json=wants_json,
        echo=click.echo,
    )


_namespace = click.option(
    "--namespace", default="spillway", show_default=True, help="Where the autoscaler's lease and memory are."
)
_of_group = click.option("--group", default=None, help="One group of the policy.")
_of_buying = click.option("--buying", is_flag=True, help="Buying alone: idle nodes are terminated.")


@autoscale.command()
@_of_group
@_of_buying
@click.option("--because", required=True, help="Why: shown wherever the pause is.")
@click.option("--for", "span", default=None, metavar="2h", help="For how long; else until it is resumed.")
@click.option("--by", default=None, help="Name of the person that asks for it; else $USER.")
@_namespace
@kubeconfig_option
def pause(
    *,
    group: str | None,
    buying: bool,
    because: str,
    span: str | None,
    by: str | None,
    namespace: str,
    kubeconfig: Path | None,
) -> None:
    """Buy and terminate nothing, everywhere or in one group; pods are placed on what is there all the same."""
    import os  # noqa: PLC0415 - see the module's docstring

    from autoscaler.config.documents import parse_span  # noqa: PLC0415
    from autoscaler.model.pauses import Pause  # noqa: PLC0415
    from autoscaler.views import pauses  # noqa: PLC0415

    now = datetime.now(UTC)
    try:
        until = now + parse_span(span) if span else None
    except ValueError as error:
        raise click.BadParameter(f"{span!r} {error}", param_hint="--for") from None
    wanted = Pause(_scope(group, buying=buying), because, by or os.environ.get("USER", ""), now, until)
    for line in pauses.pause(wanted, kubeconfig=kubeconfig, namespace=namespace):
        click.echo(line)


@autoscale.command()
@_of_group
@_of_buying
@_namespace
@kubeconfig_option
def resume(*, group: str | None, buying: bool, namespace: str, kubeconfig: Path | None) -> None:
    """End a pause: that of everything, of one group, or of buying."""
    from autoscaler.views import pauses  # noqa: PLC0415

    for line in pauses.resume(_scope(group, buying=buying), kubeconfig=kubeconfig, namespace=namespace):
        click.echo(line)


def _scope(group: str | None, *, buying: bool) -> str:
    from autoscaler.model.pauses import ALL, BUYING  # noqa: PLC0415

    if group:
        return f"{BUYING if buying else 'group'}.{group}"
    return BUYING if buying else ALL


@autoscale.command()
@click.option("--month", default=None, metavar="2026-11", help="Else this month (UTC).")
@click.option("--by", type=click.Choice(["day", "group", "namespace", "owner"]), default="day", show_default=True)
@click.option("--csv", "wants_csv", is_flag=True, help="A row for each sum of a day, with FOCUS columns.")
@_namespace
@kubeconfig_option
def spend(*, month: str | None, by: str, wants_csv: bool, namespace: str, kubeconfig: Path | None) -> None:
    """Say what EC2 nodes have cost, at list prices, by what the autoscaler has written down."""
    from typing import Any, cast  # noqa: PLC0415 - see the module's docstring

    from autoscaler.views import spending  # noqa: PLC0415

    try:
        asked = datetime.strptime(month, "%Y-%m").replace(tzinfo=UTC) if month else datetime.now(UTC)
    except ValueError:
        raise click.BadParameter(f"{month!r} is no month: write one such as 2026-11", param_hint="--month") from None
    chosen = cast("Any", by)
    for line in spending.spending(
        f"{asked:%Y-%m}", chosen, kubeconfig=kubeconfig, namespace=namespace, wants_csv=wants_csv
    ):
        click.echo(line)


@autoscale.command()
@click.argument("record", type=click.Path(path_type=Path, exists=True))
@_at
def replay(*, record: Path, at: str | None) -> None:
    """Decide again what RECORD has (a folder of `run --record`, or a file of it): exit status 1 on any difference."""
    from autoscaler.record.replay import Tally, replay  # noqa: PLC0415 - see the module's docstring

    tally = Tally()
    for line in replay(record, at=_moment(at), tally=tally):
        click.echo(line)
    click.echo(f"{record}: {tally}")
    if tally.differ or not (tally.same or tally.doubted):
        raise click.exceptions.Exit(1)


@autoscale.command()
@click.option("--policy", required=True, type=_FILE, help="The scaling policy: it stands in a ConfigMap then.")
@click.option("--image", required=True, help="Of the autoscaler, e.g. registry.example.org/spillway/autoscaler:0.1.0.")
@click.option(
    "--aws-access",
    type=click.Choice(["irsa", "access-key"]),
    default="irsa",
    show_default=True,
    help="irsa: by the role of its ServiceAccount. access-key: by the Secret spillway-autoscaler-aws, which you make.",
)
@click.option("--role-arn", default=None, help="That role; without it, EKS Pod Identity or the like gives one.")
@click.option("--pull-secret", default=None, help="Name of the Secret that the image is pulled with.")
@click.option("--service-monitor", is_flag=True, help="With a ServiceMonitor, for the Prometheus operator.")
def manifests(
    *, policy: Path, image: str, aws_access: str, role_arn: str | None, pull_secret: str | None, service_monitor: bool
) -> None:
    """Print what `pulumi up` makes in the cluster for the autoscaler, to be applied with `kubectl apply -f -`."""
    from typing import Any, cast  # noqa: PLC0415 - see the module's docstring

    from autoscaler.config import release_manifests as release  # noqa: PLC0415
    from autoscaler.config.policy import read_policy  # noqa: PLC0415

    if role_arn and aws_access != "irsa":
        raise click.BadParameter("takes --aws-access irsa: a key has its own rights", param_hint="--role-arn")
    spec = release.ReleaseSpec(
        image=image,
        region=read_policy(policy).region,
        policy=policy.read_text(encoding="utf-8"),
        aws_access=cast("Any", aws_access),
        pull_secret=pull_secret,
    )
    made = [release.with_role(one, role_arn) for one in release.manifests(spec)]
    click.echo(release.as_yaml([*made, *(release.monitoring() if service_monitor else [])]), nl=False)


def _moment(at: str | None) -> datetime | None:
    from autoscaler.record.reader import moment  # noqa: PLC0415

    try:
        return moment(at, datetime.now(UTC)) if at else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--at") from None


@autoscale.group()
def explain() -> None:
    """Why something is as it is."""


def _explain(kind: str, *, is_namespaced: bool, says: str) -> None:
    """A sub-command for one kind of thing."""

    def command(
        *,
        name: str,
        memory: str,
        policy: Path | None,
        kubeconfig: Path | None,
        at: str | None,
        record: Path | None,
        namespace: str = "",
    ) -> None:
        from autoscaler.config.policy import read_policy  # noqa: PLC0415
        from autoscaler.views import explain  # noqa: PLC0415 - see the module's docstring

        key, when = f"{namespace}/{name}" if namespace else name, _moment(at)
        if record is not None:
            lines = explain.explained_by_record(kind, key, record=record, at=when)
        else:
            read = read_policy(policy) if policy else None
            lines = explain.explained(kind, key, policy=read, kubeconfig=kubeconfig, namespace=memory, at=when)
        for line in lines:
            click.echo(line)

    options = [
        click.argument("name"),
        *([click.option("--namespace", "-n", default="default", show_default=True)] if is_namespaced else []),
        click.option("--memory", default="spillway", show_default=True, help="The autoscaler's own namespace."),
        click.option("--policy", type=_FILE, help="What it would come to by this policy; else by the acting one."),
        _at,
        click.option("--record", type=click.Path(path_type=Path, exists=True), help="Answer from this record."),
        kubeconfig_option,
    ]
    for option in reversed(options):
        command = option(command)
    explain.command(name=kind, help=says)(command)


_explain("pod", is_namespaced=True, says="Say why the pod NAME waits and what would change it, or where it is.")
_explain("job", is_namespaced=True, says="Say it of every pod of the job or gang NAME.")
_explain("node", is_namespaced=False, says="Say why the node NAME, or instance, is still there, and what is to come.")
_explain("group", is_namespaced=False, says="Say why no node of the group NAME is bought, or what is.")


@click.command()
@kubeconfig_option
@_namespace
@click.option("--devices", is_flag=True, help="A line for each GPU, as the DCGM exporter tells of them.")
@click.option("--json", "wants_json", is_flag=True, help="For programs.")
def gpus(*, kubeconfig: Path | None, namespace: str, devices: bool, wants_json: bool) -> None:
    """Which GPUs exist or are on their way, which jobs hold them, how long they have idled, and what they cost."""
    from rich.console import Console  # noqa: PLC0415

    from autoscaler.kube.client import Kube, Refused  # noqa: PLC0415
    from autoscaler.model.errors import Unavailable  # noqa: PLC0415
    from autoscaler.views import gpu_devices  # noqa: PLC0415
    from autoscaler.views.gpus import as_json, read_gpus, show  # noqa: PLC0415

    try:
        if devices:
            each = gpu_devices.read_devices(Kube.connect(kubeconfig), namespace=namespace)
            if wants_json:
                click.echo(gpu_devices.as_json(each))
            else:
                gpu_devices.show_devices(each, console=Console())
            return
        found, unsaid = read_gpus(Kube.connect(kubeconfig), namespace=namespace)
    except Refused as refused:
        raise Unavailable(f"the API server refuses: {refused}") from None
    if wants_json:
        click.echo(as_json(found, now=datetime.now(UTC)))
    else:
        show(found, console=Console())
        if unsaid:
            click.echo(unsaid, err=True)


@click.command()
@kubeconfig_option
@_namespace
@click.option("--every", type=click.FloatRange(min=0.5), default=2.0, show_default=True, help="Seconds between frames.")
@click.option("--once", is_flag=True, help="Print one frame, then exit.")
def top(*, kubeconfig: Path | None, namespace: str, every: float, once: bool) -> None:
    """Watch nodes by group with use, price and state, what is on its way, what waits and why; end it with Ctrl-C."""
    from rich.console import Console  # noqa: PLC0415 - see the module's docstring

    from autoscaler.views.top import top as show_top  # noqa: PLC0415

    show_top(kubeconfig=kubeconfig, namespace=namespace, every=every, once=once, console=Console())
