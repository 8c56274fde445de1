"""EC2 takes an instance back: the autoscaler as its own process hears of it by EventBridge and SQS, and acts ahead."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.live.conftest import Plane
from tests.live.hybrid import POLICY, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy

pytestmark = pytest.mark.live
SPOT = POLICY.replace("max: 4", "max: 4\n    capacity_type: spot")
GROUP = "test-gpu-us-east-1a"
TERMINATES = "TerminateInstanceInAutoScalingGroup"


def test_a_spot_instance_is_emptied_and_ended_before_ec2_ends_it(plane: Plane, tmp_path: Path) -> None:
    """Its node is closed and its pod evicted at once; its group starts no successor that no pod needs."""
    file, policy = write_policy(tmp_path, SPOT)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        aws.make_interruption_queue(policy.cluster)
        with autoscaler(
            policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=tmp_path / "autoscaler.log"
        ) as brain:
            make_pod(plane.kube, gpu_pod("p"))
            node = until(partial(bound, plane.kube, "p"), told=brain.texts)
            (instance,) = _instances(aws)
            told = time.monotonic()
            aws.interrupt(instance)
            until(lambda: _is_leaving(plane, "p"), told=brain.texts)
            print(f"evicted {time.monotonic() - told:.2f} s after the notice")
            assert "EC2 takes its spot instance back at" in brain.texts()
            until(lambda: aws.asked(TERMINATES), told=brain.texts)
            (end,) = aws.asked(TERMINATES)
            assert (end["parameters"]["InstanceId"], end["parameters"]["ShouldDecrementDesiredCapacity"]) == (
                *(instance, "true"),
            )
            make_pod(plane.kube, gpu_pod("q"))
            other = until(partial(bound, plane.kube, "q"), told=brain.texts)
            assert other != node
            assert len(aws.asked()) == len((node, other)), "one for each pod, and none that came by itself"
            assert "Traceback" not in brain.texts()


def test_a_node_that_is_likely_to_be_interrupted_keeps_its_training_and_takes_no_more(
    plane: Plane, tmp_path: Path
) -> None:
    """The next pod gets a node of its own though this one has room."""
    file, policy = write_policy(tmp_path, SPOT)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        aws.make_interruption_queue(policy.cluster)
        with autoscaler(
            policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=tmp_path / "autoscaler.log"
        ) as brain:
            make_pod(plane.kube, gpu_pod("p", gpus=1))
            node = until(partial(bound, plane.kube, "p"), told=brain.texts)
            aws.interrupt(*_instances(aws), kind="rebalance")
            closed = f"/api/v1/nodes/{node}"
            until(lambda: plane.kube.get(closed)["spec"].get("unschedulable"), told=brain.texts)
            make_pod(plane.kube, gpu_pod("q", gpus=1))
            assert until(partial(bound, plane.kube, "q"), told=brain.texts) != node
            assert bound(plane.kube, "p") == node
            assert not aws.asked(TERMINATES)


def test_without_a_queue_the_log_says_so_once(plane: Plane, tmp_path: Path) -> None:
    """And everything else goes on."""
    file, policy = write_policy(tmp_path, SPOT)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay="500ms") as aws:
        aws.make_groups(policy)
        with autoscaler(
            policy=file, env=aws.env, kubeconfig=plane.autoscaler_kubeconfig, log=tmp_path / "autoscaler.log"
        ) as brain:
            until(lambda: "interruptions of instances are not known beforehand" in brain.texts(), told=brain.texts)
            make_pod(plane.kube, gpu_pod("p"))
            until(partial(bound, plane.kube, "p"), told=brain.texts)
            assert brain.texts().count("are not known beforehand") == 1


def _instances(aws: Any) -> list[str]:
    [group] = aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])["AutoScalingGroups"]
    return [one["InstanceId"] for one in group["Instances"]]


def _is_leaving(plane: Plane, pod: str) -> bool:
    found = [one for one in plane.kube.get("/api/v1/pods")["items"] if one["metadata"]["name"] == pod]
    return not found or "deletionTimestamp" in found[0]["metadata"]
