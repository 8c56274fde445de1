"""Jobs out of other systems' files: what was rendered comes back, what is not understood is told."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.importers import IMPORTERS
from images.jobs import Job
from images.renderers import RENDERERS
from tests import examples

_WORDS = st.text("abc-=/ '\"é", min_size=1, max_size=6)
_ROLE = st.fixed_dictionaries(
    {
        "count": st.integers(1, 4).map(str),
        "cpus": st.sampled_from(["1", "2", "16"]),
        "memory": st.sampled_from(["512Mi", "2048Mi"]),
        "gpus": st.integers(0, 8),
        "image": st.sampled_from(["a/b:1", "registry.example.com:5000/x"]),
        "args": st.lists(_WORDS, max_size=2),
        "env": st.dictionaries(st.sampled_from(["A", "B"]), _WORDS),
        "grace": st.sampled_from(["30s", "5m"]),
    }
)
_TF_ROLE = st.builds(
    lambda one, entry, restart, volumes: one | {"entry": entry, "restart": restart, "volumes": volumes},
    _ROLE,
    st.lists(_WORDS, max_size=2),
    st.sampled_from(["never", "node-failure", "on-failure", "always"]),
    st.lists(
        st.sampled_from([{"mount": "/a", "claim": "c"}, {"mount": "/b", "host": "/srv", "read_only": True}]),
        unique_by=lambda volume: volume["mount"],
    ),
)
_TFJOBS = st.fixed_dictionaries(
    {"name": st.just("tf"), "roles": st.fixed_dictionaries({"worker": _TF_ROLE}, optional={"ps": _TF_ROLE})},
    optional={
        "namespace": st.just("vision"),
        "gang": st.booleans(),
        "queue": st.just("night"),
        "data_dir": st.just("hdfs://data"),
        "success": st.sampled_from(["all", "first"]),
        "retain": st.sampled_from(["forever", "60s", "24h"]),
        "failure": st.sampled_from([{"restarts": 0}, {"restarts": 9, "deadline": "1h"}]),
        "priority": st.just("urgent"),
        "owner": st.just("ada"),
        "node_selector": st.just({"a": "b"}),
        "tolerations": st.just([{"key": "spot", "operator": "Exists"}]),
    },
)


@given(data=_TFJOBS)
@settings(max_examples=examples(40))
def test_a_tfjob_comes_back_as_it_was_and_nothing_is_lost(data: dict[str, Any]) -> None:
    """Of all that both can say."""
    job = Job.model_validate(data)
    back = IMPORTERS["tfjob"](yaml.safe_load(RENDERERS["tfjob"](job).text))
    assert back.job == job
    assert back.losses == ()


def test_what_a_tfjob_says_otherwise_than_ours_is_told() -> None:
    """Labels of other systems, rights and ports that ours have not; what ours have anyway is not."""
    role = {"count": "2", "cpus": "1", "memory": "1Gi", "image": "x"}
    job = Job.model_validate({"name": "tf", "roles": {"worker": role}})
    made = yaml.safe_load(RENDERERS["tfjob"](job).text)
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "night"
    made["spec"]["runPolicy"]["cleanPodPolicy"] = "None"
    template = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]
    template["metadata"]["labels"]["app"] = "mnist"
    template["spec"]["securityContext"] = {"runAsUser": 1000}
    template["spec"]["automountServiceAccountToken"] = True
    template["spec"]["containers"][0] |= {"securityContext": {"privileged": True}, "ports": [{"containerPort": 8080}]}
    template["spec"]["containers"][0]["resources"]["limits"]["memory"] = "4Gi"
    template["spec"]["containers"][0]["volumeMounts"] = [{"name": "fast", "mountPath": "/dev/shm"}]  # noqa: S108
    template["spec"]["volumes"] = [{"name": "fast", "emptyDir": {"medium": "Memory"}}]
    back = IMPORTERS["tfjob"](made)
    assert back.job == job
    pod = "spec.tfReplicaSpecs.Worker.template"
    assert sorted(loss.removesuffix(": no job of ours says it; it is left out") for loss in back.losses) == [
        "metadata.labels.kueue.x-k8s.io/queue-name",
        "spec.runPolicy.cleanPodPolicy",
        f"{pod}.metadata.labels.app",
        f"{pod}.spec.automountServiceAccountToken",
        f"{pod}.spec.containers[0].ports[0].containerPort",
        f"{pod}.spec.containers[0].securityContext.privileged",
        f"{pod}.spec.containers[0].volumeMounts[0].mountPath",
        f"{pod}.spec.containers[0].volumeMounts[0].name",
        f"{pod}.spec.securityContext.runAsUser",
        f"{pod}.spec.volumes[0].emptyDir.medium",
        f"{pod}.spec.volumes[0].name",
        "spec.tfReplicaSpecs.Worker: it asks for 1Gi memory and may have 4Gi: 1Gi is taken",
    ]


def test_volumes_of_a_tfjob_come_along_and_what_is_said_of_them_besides_is_told() -> None:
    """A folder below a claim; shared memory, whatever it is called, is there for a task with GPUs anyway."""
    volumes = [{"mount": "/data", "claim": "c"}, {"mount": "/srv", "host": "/srv"}]
    role = {"cpus": "1", "memory": "1Gi", "gpus": 1, "image": "x", "volumes": volumes}
    job = Job.model_validate({"name": "tf", "roles": {"worker": role}})
    made = yaml.safe_load(RENDERERS["tfjob"](job).text.replace("name: shm\n", "name: dshm\n"))
    container = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["volumeMounts"][0]["subPath"] = "2026"
    back = IMPORTERS["tfjob"](made)
    assert back.job == job
    [loss] = back.losses
    assert loss.startswith("spec.tfReplicaSpecs.Worker.template.spec.containers[0].volumeMounts[0].subPath: ")


@given(workers=_ROLE, servers=_ROLE)
@settings(max_examples=examples(40))
def test_a_marathon_group_comes_back_as_it_was(workers: dict[str, Any], servers: dict[str, Any]) -> None:
    """A service without a gang, on its machines' network, as groups are."""
    roles = {name: role | {"restart": "always"} for name, role in (("worker", workers), ("ps", servers))}
    data = {"name": "mnist", "kind": "service", "gang": False, "network": "host", "roles": roles, "train_dir": "/t"}
    job = Job.model_validate(data | {"node_selector": {"a": "b"}})
    back = IMPORTERS["marathon"](yaml.safe_load(RENDERERS["marathon"](job).text))
    plain = {name: role.model_copy(update={"cpus": f"{float(role.cpus)}"}) for name, role in job.roles.items()}
    assert back.job == job.model_copy(update={"roles": plain})
    assert back.losses == ()


def test_a_network_that_a_marathon_group_has_besides_is_told() -> None:
    """Ours are on the network of their machines."""
    role = {"cpus": "1", "memory": "1Gi", "image": "x", "restart": "always"}
    data = {"name": "mnist", "kind": "service", "gang": False, "network": "host", "roles": {"worker": role}}
    made = yaml.safe_load(RENDERERS["marathon"](Job.model_validate(data)).text)
    made["apps"][0]["networks"] = [{"mode": "container/bridge"}]
    (loss,) = IMPORTERS["marathon"](made).losses
    assert loss.startswith("apps[0].networks[0].mode: ")


_COMPOSED = st.builds(
    lambda one, more: one | more,
    _ROLE,
    st.fixed_dictionaries(
        {
            "entry": st.lists(_WORDS, max_size=2),
            "restart": st.sampled_from(["never", "on-failure", "always"]),
            "port": st.sampled_from([2222, 7164]),
            "args": st.lists(
                st.one_of(_WORDS, st.sampled_from(["$HOME", "$$", "$$(A)", "--x=$(CLUSTER_SPEC)"])), max_size=2
            ),
        },
        optional={
            "volumes": st.just([{"mount": "/a", "claim": "c"}, {"mount": "/b", "host": "/srv", "read_only": True}])
        },
    ),
)
_COMPOSE_JOBS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["mnist", "tf-2"]),
        "roles": st.fixed_dictionaries({"worker": _COMPOSED}, optional={"ps": _COMPOSED, "layer2": _COMPOSED}),
    },
    optional={
        "kind": st.just("service"),
        "train_dir": st.just("hdfs://results"),
        "network": st.just("host"),
        "logs": st.sampled_from(["/a", "s3://team/logs"]),
        "failure": st.sampled_from([{"restarts": 0}, {"restarts": 9}]),
        "retain": st.sampled_from(["forever", "0s"]),
    },
)


@pytest.mark.parametrize("form", ["compose", "aliyun-compose"])
@given(data=_COMPOSE_JOBS)
@settings(max_examples=examples(60))
def test_a_compose_file_comes_back_as_a_job_that_becomes_the_same_file(form: str, data: dict[str, Any]) -> None:
    """Service by service, word by word: nothing of it is lost."""
    job = Job.model_validate(data)
    try:
        made = RENDERERS[form](job)
    except BadInput:  # two tasks at one port of a machine
        return
    (document,) = made.documents
    back = IMPORTERS["compose"](document)
    assert back.losses == ()
    assert RENDERERS[form](back.job).documents == (document,)


TRAINING_JOB = """\
apiVersion: paddlepaddle.org/v1
kind: TrainingJob
metadata: {name: example}
spec:
  image: "paddlepaddle/paddlecloud-job"
  port: 7164
  ports_num: 1
  fault_tolerant: true
  passes: 10
  trainer:
    entrypoint: "python train.py"
    workspace: "/home/job-1/"
    min-instance: 2
    max-instance: 60
    resources: {limits: {cpu: "5", memory: 8Gi}, requests: {cpu: "5", memory: 8Gi}}
  pserver:
    min-instance: 10
    max-instance: 10
    resources: {limits: {cpu: "4", memory: 5Gi}}
"""


def test_a_paddle_training_job_is_elastic_here_too() -> None:
    """What has no counterpart is named."""
    back = IMPORTERS["paddle"](yaml.safe_load(TRAINING_JOB))
    worker, ps = back.job.roles["worker"], back.job.roles["ps"]
    assert (worker.count, worker.cpus, worker.entry, worker.port) == (
        "2..60",
        "5",
        ("sh", "-c", "python train.py"),
        7164,
    )
    assert (ps.count, ps.memory, worker.restart) == ("10", "5Gi", "on-failure")
    assert back.losses == (
        "spec.ports_num: no job of ours says it; it is left out",
        "spec.trainer.workspace: no job of ours says it; it is left out",
    )


def test_what_a_tfjob_says_beyond_is_named() -> None:
    """Each value by its path."""
    job = Job.model_validate({"name": "tf", "roles": {"worker": {"image": "a", "cpus": 1, "memory": "1Gi"}}})
    made = yaml.safe_load(RENDERERS["tfjob"](job).text)
    made["spec"]["runPolicy"]["suspend"] = True
    worker = made["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]
    worker["containers"].append({"name": "side", "image": "b"})
    worker["containers"][0]["env"] = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]
    del worker["containers"][0]["resources"]
    losses = IMPORTERS["tfjob"](made).losses
    for path in ("runPolicy.suspend", "containers[1].image", "containers[0].env[0].valueFrom.secretKeyRef.name"):
        assert any(path in loss for loss in losses), (path, losses)
    assert "spec.tfReplicaSpecs.Worker: it asks for no cpu: 1 is assumed" in losses


@pytest.mark.parametrize("source", IMPORTERS)
def test_another_document_is_refused(source: str) -> None:
    """With what it lacks."""
    with pytest.raises(BadInput, match=r"has no .*: is it one\?"):
        IMPORTERS[source]({"kind": "Deployment", "metadata": {"name": "x"}})


_ODD = (None, True, "x", [None], {"a": None})


def _whole_job() -> dict[str, Any]:
    volumes = [{"mount": "/a", "claim": "c"}, {"mount": "/b", "host": "/srv"}]
    role = {"cpus": "1", "memory": "1Gi", "gpus": 1, "image": "x", "env": {"A": "b"}, "args": ["c"]}
    return {
        "name": "tf",
        "kind": "service",
        "network": "host",
        "gang": False,
        "node_selector": {"a": "b"},
        "roles": {name: role | {"volumes": volumes, "restart": "always"} for name in ("worker", "ps")},
    }


def _places(part: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of a document, as what holds it and where there."""
    for key, inner in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield part, key
        yield from _places(inner)


@pytest.mark.parametrize("source", IMPORTERS)
def test_a_part_of_another_kind_is_imported_or_refused_in_words(source: str) -> None:
    """Whatever stands in its place."""
    data = _whole_job()
    if source == "marathon":
        data["roles"] = {name: role | {"volumes": []} for name, role in data["roles"].items()}
    text = TRAINING_JOB if source == "paddle" else RENDERERS[source](Job.model_validate(data)).text
    written = json.dumps(yaml.safe_load(text))
    for number in range(len(list(_places(json.loads(written))))):
        for odd in _ODD:
            document = json.loads(written)
            holder, key = next(itertools.islice(_places(document), number, None))
            holder[key] = copy.deepcopy(odd)
            with contextlib.suppress(BadInput):
                assert IMPORTERS[source](document).job.roles
