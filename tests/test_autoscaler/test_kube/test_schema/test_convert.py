"""Kubernetes objects become values of the model. ``objects/*.json`` is what a real API server (1.35) served."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec
import pytest

from autoscaler.kube.schema.convert import daemon_set_from, node_from, pod_from
from autoscaler.kube.schema.core import DaemonSetJson, JobJson, NodeJson, PodJson, PodSpec
from autoscaler.kube.schema.jobs import job_from
from autoscaler.kube.schema.resource_requests import requests_of
from autoscaler.model import labels as words
from autoscaler.model.cluster import FOREVER, GangRef, NodeCondition, Notice
from autoscaler.model.constraints import NOTHING, PodTerm, Requirement, Spread, Taint, Toleration
from autoscaler.model.feasibility import in_words, term_holds
from autoscaler.model.resources import Resources

OBJECTS = Path(__file__).parent / "objects"
APP = Requirement("app", "In", ("train",))


def pod_json(metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any) -> PodJson:
    """A pod with one small container."""
    whole = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"} | (metadata or {}),
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]} | spec,
        "status": status or {},
    }
    return msgspec.convert(whole, PodJson)


def container(*, cpu: str = "0", memory: str = "0", **more: Any) -> dict[str, Any]:
    """A container that asks for so much."""
    return {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}} | more


def requests(**spec: Any) -> Resources:
    """What the scheduler counts for such a pod."""
    return requests_of(msgspec.convert(spec, PodSpec))


def test_a_real_pod_is_understood() -> None:
    """Every rule of it that placing depends on."""
    raw = msgspec.json.decode((OBJECTS / "pod.json").read_bytes(), type=PodJson)
    pod = pod_from(raw)
    chosen = Requirement("nvidia.com/gpu.product", "In", ("NVIDIA-A10G",))
    assert pod.key == "default/worker-0"
    assert pod.created.tzinfo is not None
    # Initialisation peaks at 8Gi + the sidecar's 256Mi; of cpu the first step needs most: 6, before the sidecar runs.
    assert pod.requests == Resources.parse({"cpu": "6", "memory": "8448Mi", "nvidia.com/gpu": 2, "pods": 1})
    assert pod.affinity == (
        (chosen, Requirement("topology.kubernetes.io/zone", "In", ("us-east-1a",))),
        (chosen, Requirement("spillway.dev/origin", "DoesNotExist")),
    )
    assert pod.tolerations[0] == Toleration("nvidia.com/gpu", "Exists", "", "NoSchedule")
    assert pod.apart_from == (PodTerm("kubernetes.io/hostname", (APP,), frozenset({"default"})),)
    gang_key = Requirement(words.GANG, "In", ("g1",))
    assert [(one.topology_key, set(one.selector)) for one in pod.spread] == [(words.ZONE, {APP, gang_key})]
    assert pod.host_ports == {("TCP", 2222)}
    assert pod.gang == GangRef("default", "g1", size=4, topology=words.ZONE)
    assert pod.gates == (words.GATE,)
    assert pod.role == "worker"
    assert pod.claims == ("imagenet",)
    assert pod.beyond_itself == ("volume claim imagenet: where its volume can be attached",)
    assert pod.not_understood == ()
    assert not pod.is_daemon


def test_a_real_node_is_understood() -> None:
    """A cordon by kubectl is somebody else's; the taint that repeats it is left out."""
    node = node_from(msgspec.json.decode((OBJECTS / "node.json").read_bytes(), type=NodeJson))
    assert node.ready
    assert node.cordoned
    assert node.cordoned_by == ""
    assert node.taints == (Taint("nvidia.com/gpu"),)
    assert node.instance_id == "i-0abc"
    assert node.allocatable[words.GPU] == 4
    assert node.allocatable["cpu"] == 47810


def test_containers_add_up() -> None:
    """And limits stand in where a template names no request."""
    limit_only = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": 2, "cpu": "1"}}}
    found = requests(containers=[container(cpu="500m", memory="1Gi"), limit_only])
    assert found == Resources.parse({"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 2, "pods": 1})


def test_initialisation_counts_at_its_peak() -> None:
    """One after the other, so the largest counts, where it is more than the containers together."""
    found = requests(
        containers=[container(cpu="2", memory="1Gi")],
        initContainers=[container(cpu="1", memory="3Gi"), container(cpu="1", memory="2Gi")],
    )
    assert found == Resources.parse({"cpu": "2", "memory": "3Gi", "pods": 1})


@pytest.mark.parametrize(
    ("order", "cpu"),
    [
        (("sidecar", "init"), "5"),  # 1 (sidecar) + 4 (init)
        (("init", "sidecar"), "4"),  # the sidecar starts after the init container has ended
    ],
)
def test_a_sidecar_counts_from_when_it_starts(order: tuple[str, str], cpu: str) -> None:
    """Beside the containers, and beside the init containers after it."""
    made = {"sidecar": container(cpu="1", restartPolicy="Always"), "init": container(cpu="4")}
    found = requests(containers=[container(cpu="2")], initContainers=[made[one] for one in order])
    assert found == Resources.parse({"cpu": cpu, "pods": 1})


def test_pod_level_requests_replace_the_containers() -> None:
    """For cpu and memory; devices stay the containers'. The overhead is added on top."""
    gpu = {"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": 1}}}
    found = requests(containers=[gpu], resources={"requests": {"cpu": "3"}}, overhead={"cpu": "250m"})
    assert found == Resources.parse({"cpu": "3250m", "nvidia.com/gpu": 1, "pods": 1})


@pytest.mark.parametrize(
    ("kind", "is_daemon"), [("DaemonSet", True), ("Node", True), ("ReplicaSet", False), ("Job", False)]
)
def test_pods_that_come_with_the_node_are_told_apart(kind: str, is_daemon: bool) -> None:  # noqa: FBT001 - a table
    """A mirror of a static pod is owned by its node."""
    owner = {"kind": kind, "name": "x", "controller": True}
    pod = pod_from(pod_json({"ownerReferences": [owner]}))
    assert (pod.is_daemon, pod.owner) == (is_daemon, f"{kind}/x")


def test_what_the_scheduler_said_is_kept() -> None:
    """But not that it waits for its gates, which is no reason of the scheduler's."""
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/4 nodes"}
    assert pod_from(pod_json(status={"conditions": [said]})).unschedulable_because == "0/4 nodes"
    gated = said | {"reason": "SchedulingGated"}
    assert pod_from(pod_json(status={"conditions": [gated]})).unschedulable_because == ""


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"resourceClaims": [{"name": "gpu"}]}, "resource claims (gpu)"),
        ({"volumes": [{"name": "v", "iscsi": {}}]}, "volume v of kind iscsi"),
        ({"volumes": [{"name": "v", "madeUpLater": {}}]}, "volume v of kind madeUpLater"),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
                            ]
                        }
                    }
                }
            },
            "node affinity with matchFields",
        ),
        (
            {
                "topologySpreadConstraints": [
                    {
                        "topologyKey": "zone",
                        "maxSkew": 1,
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {},
                        "nodeTaintsPolicy": "Honor",
                    }
                ]
            },
            "topology spread by zone",
        ),
    ],
)
def test_a_rule_that_is_not_modelled_is_said(spec: dict[str, Any], said: str) -> None:
    """Per pod and in words; also of a pod that is bound, which is not moved then."""
    (words_of_it,) = pod_from(pod_json(**spec)).not_understood
    assert words_of_it.startswith(said)
    assert pod_from(pod_json(nodeName="n", **spec)).not_understood == (words_of_it,)


def test_an_ephemeral_volume_has_a_claim_of_its_own() -> None:
    """Named after the pod and the volume; of a pod that runs it is kept too, for it counts against its node's limit."""
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}]
    assert pod_from(pod_json(volumes=volumes)).claims == ("p-scratch",)
    assert pod_from(pod_json(nodeName="n", volumes=volumes)).claims == ("p-scratch",)


def test_namespaces_that_are_meant_by_their_labels_are_kept_as_labels() -> None:
    """With a selector the pod's own namespace is not meant by itself."""
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {"matchLabels": {"tenant": "yes"}}}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    (found,) = pod_from(pod_json(affinity=affinity)).near_to
    assert (found.namespaces, found.namespace_selector) == (frozenset(), (Requirement("tenant", "In", ("yes",)),))


@pytest.mark.parametrize("key", [words.PATIENCE, words.DURATION])
def test_a_span_that_makes_no_sense_is_said(key: str) -> None:
    """It counts as absent, and the pod tells so in words."""
    pod = pod_from(pod_json({"annotations": {key: "soon"}}))
    assert (pod.patience, pod.duration) == (None, None)
    assert pod.unread == (
        f"annotation {key} is 'soon' and counts as absent: it must be a span of time such as 90s, 10m or 1h",
    )
    assert pod_from(pod_json({"annotations": {key: "10m"}})).unread == ()


def test_patience_may_last_for_ever() -> None:
    """A run time may not."""
    pod = pod_from(pod_json({"annotations": dict.fromkeys((words.PATIENCE, words.DURATION), "forever")}))
    assert (pod.patience, pod.duration) == (FOREVER, None)
    assert [words.DURATION in text for text in pod.unread] == [True]


@pytest.mark.parametrize("key", [words.GANG_SIZE, words.GANG_MIN])
@pytest.mark.parametrize("text", ["many", "0", "-1", "2.5"])
def test_a_gang_size_that_makes_no_sense_is_said(key: str, text: str) -> None:
    """It counts as absent: half a gang might be taken for the whole."""
    assert pod_from(pod_json({"labels": {words.GANG: "g"}, "annotations": {key: text}})).unread == (
        f"annotation {key} is {text!r} and counts as absent: it must be a number of pods, 1 or more",
    )
    assert pod_from(pod_json({"annotations": {key: "2"}})).unread == ()


def test_ordinary_pods_are_understood_whole() -> None:
    """Volumes that can be anywhere, and wishes, tie a pod to no place."""
    pod = pod_from(
        pod_json(
            volumes=[{"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "c"}}],
            topologySpreadConstraints=[
                {"topologyKey": "z", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
            ],
        )
    )
    assert pod.not_understood == ()
    assert pod.spread == ()


def test_spread_keeps_what_counts() -> None:
    """Skew and least number of domains."""
    rule = {"topologyKey": "z", "maxSkew": 2, "minDomains": 3, "whenUnsatisfiable": "DoNotSchedule"}
    pod = pod_from(pod_json(topologySpreadConstraints=[rule | {"labelSelector": {"matchLabels": {"app": "train"}}}]))
    assert pod.spread == (Spread("z", 2, (APP,), min_domains=3),)


@pytest.mark.parametrize("selector", [{}, {"disk": "ssd"}])
def test_node_affinity_of_empty_terms_matches_no_node(selector: dict[str, str]) -> None:
    """As the API has it; an empty term beside another adds nothing."""
    asked = {"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]}
    chosen = tuple(Requirement(key, "In", (value,)) for key, value in selector.items())
    for terms, found in (([{}], (NOTHING,)), ([{}, asked], ((*chosen, APP),))):
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
        assert pod_from(pod_json(nodeSelector=selector, affinity=affinity)).affinity == found
    assert in_words(*NOTHING) == "an empty term, which nothing matches"


def test_host_ports_are_those_of_all_that_runs_and_all_ports_on_the_network_of_the_host() -> None:
    """Sidecars run as long as the pod does; other init containers are gone before."""
    ports = [{"containerPort": 80}, {"containerPort": 53, "hostPort": 5353, "protocol": "UDP"}]
    sidecar = container(ports=[{"containerPort": 9100, "hostPort": 9100}], restartPolicy="Always")
    first = container(ports=[{"containerPort": 1, "hostPort": 1}])
    pod = {"containers": [container(ports=ports)], "initContainers": [sidecar, first]}
    assert pod_from(pod_json(**pod)).host_ports == {("UDP", 5353), ("TCP", 9100)}
    assert pod_from(pod_json(**pod, hostNetwork=True)).host_ports == {("TCP", 80), ("UDP", 5353), ("TCP", 9100)}


def test_rules_without_a_selector_mean_no_pod() -> None:
    """Nor does a spread that selects all: the scheduler counts none for it."""
    rule = {"topologyKey": "z", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    pod = pod_from(pod_json(topologySpreadConstraints=[rule, rule | {"topologyKey": "y", "labelSelector": {}}]))
    assert pod.spread == (Spread("z", 2, NOTHING), Spread("y", 2, NOTHING))
    near = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z"}]}
    (term,) = pod_from(pod_json(affinity={"podAffinity": near})).near_to
    assert term == PodTerm("z", NOTHING, frozenset({"default"}))
    assert [term_holds(NOTHING, labels) for labels in ({}, {"": ""})] == [False, False]


@pytest.mark.parametrize("taint", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
def test_a_node_that_the_cluster_keeps_pods_from_is_not_ready(taint: str) -> None:
    """Though its kubelet says so: the taint goes a moment later, and until then the scheduler binds nothing there."""
    raw = {
        "metadata": {"name": "n"},
        "spec": {"taints": [{"key": taint, "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }
    node = node_from(msgspec.convert(raw, NodeJson))
    assert not node.ready
    assert node.taints == ()


def test_what_others_say_of_a_node_is_read_without_the_kubelets_own_conditions() -> None:
    """With the reason and the time of the change: heartbeats change nothing."""
    own = [{"type": kind, "status": "False", "lastHeartbeatTime": "2026-11-21T10:00:00Z"} for kind in OF_THE_KUBELET]
    fault = {"type": "AcceleratedHardwareReady", "status": "False", "reason": "NvidiaXID79Error"}
    fault |= {"lastTransitionTime": "2026-11-21T09:00:00Z", "lastHeartbeatTime": "2026-11-21T10:00:00Z"}
    raw = {"metadata": {"name": "n"}, "status": {"conditions": [*own, fault, {"type": "Odd", "status": "Unknown"}]}}
    assert node_from(msgspec.convert(raw, NodeJson)).conditions == (
        NodeCondition("AcceleratedHardwareReady", "False", "NvidiaXID79Error", datetime(2026, 11, 21, 9, tzinfo=UTC)),
        NodeCondition("Odd", "Unknown"),
    )


OF_THE_KUBELET = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")


def test_our_cordon_is_read_back() -> None:
    """Who and when: the autoscaler's memory is on the node. A time that makes no sense is no time."""
    marks = {words.CORDONED_BY: words.AUTOSCALER, words.CORDONED_AT: "2026-11-21T10:00:00Z"}
    raw = {"metadata": {"name": "n", "annotations": marks}, "spec": {"unschedulable": True}}
    node = node_from(msgspec.convert(raw, NodeJson))
    assert node.cordoned_by == words.AUTOSCALER
    assert node.cordoned_at == datetime(2026, 11, 21, 10, tzinfo=UTC)
    raw["metadata"]["annotations"] = marks | {words.CORDONED_AT: "yesterday"}  # type: ignore[index]
    assert node_from(msgspec.convert(raw, NodeJson)).cordoned_at is None


@pytest.mark.parametrize(
    ("said", "notice"),
    [
        ("", None),
        ("nonsense", None),
        ("interruption", None),
        ("fire 2026-08-01T10:00:00Z", None),
        ("interruption 2026-08-01T10:00:00Z 2026-08-01T10:02:00Z", ("interruption", 0, 2)),
        ("rebalance 2026-08-01T10:01:00Z", ("rebalance", 1, None)),
        ("maintenance 2026-08-01T10:00:00Z nonsense", ("maintenance", 0, None)),
    ],
)
def test_what_a_node_has_heard_from_ec2_is_read_where_it_makes_sense(
    said: str, notice: tuple[Literal["interruption", "rebalance", "maintenance"], int, int | None] | None
) -> None:
    """Its instance is the one that the node stands for."""
    meta = {"name": "n", "annotations": {words.INTERRUPTION: said}}
    node = node_from(msgspec.convert({"metadata": meta, "spec": {"providerID": "aws:///us-east-1a/i-1"}}, NodeJson))
    if notice is None:
        assert node.notice is None
    else:
        kind, told, ends = notice
        at = [None if one is None else datetime(2026, 8, 1, 10, one, tzinfo=UTC) for one in (told, ends)]
        assert at[0] is not None
        assert node.notice == Notice("i-1", kind, at[0], at[1])


def test_each_operator_of_a_toleration_is_understood() -> None:
    """None, and an empty one, is that the value is the taint's; another one is a mistake of a file."""
    cases = {"": "Equal", "Equal": "Equal", "Exists": "Exists", "Gt": "Gt", "Lt": "Lt", None: "Equal"}
    for said, meant in cases.items():
        written = {"key": "k", "value": "1"} | ({} if said is None else {"operator": said})
        raw = msgspec.convert({"metadata": {"name": "p"}, "spec": {"tolerations": [written]}}, PodJson)
        assert pod_from(raw).tolerations == (Toleration("k", meant, "1"),)
    with pytest.raises(msgspec.ValidationError, match="operator"):
        msgspec.convert({"metadata": {}, "spec": {"tolerations": [{"key": "k", "operator": "Equals"}]}}, PodJson)


def test_a_daemon_set_is_what_every_new_node_carries() -> None:
    """From its template, where the API server has filled in no requests."""
    template = {
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "100m"}}}],
            "tolerations": [{"operator": "Exists"}],
            "nodeSelector": {"gpu": "yes"},
        }
    }
    raw = {"metadata": {"name": "d", "namespace": "kube-system"}, "spec": {"template": template}}
    found = daemon_set_from(msgspec.convert(raw, DaemonSetJson))
    assert found.requests == Resources.parse({"cpu": "100m", "pods": 1})
    assert found.tolerations == (Toleration("", "Exists"),)
    assert found.affinity == ((Requirement("gpu", "In", ("yes",)),),)


@pytest.mark.parametrize(
    ("conditions", "ended"),
    [
        ([], False),
        ([{"type": "Complete", "status": "True"}], True),
        ([{"type": "Failed", "status": "True"}], True),
        ([{"type": "Complete", "status": "False"}], False),
    ],
)
def test_a_job_is_reduced_to_its_end(conditions: list[dict[str, str]], ended: bool) -> None:  # noqa: FBT001 - a table
    """And to the job that it ends with."""
    raw = {
        "metadata": {"name": "ps", "namespace": "d", "annotations": {words.ENDS_WITH: "w"}},
        "status": {"conditions": conditions},
    }
    job = job_from(msgspec.convert(raw, JobJson))
    assert (job.ended, job.ends_with) == (ended, "w")


@pytest.mark.parametrize(
    ("marks", "suspend", "waits", "after"),
    [
        ({}, True, True, ("prepare", "check")),
        ({}, False, False, ("prepare", "check")),
        ({words.STEP_BEGAN: "2026-11-21T10:00:00Z"}, True, False, ("prepare", "check")),
        ({words.STEP_STOPPED: "prepare has failed"}, True, True, ()),
    ],
)
def test_a_step_waits_until_it_has_begun(
    marks: dict[str, str],
    suspend: bool,  # noqa: FBT001 - a table
    waits: bool,  # noqa: FBT001 - a table
    after: tuple[str, ...],
) -> None:
    """Suspended later, it stays so."""
    notes = {words.DEPENDS_ON: "prepare, check"} | marks
    raw = {"metadata": {"name": "train", "annotations": notes}, "spec": {"suspend": suspend}}
    job = job_from(msgspec.convert(raw, JobJson))
    assert (job.waits, job.depends_on) == (waits, after)


@pytest.mark.parametrize(
    ("type_", "result"),
    [
        ("SuccessCriteriaMet", "succeeded"),
        ("Complete", "succeeded"),
        ("FailureTarget", "failed"),
        ("Failed", "failed"),
        ("Suspended", ""),
    ],
)
def test_a_job_is_reduced_to_how_it_ended(type_: str, result: str) -> None:
    """In the words of those that depend on it."""
    raw = {"metadata": {"name": "j"}, "status": {"conditions": [{"type": type_, "status": "True"}]}}
    assert job_from(msgspec.convert(raw, JobJson)).result == result


def test_equal_shapes_are_one_object() -> None:
    """Ten thousand pods share a few dozen shapes: that is where the memory would go."""
    one, other = pod_from(pod_json()), pod_from(pod_json({"name": "q"}))
    assert one.requests is other.requests
    assert one.tolerations is other.tolerations
