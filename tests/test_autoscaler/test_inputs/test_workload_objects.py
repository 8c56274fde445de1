"""Manifests as people have them become the pods that their controllers make."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from autoscaler.cli.autoscale import autoscale
from autoscaler.inputs.asked import Asked
from autoscaler.inputs.gpu_models import with_gpu_models
from autoscaler.inputs.kube_lists import objects_in
from autoscaler.inputs.listed_pods import asked_in
from autoscaler.inputs.offers import offers_of
from autoscaler.inputs.tables import read_asked
from autoscaler.model.cluster import FOREVER, Pod
from autoscaler.model.errors import BadInput
from autoscaler.model.feasibility import term_holds
from autoscaler.model.instance_types import Price
from autoscaler.model.labels import GPU
from autoscaler.model.resources import Resources
from tests.builders import an_on_prem_node

CATALOG = """\
instance_type,arch,vcpu,memory_mib,allocatable_cpu_milli,allocatable_memory_mib,max_pods,gpu_count,usd_per_hour,gpu_model,gpu_memory_mib
c.large,amd64,8,16384,8000,16000,30,0,0.4,,
g.one,amd64,8,32768,8000,30000,30,1,1.0,v100,32768
"""


def template(cpu: str = "1", *, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    """A pod template."""
    amounts = {"cpu": cpu, **({GPU: str(gpus)} if gpus else {})}
    return {"spec": {"containers": [{"name": "c", "resources": {"limits": amounts}}], **spec}}


def manifest(kind: str, api_version: str, spec: dict[str, Any], name: str = "x", **meta: Any) -> dict[str, Any]:
    """An object of a file."""
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name, **meta}, "spec": spec}


def asked(*objects: dict[str, Any]) -> Asked:
    """What a stream of documents asks for."""
    return asked_in(objects_in(yaml.safe_dump_all(objects), "f"), "f")


def gangs(pods: tuple[Pod, ...]) -> Counter[str]:
    """Pods by gang; ``-`` for those of none."""
    return Counter(pod.gang.name if pod.gang else "-" for pod in pods)


def kubeflow(field: str, **roles: int) -> dict[str, Any]:
    """The spec of a training job."""
    return {field: {role: {"replicas": many, "template": template(gpus=1)} for role, many in roles.items()}}


JOB = {"parallelism": 3, "completions": 3, "completionMode": "Indexed", "template": template()}
VOLCANO = {"minAvailable": 2, "tasks": [{"name": "w", "replicas": 3, "template": template()}]}
RAY = {
    "headGroupSpec": {"template": template()},
    "workerGroupSpecs": [
        {"groupName": "small", "replicas": 2, "template": template()},
        {"groupName": "hosts", "minReplicas": 1, "numOfHosts": 4, "template": template()},
    ],
}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (manifest("Deployment", "apps/v1", {"replicas": 3, "template": template()}), {"-": 3}),
        (manifest("Deployment", "apps/v1", {"template": template()}), {"-": 1}),
        (manifest("StatefulSet", "apps/v1", {"replicas": 2, "template": template()}), {"-": 2}),
        (manifest("ReplicaSet", "apps/v1", {"replicas": 2, "template": template()}), {"-": 2}),
        (manifest("Rollout", "argoproj.io/v1alpha1", {"replicas": 2, "template": template()}), {"-": 2}),
        (manifest("Notebook", "kubeflow.org/v1", {"template": template()}), {"-": 1}),
        (manifest("Job", "batch/v1", {"parallelism": 3, "completions": 2, "template": template()}), {"-": 2}),
        (manifest("Job", "batch/v1", JOB), {"x": 3}),
        (manifest("CronJob", "batch/v1", {"schedule": "@daily", "jobTemplate": {"spec": JOB}}), {"x": 3}),
        (
            manifest(
                "JobSet",
                "jobset.x-k8s.io/v1alpha2",
                {
                    "replicatedJobs": [
                        {"name": "ps", "template": {"spec": {"template": template()}}},
                        {"name": "workers", "replicas": 2, "template": {"spec": JOB}},
                    ]
                },
            ),
            {"x": 7},
        ),
        (manifest("TFJob", "kubeflow.org/v1", kubeflow("tfReplicaSpecs", PS=1, Worker=4)), {"x": 5}),
        (manifest("PyTorchJob", "kubeflow.org/v1", kubeflow("pytorchReplicaSpecs", Master=1, Worker=2)), {"x": 3}),
        (manifest("MPIJob", "kubeflow.org/v2beta1", kubeflow("mpiReplicaSpecs", Launcher=1, Worker=2)), {"x": 3}),
        (
            manifest(
                "LeaderWorkerSet",
                "leaderworkerset.x-k8s.io/v1",
                {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template()}},
            ),
            {"x/0": 3, "x/1": 3},
        ),
        (manifest("RayCluster", "ray.io/v1", RAY), {"-": 7}),
        (manifest("RayCluster", "ray.io/v1", RAY, labels={"ray.io/gang-scheduling-enabled": "true"}), {"x": 7}),
        (manifest("RayJob", "ray.io/v1", {"rayClusterSpec": RAY}), {"-": 8}),
        (manifest("RayCronJob", "ray.io/v1", {"schedule": "@daily", "jobTemplate": {"rayClusterSpec": RAY}}), {"-": 8}),
        (manifest("RayService", "ray.io/v1", {"rayClusterConfig": RAY}), {"-": 7}),
        (manifest("Job", "batch.volcano.sh/v1alpha1", VOLCANO), {"x": 3}),
        (manifest("CronJob", "batch.volcano.sh/v1alpha1", {"jobTemplate": {"spec": VOLCANO}}), {"x": 3}),
        (
            manifest(
                "AppWrapper",
                "workload.codeflare.dev/v1beta2",
                {"components": [{"template": manifest("Job", "batch/v1", JOB, name="in")}]},
            ),
            {"in": 3},
        ),
    ],
    ids=lambda value: value.get("kind", ""),
)
def test_a_workload_object_becomes_its_pods_with_their_gangs(written: dict[str, Any], expected: dict[str, int]) -> None:
    """As many as its controller makes, each asking for what the template asks for, and nothing is left to say."""
    found = asked(written)
    assert gangs(found.pods) == expected
    assert {pod.requests["cpu"] for pod in found.pods} <= {1000, 500}
    assert len({pod.key for pod in found.pods}) == len(found.pods)
    assert not found.notes


def test_a_gang_of_volcano_keeps_its_minimum() -> None:
    """``minAvailable`` pods are enough."""
    found = asked(manifest("Job", "batch.volcano.sh/v1alpha1", VOLCANO))
    assert {pod.gang.minimum for pod in found.pods if pod.gang} == {2}


def test_a_daemon_set_takes_its_room_of_each_node_that_it_matches(tmp_path: Path) -> None:
    """Of 8 CPUs 5 are left: two pods of 4 need two nodes, one that the DaemonSet does not tolerate holds both."""
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    daemon = manifest("DaemonSet", "apps/v1", {"template": template("3")})
    pods = manifest("Deployment", "apps/v1", {"replicas": 2, "template": template("4")})
    for objects, nodes in (([pods], 1), ([daemon, pods], 2)):
        (tmp_path / "f.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        line = ["plan", "--pods", str(tmp_path / "f.yaml"), "--catalog", str(tmp_path / "catalog.csv"), "--json"]
        made = json.loads(CliRunner().invoke(autoscale, line, catch_exceptions=False).output)
        assert len(made["nodes"]) == nodes
        assert len(made["placements"]) == 2
    [note] = asked(daemon).notes
    assert note == "pods of 1 DaemonSet take room of each node that they select, and are not listed: x"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (manifest("CronJob", "batch/v1", {"jobTemplate": 1.5}), "CronJob x: Expected `object`, got `float`"),
        (
            manifest("AppWrapper", "workload.codeflare.dev/v1beta2", {"components": "a"}),
            "AppWrapper x: Expected `array`",
        ),
        ({"kind": "Pod", "metadata": 5}, "Pod without a name: Expected `object`, got `int`"),
        (manifest("Pod", "v1", {"volumes": [{"persistentVolumeClaim": [1]}]}), "Pod x: Expected `str | object | null`"),
        (manifest("Pod", "v1", {"volumes": [{"ephemeral": {"volumeClaimTemplate": 1}}]}), "Pod x: Expected `object`"),
    ],
)
def test_a_part_of_another_kind_is_named(written: dict[str, Any], told: str) -> None:
    """In words, whatever stands there."""
    with pytest.raises(BadInput, match=re.escape(told)):
        asked(written)


def test_an_amount_that_is_left_out_is_told() -> None:
    """A template's value that was empty; the API server reads it as 0."""
    limits = {"nvidia.com/gpu": None, "memory": "1Gi"}
    pod = {"containers": [{"name": "c", "resources": {"requests": limits, "limits": limits}}]}
    found = asked(manifest("Job", "batch/v1", {"template": {"spec": pod}}))
    assert found.notes == ("Job x asks for nvidia.com/gpu without a number, which counts as 0",)
    assert [one.requests["nvidia.com/gpu"] for one in found.pods] == [0]


def test_objects_that_run_nothing_are_counted_in_one_line() -> None:
    """A release is mostly such objects."""
    found = asked(
        manifest("ServiceAccount", "v1", {}),
        manifest("ConfigMap", "v1", {}),
        manifest("ConfigMap", "v1", {}, name="y"),
        manifest("ClusterQueue", "kueue.x-k8s.io/v1beta2", {"resourceGroups": []}),
    )
    assert not found.pods
    (note,) = found.notes
    assert note == "4 objects that run nothing were passed over: 1 ClusterQueue, 2 ConfigMap, 1 ServiceAccount"


@pytest.mark.parametrize(
    ("kind", "api_version", "spec"),
    [
        ("Workflow", "argoproj.io/v1alpha1", {"templates": [{"name": "main", "container": {"image": "alpine"}}]}),
        ("InferenceService", "serving.kserve.io/v1beta1", {"predictor": {"model": {"modelFormat": {"name": "onnx"}}}}),
        ("SparkApplication", "sparkoperator.k8s.io/v1beta2", {"executor": {"cores": 2, "memory": "4g"}}),
        ("Cluster", "postgresql.cnpg.io/v1", {"instances": 3}),
        ("Prometheus", "monitoring.coreos.com/v1", {"resources": {"requests": {"memory": "8Gi"}}}),
    ],
)
def test_what_runs_something_and_is_not_understood_is_named(kind: str, api_version: str, spec: dict[str, Any]) -> None:
    """Never dropped without a word."""
    (note,) = asked(manifest(kind, api_version, spec, name="hello")).notes
    assert note == f"{kind} hello ({api_version}) is not planned for: what it runs is not understood"


def test_kinds_that_are_not_known_are_not_said_to_run_nothing() -> None:
    """They only do not look as if they did; what names resources of the API asks for none."""
    policy = {"rules": [{"match": {"resources": {"kinds": ["Pod"]}}}]}
    (note,) = asked(
        manifest("Certificate", "cert-manager.io/v1", {"secretName": "x"}),
        manifest("Policy", "kyverno.io/v1", policy),
        {"kind": "Deployment"},
    ).notes
    assert note == (
        "3 objects of kinds that are not known, with no sign of running anything, were passed over: "
        "1 Certificate (cert-manager.io/v1), 1 Deployment (no apiVersion), 1 Policy (kyverno.io/v1)"
    )


@pytest.mark.parametrize(
    ("written", "pods"),
    [({}, 3), ({"replicas": 2}, 3), ({"replicas": 4}, 4), ({"replicas": 9}, 5), ({"replicas": 0}, 0)],
)
@pytest.mark.parametrize(
    ("kind", "api_version", "least", "most"),
    [
        ("HorizontalPodAutoscaler", "autoscaling/v2", "minReplicas", "maxReplicas"),
        ("ScaledObject", "keda.sh/v1alpha1", "minReplicaCount", "maxReplicaCount"),
    ],
)
def test_a_workload_has_as_many_pods_as_its_autoscaler_keeps(  # noqa: PLR0917 - a table
    kind: str, api_version: str, least: str, most: str, written: dict[str, int], pods: int
) -> None:
    """A chart that is scaled so says no number of its own. Another workload of the same name is not scaled."""
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}
    scaler = manifest(kind, api_version, {"scaleTargetRef": target, least: 3, most: 5}, name="s")
    scaler["spec"]["fallback"] = {"replicas": 6}  # KEDA's: it is no sign of pods of its own
    found = asked(
        scaler,
        manifest("Deployment", "apps/v1", {"template": template(), **written}),
        manifest("StatefulSet", "apps/v1", {"template": template("500m")}),
    )
    assert Counter(pod.requests["cpu"] for pod in found.pods) == Counter({1000: pods, 500: 1})
    changed = f"Deployment x: {pods} pods, as {kind} s keeps"
    assert (changed in found.notes) == (written.get("replicas", 1) != pods)


def test_an_object_that_asks_for_no_pods_says_so() -> None:
    """Scaled to zero."""
    found = asked(manifest("Deployment", "apps/v1", {"replicas": 0, "template": template()}))
    assert found.notes == ("Deployment x asks for no pods as it is",)


def test_pods_with_a_generated_name_each_get_one() -> None:
    """The API server would do so."""
    pods = [{"kind": "Pod", "metadata": {"generateName": "run-"}, **template()} for _ in range(3)]
    assert [pod.name for pod in asked(*pods).pods] == ["run-0", "run-1", "run-2"]


def test_a_group_of_kubernetes_says_the_size_of_its_gang_and_no_namespace_is_the_default_one(tmp_path: Path) -> None:
    """Its pods were held for a PodGroup that the file has, once for its namespace, and for any."""
    job = manifest("Job", "batch/v1", {"parallelism": 3, "template": template(schedulingGroup={"podGroupName": "g"})})
    policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    group = manifest("PodGroup", "scheduling.k8s.io/v1alpha2", policy, name="g", namespace="default")
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    line = ["plan", "--pods", str(tmp_path / "f.yaml"), "--catalog", str(tmp_path / "catalog.csv"), "--json"]
    for objects, placed in (([job, group], 3), ([job], 0)):
        (tmp_path / "f.yaml").write_text(yaml.safe_dump_all(objects), encoding="utf-8")
        made = json.loads(CliRunner().invoke(autoscale, line, catch_exceptions=False).output)
        assert len(made["placements"]) == placed
    assert {pod.gang.minimum for pod in asked(job, group).pods if pod.gang} == {2}
    plain = json.dumps({"kind": "List", "items": [job, group]})
    assert asked_in(objects_in(plain, "f"), "f").pods == asked(job, group).pods


def test_what_an_app_wrapper_holds_is_in_its_namespace() -> None:
    """Where it says none of its own."""
    held = [{"template": manifest("Job", "batch/v1", JOB, name="in", **meta)} for meta in ({}, {"namespace": "b"})]
    wrapper = manifest("AppWrapper", "workload.codeflare.dev/v1beta2", {"components": held}, namespace="a")
    assert Counter(pod.namespace for pod in asked(wrapper).pods) == {"a": 3, "b": 3}
    del wrapper["metadata"]
    assert Counter(pod.namespace for pod in asked(wrapper).pods) == {"default": 3, "b": 3}


def test_objects_with_a_generated_name_each_get_one_and_gangs_of_their_own() -> None:
    """Their pods are named after it."""
    jobs = [{**manifest("Job", "batch/v1", JOB), "metadata": {"generateName": "train-"}} for _ in range(2)]
    found = asked(*jobs)
    assert gangs(found.pods) == {"train-0": 3, "train-1": 3}
    assert {pod.name for pod in found.pods} == {f"train-{job}-{pod}" for job in range(2) for pod in range(3)}


def test_two_objects_of_one_name_have_pods_of_their_own() -> None:
    """A Deployment and a StatefulSet may have one name."""
    spec = {"replicas": 2, "template": template()}
    found = asked(manifest("Deployment", "apps/v1", spec), manifest("StatefulSet", "apps/v1", spec))
    assert len({pod.key for pod in found.pods}) == 4


def test_a_priority_class_of_the_file_counts_and_a_missing_one_is_told() -> None:
    """Its number is filled in by the API server, which has not seen the file."""
    high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 7}
    known = manifest("Deployment", "apps/v1", {"replicas": 2, "template": template(priorityClassName="high")})
    lost = manifest("Job", "batch/v1", {"template": template(priorityClassName="gone")}, name="y")
    found = asked(known, lost, high)
    assert sorted(pod.priority for pod in found.pods) == [0, 7, 7]
    assert found.notes[0] == "PriorityClass gone is not in the file: 1 pod that names it counts as priority 0"


def test_a_listed_job_is_not_expanded_beside_its_listed_pods() -> None:
    """``kubectl get pods,jobs``: the API server's pods are all there are."""
    job = manifest("Job", "batch/v1", JOB, uid="1")
    pod = {"kind": "Pod", "metadata": {"name": "x-0", "uid": "2"}, **template()}
    assert [one.name for one in asked(job, pod).pods] == ["x-0"]
    assert len(asked(job).pods) == 3


def test_a_job_that_has_ended_asks_for_nothing() -> None:
    """Nor does its List wait for it."""
    ended = {**manifest("Job", "batch/v1", JOB), "status": {"conditions": [{"type": "Complete", "status": "True"}]}}
    assert not asked(ended).pods


def test_a_mistake_is_told_with_the_object_s_name() -> None:
    """In words of the field."""
    with pytest.raises(BadInput, match=r"^f: Deployment x: .*replicas"):
        asked(manifest("Deployment", "apps/v1", {"replicas": "many", "template": template()}))
    with pytest.raises(BadInput, match=r"^f: Job x: .*gone"):
        asked(
            manifest(
                "Job", "batch/v1", {"template": {"spec": {"containers": [{"resources": {"limits": {"cpu": "gone"}}}]}}}
            )
        )


def test_a_manifest_with_variables_is_told_to_be_filled_in() -> None:
    """As ``$NUM_NODES`` in the place of a number; a command may have variables of its own."""
    written = manifest("Deployment", "apps/v1", {"replicas": "${NUM_NODES}", "template": template()})
    with pytest.raises(BadInput, match=r"NUM_NODES. is a variable, which is filled in first: envsubst < FILE$"):
        asked(written)
    written["spec"] = {"template": template()}
    written["spec"]["template"]["spec"]["containers"][0]["args"] = ["$HOME"]
    assert len(asked(written).pods) == 1


SPECS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,colour\n"


def test_a_pod_takes_the_gpu_models_that_its_table_says(tmp_path: Path) -> None:
    """By model and memory, among machines as the trace and as NVIDIA's discovery names them, and the catalogue."""
    (tmp_path / "pods.csv").write_text(
        SPECS
        + "a,1000,1000,1,1000,V100M16|V100M32,\nb,1000,1000,1,1000,T4,\nc,1000,1000,1,500,P100,\nd,1000,1000,0,,T4,\n",
        encoding="utf-8",
    )
    machines = [
        an_on_prem_node("t4", labels={"nvidia.com/gpu.product": "Tesla-T4"}),
        an_on_prem_node("v16", labels={"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB"}),
        an_on_prem_node("v24", labels={"nvidia.com/gpu.product": "V100M24"}),
    ]
    price = Price("g.one", "amd64", Resources({}), 1.0, gpu_model="v100", gpu_memory_mib=32768)
    found = with_gpu_models(read_asked(str(tmp_path / "pods.csv")), [price], machines)
    a, b, c, d = found.pods
    taken = {value for term in a.affinity for one in term if one.key.endswith("product") for value in one.values}
    assert taken == {"Tesla-V100-SXM2-16GB", "v100"}
    assert b.affinity[0][0].values == ("Tesla-T4",)
    assert c.affinity[0][0].values == ("P100",)
    assert not d.affinity
    assert found.notes == (
        "column gpu_milli: 1 pods ask for a part of a GPU; each is planned with a whole one",
        "columns of the pods file that are not read: colour",
        "gpu_spec P100 of 1 pod: no machine, and no type in the catalogue, has such a GPU",
    )


SOLD = [("v100", 16384), ("v100", 32768), ("a100", 40960), ("a100", 81920), ("a10g", 24576)]


def sold_to(**spec: Any) -> set[str]:
    """Names of the types of a catalogue that a pod may run on: model and MiB."""
    prices = [Price(f"{m}/{g}", "amd64", Resources({}), 1.0, gpu_model=m, gpu_memory_mib=g) for m, g in SOLD]
    pod = {"kind": "Pod", "metadata": {"name": "x"}, **template(**spec)}
    found = with_gpu_models(asked(pod), prices, ())
    return {
        offer.price.instance_type
        for offer in offers_of(found, prices, None, ())
        if any(term_holds(term, {**offer.labels, "disk": "fast"}) for term in found.pods[0].affinity)
    }


@pytest.mark.parametrize(
    ("label", "types"),
    [
        ("Tesla-V100-SXM2-32GB", {"v100/32768"}),
        ("NVIDIA-A100-SXM4-40GB", {"a100/40960"}),
        ("NVIDIA-A10G", {"a10g/24576"}),
        ("a100", {"a100/40960", "a100/81920"}),
        ("NVIDIA-A10", set()),
        ("NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", set()),
        ("NVIDIA-A10G-SHARED", set()),
    ],
)
def test_a_product_as_feature_discovery_calls_it_is_known_in_the_catalogue(label: str, types: set[str]) -> None:
    """By model and memory, whether it is wanted or excluded. A part of a GPU is no GPU."""
    assert sold_to(nodeSelector={"nvidia.com/gpu.product": label, "disk": "fast"}) == types
    assert sold_to(nodeSelector={"nvidia.com/gpu.product": label, "disk": "slow"}) == set()
    terms = [{"matchExpressions": [{"key": "nvidia.com/gpu.product", "operator": "NotIn", "values": [label]}]}]
    without = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert sold_to(affinity=without) == {f"{model}/{memory}" for model, memory in SOLD} - types


def test_a_node_with_the_label_of_a_product_takes_its_pods_still() -> None:
    """As feature discovery has labelled it."""
    prices = [Price("p3", "amd64", Resources({}), 1.0, gpu_model="v100", gpu_memory_mib=16384)]
    label = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-32GB"}
    pod = {"kind": "Pod", "metadata": {"name": "x"}, **template(nodeSelector=label)}
    (found,) = with_gpu_models(asked(pod), prices, ()).pods
    assert [term_holds(term, label) for term in found.affinity] == [True]


def test_a_pod_waits_for_a_gpu_model_that_nothing_has(tmp_path: Path) -> None:
    """It is not placed on another model, and is told why."""
    (tmp_path / "catalog.csv").write_text(CATALOG, encoding="utf-8")
    (tmp_path / "pods.csv").write_text(
        SPECS + "a,1000,1000,1,1000,V100M32,\nb,1000,1000,1,1000,T4,\n", encoding="utf-8"
    )
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,rack\nm,1000,1000,0,r7\n", encoding="utf-8")
    files = (("pods", "pods.csv"), ("catalog", "catalog.csv"), ("nodes", "nodes.csv"))
    line = ["plan", "--json", *(word for key, name in files for word in (f"--{key}", str(tmp_path / name)))]
    made = json.loads(CliRunner().invoke(autoscale, line, catch_exceptions=False).output)
    assert list(made["placements"]) == ["a"]
    assert [one["pod"] for one in made["waiting"]] == ["b"]
    assert made["notes"][-1] == "columns of the nodes file that are not read: rack"
    assert "T4" in made["waiting"][0]["reason"] + made["waiting"][0]["would_fit_if"]


def of_yunikorn(name: str, group: str, *, groups: Any = None, **notes: str) -> dict[str, Any]:
    """A pod of application ``a``; ``groups`` are those that it names."""
    notes |= {"yunikorn.apache.org/task-group-name": group}
    notes |= {"yunikorn.apache.org/task-groups": json.dumps(groups)} if groups else {}
    spec = template(schedulerName="yunikorn")["spec"]
    return manifest("Pod", "v1", spec, name, labels={"applicationId": "a"}, annotations=notes)


GROUPS = [
    {"name": "driver", "minMember": 1, "minResource": {"cpu": "1"}},
    {"name": "executor", "minMember": 3, "minResource": {"cpu": "2", GPU: 1}, "nodeSelector": {"kind": "gpu"}},
]


def test_yunikorn_s_task_groups_become_placeholders_and_pods_take_their_places() -> None:
    """A driver alone asks for its executors too; what is beyond the least asks for itself."""
    driver = of_yunikorn("driver", "driver", groups=GROUPS)
    found = asked(driver)
    assert gangs(found.pods) == {"a": 4}
    assert {pod.gang.size for pod in found.pods if pod.gang} == {4}
    assert sum(pod.requests[GPU] for pod in found.pods) == 3
    assert sum(bool(pod.affinity) for pod in found.pods) == 3
    assert found.notes == ("YuniKorn's application a: 1 of its pods takes the place of a placeholder",)
    executors = [of_yunikorn(f"e{number}", "executor") for number in range(5)]
    found = asked(driver, *executors)
    assert gangs(found.pods) == {"a": 4, "-": 2}
    assert found.notes == ("YuniKorn's application a: 4 of its pods take the places of placeholders",)


def test_placeholders_that_are_in_the_file_are_not_made_again() -> None:
    """They keep room, bound or not; without groups that make sense there are none."""
    mark = {"internal.yunikorn.apache.org/placeholder": "true"}
    holders = [of_yunikorn(f"tg-{number}", "executor", groups=GROUPS, **mark) for number in range(3)]
    pods = [of_yunikorn("driver", "driver", groups=GROUPS), of_yunikorn("e0", "executor")]
    assert gangs(asked(*holders, *pods).pods) == {"a": 3, "-": 1}
    assert gangs(asked(of_yunikorn("driver", "driver", groups={"name": "x"})).pods) == {"-": 1}


def request(*sets: tuple[str, int], kind: str = "best-effort-atomic-scale-up", **status: Any) -> dict[str, Any]:
    """A ProvisioningRequest for pods of these templates."""
    pod_sets = [{"podTemplateRef": {"name": name}, "count": count} for name, count in sets]
    spec = {"provisioningClassName": f"{kind}.autoscaling.x-k8s.io", "podSets": pod_sets}
    return manifest("ProvisioningRequest", "autoscaling.x-k8s.io/v1", spec, "ask") | status


def pod_template(name: str) -> dict[str, Any]:
    """A PodTemplate."""
    return {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": name}, "template": template(gpus=1)}


def test_a_provisioning_request_is_a_gang_of_its_templates_pods() -> None:
    """Wherever they stand in the file; pods that take its room are not asked for twice."""
    found = asked(request(("worker", 3), ("ps", 1)), pod_template("worker"), pod_template("ps"))
    assert gangs(found.pods) == {"ask (ProvisioningRequest)": 4}
    assert len({pod.key for pod in found.pods}) == 4
    mark = {"autoscaling.x-k8s.io/consume-provisioning-request": "ask"}
    job = {"parallelism": 2, "template": template(gpus=1) | {"metadata": {"annotations": mark}}}
    found = asked(request(("worker", 3)), pod_template("worker"), manifest("Job", "batch/v1", job))
    assert gangs(found.pods) == {"ask (ProvisioningRequest)": 1, "-": 2}
    assert {pod.gang.size for pod in found.pods if pod.gang} == {1}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (request(("worker", 1)), "is not planned for: PodTemplate worker is not in the file"),
        (request(("ps", 20_001)), "is not planned for: it asks for more than 20000 pods"),
        (request(("ps", 1), kind="queued"), "asks for nothing, or another autoscaler, as it is"),
        (
            request(("ps", 1), status={"conditions": [{"type": "BookingExpired", "status": "True"}]}),
            "asks for nothing, or another autoscaler, as it is",
        ),
    ],
)
def test_a_request_that_is_not_planned_for_is_told(written: dict[str, Any], told: str) -> None:
    """With the reason."""
    found = asked(written, pod_template("ps"))
    assert found.pods == ()
    assert found.notes[0] == f"{written['kind']} ask {told}"


def test_to_check_for_capacity_waits_for_machines_that_are_there() -> None:
    """Nothing is bought for it."""
    (pod,) = asked(request(("ps", 1), kind="check-capacity"), pod_template("ps")).pods
    assert pod.patience == FOREVER
