"""Job descriptions: what they accept, what they mean, and how they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

import images
import stacks.local
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from autoscaler.model.resources import Resources
from images.job_files import parse_job, read_job
from images.jobs import Job, as_data
from stacks.settings.inventory import read_inventory

EXAMPLES = sorted((Path(str(images.__path__[0])) / "examples").glob("*.yaml"))
INVENTORY = Path(str(stacks.local.__path__[0])) / "inventory.yaml"
GOOD = """\
name: mnist
roles:
  worker: {image: team/mnist:1, count: 2, gpus: 4, cpus: 8, memory: 32Gi, args: [train.py]}
  ps: {image: team/mnist:1, count: 1, cpus: 500m, memory: 4Gi}
"""


def job(text: str = GOOD) -> Job:
    """The job in the text."""
    return parse_job(text, source="job.yaml")


def test_steps_have_an_order_and_an_end() -> None:
    """What runs at one time, what comes before, and after which the job has ended."""
    one = {"cpus": "1", "memory": "1Gi", "image": "i"}
    roles = dict.fromkeys(("a", "b", "join", "check", "serve"), one)
    order = {"join": ["a", "b"], "check": ["a"], "serve": ["join", "check"]}
    flow = Job.model_validate({"name": "flow", "gang": False, "roles": roles, "depends_on": order, "expected": "1h"})
    steps = flow.by_step()
    assert {name: [*step.roles] for name, step in steps.items()} == {
        "a, b": ["a", "b"],
        "join, check": ["join", "check"],
        "serve": ["serve"],
    }
    assert all(not step.depends_on and step.expected is None and step.name == "flow" for step in steps.values())
    assert flow.steps_before("serve") == {"a", "b", "join", "check"}
    assert (flow.main_role, flow.ends_last("serve"), flow.ends_last("check")) == ("serve", True, False)
    plain = Job.model_validate({"name": "j", "roles": {"worker": one, "ps": one}})
    assert plain.by_step() == {"": plain}
    assert (plain.main_role, plain.ends_last("worker")) == ("worker", True)
    roles = {"train": one, "board": one | {"essential": False}}
    ends = {"name": "j", "gang": False, "roles": roles, "depends_on": {"board": ["train"]}}
    assert Job.model_validate(ends).main_role == "train"


def test_a_job_sums_what_it_asks_for() -> None:
    """Over all tasks."""
    assert job().requests() == Resources.parse({"cpu": "16500m", "memory": "68Gi", "nvidia.com/gpu": 8})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("name: mnist", "name: MNIST"), "job.yaml:1: name = 'MNIST': must be lower-case letters"),
        (("name: mnist\n", ""), "name is missing: the job's name, e.g. mnist"),
        (("image: team/mnist:1, count: 2", "count: 2"), "roles.worker: has neither image nor entry: give a container"),
        (("worker:", "wor_ker:"), "job.yaml:3: roles.wor_ker"),
        (("  worker:", "  evaluator:"), "has 2 tasks of role evaluator: a job has at most one"),
        (("  worker: {", "  worker: {essential: false, "), "none of worker, ps ends by itself: add a worker"),
        (("count: 2", "count: 0"), "roles.worker.count = 0: must be a number of tasks from 1 to 10000, or a range"),
        (("gpus: 4", "gpus: -1"), "roles.worker.gpus = -1: input should be greater than or equal to 0"),
        (("memory: 32Gi", "memory: 32Gib"), "roles.worker.memory = '32Gib': '32Gib' is not a quantity"),
        (("cpus: 8", "cpus: 0"), "roles.worker.cpus = 0: must be CPUs of one task, e.g. 8 or 500m"),
        (("gpus: 4", "gpu: 4"), "roles.worker.gpu is not a key here; did you mean gpus?"),
        ((", args", ", env: {TF_CONFIG: x}, args"), "sets TF_CONFIG, which Spillway writes itself"),
        ((", args", ", env: {EPOCHS: 3}, args"), "roles.worker.env.EPOCHS = 3: must be text: put it in quotes"),
        (("name: mnist", "name: mnist\non: true"), "job.yaml:2: on is not a key here; the keys here are: "),
        ((", args", ", ports: {tb: 2222}, args"), "roles.worker.ports is not a key here; did you mean port?"),
        ((", args", ", port: 0, args"), "roles.worker.port = 0: input should be greater than or"),
        (
            (", args", ", annotations: {spillway.dev/gang-size: '1'}, args"),
            "sets spillway.dev/gang-size, which Spillway writes itself: leave it out",
        ),
        (
            ("  ps: {image: team/mnist:1, count: 1", "  chief: {image: i, count: 2"),
            "has 2 tasks of role chief: a job has at most one",
        ),
        (("memory: 32Gi", "memory: 32"), "roles.worker.memory = 32: must be memory of one task with its unit"),
        (("memory: 32Gi", "memory: Infinity"), "roles.worker.memory = 'Infinity': 'Infinity' is not a quantity"),
        (("cpus: 8", "cpus: NaN"), "roles.worker.cpus = 'NaN': 'NaN' is not a quantity"),
        (("cpus: 8", "cpus: 16Gi"), "roles.worker.cpus = '16Gi': must be CPUs of one task, e.g. 8 or 500m"),
        (("gpus: 4", "gpus: all"), "roles.worker.gpus = 'all': must be a whole number"),
        (("cpus: 8, ", ""), "job.yaml:3: roles.worker.cpus is missing: CPUs of one task, e.g. 8 or 500m"),
        (("[train.py]", "python train.py"), "roles.worker.args = 'python train.py': must be a list"),
        (("count: 2", "count: 9999"), "the addresses of 10000 tasks are"),
        (("name: mnist", "name: 9mnist"), "name = '9mnist': must begin with a letter"),
        (("roles:", "same: rack\nroles:"), "job.yaml:2: same = 'rack': input should be '' or 'zone'"),
        (("roles:", "retain: soon\nroles:"), "job.yaml:2: retain = 'soon': must be a span of time such as 90s"),
        (("roles:", "kind: party\nroles:"), "job.yaml:2: kind = 'party': input should be 'batch' or 'service'"),
        (
            ("roles:", "failure: {restarts: -1}\nroles:"),
            "job.yaml:2: failure.restarts = -1: input should be greater than or equal to 0",
        ),
        (("roles:", "tolerations: [{key: a, value: b}]\nroles:"), "tolerations[0]: gives the value 'b', which only"),
        (("name: mnist", f"name: {'m' * 60}"), "would have 69 letters, 63 at most: shorten name"),
        (("team/mnist:1", "Team/Mnist:1"), "image = 'Team/Mnist:1': is not the name of an image: write one such as"),
        (("team/mnist:1", "'team/ mnist'"), "image = 'team/ mnist': is not the name of an image"),
        (("count: 2", "count: yes"), "job.yaml:3: roles.worker.count = True: must be a number of tasks"),
        (
            ("32Gi", "32000000Ei"),
            "roles.worker.memory = '32000000Ei': must be memory of one task, e.g. 32Gi: no",
        ),
        (("gpus: 4", "env: {'': x}"), "roles.worker.env: sets '', which is not the name of a variable"),
        (("gpus: 4", "env: {'A=B': x}"), "roles.worker.env: sets 'A=B', which is not the name of a variable"),
        (("gpus: 4", "annotations: {a b: c}"), "annotations: 'a b' is not the key of a label or taint"),
        (
            ("roles:", "failure: {restarts: 99999}\nroles:"),
            "restarts = 99999: input should be less than or equal to 10000",
        ),
        (("roles:", "retain: 99999d\nroles:"), "retain = '99999d': must be at most 3650d"),
        (("roles:", "depends_on: {ps: [worker]}\nroles:"), "cannot start together with them: add gang: false"),
        (
            ("roles:", "gang: false\ndepends_on: {ps: [eval]}\nroles:"),
            "depends_on: there is no role eval: the roles are",
        ),
        (
            ("roles:", "gang: false\ndepends_on: {ps: [worker], worker: [ps]}\nroles:"),
            "depends_on: worker, ps wait for each other: leave one of them out",
        ),
        (("roles:", "logs: s3://bucket/\nroles:"), "logs = 's3://bucket/': must be s3://BUCKET or s3://BUCKET/PREFIX"),
        (("roles:", "logs: logs\nroles:"), "logs = 'logs': must be the absolute path of a directory, e.g. /data"),
        (("roles:", "queue: a b\nroles:"), "queue = 'a b': is not the name of a queue"),
        (("gpus: 4", "volumes: [{mount: /d}]"), "volumes[0]: needs one source: host (a directory of the machine)"),
        (("count: 2", "count: 8..2"), "roles.worker.count = '8..2': must be a number of tasks from 1 to 10000"),
        (("roles:", "priority: very urgent\nroles:"), "priority = 'very urgent': is not the name of a PriorityClass"),
        (("roles:", "node_selector: {a b: c}\nroles:"), "node_selector: 'a b' is not the key of a label or taint"),
        (
            ("roles:", "node_selector: {a: b c}\nroles:"),
            "node_selector: wants a to be 'b c', which no label is",
        ),
        (
            ("roles:", "tolerations: [{key: a b}]\nroles:"),
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


def test_the_spill_example_needs_more_than_the_lab_has_left() -> None:
    """The demo's story: the small job fits on-prem, then the second does not, and the third fits nowhere."""
    lab = sum(machine.gpus.count for machine in read_inventory(INVENTORY).machines if machine.gpus)
    small, spill, impossible = (
        read_job(next(path for path in EXAMPLES if path.stem == name)).requests()[words.GPU]
        for name in ("small", "spill", "impossible")
    )
    assert small <= lab < small + spill
    assert impossible == 16


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
    assert job(GOOD.replace("team/mnist:1", image)).roles["worker"].image == image


@pytest.mark.parametrize(
    ("roles", "essential"),
    [
        (("worker", "ps"), ("worker",)),
        (("chief", "worker", "ps"), ("chief",)),
        (("trial",), ("trial",)),
        (("evaluator", "step", "other"), ("step", "other")),
    ],
)
def test_what_ends_a_job_follows_from_its_roles(roles: tuple[str, ...], essential: tuple[str, ...]) -> None:
    """The chief, or the workers, or all that do not serve others."""
    said = {"name": "j", "roles": {role: {"image": "i", "cpus": 1, "memory": "1Gi"} for role in roles}}
    assert Job.model_validate(said).essential == essential


def test_a_role_may_say_itself_that_it_ends_the_job() -> None:
    """In place of the chief or the workers."""
    assert job(GOOD.replace("ps: {", "ps: {essential: true, ")).essential == ("ps",)


def test_a_job_is_said_again_as_it_was_read() -> None:
    """Without what holds anyway."""
    one = job(GOOD + "retain: forever\nexpected: 90s\nfailure: {deadline: 1234567s}\n")
    said = as_data(one)
    assert Job.model_validate(said) == one
    assert (said["retain"], said["expected"], said["failure"]) == ("forever", "90s", {"deadline": "1234567s"})
