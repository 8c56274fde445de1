"""`spillway nodes`. Imports are late, so that help is instant.

Exit status: 0 all clean, 2 drift (left), 3 machines of which nothing is known, 4 both, 5 a rollout is halted, 1 an
outside party is away, 64 a mistake in what the user wrote: 2 says drift here, as in other tools that compare.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

import click

from autoscaler.model.errors import BadInput, Unavailable

BAD_INPUT: Final = 64
_FILE = click.Path(path_type=Path, dir_okay=False)
_MARK: Final = "SPILLWAY_NODES_PROCESS"


def _options(command: Any) -> Any:
    """What every command that looks at machines takes."""
    for option in reversed(
        (
            click.option("-i", "--inventory", type=_FILE, help="The machines that you own (inventory.yaml)."),
            click.option("--outputs", type=_FILE, help="A stack's outputs: `pulumi stack output --json`."),
            click.option("--limit", default="", help="Only these machines: names or patterns, with commas between."),
            click.option(
                "--accept-new-host-keys",
                is_flag=True,
                help="Believe a machine whose host key nobody has written down; it is kept in ~/.ssh/known_hosts.",
            ),
            click.option("--state", type=click.Path(path_type=Path), help="Journal and reports; else ~/.local/state."),
            click.option("--json", "as_json", is_flag=True, help="Print the record of the run."),
            click.option("--html", type=_FILE, help="Write the report as one page."),
            click.option(
                "--role", default="roles.node:prepare", show_default=True, help="What the machines are to be."
            ),
        )
    ):
        command = option(command)
    return command


def _rolling(command: Any) -> Any:
    """What every command that changes machines takes."""
    for option in reversed(
        (
            click.option("--batch", default="10%", show_default=True, help="Machines under way: a number, or a share."),
            click.option(
                "--max-down", type=click.IntRange(0), default=1, show_default=True, help="Nodes down at most."
            ),
            click.option("--kubeconfig", type=_FILE, help="Of the cluster that the machines belong to."),
            click.option("--no-cluster", is_flag=True, help="The machines are in no cluster: nothing to drain."),
            click.option("--smoke-image", default="", help="Image of a pod that must run to its end after a change."),
            click.option("--allow", default="reload", show_default=True, help="What may happen beside GPU pods."),
            click.option("--ignore", multiple=True, help="A check of the preflight whose errors stop nothing; repeat."),
            click.option(
                "--tolerate",
                type=click.IntRange(0),
                default=3,
                show_default=True,
                help="Machines on which the change may turn out impossible; one more halts the rollout.",
            ),
            click.option("--retry", is_flag=True, help="Try again where a change failed: resumes a halted rollout."),
            click.option("--slack", envvar="SPILLWAY_SLACK_WEBHOOK", help="Webhook that is told the summary."),
            click.option("--textfile", type=_FILE, help="Metrics for Prometheus' textfile collector."),
            click.option("--drain-seconds", type=float, default=3600.0, show_default=True, help="Then it is opened."),
            click.option("--health-seconds", type=float, default=300.0, show_default=True, help="Then it is put back."),
        )
    ):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.pass_context
def nodes(context: click.Context) -> None:
    """What the machines are, compared with what they should be; and the way there.

    Exit status: 0 clean, 2 drift, 3 machines not seen, 4 both, 5 rollout halted, 64 a mistake in what you wrote.
    """
    # Who only approves goes to no machine: the release's image has nothing that this would need.
    if _MARK not in os.environ and context.invoked_subcommand != "approve":
        os.environ[_MARK] = "1"
        arguments = sys.argv[sys.argv.index("nodes") + 1 :] if "nodes" in sys.argv else sys.argv[1:]
        os.execv(sys.executable, [sys.executable, "-m", "roles", *arguments])  # noqa: S606 - it is this program


@nodes.command()
@_options
@click.option("--kubeconfig", type=_FILE, help="Also checks that the API server answers.")
def check(**given: Any) -> None:
    """Preflight: what stands in the way of a change, each finding with its remedy. Changes nothing."""
    from roles.commands import check as run  # noqa: PLC0415 - see the module's docstring

    sys.exit(run(**given))


@nodes.command()
@_options
@click.option("--full", is_flag=True, help="Every change with its whole diff; else roles are counted where it is many.")
def plan(**given: Any) -> None:
    """What would change, for each machine: counts, and diffs where they are few. Changes nothing."""
    from roles.commands import plan as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@_options
@_rolling
def apply(**given: Any) -> None:
    """Make the changes, a few machines at a time, draining nodes for what would hurt their pods."""
    from roles.commands import apply as run  # noqa: PLC0415

    sys.exit(run(drain=True, **given))


@nodes.command()
@_options
@_rolling
@click.option("--drain", is_flag=True, help="Evict pods for what disrupts them; else such changes are held.")
def reconcile(**given: Any) -> None:
    """The nightly run: mend what can be mended beside running jobs, and report everything."""
    from roles.commands import reconcile as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@click.argument("hosts", nargs=-1, required=True)
@click.option("--user", default="root", show_default=True, help="Who logs in.")
@click.option("--key", type=_FILE, help="Private key; else the SSH agent and ~/.ssh/id_*.")
@click.option("--port", type=click.IntRange(1, 65535), default=22, show_default=True)
@click.option("--role", default="roles.node:prepare", show_default=True, help="What the machines are to be.")
@click.option("--output", type=_FILE, help="Write the inventory there; else print it.")
def adopt(**given: Any) -> None:
    """Write an inventory of machines that are configured already, by which nothing on them would change."""
    from roles.adopt import adopt as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@click.option("-i", "--inventory", type=_FILE, help="For the versions that its machines choose; else the matrix's.")
@click.option("--apply", "applies", is_flag=True, help="Have the cluster hold them; else they are printed.")
@click.option("--kubeconfig", type=_FILE, help="Of that cluster; else $KUBECONFIG, or the pod's own account.")
def manifests(**given: Any) -> None:
    """What runs on GPU nodes as pods: the device plugin and the exporter of GPU metrics, as YAML."""
    from roles.commands import manifests as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@click.option("--cluster", required=True, help="Whose instances are let in: the name in the policy and in their tag.")
@click.option("--region", required=True, envvar="AWS_REGION", help="Of AWS, e.g. us-east-1.")
@click.option("--kubeconfig", type=_FILE, help="Else $KUBECONFIG, else as the pod that this runs in.")
@click.option("--namespace", default="spillway", show_default=True, help="Of the Lease: of several, one acts.")
@click.option("--identity", help="Name in the Lease; else made up.")
@click.option("--once", is_flag=True, help="One round now, whoever holds the Lease.")
def approve(**given: Any) -> None:
    """Let EC2 instances of the node groups join: a token for each, and its certificates. Runs until it is stopped."""
    from roles.membership.approver_loop import approve as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@click.argument("file", type=_FILE)
@click.option("-i", "--inventory", type=_FILE, help="Whose settings and ec2_settings the instances get.")
def bundle(**given: Any) -> None:
    """Write the roles as one file, by which EC2 instances prepare themselves (nodes.bundle of a stack)."""
    from roles.commands import bundle as run  # noqa: PLC0415

    sys.exit(run(**given))


@nodes.command()
@click.option("--state", type=click.Path(path_type=Path), help="Where the journal is; else ~/.local/state.")
def journal(*, state: Path | None) -> None:
    """Verify the journal: whether any line was changed, left out or put in."""
    from roles.commands import journal as run  # noqa: PLC0415

    sys.exit(run(state))


def main() -> None:
    """Run in the process that ``__main__`` has prepared, with the exit statuses of this command."""
    os.environ[_MARK] = "1"
    try:
        status = nodes.main(prog_name="spillway nodes", standalone_mode=False)
    except BadInput as mistake:
        print(f"spillway: {mistake}", file=sys.stderr)
        sys.exit(BAD_INPUT)
    except Unavailable as outage:
        print(f"spillway: {outage}", file=sys.stderr)
        sys.exit(1)
    except click.ClickException as usage:
        usage.show()
        sys.exit(BAD_INPUT)
    except (click.Abort, KeyboardInterrupt):
        print("spillway: interrupted; the next run goes on where this one stopped", file=sys.stderr)
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)  # of `click.exceptions.Exit`, which is returned here
