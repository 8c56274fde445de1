"""What EC2 refuses, seconds after it was asked: the autoscaler as its own process, a control plane, AWS's stand-in.

At every moment what runs or is ordered costs no more than the limit; the pod runs elsewhere or is told why it waits.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from autoscaler.model import labels as words
from tests.live.conftest import Plane
from tests.live.hybrid import POLICY, Autoscaler, Aws, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until
from tests.live.hybrid import write_policy as written

pytestmark = [pytest.mark.live, pytest.mark.long]
FIRST, SECOND = "test-gpu-us-east-1a", "test-gpu-us-east-1b"
USD: Final = 5.672
_BETWEEN_LOOKS: Final = 0.2
"""Seconds: what is ordered beyond the limit stays ordered for longer, for it takes a look at AWS to see it."""
LIMITED: Final = (
    POLICY.replace("[us-east-1a]", "[us-east-1a, us-east-1b]").replace(
        "boot_timeout: 30s", "boot_timeout: 4s, refusal_backoff: 3s"
    )
    + "limits: {usd_per_hour: 8.0}\n"
)
"""Money for one node."""
PATIENT: Final = LIMITED.replace("boot_timeout: 4s", "boot_timeout: 120s")
"""Waits longer for a node than AWS takes to refuse it."""

_ROOM: Final = {"cpu": "48", "memory": "192Gi", "pods": "110", "nvidia.com/gpu": "4"}
GHOST: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "ghost",
        "labels": {words.HOSTNAME: "ghost", words.ORIGIN: words.EC2, words.GROUP: "gpu", words.ZONE: "us-east-1c"},
    },
    "spec": {"providerID": "aws:///us-east-1a/i-0123456789abcdef0"},
    "status": {"capacity": _ROOM, "allocatable": _ROOM},
}
"""A Node that no kubelet reports for, of an instance that EC2 does not know."""


class Bill:
    """What AWS would write: looked at all the time, the dearest moment kept."""

    def __init__(self, aws: Aws) -> None:
        self._client = aws.client("autoscaling")
        self.dearest = 0.0
        self.looks = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def desired(self) -> dict[str, int]:
        """Of each group."""
        return {one["AutoScalingGroupName"]: one["DesiredCapacity"] for one in self._groups()}

    def end(self) -> None:
        """The last look."""
        self._ended.set()
        self._thread.join()

    def _groups(self) -> list[dict[str, Any]]:
        return list(self._client.describe_auto_scaling_groups()["AutoScalingGroups"])

    def _keep(self) -> None:
        while not self._ended.wait(_BETWEEN_LOOKS):
            nodes = sum(max(one["DesiredCapacity"], len(_living(one))) for one in self._groups())
            self.dearest = max(self.dearest, nodes * USD)
            self.looks += 1


def _living(group: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in group["Instances"] if not one["LifecycleState"].startswith("Terminating")]


DENIED: Final = {"kind": "throttle", "actions": ["LaunchInstances"], "code": "AccessDenied"}
"""An account in which nothing may be launched at once."""
BOTH = pytest.mark.parametrize("fault", [(), (DENIED,)], ids=["at once", "by the desired capacity"])
"""The two ways to buy."""
REFUSED = pytest.mark.parametrize(
    ("fault", "late"), [((), "2s"), ((DENIED,), "2s"), ((DENIED,), "35s")], ids=["at once", "late", "long after"]
)
"""The two ways to be refused; AWS tells a group's refusal up to a minute after the order.

The last is later than any pause that a loop takes which believes that all is quiet.
"""


@contextmanager
def running(
    plane: Plane, folder: Path, *faults: dict[str, Any], policy_text: str = LIMITED
) -> Iterator[tuple[Autoscaler, Bill, Aws]]:
    """All of it with one pod that needs a node, and these faults in force."""
    file, policy = written(folder, policy_text)
    with stand_in_aws(folder / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        aws.put_faults(*faults)
        make_pod(plane.kube, gpu_pod("p"))
        bill = Bill(aws)
        try:
            with autoscaler(
                policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=folder / "autoscaler.log"
            ) as brain:
                yield brain, bill, aws
        finally:
            bill.end()
        assert bill.looks > 0
        assert USD <= bill.dearest <= 8.0, brain.texts()
        assert "Traceback" not in brain.texts()


@REFUSED
def test_a_zone_that_refuses_is_left_for_another(
    plane: Plane, tmp_path: Path, fault: tuple[Any, ...], late: str
) -> None:
    """Late where the group launches: its order is cancelled before the other one is made. At once there is none.

    A second try that Auto Scaling has begun by then may still succeed, and holds the money for as long as the first;
    the zone is left alone for longer than that, or it would be the first to be tried again.
    """
    full = {"kind": "insufficient-capacity", "zone": "us-east-1a", "late": late}
    wary = PATIENT.replace("refusal_backoff: 3s", "refusal_backoff: 90s")
    with running(plane, tmp_path, full, *fault, policy_text=wary) as (brain, bill, aws):
        until(partial(bound, plane.kube, "p"), within=300, told=brain.texts)
        assert bill.desired() == {FIRST: 0, SECOND: 1}
        cancelled = f"cancel the order of 1 node in {FIRST}: back to 0 nodes" in brain.texts()
        learnt = brain.texts().count("is grown by its desired capacity, not by LaunchInstances")
        asked = "SetDesiredCapacity" if fault else "LaunchInstances"
        assert (cancelled, learnt, bool(aws.asked(asked))) == ((True, 2, True) if fault else (False, 0, True))
        assert brain.texts().count("could not cancel") == brain.texts().count("is launching a node after all")


@REFUSED
def test_a_quota_refuses_in_every_zone_and_the_pod_is_told(
    plane: Plane, tmp_path: Path, fault: tuple[Any, ...], late: str
) -> None:
    """Nothing stays ordered; once the quota is raised, the pod runs."""
    quota = {"kind": "quota", "late": late}
    with running(plane, tmp_path, quota, *fault, policy_text=PATIENT) as (brain, bill, aws):
        until(lambda: "VcpuLimitExceeded" in brain.texts(), within=300, told=brain.texts)
        until(lambda: not any(bill.desired().values()), told=brain.texts)
        assert not bound(plane.kube, "p")
        aws.put_faults()
        until(partial(bound, plane.kube, "p"), told=brain.texts)
        assert sorted(bill.desired().values()) == [0, 1]


def test_a_quota_that_aws_tells_beforehand_is_not_asked_to_be_exceeded(plane: Plane, tmp_path: Path) -> None:
    """The pod that it leaves no room for is told why."""
    text = LIMITED.replace("limits: {usd_per_hour: 8.0}", "")
    with running(plane, tmp_path, {"kind": "quota", "vcpus": 95}, policy_text=text) as (brain, bill, aws):
        until(partial(bound, plane.kube, "p"), told=brain.texts)
        make_pod(plane.kube, gpu_pod("q"))
        said = (
            "but quota L-DB2E81BA of the AWS account leaves 47; it would fit if AWS raises quota L-DB2E81BA by 1 vCPUs"
        )
        until(lambda: said in brain.texts(), told=brain.texts)
        assert len(aws.asked()) == 1
        assert sum(bill.desired().values()) == 1
        aws.put_faults()


@BOTH
def test_an_instance_that_never_joins_is_paid_for_until_it_is_given_back(
    plane: Plane, tmp_path: Path, fault: tuple[Any, ...]
) -> None:
    """The next one is bought with its money."""
    with running(plane, tmp_path, {"kind": "never-joins", "count": 1}, *fault) as (brain, bill, _):
        until(partial(bound, plane.kube, "p"), told=brain.texts)
        assert sorted(bill.desired().values()) == [0, 1]


def test_a_node_whose_instance_is_gone_is_deleted(plane: Plane, tmp_path: Path) -> None:
    """Nothing else deletes it where no cloud-controller-manager runs.

    It names a zone without a group, so that it is not waited for: an instance may be two minutes late in its group.
    """
    with running(plane, tmp_path) as (brain, bill, _):
        until(partial(bound, plane.kube, "p"), told=brain.texts)
        plane.kube.send("POST", "/api/v1/nodes", GHOST)
        until(lambda: "ghost" not in _names(plane), told=brain.texts)
        assert sorted(bill.desired().values()) == [0, 1]
        assert bound(plane.kube, "p") in _names(plane)


def _names(plane: Plane) -> set[str]:
    return {node["metadata"]["name"] for node in plane.kube.get("/api/v1/nodes")["items"]}
