"""Steps that the mornings do not have, from the planner through executor and door to a stand-in's objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from autoscaler.executor import Executor
from autoscaler.kube import client
from autoscaler.kube.cache import Store
from autoscaler.kube.watched_kinds import NODES, PODS
from autoscaler.kube.writes import Writes
from autoscaler.model.actions import Memory, Recreate, Step
from autoscaler.model.cluster import Pod
from autoscaler.planner.plan import plan
from tests.api import Api
from tests.builders import NOW, a_gang, a_policy, an_on_prem_node, selects

if TYPE_CHECKING:
    from autoscaler.cloud.autoscaling_groups import Ec2
    from autoscaler.kube.client import Kube

LOST = replace(a_gang(pods=1, gpus=4, affinity=(selects(host="gone"),), gates=())[0], admitted_to="gone", owner="Job/j")


class Desk:
    """A planner, executor, the door to the API server, and its objects; no group."""

    def __init__(self, *pods: Pod) -> None:
        nodes = {"dgx-1": an_on_prem_node("dgx-1")}
        self.api = Api({pod.key: pod for pod in pods}, nodes)
        self.store = Store()
        self.executor = Executor(kube=Writes(cast("Kube", self.api)), ec2=cast("Ec2", None), store=self.store)

    def decide(self) -> tuple[Step, ...]:
        """What to do, as the objects are now."""
        pods = {(pod.namespace, pod.name): (self.api.version("pods", key), pod) for key, pod in self.api.pods.items()}
        self.store.replace(PODS, pods)
        nodes = {("", key): (self.api.version("nodes", key), node) for key, node in self.api.nodes.items()}
        self.store.replace(NODES, nodes)
        return plan(self.store.cluster(NOW), a_policy(), Memory()).steps


def test_a_pod_that_is_pinned_to_a_node_which_is_gone_is_deleted() -> None:
    """For its owner to make anew."""
    desk = Desk(LOST)
    [step] = desk.decide()
    assert isinstance(step, Recreate)
    assert desk.executor.take([step]) == [None]
    assert desk.api.pods == {}


def test_a_pod_that_was_bound_since_is_not_deleted() -> None:
    """The store does not know yet."""
    desk = Desk(LOST)
    [step] = desk.decide()
    desk.api.pods[LOST.key] = replace(LOST, node="gone")
    [failure] = desk.executor.take([step])
    assert isinstance(failure, client.Refused)
    assert "is bound to gone by now" in str(failure)
    assert desk.api.pods.keys() == {LOST.key}
