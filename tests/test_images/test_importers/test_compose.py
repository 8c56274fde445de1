"""Compose files that others wrote: the founding document's, and a plain one of today."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from autoscaler.model.errors import BadInput
from images.importers import compose
from images.renderers import RENDERERS

IMAGE = "registry-internal.cn-beijing.aliyuncs.com/tensorflow-samples/tf_grpc_server:0.12.0-devel-gpu"


def server(role: str, index: int, *labels: str) -> dict[str, Any]:
    """A service of the founding document."""
    return {
        "image": IMAGE,
        "restart": "always",
        "container_name": f"tf-{role}{index}",
        "command": [
            "--cluster_spec=worker|tf-worker0:2222;tf-worker1:2222,ps|tf-ps0:2222",
            f"--job_name={role}",
            f"--task_id={index}",
        ],
        "labels": [*labels, 'com.docker.swarm.reschedule-policies=["on-node-failure"]'],
    }


FOUNDING = {
    "version": "2",
    "services": {
        "worker-0": server("worker", 0, "aliyun.gpu=1"),
        "worker-1": server("worker", 1, "aliyun.gpu=1"),
        "ps-0": server("ps", 0),
    },
}


def test_the_founding_documents_cluster_is_a_job_of_two_roles() -> None:
    """What differs from task to task becomes what each is told; the amounts that it does not say are named."""
    found = compose.read(FOUNDING)
    worker, ps = found.job.roles["worker"], found.job.roles["ps"]
    assert (found.job.name, found.job.kind, found.job.size) == ("tf", "service", 3)
    assert (worker.count, worker.gpus, worker.restart, worker.port) == ("2", 1, "always", 2222)
    assert worker.args == ("--cluster_spec=$(CLUSTER_SPEC)", "--job_name=worker", "--task_id=$(TASK_INDEX)")
    assert (ps.args[0], ps.gpus) == ("--cluster_spec=$(CLUSTER_SPEC)", 0)
    assert len(found.losses) == 6
    assert "services.ps-0: it asks for no memory: 1g is assumed" in found.losses
    again = RENDERERS["aliyun-compose"](found.job).documents[0]["services"]
    for name, service in FOUNDING["services"].items():
        assert {key: again[name][key] for key in service} == service
    assert "tf-worker0" not in RENDERERS["kubernetes"](found.job).text


def test_its_client_is_a_batch_job_whose_container_stays() -> None:
    """As the labels of the batch kind say, and ``aliyun.scale`` counts."""
    service = {"image": "a/linear:1", "mem_limit": "2g", "cpu_shares": 512}
    service |= {"labels": {"aliyun.remove_containers": "remove-none", "aliyun.scale": "3"}}
    found = compose.read({"version": "2", "labels": {"aliyun.project_type": "batch"}, "services": {"linear": service}})
    role = found.job.roles["linear"]
    assert (found.job.kind, role.count, role.cpus, role.memory, role.restart) == ("batch", "3", "0.5", "2Gi", "never")
    assert found.job.retain.days > 30000
    assert found.losses == ("name: none is written, and the containers' names have none in common: imported",)


PLAIN = """\
name: digits
services:
  prepare:
    image: team/prepare:1
    command: python prepare.py --out "/data set"
    cpus: 2
    mem_limit: 512m
    volumes: [{type: volume, source: shared, target: /data}]
  train:
    image: team/train:1
    environment: [EPOCHS=3, LR=0.1]
    depends_on: {prepare: {condition: service_completed_successfully}}
    deploy:
      replicas: 2
      resources:
        limits: {cpus: "8", memory: 16G}
        reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}
    volumes: ["shared:/data:ro"]
    healthcheck: {test: [CMD, "true"]}
    ports: ["6006:6006"]
volumes: {shared: {}}
"""


def test_a_plain_file_of_today_becomes_a_workflow_and_what_is_left_out_is_named() -> None:
    """Words out of one text, amounts in either place, steps in their order."""
    found = compose.read(yaml.safe_load(PLAIN))
    prepare, train = found.job.roles["prepare"], found.job.roles["train"]
    assert prepare.args == ("python", "prepare.py", "--out", "/data set")
    assert (prepare.cpus, prepare.memory, prepare.volumes[0].claim) == ("2", "512Mi", "shared")
    assert (train.count, train.cpus, train.memory, train.gpus) == ("2", "8", "16Gi", 2)
    assert train.env == {"EPOCHS": "3", "LR": "0.1"}
    assert train.volumes[0].read_only
    assert (found.job.gang, found.job.depends_on) == (False, {"train": ("prepare",)})
    assert {loss.partition(":")[0] for loss in found.losses} == {
        "services.train.healthcheck.test[0]",
        "services.train.healthcheck.test[1]",
        "services.train.ports[0]",
    }


def changed(service: str, **changes: Any) -> dict[str, Any]:
    """The founding document with one service another."""
    services: dict[str, Any] = FOUNDING["services"]  # type: ignore[assignment]
    return FOUNDING | {"services": services | {service: services[service] | changes}}


@pytest.mark.parametrize(
    ("document", "told"),
    [
        (changed("worker-1", image="another:1"), "services.worker-1 of this compose file is unlike the other tasks"),
        (changed("worker-1", command=["--x"]), r"services.worker-0.args of this compose file has another length"),
        (changed("worker-1", command=["a", "b", "c"]), r"args\[0\] of this compose file differs from task to task"),
        (
            changed("ps-0", command=["${HOME}/x"]),
            r"services.ps-0.command\[0\] .* has \$\{HOME\}, which compose fills in",
        ),
        (changed("ps-0", volumes=["./data:/data"]), "the volume /data is at ./data: write that folder from / on"),
        (changed("ps-0", volumes=["/data"]), "the volume /data needs a directory that begins with /, or a name"),
        (
            changed("ps-0", image=None, build="ps"),
            "services.ps-0 of this compose file is built from a folder: build it",
        ),
        (changed("ps-0", mem_limit="much"), "services.ps-0: 'much' is no amount of memory, e.g. 16g"),
        (changed("ps-0", network_mode="host"), "services with network_mode: host and without"),
        (changed("ps-0", environment=3), "services.ps-0.environment of this compose file must be a map or a list"),
        (changed("ps-0", volumes=[3]), "services.ps-0.volumes of this compose file has 3, which is no volume"),
        (changed("ps-0", command="a 'b"), "services.ps-0.command of this compose file is no command: No closing"),
        (
            changed("ps-0", environment={"SPILLWAY_CHECKPOINT": "x"}),
            "SPILLWAY_CHECKPOINT .* is not what Spillway writes",
        ),
        (
            changed("ps-0", depends_on={"x": {"condition": "service_completed_successfully"}}),
            "services.ps-0 of this compose file waits for x, which is no service of it",
        ),
        (changed("ps-0", image=None), "this compose file has no services.ps-0.image: is it one"),
        (
            {"services": {"worker-0": {"image": "a"}, "worker-2": {"image": "a"}}},
            "services.worker-2 of this compose file is unlike the other tasks of role worker",
        ),
        ({"services": {"My_App": {"image": "a"}}}, "services.My_App of this compose file is not made of letters"),
    ],
)
def test_what_no_job_can_say_is_refused(document: dict[str, Any], told: str) -> None:
    """With the place and what would be right."""
    with pytest.raises(BadInput, match=told):
        compose.read(document)


def test_what_starts_in_an_order_and_no_more_is_named() -> None:
    """Tasks of a job start together."""
    found = compose.read(changed("worker-0", depends_on=["ps-0"]) | {"name": "tf"})
    assert "services.worker-0.depends_on.ps-0: tasks start together, and wait for each other there" in found.losses
    stops = compose.read(changed("ps-0", restart="unless-stopped"))
    assert "services.ps-0.restart: it starts again also after it was stopped: always" in stops.losses
    assert stops.job.roles["ps"].restart == "always"
    assert compose.read(changed("ps-0", restart=False, labels=[])).job.roles["ps"].restart == "never"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"network_mode": "none"}, "services.ps-0.network_mode: none is no network of a job: it is left out"),
        ({"environment": {"A": None}}, "services.ps-0.environment.A: its value comes from a shell: it is left out"),
        ({"environment": ["A"]}, "services.ps-0.environment[0]: no job of ours says it; it is left out"),
        (
            {"cpu_shares": 2048, "deploy": {"resources": {"limits": {"cpus": "8"}}}},
            "services.ps-0: it has two amounts of cpus: 8 is taken",
        ),
        (
            {"labels": {"aliyun.remove_containers": "remove-none"}},
            "services.ps-0.labels aliyun.remove_containers: it is of batch jobs: it is left out",
        ),
        (
            {"labels": {"com.docker.swarm.reschedule-policies": "[]"}},
            "services.ps-0.labels com.docker.swarm.reschedule-policies: [] is not what a job knows: it is left out",
        ),
        (
            {"command": ["--chief=tf-worker0"]},
            "services.ps-0: '--chief=tf-worker0' names the container tf-worker0, which has another name there",
        ),
    ],
)
def test_what_a_job_cannot_say_of_a_service_is_named(changes: dict[str, Any], told: str) -> None:
    """Nothing is dropped in silence."""
    assert told in compose.read(changed("ps-0", **changes)).losses


def test_a_volume_is_read_only_whatever_else_its_modes_say() -> None:
    """SELinux's marks among them."""
    volumes = compose.read(changed("ps-0", volumes=["/a:/b:ro,Z", "c:/d:rw"])).job.roles["ps"].volumes
    assert [(one.host or one.claim, one.read_only) for one in volumes] == [("/a", True), ("c", False)]


def test_a_volumes_name_is_spelled_as_kubernetes_spells_it() -> None:
    """And that is told."""
    found = compose.read(changed("ps-0", volumes=["db_Data:/data"]))
    assert [(one.claim, one.mount) for one in found.job.roles["ps"].volumes] == [("db-data", "/data")]
    assert "services.ps-0: the volume db_Data becomes the claim db-data, as Kubernetes spells names" in found.losses


def test_gpus_that_are_named_are_counted() -> None:
    """Which ones they are is for whoever runs the job."""
    devices = [{"driver": "nvidia", "device_ids": ["0", "3"], "capabilities": ["gpu"]}]
    found = compose.read(changed("ps-0", deploy={"resources": {"reservations": {"devices": devices}}}))
    assert found.job.roles["ps"].gpus == 2
