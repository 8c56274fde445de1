"""Groups of a Capacity Reservation and of a Block: the autoscaler as its own process, a plane, and AWS's stand-in."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model import labels as words
from tests.live.conftest import Plane
from tests.live.hybrid import POLICY, Aws, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy

pytestmark = pytest.mark.live
RESERVED, ON_DEMAND, BLOCK = "test-reserved-us-east-1a", "test-gpu-us-east-1a", "test-block-us-east-1a"
WITH_RESERVED = POLICY.replace(
    "groups:\n",
    """groups:
  - name: reserved
    instance_type: g5.12xlarge
    zones: [us-east-1a]
    max: 4
    capacity_reservation: cr-
    taints: [{key: nvidia.com/gpu}]
""",
)
WITH_BLOCK = POLICY.replace(
    "groups:\n",
    """groups:
  - name: block
    instance_type: p4d.24xlarge
    zones: [us-east-1a]
    max: 4
    capacity_type: capacity-block
    capacity_reservation: cr-
    taints: [{key: nvidia.com/gpu}]
""",
)


def test_what_is_reserved_is_used_until_it_is_full_and_ec2_refuses_what_another_took(
    plane: Plane, tmp_path: Path
) -> None:
    """The next pod runs on demand at once."""
    kube = plane.kube
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        reservation = _reserve(aws, 2)
        file, policy = write_policy(tmp_path, WITH_RESERVED.replace("cr-", reservation))
        aws.make_groups(policy)
        with autoscaler(
            policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=tmp_path / "autoscaler.log"
        ) as brain:
            make_pod(kube, gpu_pod("p"))
            until(partial(bound, kube, "p"), told=brain.texts)
            assert _sizes(aws) == {RESERVED: 1, ON_DEMAND: 0}
            assert f"grow {RESERVED} to 1 node (+1, $0.00 per hour)" in brain.texts()
            _take(aws)
            make_pod(kube, gpu_pod("q"))
            until(partial(bound, kube, "q"), told=brain.texts)
            assert _sizes(aws) == {RESERVED: 1, ON_DEMAND: 1}
            assert "ReservationCapacityExceeded" in brain.texts()
            assert "Traceback" not in brain.texts()
            assert brain.stop() == 0


def test_a_capacity_block_is_bought_in_when_it_begins_for_what_ends_in_it(plane: Plane, tmp_path: Path) -> None:
    """A pod that does not say how long it runs is bought for beside it."""
    kube = plane.kube
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        block = _buy_block(aws, timedelta(seconds=20))  # longer than the autoscaler takes to start
        file, policy = write_policy(tmp_path, WITH_BLOCK.replace("cr-", block))
        aws.make_groups(policy)
        with autoscaler(
            policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=tmp_path / "autoscaler.log"
        ) as brain:
            make_pod(kube, _said(gpu_pod("long-enough")))
            until(lambda: f"Capacity Block {block} begins at" in brain.texts(), told=brain.texts)
            assert _sizes(aws)[BLOCK] == 0
            until(partial(bound, kube, "long-enough"), told=brain.texts)
            make_pod(kube, gpu_pod("not-said"))
            until(partial(bound, kube, "not-said"), told=brain.texts)
            assert _sizes(aws) == {BLOCK: 1, ON_DEMAND: 1}
            assert brain.stop() == 0
        assert f"grow {BLOCK} to 1 node (+1, $0.00 per hour)" in brain.texts()
        assert "Traceback" not in brain.texts()


def _said(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod, which says that it runs for two hours and waits for the block."""
    said = {words.DURATION: "2h"}
    pod["metadata"].setdefault("annotations", {}).update(said)
    pod["spec"]["nodeSelector"] = {words.GROUP: "block"}
    return pod


def _buy_block(aws: Aws, after: timedelta) -> str:
    ec2 = aws.client("ec2")
    found = ec2.describe_capacity_block_offerings(
        InstanceType="p4d.24xlarge",
        InstanceCount=2,
        CapacityDurationHours=48,
        StartDateRange=datetime.now(UTC) + after,
    )
    offer = found["CapacityBlockOfferings"][0]["CapacityBlockOfferingId"]
    bought = ec2.purchase_capacity_block(CapacityBlockOfferingId=offer, InstancePlatform="Linux/UNIX")
    return str(bought["CapacityReservation"]["CapacityReservationId"])


def _reserve(aws: Aws, count: int) -> str:
    made = aws.client("ec2").create_capacity_reservation(
        InstanceType="g5.12xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=count,
        InstanceMatchCriteria="targeted",
    )
    return str(made["CapacityReservation"]["CapacityReservationId"])


def _take(aws: Aws) -> None:
    """An instance that joins no cluster of ours is launched into it."""
    ec2 = aws.client("ec2")
    [made] = ec2.describe_launch_template_versions(LaunchTemplateName=RESERVED, Versions=["$Latest"])[
        "LaunchTemplateVersions"
    ]
    kept = ("ImageId", "InstanceType", "CapacityReservationSpecification")
    into_it = {key: value for key, value in made["LaunchTemplateData"].items() if key in kept}
    ec2.create_launch_template(LaunchTemplateName="another", LaunchTemplateData=into_it)
    ec2.run_instances(LaunchTemplate={"LaunchTemplateName": "another"}, MinCount=1, MaxCount=1)


def _sizes(aws: Aws) -> dict[str, int]:
    groups = aws.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    return {one["AutoScalingGroupName"]: one["DesiredCapacity"] for one in groups}
