"""`spillway local status`: what of a ground is alive, read from the processes, the API server and the AWS stand-in."""

from __future__ import annotations

import boto3
from botocore.exceptions import BotoCoreError, ClientError
from rich import box
from rich.console import Console
from rich.table import Table

from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from stacks.local.ground.lifecycle import Ground, find
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.supervisor import is_running, read_status


def show(name: str) -> None:
    """Print it. Raises ``Unavailable`` where no such ground is up."""
    ground = find(name)
    console = Console()
    console.print(f"ground [bold]{name}[/] in {ground.directory}", soft_wrap=True)
    for part in (_processes, _machines, _groups):
        try:
            console.print(part(ground))
        except (Unavailable, OSError, BotoCoreError, ClientError) as error:
            console.print(f"[red]{part.__name__.strip('_')}: {error}[/]")


def _processes(ground: Ground) -> Table:
    table = _table("processes", "process", "pid", "state")
    status = read_status(ground.directory)
    if status is None:
        return table
    keeper = "running" if is_running(status.pid, status.started) else "[red]gone[/]"
    table.add_row("keeper", str(status.pid), keeper)
    for one in status.held:
        table.add_row(one.name, str(one.pid), one.state if is_running(one.pid, one.started) else "[red]gone[/]")
    if status.failure:
        table.caption = f"[red]{status.failure}[/]"
    return table


def _machines(ground: Ground) -> Table:
    table = _table("machines", "node", "where", "GPUs", "state")
    for node in KubeHttp(ground.kubeconfig).get("/api/v1/nodes")["items"]:
        marks = node["metadata"].get("labels", {})
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
        cordoned = ", cordoned" if node["spec"].get("unschedulable") else ""
        table.add_row(
            node["metadata"]["name"],
            "EC2" if marks.get(words.ORIGIN) == words.EC2 else "on-prem",
            node["status"].get("allocatable", {}).get(words.GPU, "0"),
            ("ready" if ready else "not ready") + cordoned,
        )
    return table


def _groups(ground: Ground) -> Table:
    table = _table("EC2 groups", "group", "min", "desired", "max", "instances")
    client = boto3.client(
        "autoscaling",
        region_name=ground.region,
        endpoint_url=ground.aws_url,
        aws_access_key_id=ground.env["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=ground.env["AWS_SECRET_ACCESS_KEY"],
    )
    pages = client.get_paginator("describe_auto_scaling_groups").paginate()
    groups = [group for page in pages for group in page["AutoScalingGroups"]]
    for group in sorted(groups, key=lambda group: group["AutoScalingGroupName"]):
        sizes = (group["MinSize"], group["DesiredCapacity"], group["MaxSize"], len(group["Instances"]))
        table.add_row(group["AutoScalingGroupName"], *map(str, sizes))
    return table


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        table.add_column(column)
    return table
