"""Jobs as plain Kubernetes objects: names, gates, addresses, ends."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from images.job_files import read_job
from images.jobs import Job
from images.launcher import VIEWS
from images.renderers.kubernetes import LAUNCHER, render
from tests.test_images.test_jobs import EXAMPLES, GOOD, job


def made(kind: str, name: str, text: str = GOOD) -> dict[str, Any]:
    """One of the objects that a job becomes."""
    return next(m for m in render(job(text)).documents if (m["kind"], m["metadata"]["name"]) == (kind, name))


def pod_of(role: str, text: str = GOOD) -> dict[str, Any]:
    """The pod template of a role."""
    template: dict[str, Any] = made("Job", f"mnist-{role}", text)["spec"]["template"]
    return template


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_good(path: Path) -> None:
    """What ships can be rendered."""
    assert render(read_job(path)).documents


def test_gpus_are_asked_per_task_never_a_whole_machine() -> None:
    """Requests and limits agree; a role without GPUs asks for none."""
    worker, ps = pod_of("worker")["spec"], pod_of("ps")["spec"]
    assert worker["containers"][0]["resources"]["limits"][words.GPU] == "4"
    assert words.GPU not in ps["containers"][0]["resources"]["requests"]


def test_every_task_of_a_job_with_gpus_may_use_gpu_machines() -> None:
    """A lab may have no other machines: its parameter servers go beside its workers. A job without GPUs stays away."""
    for role in ("worker", "ps"):
        assert pod_of(role)["spec"]["tolerations"] == [{"key": words.GPU, "operator": "Exists"}]
    assert "tolerations" not in pod_of("worker", GOOD.replace("gpus: 4, ", ""))["spec"]


def test_all_pods_are_one_gang_behind_the_gate() -> None:
    """Each says how many there are in all."""
    for role in ("worker", "ps"):
        pod = pod_of(role)
        assert pod["metadata"]["labels"][words.GANG] == "mnist"
        assert pod["metadata"]["annotations"][words.GANG_SIZE] == "3"
        assert pod["spec"]["schedulingGates"] == [{"name": words.GATE}]


def expanded(pod: dict[str, Any], index: int) -> dict[str, str]:
    """The container's environment as a kubelet expands it: ``$(NAME)`` of variables that stand before."""
    environment: dict[str, str] = {}
    for entry in pod["spec"]["containers"][0]["env"]:
        if "valueFrom" in entry:
            assert entry["valueFrom"]["fieldRef"]["fieldPath"].endswith("['batch.kubernetes.io/job-completion-index']")
            value = str(index)
        else:
            value = re.sub(r"\$\((\w+)\)", lambda m: environment.get(m[1], m[0]), entry["value"])
        environment[entry["name"]] = value
    return environment


def test_tf_config_is_right_for_every_task_once_expanded() -> None:
    """Valid JSON, the same cluster for all, each task its own index."""
    for role, index in (("worker", 0), ("worker", 1), ("ps", 0)):
        config = json.loads(expanded(pod_of(role), index)["TF_CONFIG"])
        assert config["task"] == {"type": role, "index": index}
        assert config["cluster"] == {
            "worker": ["mnist-worker-0.mnist.default.svc:2222", "mnist-worker-1.mnist.default.svc:2222"],
            "ps": ["mnist-ps-0.mnist.default.svc:2222"],
        }


def test_an_evaluator_is_no_part_of_the_training_cluster() -> None:
    """It has a task but no address."""
    text = GOOD + "  evaluator: {image: i, cpus: 1, memory: 1Gi}\n"
    assert "evaluator" not in json.loads(expanded(pod_of("worker", text), 0)["TF_CONFIG"])["cluster"]


def test_host_names_are_those_of_the_service() -> None:
    """The Job's name and the subdomain make the addresses of TF_CONFIG; the service selects every task."""
    service = made("Service", "mnist")
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True
    for role in ("worker", "ps"):
        assert pod_of(role)["spec"]["subdomain"] == "mnist"
        assert service["spec"]["selector"].items() <= pod_of(role)["metadata"]["labels"].items()


def test_ps_ends_with_the_workers_and_the_chief_is_the_main_role_where_there_is_one() -> None:
    """Parameter servers wait for ever: their Job says whose success is their end."""
    assert made("Job", "mnist-ps")["metadata"]["annotations"] == {words.ENDS_WITH: "mnist-worker"}
    chief = GOOD + "  chief: {image: i, cpus: 1, memory: 1Gi}\n"
    assert made("Job", "mnist-ps", chief)["metadata"]["annotations"] == {words.ENDS_WITH: "mnist-chief"}
    assert render(job(chief)).documents[0]["metadata"]["name"] == "mnist-chief"


FLOW = """\
name: flow
gang: false
depends_on: {train: [prepare], serve: [train]}
roles:
  prepare: {count: 2, cpus: 1, memory: 1Gi, image: i}
  train: {cpus: 1, memory: 1Gi, image: i}
  serve: {cpus: 1, memory: 1Gi, image: i}
"""


def test_steps_are_suspended_until_those_before_have_succeeded() -> None:
    """The last one owns the others: when it may go, all may."""
    first = made("Job", "flow-prepare", FLOW)
    assert "suspend" not in first["spec"]
    assert "annotations" not in first["metadata"]
    for name, after in (("flow-train", "flow-prepare"), ("flow-serve", "flow-train")):
        later = made("Job", name, FLOW)
        assert later["spec"]["suspend"] is True
        assert later["metadata"]["annotations"] == {words.DEPENDS_ON: after}
    assert render(job(FLOW)).documents[0]["metadata"]["name"] == "flow-serve"
    kept = {name: made("Job", f"flow-{name}", FLOW)["spec"].get("ttlSecondsAfterFinished") for name in job(FLOW).roles}
    assert kept == {"prepare": None, "train": None, "serve": 86400}
    assert render(job(FLOW)).losses == ()


def test_of_steps_that_end_each_at_its_own_time_none_takes_the_others_along() -> None:
    """It is said that they stay."""
    fork = FLOW.replace("serve: [train]", "serve: [prepare]")
    assert {document["spec"].get("ttlSecondsAfterFinished") for document in render(job(fork)).documents} == {None}
    assert [loss.split(":")[0] for loss in render(job(fork)).losses] == ["retain"]
    both = FLOW.replace("serve: [train]", "serve: [train, prepare]")
    assert made("Job", "flow-serve", both)["metadata"]["annotations"] == {words.DEPENDS_ON: "flow-train,flow-prepare"}


def test_lost_nodes_do_not_count_as_failures() -> None:
    """A drained or lost node starts the task again, uncounted; the old pod is gone before the new one comes."""
    spec = made("Job", "mnist-worker")["spec"]
    assert spec["podFailurePolicy"]["rules"][0]["action"] == "Ignore"
    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["ttlSecondsAfterFinished"] == 86400


def test_one_zone_is_said_to_the_planner() -> None:
    """As a topology of the gang."""
    annotations = pod_of("worker", GOOD + "same: zone\n")["metadata"]["annotations"]
    assert annotations[words.GANG_ZONE] == words.ZONE


def test_how_long_it_runs_and_may_wait_is_said_to_the_planner() -> None:
    """In seconds, on every pod; nothing is said where the file says nothing."""
    annotations = pod_of("ps", GOOD + "expected: 2h\npatience: 90s\n")["metadata"]["annotations"]
    assert (annotations[words.DURATION], annotations[words.PATIENCE]) == ("7200s", "90s")
    endless = pod_of("ps", GOOD + "patience: forever\n")["metadata"]["annotations"]
    assert endless[words.PATIENCE] == "forever"
    assert not {words.DURATION, words.PATIENCE} & pod_of("ps")["metadata"]["annotations"].keys()


@given(
    counts=st.fixed_dictionaries(
        {},
        optional={
            "chief": st.just(1),
            "worker": st.integers(1, 30),
            "ps": st.integers(1, 30),
            "evaluator": st.just(1),
        },
    ).filter(lambda counts: counts.keys() & {"chief", "worker"}),
    gpus=st.integers(0, 8),
)
def test_whatever_its_roles_every_task_is_counted_once_and_finds_itself(counts: dict[str, int], gpus: int) -> None:
    """Each Job makes its tasks; all name one gang size; each task's address in TF_CONFIG is its own host name."""
    roles = {
        role: {"count": count, "image": "i", "cpus": 1, "memory": "1Gi", "gpus": gpus} for role, count in counts.items()
    }
    made = render(Job.model_validate({"name": "j", "roles": roles})).documents
    sets = [manifest for manifest in made if manifest["kind"] == "Job"]
    size = sum(manifest["spec"]["completions"] for manifest in sets)
    assert size == sum(counts.values())
    for manifest in sets:
        pod = manifest["spec"]["template"]
        assert pod["metadata"]["annotations"][words.GANG_SIZE] == str(size)
        for index in range(manifest["spec"]["parallelism"]):
            config = json.loads(expanded(pod, index)["TF_CONFIG"])
            role = config["task"]["type"]
            assert config["cluster"].keys() == counts.keys() - {"evaluator"}
            if role != "evaluator":
                host = f"{manifest['metadata']['name']}-{index}.{pod['spec']['subdomain']}.default.svc:2222"
                assert config["cluster"][role][config["task"]["index"]] == host
    assert [manifest["metadata"].get("annotations") for manifest in sets[1:]] == [
        {words.ENDS_WITH: sets[0]["metadata"]["name"]}
    ] * (len(sets) - 1)


PROGRAM = GOOD.replace("args: [train.py]", "entry: [python, train.py]")


def test_a_role_with_a_program_runs_it_by_the_launcher() -> None:
    """Which is mounted from a ConfigMap, and is told the cluster; the image's own program gets TF_CONFIG instead."""
    worker = pod_of("worker", PROGRAM)
    container = worker["spec"]["containers"][0]
    assert container["command"] == ["python3", LAUNCHER, "python", "train.py"]
    told = expanded(worker, 1)
    assert json.loads(told["SPILLWAY_CLUSTER"])["ps"] == ["mnist-ps-0.mnist.default.svc:2222"]
    assert (told["SPILLWAY_ROLE"], told["SPILLWAY_INDEX"]) == ("worker", "1")
    mount = next(mount for mount in container["volumeMounts"] if mount["name"] == "launcher")
    text = made("ConfigMap", "mnist-launcher", PROGRAM)["data"][Path(LAUNCHER).name]
    assert f"{mount['mountPath']}/{Path(LAUNCHER).name}" == LAUNCHER
    compile(text, LAUNCHER, "exec")
    assert "SPILLWAY_CLUSTER" not in expanded(pod_of("ps", PROGRAM), 0)
    assert not [manifest for manifest in render(job()).documents if manifest["kind"] == "ConfigMap"]


def test_lines_that_would_go_with_the_pod_are_refused() -> None:
    """A log directory has to lie on a volume."""
    text = PROGRAM + "logs: /logs\n"
    with pytest.raises(BadInput, match=r"logs = '/logs' lies on no volume of each role.*volumes: \[\{mount: /logs"):
        render(job(text))
    volume = "volumes: [{mount: /logs, claim: shared}], entry"
    told = expanded(pod_of("worker", text.replace("entry", volume)), 0)
    assert told["SPILLWAY_STATE"] == "/logs/mnist/0"


def test_an_elastic_job_says_how_many_must_be_there() -> None:
    """And how many there may be."""
    annotations = pod_of("worker", GOOD.replace("count: 2", "count: 2..8"))["metadata"]["annotations"]
    assert (annotations[words.GANG_SIZE], annotations[words.GANG_MIN]) == ("9", "3")


def test_an_elastic_role_begins_with_the_least_and_says_between_what_its_size_may_change() -> None:
    """Both numbers change together later, as Kubernetes wants it; other elastic roles follow the workers."""
    elastic = GOOD.replace("count: 2", "count: 2..8").replace("count: 1", "count: 1..3")
    text = elastic + "elastic: {restart: 30s, usd_per_hour: 12.5}\n"
    workers, servers = (made for made in render(job(text)).documents if made["kind"] == "Job")
    assert (workers["spec"]["parallelism"], workers["spec"]["completions"]) == (2, 2)
    assert workers["metadata"]["annotations"] == {
        words.ELASTIC: "2..8",
        words.ELASTIC_RESTART: "30s",
        words.ELASTIC_WARM_UP: "10s",
        words.ELASTIC_USD: "12.5",
    }
    assert servers["metadata"]["annotations"] == {
        words.ELASTIC: "1..3",
        words.FOLLOWS: "mnist-worker",
        words.ENDS_WITH: "mnist-worker",
    }
    alone = render(job(elastic + "gang: false\n")).documents[0]
    assert (alone["spec"]["parallelism"], alone["metadata"].get("annotations")) == (8, None)


def test_what_is_said_of_elastic_roles_needs_one() -> None:
    """Else it would mean nothing."""
    with pytest.raises(BadInput, match=r"elastic: no role has tasks that come and go: give one count: MIN\.\.MAX"):
        job(GOOD + "elastic: {restart: 30s}\n")


def test_a_job_that_is_no_gang_has_no_gate() -> None:
    """Its tasks start one by one, though each of its Indexed Jobs has them all run at once."""
    pod = pod_of("worker", GOOD + "gang: false\n")
    assert pod["metadata"]["annotations"][words.GANG_MIN] == "1"
    assert "schedulingGates" not in pod["spec"]
    assert words.GANG not in pod["metadata"]["labels"]


def test_on_the_host_network_each_task_has_a_port_of_its_own() -> None:
    """Two of them may be on one machine."""
    pod = pod_of("ps", GOOD + "network: host\n")
    assert pod["spec"]["hostNetwork"]
    cluster = json.loads(expanded(pod, 0)["TF_CONFIG"])["cluster"]
    assert [address.rpartition(":")[2] for role in cluster.values() for address in role] == ["2222", "2223", "2224"]


def test_no_role_ends_with_a_role_that_may_end_before_another_essential_one() -> None:
    """What decides the end does not end with another."""
    text = GOOD.replace("ps: {", "ps: {essential: true, ").replace("worker: {", "worker: {essential: true, ")
    assert [made["metadata"].get("annotations") for made in render(job(text)).documents] == [None] * 3


def test_variables_that_spillway_writes_are_those_that_the_launcher_writes() -> None:
    """Each of them, none else."""
    assert {"TF_CONFIG", "RANK", "HOROVOD_RANK"} < VIEWS
    with pytest.raises(BadInput, match="sets WORLD_SIZE, which Spillway writes itself"):
        job(GOOD.replace("args", "env: {WORLD_SIZE: x}, args"))
