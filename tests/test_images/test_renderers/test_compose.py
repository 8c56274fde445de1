"""Compose files, the plain one and Aliyun's of 2017."""

from __future__ import annotations

from typing import Any

import yaml

from images.cli import TEMPLATES
from images.job_files import read_job
from images.renderers import aliyun_compose, compose
from tests.test_images.test_jobs import GOOD, job

ARGS = '["--cluster_spec=$(CLUSTER_SPEC)", "--job_name=$(TASK_ROLE)", "--task_id=$(TASK_INDEX)"]'
IMAGE = "registry-internal.example.com/tensorflow-samples/tf_grpc_server:0.12.0-devel-gpu"
SERVERS = f"""\
name: tf
kind: service
roles:
  worker: {{count: 2, gpus: 1, cpus: 4, memory: 16Gi, image: "{IMAGE}", restart: always, args: {ARGS}}}
  ps: {{cpus: 4, memory: 16Gi, image: "{IMAGE}", restart: always, args: {ARGS}}}
"""
AMOUNTS = {"mem_limit": "16384m", "cpu_shares": 4096}


def server(role: str, index: int, *labels: str) -> dict[str, Any]:
    """One service of the founding document, and the amounts that a job of ours always has."""
    spec = "worker|tf-worker0:2222;tf-worker1:2222,ps|tf-ps0:2222"
    return {
        "image": IMAGE,
        "restart": "always",
        "container_name": f"tf-{role}{index}",
        "command": [f"--cluster_spec={spec}", f"--job_name={role}", f"--task_id={index}"],
        "labels": [*labels, 'com.docker.swarm.reschedule-policies=["on-node-failure"]'],
    } | AMOUNTS


def test_the_servers_of_the_founding_document() -> None:
    """Service by service: GPU counts, rescheduling, names, the cluster in its grammar."""
    assert yaml.safe_load(aliyun_compose.render(job(SERVERS)).text) == {
        "version": "2",
        "services": {
            "worker-0": server("worker", 0, "aliyun.gpu=1"),
            "worker-1": server("worker", 1, "aliyun.gpu=1"),
            "ps-0": server("ps", 0),
        },
    }


def test_its_client_is_a_batch_job_whose_container_stays() -> None:
    """For as long as it may be looked at."""
    text = "name: linear\nretain: forever\nroles: {worker: {image: a/linear:1, cpus: 1, memory: 1Gi, restart: never}}\n"
    made = aliyun_compose.render(job(text)).documents[0]
    assert made["labels"] == {"aliyun.project_type": "batch"}
    assert made["services"]["worker-0"]["labels"] == ["aliyun.remove_containers=remove-none"]
    gone = aliyun_compose.render(job(text.replace("forever", "0s"))).documents[0]
    assert gone["services"]["worker-0"]["labels"] == ["aliyun.remove_containers=remove-all"]


def test_a_dollar_of_the_user_is_no_variable_of_compose() -> None:
    """Two are one."""
    one = job(GOOD.replace("args: [train.py]", "args: ['$HOME'], env: {A: '$B'}"))
    for renderer in (compose, aliyun_compose):
        service = renderer.render(one).documents[0]["services"]["worker-0"]
        assert service["command"] == ["$$HOME"]
        assert service["environment"]["A"] == "$$B"


def test_compose_waits_for_steps_and_mounts_what_they_share() -> None:
    """A step starts when all tasks of the one before have ended well."""
    path = TEMPLATES / "workflow.yaml"
    made = compose.render(read_job(path, {"image": "a/b:1", "parts": "2"})).documents[0]
    train = made["services"]["train-0"]
    done = {"condition": "service_completed_successfully"}
    assert train["depends_on"] == {"prepare-0": done, "prepare-1": done}
    assert (train["volumes"], made["volumes"]) == (["shared:/shared"], {"shared": {}})


def test_compose_gives_gpus_and_memory_of_a_task() -> None:
    """And starts tasks again as often as the job says."""
    service = compose.render(job(GOOD)).documents[0]["services"]["worker-1"]
    assert service["deploy"]["resources"] == {
        "limits": {"memory": "32768m"},
        "reservations": {
            "cpus": "8.0",
            "devices": [{"driver": "nvidia", "count": 4, "capabilities": ["gpu"]}],
        },
    }
    assert service["restart"] == "on-failure:3"
