"""The autoscaler as its own process, against a real control plane and the stand-in for AWS."""

from __future__ import annotations

import json
import re
import signal
import time
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.leader_election import LASTS, RETRY
from autoscaler.model import labels as words
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.process.ports import free_ports
from tests.live.conftest import Plane
from tests.live.hybrid import (
    Autoscaler,
    Aws,
    Cable,
    autoscaler,
    bound,
    gpu_pod,
    make_pod,
    stand_in_aws,
    until,
    write_policy,
)
from tests.live.zygote import SPILLWAY, zygote

pytestmark = pytest.mark.live
GROUP = "test-gpu-us-east-1a"
BUSY = 3.0
"""Seconds for which a machine with other work may keep a process waiting."""


@dataclass(frozen=True, slots=True)
class Hybrid:
    """A control plane, AWS with one group of 4-GPU nodes, and the command to run beside them."""

    plane: Plane
    aws: Aws
    policy: Path
    directory: Path

    def run(self, *more: str, log: str = "autoscaler.log", **env: str) -> AbstractContextManager[Autoscaler]:
        """`spillway autoscale run` as the user that rbac.yaml binds."""
        return autoscaler(
            *more,
            policy=self.policy,
            env=self.aws.env | env,
            kubeconfig=self.plane.autoscaler_kubeconfig,
            log=self.directory / log,
        )

    def group(self) -> dict[str, Any]:
        """The group as AWS tells it."""
        found = self.aws.client("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[GROUP])
        return dict(found["AutoScalingGroups"][0])

    def pod(self, name: str) -> dict[str, Any]:
        """The pod as the API server tells it."""
        return dict(self.plane.kube.get(f"/api/v1/namespaces/default/pods/{name}"))


@pytest.fixture
def boot_delay() -> str:
    """From the launch of an instance to its node."""
    return "500ms"


@pytest.fixture
def hybrid(plane: Plane, tmp_path: Path, boot_delay: str) -> Iterator[Hybrid]:
    """Everything but the autoscaler."""
    file, policy = write_policy(tmp_path)
    with stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig, boot_delay=boot_delay) as aws:
        aws.make_groups(policy)
        yield Hybrid(plane=plane, aws=aws, policy=file, directory=tmp_path)


def test_a_gang_waits_as_a_whole_spills_over_and_starts_as_a_whole(hybrid: Hybrid) -> None:
    """On-prem holds a part of it, EC2 grows by one node for the rest, then every pod is pinned and let go."""
    hybrid.plane.fake_node("dgx", gpu="4")
    labels, notes = {words.GANG: "g"}, {words.GANG_SIZE: "2"}
    with hybrid.run() as brain:
        for name in ("g-0", "g-1"):
            pod = gpu_pod(name, labels=labels, annotations=notes)
            pod["spec"]["schedulingGates"] = [{"name": words.GATE}]
            make_pod(hybrid.plane.kube, pod)
        homes = {until(partial(bound, hybrid.plane.kube, name), told=brain.texts) for name in ("g-0", "g-1")}
        assert brain.stop() == 0
    assert len(homes) == 2
    assert "dgx" in homes
    assert [one["parameters"]["RequestedCapacity"] for one in hybrid.aws.asked()] == ["1"]
    assert hybrid.pod("g-0")["spec"]["nodeSelector"][words.HOSTNAME] in homes


@pytest.mark.parametrize("boot_delay", ["6s"])
def test_pods_without_our_gate_are_bound_to_the_node_that_was_bought_for_them(hybrid: Hybrid) -> None:
    """The scheduler alone would spread the small ones over both nodes, and a third be bought for the large one."""
    kube = hybrid.plane.kube
    names = ["small-0", "small-1", "small-2", "large"]
    for name in names:
        make_pod(kube, gpu_pod(name, gpus=4 if name == "large" else 1))
    with hybrid.run() as brain:
        until(lambda: all(bound(kube, name) for name in names), told=brain.texts)
        homes = [bound(kube, name) for name in names]
        assert len(set(homes[:3])) == 1, "the small ones are together"
        assert homes[3] not in homes[:3]
        until(lambda: not reserved(kube), told=brain.texts)
    assert hybrid.group()["DesiredCapacity"] == 2


def reserved(kube: KubeHttp) -> list[str]:
    """Nodes that keep others off."""
    nodes = kube.get("/api/v1/nodes")["items"]
    keys = {one["metadata"]["name"]: [taint["key"] for taint in one["spec"].get("taints", ())] for one in nodes}
    return [name for name, found in keys.items() if words.RESERVED in found]


def test_killed_between_the_purchase_and_the_node_it_buys_nothing_twice(hybrid: Hybrid) -> None:
    """The group's own size and what was written down are the only record, and they are enough."""
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run("--identity", "one") as brain:
        until(hybrid.aws.asked, told=brain.texts)
        brain.kill()
    with hybrid.run("--identity", "one", log="again.log") as brain:
        until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts)
    assert [one["parameters"]["RequestedCapacity"] for one in hybrid.aws.asked()] == ["1"]
    assert hybrid.group()["DesiredCapacity"] == 1


def test_of_two_autoscalers_one_acts_and_the_other_says_who(hybrid: Hybrid) -> None:
    """And takes over when the first one ends."""
    with hybrid.run("--identity", "first") as first:
        until(lambda: "acting as first" in first.texts(), told=first.texts)
        with hybrid.run("--identity", "second", log="second.log") as second:
            until(lambda: "waiting: first holds the lease spillway/" in second.texts(), told=second.texts)
            make_pod(hybrid.plane.kube, gpu_pod("p"))
            until(hybrid.aws.asked, told=first.texts)
            assert first.stop() == 0
            until(lambda: "acting as second" in second.texts(), told=second.texts)
    assert len(hybrid.aws.asked()) == 1
    assert not [line for line in second.said() if line["event"] == "step"]


def test_after_a_sigkill_the_other_one_buys_within_what_the_lease_lasts(hybrid: Hybrid) -> None:
    """Measured from the kill to the next write, and compared with a purchase by the first one in the same run."""
    with hybrid.run("--identity", "first") as first:
        until(lambda: "acting as first" in first.texts(), told=first.texts)
        with hybrid.run("--identity", "second", log="second.log") as second:
            until(lambda: "waiting: first holds the lease spillway/" in second.texts(), told=second.texts)
            asked = time.monotonic()
            make_pod(hybrid.plane.kube, gpu_pod("p"))
            until(hybrid.aws.asked, told=first.texts)
            reaction = time.monotonic() - asked
            first.kill()
            killed = time.monotonic()
            make_pod(hybrid.plane.kube, gpu_pod("r"))
            until(lambda: len(hybrid.aws.asked()) == 2, told=second.texts)
            took = time.monotonic() - killed
    print(f"{took:.2f} s from SIGKILL to the next purchase; one by an autoscaler that acts takes {reaction:.2f} s")
    assert took <= LASTS + RETRY + 4 * reaction + BUSY


def test_a_leader_that_was_frozen_buys_nothing_when_it_goes_on(hybrid: Hybrid) -> None:
    """The other one has taken over meanwhile: the first asks the lease before it writes, and waits."""
    kube = hybrid.plane.kube
    with hybrid.run("--identity", "first") as first:
        until(lambda: "acting as first" in first.texts(), told=first.texts)
        with hybrid.run("--identity", "second", log="second.log") as second:
            until(lambda: "waiting: first holds the lease spillway/" in second.texts(), told=second.texts)
            first.process.send_signal(signal.SIGSTOP)
            make_pod(kube, gpu_pod("p"))
            until(lambda: bound(kube, "p"), told=second.texts)
            make_pod(kube, gpu_pod("q"))
            first.process.send_signal(signal.SIGCONT)
            until(lambda: "second holds the lease" in first.texts(), told=first.texts)
            until(lambda: bound(kube, "q"), told=second.texts)
    assert [one["parameters"]["RequestedCapacity"] for one in hybrid.aws.asked()] == ["1", "1"]
    assert not [line for line in first.said() if line["event"] == "step"]


def test_aws_gone_is_told_and_nothing_is_lost(hybrid: Hybrid) -> None:
    """The demand that came meanwhile is met when AWS is back; the pod is not called hopeless before."""
    hybrid.aws.put_faults({"kind": "gone"})
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run() as brain:
        until(lambda: "AWS in us-east-1 is not able to answer now" in brain.texts(), told=brain.texts)
        hybrid.aws.put_faults()
        until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts)
        assert "AWS: answers again" in brain.texts()
        assert "Traceback" not in brain.texts()
    assert len(hybrid.aws.asked()) == 1


def test_wrong_credentials_are_told_in_words(hybrid: Hybrid) -> None:
    """And on-prem goes on without AWS: a gang that fits on our own machines starts."""
    hybrid.aws.put_faults({"kind": "wrong-credentials"})
    hybrid.plane.fake_node("dgx", gpu="8")
    pod = gpu_pod("p", labels={words.GANG: "g"}, annotations={words.GANG_SIZE: "1"})
    pod["spec"]["schedulingGates"] = [{"name": words.GATE}]
    make_pod(hybrid.plane.kube, pod)
    with hybrid.run() as brain:
        until(lambda: "does not accept the credentials" in brain.texts(), told=brain.texts)
        assert until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts) == "dgx"
        assert "Traceback" not in brain.texts()


def test_an_api_server_that_is_gone_for_a_while_is_told_and_caught_up_with(hybrid: Hybrid) -> None:
    """A pod that came meanwhile is bought for once the API server is back; the process stays."""
    cable = Cable(int(hybrid.plane.url.rpartition(":")[2]))
    config = hybrid.directory / "through-the-cable"
    text = hybrid.plane.autoscaler_kubeconfig.read_text(encoding="utf-8")
    config.write_text(text.replace(hybrid.plane.url, f"https://127.0.0.1:{cable.port}"), encoding="utf-8")
    with autoscaler(
        policy=hybrid.policy, env=hybrid.aws.env, kubeconfig=config, log=hybrid.directory / "autoscaler.log"
    ) as brain:
        until(lambda: "acting as" in brain.texts(), told=brain.texts)
        cable.pull_out()
        until(lambda: "API server (pods): " in brain.texts(), told=brain.texts)
        make_pod(hybrid.plane.kube, gpu_pod("p"))
        cable.put_back()
        until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts)
        assert "API server (pods): answers again" in brain.texts()
        assert "Traceback" not in brain.texts()
    cable.pull_out()
    assert len(hybrid.aws.asked()) == 1


def test_an_instance_that_never_joins_is_given_up_and_replaced(hybrid: Hybrid) -> None:
    """After the boot timeout of the policy: it ends, another is bought, and the pod runs there."""
    text = hybrid.policy.read_text(encoding="utf-8")
    hybrid.policy.write_text(
        text.replace("boot_timeout: 30s", "boot_timeout: 4s, refusal_backoff: 1s"), encoding="utf-8"
    )
    hybrid.aws.put_faults({"kind": "never-joins", "count": 1})
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run() as brain:
        until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts)
        steps = [line["step"] for line in brain.said() if line["event"] == "step"]
    assert [step for step in steps if step in ("Grow", "Remove")] == ["Grow", "Remove", "Grow"]
    assert hybrid.group()["DesiredCapacity"] == 1


def test_throttling_only_delays(hybrid: Hybrid) -> None:
    """Every call is refused until AWS has had enough; then the node is bought, once."""
    hybrid.aws.put_faults({"kind": "throttle", "actions": ["LaunchInstances"]})
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run() as brain:
        until(lambda: "asks for fewer calls (Throttling)" in brain.texts(), told=brain.texts)
        hybrid.aws.put_faults()
        until(hybrid.aws.asked, told=brain.texts)
    assert len(hybrid.aws.asked()) == 1


def test_an_instance_that_ec2_does_not_describe_yet_is_not_bought_again(hybrid: Hybrid) -> None:
    """Its group tells of it before EC2 does; its node joins meanwhile, and the next pod is bought a node of its own."""
    hybrid.aws.put_faults({"kind": "eventual-consistency", "by": "60s"})
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run() as brain:
        until(hybrid.aws.asked, told=brain.texts)
        found = hybrid.aws.client("ec2").describe_instances()["Reservations"]
        assert [one for each in found for one in each["Instances"]] == []
        until(lambda: bound(hybrid.plane.kube, "p"), told=brain.texts)
        make_pod(hybrid.plane.kube, gpu_pod("q"))
        until(lambda: bound(hybrid.plane.kube, "q"), told=brain.texts)
        steps = [line["step"] for line in brain.said() if line["event"] == "step"]
    assert steps.count("Grow") == len(hybrid.aws.asked()) == hybrid.group()["DesiredCapacity"]
    assert not {"Remove", "DeleteNode", "Cancel"} & set(steps)


def test_a_pod_that_nothing_could_hold_is_told_once_and_explained(hybrid: Hybrid) -> None:
    """One Event on the pod, whatever restarts; one line from `explain`, after the one that no autoscaler acts."""
    make_pod(hybrid.plane.kube, gpu_pod("big", gpus=16))

    def events() -> list[dict[str, Any]]:
        found = hybrid.plane.kube.get("/api/v1/namespaces/default/events")["items"]
        return [one for one in found if one.get("reportingComponent") == words.AUTOSCALER]

    for log in ("one.log", "two.log"):
        with hybrid.run("--once", log=log) as brain:
            assert brain.process.wait(timeout=60) == 0, brain.texts()
    assert [(one["involvedObject"]["name"], one["reason"]) for one in events()] == [("big", "NoPlaceAnywhere")]
    first, said = spillway(hybrid, "autoscale", "explain", "pod", "big", "--policy", str(hybrid.policy)).splitlines()
    assert first.startswith("no autoscaler acts: ")
    assert said.startswith("default/big cannot run as things are: ")
    assert not hybrid.aws.asked()


def test_a_dry_run_tells_and_changes_nothing(hybrid: Hybrid) -> None:
    """It needs no lease."""
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    with hybrid.run("--once", "--dry-run") as brain:
        assert brain.process.wait(timeout=60) == 0
        assert f"would grow {GROUP} to 1 node" in brain.texts()
    assert not hybrid.aws.asked()
    assert hybrid.group()["DesiredCapacity"] == 0


def test_once_with_another_autoscaler_acting_is_refused(hybrid: Hybrid) -> None:
    """In words that name the holder, with status 1."""
    with hybrid.run("--identity", "first") as first:
        until(lambda: "acting as first" in first.texts(), told=first.texts)
        with hybrid.run("--once", log="once.log") as once:
            assert once.process.wait(timeout=60) == 1
            assert "spillway: first holds the lease" in once.texts()


def test_a_pod_pinned_to_a_node_that_has_gone_is_made_anew_and_starts(hybrid: Hybrid) -> None:
    """Admitted, then its node went before the scheduler bound it: the Job makes it again, and it finds a place."""
    kube, name = hybrid.plane.kube, "lost"
    template = gpu_pod("unused", labels={words.GANG: name})
    del template["apiVersion"], template["kind"], template["metadata"]["name"], template["metadata"]["namespace"]
    template["spec"] |= {"schedulingGates": [{"name": words.GATE}], "restartPolicy": "Never"}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template}}
    kube.send("POST", "/apis/batch/v1/namespaces/default/jobs", job)

    def pods() -> list[dict[str, Any]]:
        return list(kube.get("/api/v1/namespaces/default/pods")["items"])

    (pod,) = until(pods)
    lifted = {
        "metadata": {"annotations": {words.ADMITTED_TO: "gone"}},
        "spec": {"nodeSelector": {words.HOSTNAME: "gone"}, "schedulingGates": None},
    }
    path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
    kube.send("PATCH", path, lifted, content="application/merge-patch+json")
    hybrid.plane.fake_node("dgx", gpu="4")
    with hybrid.run() as brain:
        until(lambda: [one["spec"].get("nodeName") for one in pods()] == ["dgx"], told=brain.texts)
        assert f"delete pod default/{pod['metadata']['name']}, which never started" in brain.texts()
    assert pods()[0]["metadata"]["uid"] != pod["metadata"]["uid"]
    assert pods()[0]["metadata"]["annotations"][words.ADMITTED_TO] == "dgx"


MOVES = "scale_down: {idle_after: 5s, consolidation: {after: 1s, every: 1s}}"


def test_a_service_is_moved_within_its_budget_and_its_node_given_back(hybrid: Hybrid) -> None:
    """A job has ended; what it leaves on its node has room on a machine of ours, once its budget allows the move."""
    kube, text = hybrid.plane.kube, hybrid.policy.read_text(encoding="utf-8")
    hybrid.policy.write_text(text.replace("scale_down: {idle_after: 60s}", MOVES), encoding="utf-8")
    make_pod(kube, gpu_pod("job"))
    kube.send("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", BUDGET)
    try:
        with hybrid.run() as brain:
            home = until(partial(bound, kube, "job"), told=brain.texts)
            kube.send("POST", "/apis/apps/v1/namespaces/default/replicasets", SERVICE)
            until(lambda: service(kube) == [home], told=brain.texts)
            hybrid.plane.fake_node("lab")
            kube.send("DELETE", "/api/v1/namespaces/default/pods/job?gracePeriodSeconds=0")
            until(lambda: "disruption budget" in brain.texts(), told=brain.texts)
            assert service(kube) == [home]
            kube.send("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets/web")
            until(lambda: service(kube) == ["lab"], told=brain.texts)
            until(lambda: hybrid.group()["DesiredCapacity"] == 0, told=brain.texts)
            assert "Traceback" not in brain.texts()
    finally:
        kube.send("DELETE", "/apis/apps/v1/namespaces/default/replicasets?propagationPolicy=Background")
        kube.send("DELETE", "/apis/policy/v1/namespaces/default/poddisruptionbudgets")


def test_a_pod_that_cannot_start_again_keeps_its_node_and_what_that_costs_is_told(hybrid: Hybrid) -> None:
    """It has no controller, and there is room for it on a machine of ours by now: it is not moved."""
    kube, text = hybrid.plane.kube, hybrid.policy.read_text(encoding="utf-8")
    hybrid.policy.write_text(text.replace("scale_down: {idle_after: 60s}", MOVES), encoding="utf-8")
    make_pod(kube, gpu_pod("alone", gpus=1))
    with hybrid.run() as brain:
        home = until(partial(bound, kube, "alone"), told=brain.texts)
        hybrid.plane.fake_node("lab", gpu="4")
        began = time.monotonic()
        until(lambda: "it is not emptied" in spillway(hybrid, "autoscale", "explain", "node", home), told=brain.texts)
        said = spillway(hybrid, "autoscale", "explain", "node", home)
        assert "of group gpu (test-gpu-us-east-1a, g5.12xlarge): 5.67 $/h" in said
        assert "it is not emptied to save its price: default/alone: no controller would make it anew" in said
        until(lambda: time.monotonic() > began + 10)  # twice as long as an idle node stays
        assert (bound(kube, "alone"), hybrid.group()["DesiredCapacity"]) == (home, 1)
        assert "evict" not in brain.texts()


def test_a_machine_whose_hardware_is_at_fault_is_closed_and_opened_when_it_is_well(hybrid: Hybrid) -> None:
    """By the condition of a node monitoring agent: the pod is bought a node, and the machine is ours again later."""
    kube, text = hybrid.plane.kube, hybrid.policy.read_text(encoding="utf-8")
    hybrid.policy.write_text(f"{text}faults: {{after: 1s}}\n", encoding="utf-8")
    hybrid.plane.fake_node("lab", gpu="4", cpu="64")
    with hybrid.run() as brain:
        until(lambda: "acting as" in brain.texts(), told=brain.texts)
        say(kube, "lab", status="False", reason="NvidiaXID79Error")
        until(lambda: kube.get("/api/v1/nodes/lab")["spec"].get("unschedulable"), told=brain.texts)
        closed = "cordon node lab: AcceleratedHardwareReady is False (NvidiaXID79Error) since"
        until(lambda: closed in brain.texts(), told=brain.texts)
        make_pod(kube, gpu_pod("p"))
        assert until(partial(bound, kube, "p"), told=brain.texts) != "lab"
        assert "repairing" in spillway(hybrid, "autoscale", "explain", "node", "lab")
        say(kube, "lab", status="True", reason="NvidiaGPUIsReady")
        until(lambda: not kube.get("/api/v1/nodes/lab")["spec"].get("unschedulable"), told=brain.texts)
        make_pod(kube, gpu_pod("q"))
        assert until(partial(bound, kube, "q"), told=brain.texts) == "lab"
        assert "Traceback" not in brain.texts()


def say(kube: KubeHttp, node: str, *, status: str, reason: str) -> None:
    """What the agent of a machine writes."""
    condition = {"type": "AcceleratedHardwareReady", "status": status, "reason": reason}
    condition["lastTransitionTime"] = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    merge = "application/strategic-merge-patch+json"
    kube.send("PATCH", f"/api/v1/nodes/{node}/status", {"status": {"conditions": [condition]}}, content=merge)


_WEB = {"app": "web"}
BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web"},
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": _WEB}},
}
SERVICE = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": _WEB},
        "template": {
            "metadata": {"labels": _WEB},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}],
                "tolerations": [{"key": words.GPU, "operator": "Exists"}],
                "terminationGracePeriodSeconds": 0,
            },
        },
    },
}


def service(kube: KubeHttp) -> list[str]:
    """Nodes of the service's pods that stay."""
    pods = kube.get("/api/v1/namespaces/default/pods")["items"]
    here = [pod for pod in pods if pod["metadata"].get("labels", {}).get("app") == "web"]
    return [pod["spec"].get("nodeName", "") for pod in here if "deletionTimestamp" not in pod["metadata"]]


def edited(policy: Path, old: str, new: str) -> float:
    """As an editor saves: a file beside it, renamed over it. Gives the time of day."""
    text = policy.read_text(encoding="utf-8")
    assert old in text
    beside = policy.with_suffix(".new")
    beside.write_text(text.replace(old, new), encoding="utf-8")
    beside.replace(policy)
    return time.time()


def seconds_until(brain: Autoscaler, event: str, since: float) -> float:
    """From ``since`` to the last line of that kind, by the time that it carries."""
    line = [one for one in brain.said() if one["event"] == event][-1]
    return datetime.fromisoformat(line["time"]).timestamp() - since


def seconds_to_notice(brain: Autoscaler, kube: KubeHttp) -> float:
    """How long the log takes to tell of a new pod that can never run: how busy the machine is."""
    began = time.monotonic()
    make_pod(kube, gpu_pod("large", gpus=64))
    until(lambda: "default/large waits" in brain.texts(), told=brain.texts)
    kube.send("DELETE", "/api/v1/namespaces/default/pods/large?gracePeriodSeconds=0")
    return time.monotonic() - began


def refusals_told(kube: KubeHttp) -> str:
    """The Events of refused edits."""
    events = kube.get("/api/v1/namespaces/spillway/events")["items"]
    return "\n".join(one["message"] for one in events if one["reason"] == "PolicyRefused" and one["type"] == "Warning")


def asked(port: int, path: str) -> str:
    """What the autoscaler answers there."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return str(answer.read().decode())


def acting_policy(kube: KubeHttp) -> dict[str, Any]:
    """What the acting autoscaler says of its policy, and its text."""
    try:
        data = kube.get(f"/api/v1/namespaces/spillway/configmaps/{words.ACTING_POLICY}")["data"]
    except KubeRefusedError:  # none has acted so far
        return {"text": "", "pending": []}
    return json.loads(data["about.json"]) | {"text": data[words.POLICY_KEY]}


def test_an_edit_of_the_policy_file_is_acted_on_without_a_restart_and_a_bad_one_is_not(hybrid: Hybrid) -> None:
    """Within two seconds; the bad one is told in log, Event and status, and outlived by the last good one."""
    kube = hybrid.plane.kube
    edited(hybrid.policy, "max: 4", "max: 0")
    make_pod(kube, gpu_pod("p"))
    (port,) = free_ports(1)
    with hybrid.run("--identity", "one", "--metrics-port", str(port)) as brain:
        until(lambda: "but max 0 of group gpu leaves 0" in brain.texts(), told=brain.texts)
        reaction = seconds_to_notice(brain, kube)
        since = edited(hybrid.policy, "max: 0", "max: 4")
        until(hybrid.aws.asked, told=brain.texts)
        took = seconds_until(brain, "policy-taken", since)
        print(f"{took:.2f} s from the edit until it was taken over; a pod is noticed within {reaction:.2f} s")
        assert took <= 2 + 4 * reaction + BUSY
        assert "groups[gpu].max: 0 -> 4: up to 22.69 $/h more" in brain.texts()
        until(lambda: bound(kube, "p"), told=brain.texts)

        edited(hybrid.policy, "max: 4", "max: -4")
        told = "groups[0] (gpu).max = -4: input should be greater than or equal to 0"
        until(lambda: told in brain.texts(), told=brain.texts)
        until(lambda: told in (acting_policy(kube).get("refused") or {}).get("why", ""), told=brain.texts)
        assert told in json.loads(asked(port, "/status"))["policy"]["refused"]
        assert "spillway_policy_refused 1.0" in asked(port, "/metrics")
        assert told in spillway(hybrid, "policy", "show")
        until(lambda: told in refusals_told(kube), told=brain.texts)
        make_pod(kube, gpu_pod("q"))
        until(lambda: bound(kube, "q"), told=brain.texts)
        brain.kill()
    with hybrid.run("--identity", "one", log="again.log") as again:
        make_pod(kube, gpu_pod("r"))
        until(lambda: bound(kube, "r"), told=again.texts)
        assert told in again.texts(), "what is wrong with the file is told again"
        assert again.process.poll() is None
    assert "max: 4" in acting_policy(kube)["text"]


def test_a_policy_in_a_configmap_is_followed_through_the_api(hybrid: Hybrid) -> None:
    """As the release has it: edited, deleted and made again while the autoscaler runs."""
    kube, text = hybrid.plane.kube, hybrid.policy.read_text(encoding="utf-8")
    path = "/api/v1/namespaces/spillway/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": words.POLICY}}
    kube.send("POST", path, body | {"data": {words.POLICY_KEY: text.replace("max: 4", "max: 0")}})
    make_pod(kube, gpu_pod("p"))
    try:
        with hybrid.run("--policy", f"configmap:spillway/{words.POLICY}") as brain:
            until(lambda: "but max 0 of group gpu leaves 0" in brain.texts(), told=brain.texts)
            reaction = seconds_to_notice(brain, kube)
            kube.send("DELETE", f"{path}/{words.POLICY}")
            until(lambda: "there is no such ConfigMap" in brain.texts(), told=brain.texts)
            since = time.time()
            kube.send("POST", path, body | {"data": {words.POLICY_KEY: text}})
            until(hybrid.aws.asked, told=brain.texts)
            took = seconds_until(brain, "policy-taken", since)
            print(f"{took:.2f} s from the edit until it was taken over; a pod is noticed within {reaction:.2f} s")
            assert took <= 2 + 4 * reaction + BUSY
            assert brain.process.poll() is None
    finally:
        kube.send("DELETE", f"{path}/{words.POLICY}")


def spillway(hybrid: Hybrid, *line: str) -> str:
    """What the command prints, typed by an operator of the cluster."""
    done = zygote(SPILLWAY).run(*line, env=hybrid.aws.env | {"KUBECONFIG": str(hybrid.plane.kubeconfig)})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pause_is_honoured_shown_and_ended(hybrid: Hybrid) -> None:
    """Also by an autoscaler that starts while it holds; what it stopped is done once it is resumed."""
    kube = hybrid.plane.kube
    spillway(hybrid, "autoscale", "pause", "--buying", "--because", "budget review", "--by", "ada", "--for", "1h")
    make_pod(kube, gpu_pod("p"))
    with hybrid.run("--identity", "one") as brain:
        until(lambda: "by ada: budget review; it would fit if it is resumed" in brain.texts(), told=brain.texts)
        explained = spillway(hybrid, "autoscale", "explain", "pod", "p")
        assert "buying is paused until" in explained, "by the acting policy, which no option names"
        shown = spillway(hybrid, "policy", "show")
        assert shown.startswith("acting: one\nbuying is paused until ")
        assert not hybrid.aws.asked()
        assert spillway(hybrid, "autoscale", "resume", "--buying") == "buying goes on\n"
        until(lambda: bound(kube, "p"), told=brain.texts)
        # The ledger is counted every ten seconds, and written down every minute.
        until(lambda: '"gpu"' in str(ledgers(kube)), within=150, told=brain.texts)
        assert "gpu " in spillway(hybrid, "autoscale", "spend", "--by", "group")
        assert [line["event"] for line in brain.said() if line["event"] in ("paused", "resumed")] == [
            "paused",
            "resumed",
        ]


def ledgers(kube: KubeHttp) -> list[dict[str, str]]:
    """What the autoscaler has written down of costs: by month."""
    found = kube.get("/api/v1/namespaces/spillway/configmaps")["items"]
    return [one["data"] for one in found if one["metadata"]["name"].startswith(words.LEDGER)]


def test_a_headroom_that_is_edited_in_is_bought_opened_kept_and_given_back(hybrid: Hybrid) -> None:
    """No pod waits: a node is there for the next one, which starts at once; without headroom it goes."""
    kube = hybrid.plane.kube
    with hybrid.run() as brain:
        until(lambda: "acting as" in brain.texts(), told=brain.texts)
        edited(hybrid.policy, "max: 4", "max: 4\n    headroom: 1\n    idle_after: 1s")
        until(lambda: "1 node for the headroom of group gpu" in brain.texts(), told=brain.texts)
        (node,) = until(lambda: kube.get("/api/v1/nodes")["items"], told=brain.texts)
        until(lambda: not reserved(kube) and ready(kube), told=brain.texts)
        make_pod(kube, gpu_pod("p"))
        assert until(lambda: bound(kube, "p"), told=brain.texts) == node["metadata"]["name"]
        until(lambda: hybrid.group()["DesiredCapacity"] == 2, told=brain.texts)
        edited(hybrid.policy, "headroom: 1", "headroom: 0")
        until(lambda: hybrid.group()["DesiredCapacity"] == 1, told=brain.texts)
    assert bound(kube, "p") == node["metadata"]["name"]


def ready(kube: KubeHttp) -> list[str]:
    """Nodes whose kubelets are."""
    return [
        one["metadata"]["name"]
        for one in kube.get("/api/v1/nodes")["items"]
        if any(found["type"] == "Ready" and found["status"] == "True" for found in one["status"].get("conditions", ()))
    ]


def test_an_edit_of_what_pulumi_builds_is_told_as_pending_and_the_groups_that_stand_are_bought(hybrid: Hybrid) -> None:
    """By key: what stands and what is wanted; taken back, nothing is pending any more."""
    kube = hybrid.plane.kube
    with hybrid.run() as brain:
        until(lambda: "acting as" in brain.texts(), told=brain.texts)
        edited(hybrid.policy, "g5.12xlarge", "p4d.24xlarge")
        told = "groups[gpu].instance_type: g5.12xlarge stands, p4d.24xlarge is wanted"
        until(lambda: told in acting_policy(kube)["pending"], told=brain.texts)
        make_pod(kube, gpu_pod("p"))
        node = until(lambda: bound(kube, "p"), told=brain.texts)
        labels = kube.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        assert labels[words.INSTANCE_TYPE] == "g5.12xlarge"
        assert [line["usd_per_hour"] for line in brain.said() if line.get("step") == "Grow"] == [5.672]
        edited(hybrid.policy, "p4d.24xlarge", "g5.12xlarge")
        until(lambda: "nothing of the policy waits for `pulumi up`" in brain.texts(), told=brain.texts)


def test_a_replica_that_starts_with_a_bad_file_goes_on_with_what_the_other_obeyed(hybrid: Hybrid) -> None:
    """It waits with it, takes over with it, and says what is wrong with the file."""
    kube = hybrid.plane.kube
    with hybrid.run("--identity", "first") as first:
        until(lambda: "acting as first" in first.texts(), told=first.texts)
        edited(hybrid.policy, "max: 4", "max: 1")
        until(lambda: "max: 1" in acting_policy(kube)["text"], told=first.texts)
        edited(hybrid.policy, "max: 1", "max: one")
        until(lambda: acting_policy(kube).get("refused"), told=first.texts)
        with hybrid.run("--identity", "second", log="second.log") as second:
            until(lambda: "waiting: first holds the lease" in second.texts(), told=second.texts)
            first.kill()
            for name in ("p", "q"):
                make_pod(kube, gpu_pod(name))
            until(lambda: acting_policy(kube)["by"] == "second", told=second.texts)
            until(lambda: "but max 1 of group gpu leaves 0" in second.texts(), told=second.texts)
            assert "groups[0] (gpu).max = 'one': must be a whole number" in second.texts()
    assert len(hybrid.aws.asked()) == 1


def test_an_explanation_says_first_that_none_acts_or_that_it_is_by_another_policy(hybrid: Hybrid) -> None:
    """Nothing is promised that no autoscaler does, or that another policy would do."""
    generous = hybrid.directory / "generous.yaml"
    generous.write_text(hybrid.policy.read_text(encoding="utf-8"), encoding="utf-8")
    with hybrid.policy.open("a", encoding="utf-8") as obeyed:
        obeyed.write("limits: {usd_per_hour: 1}\n")
    make_pod(hybrid.plane.kube, gpu_pod("p"))
    asked = partial(spillway, hybrid, "autoscale", "explain", "pod", "p")
    first, said = asked("--policy", str(generous)).splitlines()
    assert first == "no autoscaler acts: the lease is not held"
    assert "the next step is for it: grow" in said
    with hybrid.run("--identity", "one") as brain:
        until(lambda: "limits.usd_per_hour" in brain.texts(), told=brain.texts)
        assert "limits.usd_per_hour" in asked()
        assert "grow" not in asked()
        first, said = asked("--policy", str(generous)).splitlines()
        assert first == "one acts by its own policy; by the one that was named:"
        assert "the next step is for it: grow" in said
    assert not hybrid.aws.asked()


def test_what_it_decided_is_explained_at_its_door_recorded_and_decided_again(hybrid: Hybrid, tmp_path: Path) -> None:
    """By the replica that acts, of now and of before; after its end it is said first that none acts."""
    kube, record = hybrid.plane.kube, tmp_path / "record"
    (port,) = free_ports(1)
    make_pod(kube, gpu_pod("p"))
    with hybrid.run("--identity", "one", "--metrics-port", str(port), "--record", str(record)) as brain:
        until(lambda: bound(kube, "p"), told=brain.texts)
        until(lambda: "is on node" in spillway(hybrid, "autoscale", "explain", "pod", "p"), told=brain.texts)
        node = kube.get("/api/v1/namespaces/default/pods/p")["spec"]["nodeName"]
        told = spillway(hybrid, "autoscale", "explain", "node", node)
        assert told.startswith(f"{node} is busy: default/p is on it\n")
        assert "default/p: it holds a GPU" in told or "no controller would make it anew" in told
        assert "test-gpu-us-east-1a (g5.12xlarge, 5.67 $/h a node): 1 busy" in spillway(
            hybrid, "autoscale", "explain", "group", "gpu"
        )
        before = datetime.now().astimezone().isoformat()
        assert "default/p is on node" in spillway(hybrid, "autoscale", "explain", "pod", "p", "--at", before)
    done = spillway(hybrid, "autoscale", "explain", "pod", "p", "--record", str(record))
    assert "default/p is on node" in done
    asked = partial(spillway, hybrid, "autoscale", "explain", "pod", "p")
    until(lambda: asked().startswith("no autoscaler acts: one held the lease last, and renewed it "), told=asked)
    again = spillway(hybrid, "autoscale", "replay", str(record))
    assert re.search(r": \d\d* decided the same again, 0 otherwise\n$", again)
