"""Training jobs in the real control plane: made whole, run, ended, deleted whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoscaler.kube.client import Kube
from autoscaler.kube.writes import Writes
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from images.backends.kubernetes import delete, logs, outcome, states, stop, submit
from images.backends.states import RoleState
from images.cli import TEMPLATES, jobs
from images.job_files import parse_job, read_job
from images.jobs import Job, as_data
from images.renderers.kubernetes import render
from images.renderers.rendering import Manifest
from tests.live.conftest import Plane
from tests.test_images.test_job_files import given_for
from tests.test_images.test_jobs import EXAMPLES
from tests.test_images.test_renderers.test_kubernetes import expanded

pytestmark = pytest.mark.live

TASK = {"image": "team/mnist:1", "cpus": 1, "memory": "1Gi"}
DEFAULT = "/api/v1/namespaces/default"
BATCH = "/apis/batch/v1/namespaces/default"


def mnist(**changes: Any) -> Job:
    """Two workers that run for a second, one parameter server that runs until it is ended."""
    text = """\
name: mnist
roles:
  worker:
    image: team/mnist:1
    count: 2
    gpus: 4
    cpus: 8
    memory: 32Gi
    annotations: {local.spillway.dev/runs-for: 1s}
  ps: {image: team/mnist:1, cpus: 2, memory: 4Gi}
"""
    return Job.model_validate(as_data(parse_job(text, source="job.yaml")) | changes)


@pytest.fixture
def kube(plane: Plane) -> Kube:
    """The door that a user's command line goes through."""
    return Kube.connect(plane.kubeconfig)


def until(found: Callable[[], Any], what: str) -> Any:
    """What ``found`` gives once it gives something."""
    end = time.monotonic() + 120
    while not (value := found()):
        assert time.monotonic() < end, f"waited for {what} in vain"
        time.sleep(0.1)
    return value


def pods(plane: Plane) -> list[dict[str, Any]]:
    """The pods of mnist."""
    items: list[dict[str, Any]] = plane.kube.get(f"{DEFAULT}/pods?labelSelector={words.JOB}=mnist")["items"]
    return items


def all_pods(plane: Plane) -> list[dict[str, Any]]:
    """The pods of mnist, all three of them."""
    made: list[dict[str, Any]] = until(lambda: pods(plane) if len(pods(plane)) == 3 else None, "three pods")
    return made


def admit(plane: Plane, node: str) -> None:
    """As the autoscaler does it: pin every pod and lift the gate."""
    for pod in all_pods(plane):
        gate = {"$patch": "delete", "name": words.GATE}
        patch = {"spec": {"nodeSelector": {words.HOSTNAME: node}, "schedulingGates": [gate]}}
        path = f"{DEFAULT}/pods/{pod['metadata']['name']}"
        plane.kube.send("PATCH", path, patch, content="application/strategic-merge-patch+json")


def seen(kube: Kube) -> dict[str, RoleState]:
    """State by role."""
    return {state.role: state for state in states(kube, namespace="default")}


def test_every_pod_has_its_gate_its_name_and_its_place_in_tf_config(plane: Plane, kube: Kube) -> None:
    """What the real Job controller makes of the templates: host names are those that TF_CONFIG tells."""
    job = mnist()
    assert submit(kube, job) == ["job/mnist-worker", "service/mnist", "job/mnist-ps"]
    addresses = {}
    for pod in all_pods(plane):
        spec, marks = pod["spec"], pod["metadata"]["annotations"]
        assert spec["schedulingGates"] == [{"name": words.GATE}]
        assert marks[words.GANG_SIZE] == "3"
        index = int(marks["batch.kubernetes.io/job-completion-index"])
        task = json.loads(expanded(pod, index)["TF_CONFIG"])["task"]
        addresses[task["type"], task["index"]] = f"{spec['hostname']}.{spec['subdomain']}.default.svc:2222"
    cluster = json.loads(expanded(render(job).documents[0]["spec"]["template"], 0)["TF_CONFIG"])["cluster"]
    assert addresses == {(role, i): host for role, hosts in cluster.items() for i, host in enumerate(hosts)}


def test_a_job_waits_runs_and_is_done_and_its_server_is_marked_to_end_with_it(plane: Plane, kube: Kube) -> None:
    """The list tells each state; of the parameter server's end the autoscaler finds all that it needs."""
    plane.fake_node("dgx", cpu="32", memory="256Gi", gpu="8")
    submit(kube, mnist())
    all_pods(plane)
    assert (seen(kube)["worker"].state, seen(kube)["worker"].waiting, seen(kube)["worker"].gpus) == ("waiting", 2, 0)
    with pytest.raises(BadInput, match=r"worker 0 of job 'mnist' waits for a machine.*explain pod mnist-worker-0-"):
        list(logs(kube, namespace="default", name="mnist", role="worker", index=0))

    admit(plane, "dgx")
    until(lambda: seen(kube)["ps"].state == "running", "the parameter server")
    shown = CliRunner().invoke(jobs, ["show", "mnist", "--kubeconfig", str(plane.kubeconfig)], catch_exceptions=False)
    tasks = [line.split() for line in shown.output.splitlines()[2:]]
    assert sorted(words[:2] for words in tasks) == [["ps", "0"], ["worker", "0"], ["worker", "1"]], shown.output
    assert all("dgx" in words for words in tasks), shown.output
    worker = until(lambda: (now := seen(kube)["worker"]).state == "done" and now, "the workers' success")
    assert (worker.succeeded, worker.running, worker.waiting, worker.gpus) == (2, 0, 0, 0)
    assert seen(kube)["ps"].state == "running"

    server = plane.kube.get(f"{BATCH}/jobs/mnist-ps")
    assert server["metadata"]["annotations"][words.ENDS_WITH] == "mnist-worker"
    Writes(kube).end_job("default", "mnist-ps")
    until(lambda: "ps" not in seen(kube), "the end of the parameter server")

    shown = CliRunner().invoke(jobs, ["list", "--kubeconfig", str(plane.kubeconfig)])
    assert "mnist" in shown.output, shown.output
    assert "done for" in shown.output


def test_a_task_that_fails_is_started_again_behind_the_gate_and_not_for_ever(plane: Plane, kube: Kube) -> None:
    """With the same index; when the restarts are used up, the role has failed."""
    plane.fake_node("dgx", cpu="32", memory="256Gi", gpu="8")
    marks = {"local.spillway.dev/fails-after": "100ms"}
    submit(kube, mnist(roles={"worker": TASK | {"annotations": marks}}, failure={"restarts": 1}))
    for _ in range(2):
        waiting = until(lambda: [pod for pod in pods(plane) if not pod["spec"].get("nodeName")], "a gated pod")
        assert waiting[0]["spec"]["schedulingGates"] == [{"name": words.GATE}]
        assert waiting[0]["spec"]["hostname"] == "mnist-worker-0"
        gate = {"spec": {"schedulingGates": [{"$patch": "delete", "name": words.GATE}]}}
        path = f"{DEFAULT}/pods/{waiting[0]['metadata']['name']}"
        plane.kube.send("PATCH", path, gate, content="application/strategic-merge-patch+json")
        until(lambda: plane.kube.get(path)["status"]["phase"] == "Failed", "its failure")  # noqa: B023 - called now
    worker = until(lambda: (now := seen(kube)["worker"]).state == "failed" and now, "the end of the restarts")
    assert (worker.failed, worker.waiting, worker.running) == (2, 0, 0)


def test_a_lost_machine_costs_no_restart(plane: Plane, kube: Kube) -> None:
    """The task comes again although it has no restart left: the loss was no fault of its own."""
    plane.fake_node("dgx")
    submit(kube, mnist(roles={"worker": TASK}, failure={"restarts": 0}))
    first = until(lambda: pods(plane), "a pod")[0]["metadata"]
    gate = {"spec": {"schedulingGates": [{"$patch": "delete", "name": words.GATE}]}}
    path = f"{DEFAULT}/pods/{first['name']}"
    plane.kube.send("PATCH", path, gate, content="application/strategic-merge-patch+json")
    until(lambda: seen(kube)["worker"].state == "running", "the worker")
    # What the pod garbage collector writes a minute after a node is gone; again, where a late write of the fake
    # kubelet, which that node would not make any more, has said that the pod runs.
    lost = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
    body = {"status": {"phase": "Failed", "conditions": [lost]}}

    def others() -> list[dict[str, Any]]:
        there = pods(plane)
        if any(pod["metadata"]["uid"] == first["uid"] and pod["status"]["phase"] != "Failed" for pod in there):
            plane.kube.send("PATCH", f"{path}/status", body, content="application/strategic-merge-patch+json")
        return [pod for pod in there if pod["metadata"]["uid"] != first["uid"]]

    until(others, "another pod")
    assert seen(kube)["worker"].state == "waiting"


def test_a_stopped_job_ends_and_can_still_be_looked_at(plane: Plane, kube: Kube) -> None:
    """Its tasks get SIGTERM, and none is made anew; what is shown of it stays until it is deleted."""
    plane.fake_node("dgx", cpu="32", memory="256Gi", gpu="8")
    submit(kube, mnist(roles={"worker": TASK | {"count": 2, "gpus": 4}, "ps": TASK}))
    all_pods(plane)
    admit(plane, "dgx")
    until(lambda: seen(kube)["worker"].state == "running", "the workers")
    typed = ["stop", "mnist", "--kubeconfig", str(plane.kubeconfig)]
    assert CliRunner().invoke(jobs, typed).output == "stopped mnist\n"
    until(lambda: {one.state for one in seen(kube).values()} == {"stopped"}, "the end of both roles")
    until(lambda: not pods(plane), "the end of the pods")
    assert outcome(kube, namespace="default", name="mnist") == "failed"
    shown = CliRunner().invoke(jobs, ["show", "mnist", "--kubeconfig", str(plane.kubeconfig)], catch_exceptions=False)
    assert shown.output.startswith("mnist: ended: stopped"), shown.output
    assert shown.output.count("its job was stopped") == 3, shown.output
    assert CliRunner().invoke(jobs, typed).output == "mnist had ended already\n"
    assert delete(kube, namespace="default", name="mnist")
    with pytest.raises(BadInput, match="there is no training job 'mnist' in namespace 'default'"):
        stop(kube, namespace="default", name="mnist")


def test_steps_of_a_stopped_workflow_never_begin(plane: Plane, kube: Kube) -> None:
    """Those that wait for others end with it, without a pod."""
    roles = {"prepare": TASK, "train": TASK}
    submit(kube, mnist(roles=roles, depends_on={"train": ["prepare"]}, gang=False))
    until(lambda: pods(plane), "the first step's pod")
    assert stop(kube, namespace="default", name="mnist")
    until(lambda: {one.state for one in seen(kube).values()} == {"stopped"}, "the end of both steps")
    until(lambda: not pods(plane), "the end of the pod")


def test_deleting_the_job_takes_everything_along(plane: Plane, kube: Kube) -> None:
    """By the cluster's own garbage collector; then the name is free for a new one at once."""
    submit(kube, mnist())
    all_pods(plane)
    assert delete(kube, namespace="default", name="mnist")
    submit(kube, mnist())
    assert delete(kube, namespace="default", name="mnist")
    until(lambda: not pods(plane), "the end of the pods")
    with pytest.raises(BadInput, match="there is no training job 'mnist' in namespace 'default'"):
        delete(kube, namespace="default", name="mnist")


def test_a_job_that_is_there_is_not_touched_by_a_second_of_its_name(plane: Plane, kube: Kube) -> None:
    """It is told, and the first one goes on."""
    submit(kube, mnist())
    before = {pod["metadata"]["uid"] for pod in all_pods(plane)}
    with pytest.raises(BadInput, match="Job 'mnist-worker' is there already in namespace 'default': choose another"):
        submit(kube, mnist())
    assert {pod["metadata"]["uid"] for pod in all_pods(plane)} == before


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"namespace": "nowhere"}, "namespace 'nowhere' is not there: create it"),
        ({"priority": "urgent"}, "refuses the pods of Job 'mnist-worker'.*no PriorityClass with name urgent was found"),
        (
            {"roles": {"worker": TASK | {"annotations": {"example.com/note": "x" * 300_000}}}},
            "refuses Job 'mnist-worker'.*annotations: Too long",
        ),
    ],
)
def test_what_the_api_server_would_refuse_is_told_before_anything_is_made(
    plane: Plane, kube: Kube, changes: dict[str, Any], told: str
) -> None:
    """In its words, on one line that names the object."""
    with pytest.raises(BadInput, match=told):
        submit(kube, mnist(**changes))
    assert not seen(kube)


class _Interrupted(Kube):
    """The real door, closed at the second creation, as when the connection breaks halfway."""

    def send(self, method: str, path: str, body: object = None, *, content: str = "application/json") -> bytes:
        if method == "POST" and path.endswith("/services"):
            raise KeyboardInterrupt
        return super().send(method, path, body, content=content)


def test_a_job_made_halfway_is_taken_back(plane: Plane, kube: Kube) -> None:
    """Nothing of it stays."""
    with pytest.raises(KeyboardInterrupt):
        submit(_Interrupted(kube._account), mnist())
    until(lambda: not seen(kube) and not pods(plane), "the end of the first Job")


FILES = [path for path in (*EXAMPLES, *sorted(TEMPLATES.glob("*.yaml"))) if path.stem != "workflow"]
"""Plain Jobs know no order of steps."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_api_server_takes_every_file_that_ships_strictly(plane: Plane, path: Path) -> None:
    """No field is misspelt: unknown ones are an error here."""
    for manifest in render(read_job(path, given_for(path))).documents:
        plane.kube.send("POST", f"{place(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


@pytest.mark.parametrize("network", ["own", "host"])
def test_every_key_of_a_job_file_is_taken_strictly(plane: Plane, network: str) -> None:
    """With everything set that can be."""
    for manifest in render(everything(network=network)).documents:
        plane.kube.send("POST", f"{place(manifest)}?dryRun=All&fieldValidation=Strict", manifest)


def everything(**changes: Any) -> Job:
    """A job with every role and key that plain Kubernetes knows."""
    more = {
        "args": ["--x"],
        "entry": ["python"],
        "env": {"A": "b"},
        "checkpoint": ["sync"],
        "restart": "node-failure",
        "volumes": [{"mount": "/logs", "claim": "logs"}, {"mount": "/data", "host": "/srv", "read_only": True}],
    }
    roles = dict.fromkeys(("chief", "worker", "ps", "evaluator", "mine"), TASK | more)
    given = {
        "roles": roles | {"worker": TASK | more | {"gpus": 1, "count": "2..3"}},
        "tolerations": [{"key": "spot"}, {"key": "team", "operator": "Equal", "value": "x", "effect": "NoSchedule"}],
        "same": "zone",
        "node_selector": {"a": "b"},
        "failure": {"restarts": 0, "deadline": "1h"},
        "success": "first",
        "logs": "/logs",
        "data_dir": "/data",
        "train_dir": "/logs",
        "expected": "2h",
        "patience": "1m",
    }
    return mnist(**given | changes)


def place(manifest: Manifest) -> str:
    """Where objects of this kind are created."""
    return f"{BATCH}/jobs" if manifest["kind"] == "Job" else f"{DEFAULT}/{manifest['kind'].lower()}s"
