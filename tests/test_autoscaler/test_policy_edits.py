"""From any valid policy to any other, again and again, while the autoscaler runs: no restart, no limit broken."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.acting_policy import ActingPolicy, PolicyReport, as_priced
from autoscaler.config.documents import parse_document
from autoscaler.config.policy import Policy
from autoscaler.config.policy_file import Edition
from autoscaler.model.actions import Grow, Memory, Remove, Step
from autoscaler.model.pauses import ALL, BUYING, Pause
from autoscaler.planner.plan import plan
from autoscaler.reporting.report import Log
from tests.builders import TYPES, a_group, a_pod, an_on_prem_node
from tests.test_autoscaler.test_acting_policy import Cluster
from tests.test_autoscaler.test_planner.test_plan_properties import TICK, UNHURRIED, gangs
from tests.world import World

KINDS = {"gpu-a10g": "g5.12xlarge", "gpu-a100": "p4d.24xlarge", "cpu": "m5.4xlarge"}
SPANS = st.sampled_from(["0s", "30s", "2m", "10m"])


@st.composite
def group_entries(draw: st.DrawFn, name: str) -> dict[str, Any]:
    """One entry: its groups stand as they were built, whatever is edited."""
    kind, rebuilt = KINDS[name], draw(st.integers(0, 4)) == 0
    entry: dict[str, Any] = {
        "name": name,
        "instance_type": "c5.large" if rebuilt else kind,
        "usd_per_hour": 0.01 if rebuilt else TYPES[kind][1],
        "zones": draw(st.sampled_from([["us-east-1a"], ["us-east-1a", "us-east-1b"], ["us-east-1c", "us-east-1a"]])),
        "max": draw(st.integers(0, 4)),
        "headroom": draw(st.sampled_from([0, 0, 1, 2])),
    }
    if draw(st.booleans()):
        entry["idle_after"] = draw(SPANS)
    if rebuilt:
        entry |= {"taints": [{"key": "other"}], "capacity_type": "spot", "labels": {"example.com/tier": "x"}}
    if draw(st.integers(0, 5)) == 0:
        entry |= {"name": f"{name}-new", "formerly": [name]}
    return entry


@st.composite
def policies(draw: st.DrawFn) -> str:
    """The text of any valid policy: limits, times, schedules, groups that come, go, are renamed or rebuilt."""
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), unique=True, max_size=3))
    entries = [draw(group_entries(name)) for name in names]
    schedules = [
        {"name": f"s{n}", "from": draw(st.sampled_from(["09:01", "08:00"])), "to": "09:04", "time_zone": "UTC"}
        | {"limits": draw(limits())}
        | {"groups": {one["name"]: {"max": draw(st.integers(0, 4)), "headroom": 1} for one in entries[:1]}}
        for n in range(draw(st.integers(0, 2)))
    ]
    said = {
        "cluster": draw(st.sampled_from(["local", "local", "other"])),
        "groups": entries,
        "limits": draw(limits()),
        "schedules": schedules,
        "scale_up": {"reserve": draw(st.booleans())},
        "scale_down": {"enabled": draw(st.booleans()), "idle_after": draw(SPANS)},
        "waiting": {"patience": draw(SPANS)},
    }
    return json.dumps(said)


@st.composite
def limits(draw: st.DrawFn) -> dict[str, Any]:
    """Some, or none."""
    found = {
        "usd_per_hour": draw(st.none() | st.sampled_from((5.0, 30.0, 60.0))),
        "nodes": draw(st.none() | st.integers(0, 5)),
        "gpus": draw(st.none() | st.integers(0, 32)),
    }
    return {name: value for name, value in found.items() if value is not None}


@dataclass
class Edited(World):
    """A world whose policy is edited."""

    text: str = ""

    def newest(self) -> Edition:
        """The policy as it is edited."""
        return Edition("policy.yaml", self.text)


@UNHURRIED
@given(st.lists(policies(), min_size=2, max_size=6), st.data())
def test_any_valid_edit_is_taken_over_and_breaks_no_limit(texts: list[str], data: st.DataObject) -> None:
    """Every few looks, with pauses between; through the real doors."""
    entries = [
        {"name": name, "instance_type": kind, "usd_per_hour": TYPES[kind][1], "zones": ["us-east-1a"], "max": 4}
        for name, kind in KINDS.items()
    ]
    first = {"cluster": "local", "groups": entries}
    groups = [a_group(name, zone, maximum=4) for name in KINDS for zone in ("us-east-1a", "us-east-1b")]
    pods = [pod for number in range(4) for pod in data.draw(gangs(number))]
    world = Edited(
        policy=parse_document(json.dumps(first), Policy, what="policy", source="policy.yaml"),
        pods={pod.key: pod for pod in pods},
        nodes={"dgx": an_on_prem_node("dgx", gpus=4)},
        offered=groups,
        chance=random.Random(data.draw(st.integers(0, 99))),  # noqa: S311 - reproducible on purpose
        text=json.dumps(first),
        reserves=True,
    )
    acting = ActingPolicy(world, Cluster(), report=PolicyReport(Log("text", io.StringIO())), identity="one")  # type: ignore[arg-type]
    acting.on_change(world.door.obey)
    world.door.reader._warn = lambda _line: None
    world.look()
    memory = Memory()
    for number, text in enumerate(texts):
        world.text = text
        for _ in range(3):
            acting.refresh(mine=True)
            assert acting.status()["refused"] == ""
            world.policy = acting.current().at(world.now)
            cluster = as_priced(world.look(), world.policy)
            acting.compare(cluster.groups)
            pauses = data.draw(st.sampled_from([(), (), (Pause(BUYING),), (Pause(ALL),), (Pause("group.cpu"),)]))
            made = plan(replace_pauses(cluster, pauses), world.policy, memory)
            check_pauses(made.steps, pauses, world)
            world.carry_out(made)
            memory = made.memory
            world.pass_time(TICK)
        late = a_pod(f"late-{number}", gpus=4)
        world.pods[late.key] = late


def replace_pauses(cluster: Any, pauses: tuple[Pause, ...]) -> Any:
    """The look while these hold."""
    return replace(cluster, pauses=pauses)


def check_pauses(steps: tuple[Step, ...], pauses: tuple[Pause, ...], world: World) -> None:
    """Nothing is bought or terminated where it is paused."""
    entries = {group.name: group.entry for group in world.groups.values()}
    for step in steps:
        for pause in pauses:
            assert not (isinstance(step, Grow) and pause.stops_buying(entries[step.group])), (
                f"{step} in spite of {pause}"
            )
            stopped = isinstance(step, Remove) and pause.stops_terminating(entries[step.group])
            assert not stopped, f"{step} in spite of {pause}"
