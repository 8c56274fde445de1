"""Addresses of tasks on every backend, and the views of them that frameworks read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.endpoints import BACKENDS, endpoints, environment
from images.jobs import Job
from images.launcher import VIEWS, cluster_spec, expand, tf_config, views

CLUSTER = {"chief": ["c:1"], "worker": ["a:2", "b:3"], "ps": ["p:4"], "evaluator": ["e:5"], "mine": ["m:6"]}


def job(network: str = "own", **counts: Any) -> Job:
    """A job with so many tasks of each role."""
    roles = {role: {"image": "i", "cpus": 1, "memory": "1Gi", "count": count} for role, count in counts.items()}
    return Job.model_validate({"name": "tf", "roles": roles, "network": network})


@pytest.mark.parametrize(
    ("backend", "first", "last"),
    [
        ("kubernetes", "tf-worker-0.tf.default.svc:2222", "tf-ps-0.tf.default.svc:2222"),
        ("jobset", "tf-worker-0-0.tf.default.svc:2222", "tf-ps-0-0.tf.default.svc:2222"),
        ("tfjob", "tf-worker-0.default.svc:2222", "tf-ps-0.default.svc:2222"),
        ("volcano", "tf-worker-0.tf.default.svc:2222", "tf-ps-0.tf.default.svc:2222"),
        ("compose", "tf-worker-0:2222", "tf-ps-0:2222"),
        ("aliyun-compose", "tf-worker0:2222", "tf-ps0:2222"),
        ("slurm", "${HOST[0]}:2222", "${HOST[2]}:2224"),
        ("marathon", "worker-0-tf.marathon.mesos:2222", "ps-0-tf.marathon.mesos:2224"),
        ("yarn", "worker-0.${SERVICE_NAME}.${USER}.${DOMAIN}:2222", "ps-0.${SERVICE_NAME}.${USER}.${DOMAIN}:2222"),
        ("local", "127.0.0.1:2222", "127.0.0.1:2224"),
    ],
)
def test_each_backend_has_its_names(backend: str, first: str, last: str) -> None:
    """Where tasks share their machines' ports, each has one of its own."""
    found = endpoints(job(worker=2, ps=1), backend)
    assert (found["worker"][0], found["ps"][0]) == (first, last)


@given(workers=st.integers(1, 20), servers=st.integers(1, 20), network=st.sampled_from(["own", "host"]))
@pytest.mark.parametrize("backend", BACKENDS)
def test_no_two_tasks_have_one_address(backend: str, workers: int, servers: int, network: str) -> None:
    """Of any job, and each task has one."""
    found = endpoints(job(network, worker=workers, ps=servers), backend)
    addresses = [address for role in found.values() for address in role]
    assert len(set(addresses)) == len(addresses) == workers + servers


def test_ports_that_would_meet_on_one_machine_are_refused() -> None:
    """As are those that are none."""
    one = job(worker=3, ps=1)
    roles = {
        role: task.model_copy(update={"port": port})
        for (role, task), port in zip(one.roles.items(), (2222, 2221), strict=True)
    }
    with pytest.raises(BadInput, match="2 tasks would listen at port 2224 of one machine"):
        endpoints(one.model_copy(update={"roles": roles}), "local")
    with pytest.raises(BadInput, match="its tasks would listen at ports up to 72225: give the roles lower ones"):
        endpoints(one, "local", shift=70_000)


def test_tf_config_names_the_training_cluster_and_the_task() -> None:
    """An evaluator has a task but no address there; other roles have no part in it."""
    config = tf_config(CLUSTER, "evaluator", 0)
    assert config == {
        "cluster": {"chief": ["c:1"], "worker": ["a:2", "b:3"], "ps": ["p:4"]},
        "task": {"type": "evaluator", "index": 0},
    }


def test_sparse_tf_config_lets_workers_come_and_go() -> None:
    """A worker knows all servers and itself, a server all that may come."""
    assert tf_config(CLUSTER, "worker", 1, sparse=True)["cluster"] == {
        "chief": ["c:1"],
        "ps": ["p:4"],
        "worker": {"1": "b:3"},
    }
    assert tf_config(CLUSTER, "ps", 0, sparse=True) == tf_config(CLUSTER, "ps", 0)
    told = environment(job(worker="1..3", ps=1), "compose", "worker", 2)
    assert json.loads(told["TF_CONFIG"])["cluster"]["worker"] == {"2": "tf-worker-2:2222"}


def test_the_cluster_spec_is_that_of_the_grpc_server() -> None:
    """Roles by commas, tasks by semicolons."""
    assert cluster_spec({"worker": ["a:2222", "b:2222"], "ps": ["c:2222"]}) == "worker|a:2222;b:2222,ps|c:2222"


def test_ranks_go_over_chief_and_workers() -> None:
    """As Horovod and torchrun count them: the chief is the first; servers have none."""
    told = views(CLUSTER, "worker", 1)
    assert {key: told[key] for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOROVOD_RANK")} == {
        "RANK": "2",
        "WORLD_SIZE": "3",
        "MASTER_ADDR": "c",
        "MASTER_PORT": "1",
        "HOROVOD_RANK": "2",
    }
    assert views(CLUSTER, "chief", 0)["RANK"] == "0"
    assert "RANK" not in views(CLUSTER, "ps", 0)


def test_paddle_is_told_of_trainers_and_servers() -> None:
    """Each of itself, too."""
    told = views(CLUSTER, "ps", 0)
    assert (told["TRAINING_ROLE"], told["PADDLE_CURRENT_ENDPOINT"]) == ("PSERVER", "p:4")
    assert (told["PADDLE_TRAINERS_NUM"], told["PADDLE_TRAINER_ENDPOINTS"]) == ("2", "a:2,b:3")


def test_all_that_is_told_is_reserved() -> None:
    """No job may set what would be written over."""
    told = {key for role in CLUSTER for key in views(CLUSTER, role, 0)} | {"DATA_DIR", "TRAIN_DIR"}
    assert told == VIEWS


@pytest.mark.parametrize(
    ("text", "made"),
    [("--i=$(A)", "--i=1"), ("$$(A)", "$(A)"), ("$(B)", "$(B)"), ("$A ${A} $", "$A ${A} $"), ("$(A)$(A)", "11")],
)
def test_variables_are_filled_in_as_a_kubelet_does_it(text: str, made: str) -> None:
    """What is not known stays."""
    assert expand(text, {"A": "1"}) == made
