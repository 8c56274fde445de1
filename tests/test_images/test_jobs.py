"""Job files: what they accept, what they become, and how they refuse."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import images
import stacks.local
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from autoscaler.model.resources import Resources
from images.cli import _age, jobs
from images.cli import _job as from_command_line
from images.jobs import Task, TrainingJob, parse_job, read_job
from images.templates.kubernetes import render, tf_config
from stacks.settings.inventory import read_inventory

EXAMPLES = sorted((Path(str(images.__path__[0])) / "examples").glob("*.yaml"))
INVENTORY = Path(str(stacks.local.__path__[0])) / "inventory.yaml"
GOOD = """\
name: mnist
image: team/mnist:1
tasks:
  worker: {count: 2, gpus: 4, cpu: 8, memory: 32Gi, command: [python, train.py]}
  ps: {count: 1, cpu: 500m, memory: 4Gi}
"""


def job(text: str = GOOD) -> TrainingJob:
    """The job in the text."""
    return parse_job(text, source="job.yaml")


def made(kind: str, name: str, text: str = GOOD) -> dict[str, Any]:
    """One of the objects that a job becomes."""
    return next(m for m in render(job(text)) if (m["kind"], m["metadata"]["name"]) == (kind, name))


def pod_of(role: str, text: str = GOOD) -> dict[str, Any]:
    """The pod template of a role."""
    template: dict[str, Any] = made("Job", f"mnist-{role}", text)["spec"]["template"]
    return template


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_good(path: Path) -> None:
    """What ships can be rendered."""
    assert render(read_job(path))


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
    text = GOOD + "  evaluator: {cpu: 1, memory: 1Gi}\n"
    assert "evaluator" not in json.loads(tf_config(job(text), "worker").replace("$(TASK_INDEX)", "0"))["cluster"]


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
    chief = GOOD + "  chief: {cpu: 1, memory: 1Gi}\n"
    assert made("Job", "mnist-ps", chief)["metadata"]["annotations"] == {words.ENDS_WITH: "mnist-chief"}
    assert render(job(chief))[0]["metadata"]["name"] == "mnist-chief"


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
    assert not {words.DURATION, words.PATIENCE} & pod_of("ps")["metadata"]["annotations"].keys()


def test_a_job_sums_what_it_asks_for() -> None:
    """Over all tasks."""
    assert job().requests() == Resources.parse({"cpu": "16500m", "memory": "68Gi", "nvidia.com/gpu": 8})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("name: mnist", "name: MNIST"), "job.yaml:1: name = 'MNIST': must be lower-case letters"),
        (("name: mnist\n", ""), "name is missing: the job's name, e.g. mnist"),
        (("image: team/mnist:1\n", ""), "image is missing: container image of every task"),
        (("worker:", "wroker:"), "job.yaml:4: tasks.wroker"),
        (("  worker:", "  evaluator:"), "tasks: has neither a chief nor a worker"),
        (("count: 2", "count: 0"), "tasks.worker.count = 0: input should be greater than or equal to 1"),
        (("gpus: 4", "gpus: -1"), "tasks.worker.gpus = -1: input should be greater than or equal to 0"),
        (("memory: 32Gi", "memory: 32Gib"), "tasks.worker.memory = '32Gib': '32Gib' is not a quantity"),
        (("cpu: 8", "cpu: 0"), "tasks.worker.cpu = 0: must be CPUs of one task, e.g. 8 or 500m"),
        (("gpus: 4", "gpu: 4"), "tasks.worker.gpu is not a key here; did you mean gpus?"),
        ((", command", ", env: {TF_CONFIG: x}, command"), "sets TF_CONFIG, which Spillway writes itself"),
        ((", command", ", env: {EPOCHS: 3}, command"), "tasks.worker.env.EPOCHS = 3: must be text: put it in quotes"),
        ((", command", ", ports: {tb: 2222}, command"), "the number 2222, which every task's gRPC server uses"),
        ((", command", ", ports: {tb: 0}, command"), "tasks.worker.ports.tb = 0: input should be greater than or"),
        (
            (", command", ", annotations: {spillway.dev/gang-size: '1'}, command"),
            "sets spillway.dev/gang-size, which Spillway writes itself: leave it out",
        ),
        (("  ps: {count: 1", "  chief: {count: 2"), "has 2 tasks of role chief: a job has at most one"),
        (("memory: 32Gi", "memory: 32"), "tasks.worker.memory = 32: must be memory of one task with its unit"),
        (("memory: 32Gi", "memory: Infinity"), "tasks.worker.memory = 'Infinity': 'Infinity' is not a quantity"),
        (("cpu: 8", "cpu: NaN"), "tasks.worker.cpu = 'NaN': 'NaN' is not a quantity"),
        (("cpu: 8", "cpu: 16Gi"), "tasks.worker.cpu = '16Gi': must be CPUs of one task, e.g. 8 or 500m"),
        (("gpus: 4", "gpus: all"), "tasks.worker.gpus = 'all': must be a whole number"),
        (("cpu: 8, ", ""), "job.yaml:4: tasks.worker.cpu is missing: CPUs of one task, e.g. 8 or 500m"),
        (("[python, train.py]", "python train.py"), "tasks.worker.command = 'python train.py': must be a list"),
        (("count: 2", "count: 9999"), "the addresses of 10000 tasks are"),
        (("name: mnist", "name: 9mnist"), "name = '9mnist': must begin with a letter"),
        (("tasks:", "same: rack\ntasks:"), "job.yaml:3: same = 'rack': input should be '' or 'zone'"),
        (("tasks:", "keep_for: soon\ntasks:"), "job.yaml:3: keep_for = 'soon': must be a span of time such as 90s"),
        (("tasks:", "framework: caffe\ntasks:"), "job.yaml:3: framework = 'caffe': input should be 'tensorflow'"),
        (("tasks:", "restarts: -1\ntasks:"), "job.yaml:3: restarts = -1: input should be greater than or equal to 0"),
        (("tasks:", "tolerations: [{key: a, value: b}]\ntasks:"), "tolerations[0]: gives the value 'b', which only"),
        (("name: mnist", f"name: {'m' * 60}"), "would have 69 letters, 63 at most: shorten name"),
        (("team/mnist:1", "Team/Mnist:1"), "image = 'Team/Mnist:1': is not the name of an image: write one such as"),
        (("team/mnist:1", "'team/ mnist'"), "image = 'team/ mnist': is not the name of an image"),
        (("count: 2", "count: yes"), "job.yaml:4: tasks.worker.count = True: must be a whole number"),
        (
            ("32Gi", "32000000Ei"),
            "tasks.worker.memory = '32000000Ei': must be memory of one task, e.g. 32Gi: no",
        ),
        (("gpus: 4", "env: {'': x}"), "tasks.worker.env: sets '', which is not the name of a variable"),
        (("gpus: 4", "env: {'A=B': x}"), "tasks.worker.env: sets 'A=B', which is not the name of a variable"),
        (
            ("gpus: 4", "ports: {tensorboard-of-all: 6006}"),
            "ports: has the name 'tensorboard-of-all': write",
        ),
        (("gpus: 4", "ports: {'80': 6006}"), "ports: has the name '80': write at most 15 lower-case letters"),
        (("gpus: 4", "annotations: {a b: c}"), "annotations: 'a b' is not the key of a label or taint"),
        (("tasks:", "restarts: 99999\ntasks:"), "restarts = 99999: input should be less than or equal to 10000"),
        (("tasks:", "keep_for: 99999d\ntasks:"), "keep_for = '99999d': must be at most 3650d"),
        (("tasks:", "priority: very urgent\ntasks:"), "priority = 'very urgent': is not the name of a PriorityClass"),
        (("tasks:", "node_selector: {a b: c}\ntasks:"), "node_selector: 'a b' is not the key of a label or taint"),
        (
            ("tasks:", "node_selector: {a: b c}\ntasks:"),
            "node_selector: wants a to be 'b c', which no label is",
        ),
        (
            ("tasks:", "tolerations: [{key: a b}]\ntasks:"),
            "tolerations[0].key = 'a b': 'a b' is not the key",
        ),
    ],
)
def test_a_wrong_job_names_place_key_value_and_remedy(change: tuple[str, str], told: str) -> None:
    """One mistake, one line."""
    assert change[0] in GOOD
    with pytest.raises(BadInput) as refusal:
        job(GOOD.replace(*change, 1))
    assert told in str(refusal.value)


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
    tasks = {role: {"count": count, "cpu": 1, "memory": "1Gi", "gpus": gpus} for role, count in counts.items()}
    made = render(TrainingJob.model_validate({"name": "j", "image": "i", "tasks": tasks}))
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


def test_the_spill_example_needs_more_than_the_lab_has_left() -> None:
    """The demo's story: the small job fits on-prem, then the second does not, and the third fits nowhere."""
    lab = sum(machine.gpus.count for machine in read_inventory(INVENTORY).machines if machine.gpus)
    small, spill, impossible = (
        read_job(next(path for path in EXAMPLES if path.stem == name)).requests()[words.GPU]
        for name in ("small", "spill", "impossible")
    )
    assert small <= lab < small + spill
    assert impossible == 16


def test_render_prints_yaml_and_set_changes_a_key(tmp_path: Path) -> None:
    """As a user types it."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    done = CliRunner().invoke(jobs, ["render", str(path), "--set", "tasks.worker.count=5", "--set", "name=other"])
    assert done.exit_code == 0, done.output
    main = next(yaml.safe_load_all(done.output))
    assert (main["metadata"]["name"], main["spec"]["completions"]) == ("other-worker", 5)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("tasks.worker.env.LEARNING_RATE=0.01", ("env", "LEARNING_RATE", "0.01")),
        (
            "tasks.worker.annotations.local.spillway.dev/runs-for=5s",
            ("annotations", "local.spillway.dev/runs-for", "5s"),
        ),
    ],
)
def test_set_reaches_below_keys_that_are_free(tmp_path: Path, change: str, found: tuple[str, str, str]) -> None:
    """Their dots belong to the key, their values are text."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    task = from_command_line(path, (change,)).tasks["worker"]
    where, key, value = found
    assert getattr(task, where)[key] == value


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("tasks.worker.count", "'tasks.worker.count' is not KEY=VALUE"),
        ("tasks.worker.count=[", "'tasks.worker.count=[': the value is not YAML"),
        ("name.first=x", "'name.first=x': name holds no keys"),
        ("tasks.worker.gpu=8", "--set tasks.worker.gpu=8: tasks.worker.gpu is not a key here; did you mean gpus?"),
    ],
)
def test_a_wrong_change_is_told(tmp_path: Path, change: str, told: str) -> None:
    """With the change that was given."""
    path = tmp_path / "job.yaml"
    path.write_text(GOOD)
    with pytest.raises((BadInput, click.BadParameter)) as refusal:
        from_command_line(path, (change,))
    assert told in str(refusal.value)


@pytest.mark.parametrize("changes", [(), ("name=x",)])
@pytest.mark.parametrize(
    ("content", "told"),
    [(None, "cannot read this job file: No such file"), (b"\xff", "this job file is not UTF-8 text")],
)
def test_a_file_that_cannot_be_read_is_told(
    tmp_path: Path, content: bytes | None, told: str, changes: tuple[str, ...]
) -> None:
    """Also where keys are to be changed in it."""
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadInput, match=told):
        from_command_line(path, changes)


def test_a_job_can_come_from_a_pipe() -> None:
    """As ``spillway jobs new | spillway jobs render -``."""
    done = CliRunner().invoke(jobs, ["render", "-", "--set", "name=piped"], input=GOOD)
    assert "piped-worker" in done.output, done.output


@pytest.mark.parametrize(
    "image",
    [
        "busybox",
        "localhost/busybox",
        "registry.lab.example.com:5000/vision/resnet_train/v2:2026.11-cuda12.4_RC1",
        "123456789012.dkr.ecr.us-east-1.amazonaws.com/a--b__c.d",
        f"gcr.io/team/mnist:1@sha256:{'0a' * 32}",
    ],
)
def test_an_image_may_be_named_in_every_way_that_registries_know(image: str) -> None:
    """Host, port, path, tag, digest."""
    assert job(GOOD.replace("team/mnist:1", image)).image == image


def test_ages_are_told_in_one_unit() -> None:
    """The biggest of which there are at least two."""
    spans = {0: "0 s", 119: "119 s", 120: "2 min", 7_199: "119 min", 7_200: "2 h", 172_800: "2 d"}
    assert {seconds: _age(timedelta(seconds=seconds)) for seconds in spans} == spans


def test_an_unknown_target_is_refused() -> None:
    """With the ones there are."""
    done = CliRunner().invoke(jobs, ["render", str(EXAMPLES[0]), "--target", "mesos"])
    assert done.exit_code == 2
    assert "'mesos' is none of: kubernetes" in done.output


def test_new_prints_a_file_that_is_good_and_tells_of_every_key() -> None:
    """A start that works, with nothing kept back."""
    text = CliRunner().invoke(jobs, ["new"]).output
    assert job(text).name == "mnist"
    keys = {*TrainingJob.model_fields, *Task.model_fields} - {"framework"}  # there is one so far
    assert [key for key in keys if not re.search(rf"\b{key}:", text)] == []
