"""One line about one pod."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.model import labels as words
from autoscaler.model.actions import IMPOSSIBLE, Admit, Assignment, Grow, Memory, Plan, Resize, Waiting
from autoscaler.model.cluster import GangRef
from autoscaler.model.errors import BadInput
from autoscaler.model.jobs import ElasticRole, WaitingStep
from autoscaler.model.needed_changes import NeededChange
from autoscaler.planner.explanation.explain import Coming, coming, explain, explain_pod
from tests.builders import NOW, a_cluster, a_group, a_pod, a_policy, nodes_of

KEY = "team/pod"
NODES = NeededChange("policy", path="limits.nodes", to=4)
OTHER = Grow(group="h", was=0, to=1, usd_per_hour=2.0, demand=("team/other",), because="it fits nowhere else")
RESIZE = Resize("team", "mnist-worker", was=4, to=6, because="there is room")
GROW = Grow(group="g", was=0, to=1, usd_per_hour=2.0, demand=(KEY,), because="it fits nowhere else")


@pytest.mark.parametrize(
    ("pod", "plan", "line"),
    [
        ({"node": "n", "phase": "Running"}, {}, "team/pod is on node n"),
        ({"node": "n", "phase": "Succeeded"}, {}, "team/pod has succeeded on n"),
        ({"node": "n", "phase": "Failed"}, {}, "team/pod has failed on n"),
        ({"deleting": True}, {}, "team/pod is being deleted"),
        (
            {},
            {"steps": (Admit("team/g", (("team/other", "m"), (KEY, "n")), "all of it has a place"),)},
            "team/pod starts on node n next: all of it has a place",
        ),
        (
            {},
            {"steps": (GROW,)},
            "team/pod waits; the next step is for it: grow g to 1 node (+1, $2.00 per hour): it fits nowhere else",
        ),
        (
            {},
            {"steps": (RESIZE, OTHER, GROW)},
            "team/pod waits; the next step is for it: grow g to 1 node (+1, $2.00 per hour): it fits nowhere else",
        ),
        (
            {},
            {"steps": (RESIZE, OTHER)},
            "team/pod has a place on a node that is there: the scheduler binds it next",
        ),
        ({}, {"waiting": (Waiting(KEY, "its node is on its way"),)}, "team/pod waits: its node is on its way"),
        (
            {},
            {"waiting": (Waiting(KEY, "too big", (NODES,), cause=IMPOSSIBLE),)},
            "team/pod cannot run as things are: too big; it would fit if limits.nodes is 4 or more",
        ),
        ({}, {}, "team/pod has a place on a node that is there: the scheduler binds it next"),
        (
            {"unread": ("annotation x is 'soon'",)},
            {"waiting": (Waiting(KEY, "no room"),)},
            "team/pod waits: no room (annotation x is 'soon')",
        ),
        (
            {"not_understood": ("resource claims (gpu)",)},
            {"waiting": (Waiting(KEY, "no room"),)},
            "team/pod waits: no room (not looked at by Spillway: resource claims (gpu))",
        ),
        (
            {"not_understood": ("resource claims (gpu)",)},
            {"waiting": (Waiting(KEY, "has rules that Spillway does not plan for: resource claims (gpu)"),)},
            "team/pod waits: has rules that Spillway does not plan for: resource claims (gpu)",
        ),
    ],
)
def test_a_pod_is_explained_in_one_line(pod: dict[str, Any], plan: dict[str, Any], line: str) -> None:
    """Where it is, or where it goes, or why it waits and what would change it."""
    assert explain_pod(a_cluster(pods=[a_pod(**pod)]), Plan(**plan), KEY) == line


def test_a_pod_that_is_not_there_is_bad_input() -> None:
    """With the way to find the right name."""
    with pytest.raises(BadInput, match=r"no pod 'pod' in namespace 'team': see `kubectl get pods -n team`"):
        explain_pod(a_cluster(), Plan(), KEY)


def test_a_job_that_grows_and_shrinks_says_its_size_and_what_comes_next() -> None:
    """In place of how many pods it is to have; of its own roles, not of other jobs'."""
    ref = GangRef("team", "mnist", size=8)
    pod = a_pod("mnist-worker-0", node="n", phase="Running", gang=ref, owner="Job/mnist-worker")
    mine = ElasticRole("team", "mnist-worker", size=4, minimum=2, maximum=8, created=NOW, changed=NOW)
    other = ElasticRole("team", "other-worker", size=4, minimum=2, maximum=8, created=NOW)
    step = Resize("team", "mnist-worker", was=4, to=6, because="there is room")
    cluster = a_cluster(pods=[pod], elastic=(mine, other))
    lines = explain("job", "team/mnist", cluster, a_policy(), Plan(steps=(step,)))
    assert lines[0] == "team/mnist has 1 pod"
    assert lines[1] == (
        f"mnist-worker has 4 of 2 to 8 tasks since {NOW:%Y-%m-%d %H:%M:%S} UTC; next: grow job team/mnist-worker "
        "from 4 to 6 tasks: there is room"
    )
    assert lines[2:] == ("mnist-worker-0: is on node n",)


def test_steps_of_a_workflow_say_what_they_wait_for() -> None:
    """They have no pods yet; also where one is asked about by its own name."""
    waiting = (
        WaitingStep("team", "flow-train", "flow", ("flow-a", "flow-b"), ("flow-a", "flow-b")),
        WaitingStep("team", "flow-merge", "flow", ("flow-a",)),
        WaitingStep("team", "flow-serve", "flow", ("flow-a",), ("flow-a",), failed="flow-a"),
        WaitingStep("other", "flow-train", "flow", ("flow-a",), ("flow-a",)),
    )
    pod = a_pod("flow-a-0", node="n", phase="Running", labels={words.JOB: "flow"})
    cluster = a_cluster(pods=[pod], workflow_steps=waiting)
    assert explain("job", "team/flow", cluster, a_policy(), Plan()) == (
        "team/flow has 1 pod",
        "flow-a-0: is on node n",
        "flow-train: begins when flow-a, flow-b have succeeded",
        "flow-merge: begins next, for flow-a has succeeded",
        "flow-serve: is given up next, for flow-a has failed",
    )
    assert explain("job", "team/flow-merge", cluster, a_policy(), Plan()) == (
        "team/flow-merge has 0 pods",
        "flow-merge: begins next, for flow-a has succeeded",
    )


def test_the_nodes_that_a_job_waits_for_are_counted_once_each() -> None:
    """Of a group with two instances, one of them a ready node: what its pods are meant for and what is not ready."""
    group = a_group("gpu-a10g", joined=2, desired=3)
    ready, other = nodes_of(group)
    mine = {words.JOB: "mnist"}
    pods = [a_pod(name, labels=mine) for name in ("a", "b", "c", "d")]
    pods += [a_pod("e"), a_pod("f", labels=mine, node=ready.name)]
    assignments = {
        "team/a": Assignment(other.name, group.name),
        "team/b": Assignment(other.name, group.name),
        "team/c": Assignment("new-1", group.name),
        "team/d": Assignment(ready.name, group.name),
        "team/e": Assignment("new-2", group.name),
        "team/f": Assignment("new-3", group.name),
    }
    cluster = a_cluster(pods=pods, nodes=[ready], groups=[group])
    assert coming("team/mnist", cluster, Plan(memory=Memory(assignments=assignments))) == (
        Coming("g5.12xlarge", "us-east-1a", nodes=2, launched=1, usd_per_hour=2 * group.usd_per_hour),
    )
    assert coming("team/mnist", cluster, Plan()) == ()


def test_lines_of_a_job_that_hold_for_as_many_pods_are_in_alphabetical_order() -> None:
    """And the one that holds for most comes first."""
    mine = {words.JOB: "mnist"}
    nodes = {"a": "z", "b": "y", "c": "x", "d": "x"}
    pods = [a_pod(name, labels=mine, node=node, phase="Running") for name, node in nodes.items()]
    lines = explain("job", "team/mnist", a_cluster(pods=pods), a_policy(), Plan())
    assert lines == ("team/mnist has 4 pods", "c, d: is on node x", "b: is on node y", "a: is on node z")
