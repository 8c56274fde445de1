"""What a job would cost before it is submitted: what fits on the machines that are there, and what would be bought."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from autoscaler.inputs.live_what_if import ask_impossible, ask_what_if
from autoscaler.inputs.offline_plan import catalog_file, run_plan
from autoscaler.kube.client import Kube
from autoscaler.model.errors import BadInput, Unavailable
from images.jobs import Job
from images.renderers.kubernetes import render

_HOUR = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Spending:
    """The planner's answer for one job."""

    job: Job
    at_home: Counter[str]
    """Tasks by machine that is there already."""
    on_the_way: Counter[str]
    """Tasks by group of nodes that are on their way, or bought for others in any case."""
    bought: Counter[tuple[str, str, float]]
    """Nodes by instance type, capacity type and dollars per hour of each."""
    usd_per_hour: float
    waiting: Counter[tuple[str, str]]
    """Tasks without a place, by reason and what would help."""

    @property
    def can_start(self) -> bool:
        """Whether every task has a place."""
        return not self.waiting

    def lines(self, *, step: str = "") -> Iterator[str]:
        """Yields lines for people; ``step``: the roles of a workflow that run at this time."""
        yield f"{self.job.name}{step and f', step {step}'}: {_tasks(self.job.size)} asking for {self.job.requests()}"
        for machine, count in sorted(self.at_home.items()):
            yield f"  {_tasks(count)} on {machine}, which is there"
        for group, count in sorted(self.on_the_way.items()):
            yield f"  {_tasks(count)} on nodes of {group} that are on their way, or bought for other jobs"
        for (kind, capacity, usd), count in sorted(self.bought.items()):
            yield f"  buy {count} x {kind} ({capacity}) at {usd:.4f} $/h each"
        yield f"cost: {self._cost(is_step=bool(step))}"
        waiting = self.waiting.total()
        verdict = (
            f"the {'step' if step else 'job'} starts"
            if not waiting
            else f"{_tasks(waiting)} would wait, and {self._rest()}"
        )
        yield f"verdict: {verdict}"
        for (reason, remedy), count in self.waiting.items():
            yield f"  {_tasks(count)}: {reason}" + (f"; would fit if {remedy}" if remedy else "")

    def _cost(self, *, is_step: bool) -> str:
        if not self.usd_per_hour:
            return "nothing is bought"
        rate = f"{self.usd_per_hour:.4f} $/h"
        if is_step:
            return f"{rate} while it runs"
        if not self.job.expected:
            return f"{rate}; write expected: 2h in the file to see what the whole job costs"
        return f"{rate}, {self.usd_per_hour * (self.job.expected / _HOUR):.2f} $ while it runs as long as expected"

    def _rest(self) -> str:
        return "as a gang none starts without them" if self.job.gang else "the others start"


def plan(job: Job, *, catalog: str, nodes: Path | None, policy: Path | None, tell: Callable[[str], None]) -> Spending:
    """The cheapest way to run the job, by the planner of the autoscaler. Raises ``BadInput`` for mistakes in the files.

    ``catalog``: prices, a file or ``ec2:REGION``, of which ``tell`` hears how old they are; ``nodes``: machines that
    are there, taken as empty; ``policy``: what may be bought, else all that has a price. They are read as ``spillway
    autoscale plan`` reads them.
    """
    said: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        pods = Path(folder) / f"{job.name}.yaml"
        pods.write_text(render(job).text, encoding="utf-8")
        run_plan(
            pods=str(pods),
            catalog=catalog_file(catalog, tell=tell),
            nodes=nodes,
            policy=policy,
            deadline="1s",
            wants_json=True,
            echo=said.append,
        )
    return _read(job, json.loads(said[0]))


def plan_live(job: Job, kube: Kube, *, namespace: str) -> Spending:
    """The same in a cluster, beside what is there, as the autoscaler that acts would have it.

    ``namespace``: the autoscaler's. Raises ``BadInput`` where a task of that name is there, ``Unavailable`` where no
    autoscaler answers.
    """
    found = ask_what_if(kube, render(job).text, source=job.name, namespace=namespace)
    return Spending(
        job=job,
        at_home=Counter(found.on_nodes),
        on_the_way=Counter(found.on_the_way),
        bought=Counter({(one.instance_type, one.capacity_type, one.usd_per_hour): one.nodes for one in found.bought}),
        usd_per_hour=sum(one.usd_per_hour * one.nodes for one in found.bought),
        waiting=Counter({(one.because, one.would_fit_if): one.pods for one in found.waiting}),
    )


def refuse_hopeless(job: Job, kube: Kube, *, namespace: str) -> str:
    """Why it is not known whether the job can ever start; empty where it can. Raises ``BadInput`` where it cannot."""
    try:
        found = ask_impossible(kube, render(job).text, source=job.name, namespace=namespace)
    except Unavailable as silent:
        return str(silent)
    if found:
        reasons = "; ".join(
            f"{_tasks(one.pods)}: {one.because}" + (f" (would fit if {one.would_fit_if})" if one.would_fit_if else "")
            for one in found
        )
        raise BadInput(
            f"job {job.name} could never start, even if nothing else ran: {reasons}. "
            "Change the job, have the policy changed, or submit it with --anyway"
        )
    return ""


def _read(job: Job, planned: dict[str, Any]) -> Spending:
    new = {node["name"] for node in planned["nodes"]}
    return Spending(
        job=job,
        at_home=Counter(node for node in planned["placements"].values() if node not in new),
        on_the_way=Counter(),
        bought=Counter(
            (node["instance_type"], node["capacity_type"], node["usd_per_hour"]) for node in planned["nodes"]
        ),
        usd_per_hour=planned["usd_per_hour"],
        waiting=Counter((one["reason"], one["would_fit_if"]) for one in planned["waiting"]),
    )


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"
