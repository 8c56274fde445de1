"""Builders whose defaults are the ordinary case, so that a test shows only what matters."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy, ScaleDown, ScaleUp, asg_name
from autoscaler.config.schedules import Limits
from autoscaler.model import labels as words
from autoscaler.model.cluster import Cluster, DaemonSet, GangRef, Group, Instance, Node, Pod
from autoscaler.model.constraints import Requirement, Taint, Term, Toleration
from autoscaler.model.resources import Resources

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
A_MOMENT_AGO = NOW - timedelta(seconds=5)
AN_HOUR_AGO = NOW - timedelta(hours=1)
"""Long enough for the scheduler to have tried a pod."""
GPU_TAINT = Taint(words.GPU)
TOLERATES_GPU = Toleration(key=words.GPU, operator="Exists")

TYPES: Mapping[str, tuple[dict[str, str | int], float]] = {
    "g5.12xlarge": ({"cpu": 47, "memory": "180Gi", "ephemeral-storage": "90Gi", "pods": 110, words.GPU: 4}, 5.672),
    "p4d.24xlarge": (
        {"cpu": 95, "memory": "1100Gi", "ephemeral-storage": "90Gi", "pods": 110, words.GPU: 8},
        21.957642,
    ),
    "m5.4xlarge": ({"cpu": 15, "memory": "60Gi", "ephemeral-storage": "90Gi", "pods": 110}, 0.768),
}
"""What a new node has for pods, and what it costs an hour."""


def a_pod(name: str = "pod", **given: Any) -> Pod:
    """A pending pod of one CPU; ``gpus=2``, ``cpu=4``, ``memory="8Gi"`` and ``selector={...}`` are short for more.

    One with a ``node`` has been there for an hour.
    """
    requests = {"cpu": given.pop("cpu", 1), "memory": given.pop("memory", "1Gi"), "pods": 1}
    gpus = given.pop("gpus", 0)
    if gpus:
        requests[words.GPU] = gpus
        given.setdefault("tolerations", (TOLERATES_GPU,))
    if "selector" in given:
        given["affinity"] = (selects(**given.pop("selector")),)
    given.setdefault("requests", Resources.parse(requests))
    namespace = given.pop("namespace", "team")
    created = AN_HOUR_AGO if given.get("node") else A_MOMENT_AGO
    return Pod(**{"namespace": namespace, "name": name, "uid": f"uid-{namespace}-{name}", "created": created} | given)


def selects(**labels: str) -> Term:
    """The term of a node selector; ``zone`` stands for the zone's label, ``host`` for the host name's."""
    short = {"zone": words.ZONE, "host": words.HOSTNAME, "product": words.GPU_PRODUCT}
    return tuple(Requirement(short.get(key, key), "In", (value,)) for key, value in sorted(labels.items()))


def a_gang(name: str = "mnist", pods: int = 2, **given: Any) -> tuple[Pod, ...]:
    """The gated pods of one training job; ``size``, ``minimum`` and ``topology`` are the gang's."""
    namespace = given.get("namespace", "team")
    ref = GangRef(
        namespace=namespace,
        name=name,
        size=given.pop("size", pods),
        minimum=given.pop("minimum", None),
        topology=given.pop("topology", None),
    )
    given = {"gang": ref, "gates": (words.GATE,)} | given
    return tuple(a_pod(f"{name}-worker-{number}", **given) for number in range(pods))


def an_on_prem_node(name: str = "dgx-01", *, gpus: int = 8, **given: Any) -> Node:
    """A ready machine of the lab with 128 CPUs and GPUs behind the usual taint."""
    amounts = {
        "cpu": given.pop("cpu", 128),
        "memory": given.pop("memory", "1Ti"),
        "pods": 110,
        "ephemeral-storage": "4Ti",
    }
    if gpus:
        amounts[words.GPU] = gpus
        given.setdefault("taints", (GPU_TAINT,))
    labels = {words.HOSTNAME: name, words.ORIGIN: words.ON_PREM} | given.pop("labels", {})
    return Node(**{"name": name, "allocatable": Resources.parse(amounts), "created": NOW, "labels": labels} | given)


def a_group(entry: str = "gpu-a100", zone: str = "us-east-1a", *, joined: int = 0, **given: Any) -> Group:
    """An Auto Scaling group at zero; ``joined=2`` gives it two instances (see :func:`nodes_of`)."""
    kind = given.pop("instance_type", {"gpu-a10g": "g5.12xlarge", "cpu": "m5.4xlarge"}.get(entry, "p4d.24xlarge"))
    amounts, usd = TYPES[kind]
    name = asg_name("local", entry, zone)
    instances = tuple(Instance(id=f"i-{name}-{n}", zone=zone, launched=NOW) for n in range(joined))
    ordinary: dict[str, Any] = {
        "name": name,
        "entry": entry,
        "instance_type": kind,
        "zone": zone,
        "allocatable": Resources.parse(amounts),
        "usd_per_hour": usd,
        "taints": (GPU_TAINT,) if words.GPU in amounts else (),
        "maximum": 10,
        "desired": joined,
        "instances": instances,
    }
    return Group(**ordinary | given)


def nodes_of(group: Group, **given: Any) -> tuple[Node, ...]:
    """The nodes that stand for the group's instances."""
    return tuple(
        Node(
            **{
                "name": f"ip-{instance.id}",
                "allocatable": group.allocatable,
                "created": NOW,
                "labels": {
                    words.HOSTNAME: f"ip-{instance.id}",
                    words.ORIGIN: words.EC2,
                    words.GROUP: group.entry,
                    words.ZONE: group.zone,
                    **group.labels,
                },
                "taints": group.taints,
                "provider_id": f"aws:///{group.zone}/{instance.id}",
            }
            | given
        )
        for instance in group.instances
    )


def a_policy(*entries: GroupEntry, **given: Any) -> Policy:
    """The policy of the local ground's three groups, without limits; ``limits={...}`` sets them."""
    return Policy(
        cluster="local",
        groups=entries or (an_entry("gpu-a10g"), an_entry("gpu-a100"), an_entry("cpu")),
        limits=Limits(**given.pop("limits", {})),
        scale_up=ScaleUp(**given.pop("scale_up", {})),
        scale_down=ScaleDown(**given.pop("scale_down", {})),
        **given,
    )


def an_entry(name: str = "gpu-a100", **given: Any) -> GroupEntry:
    """A policy entry of two zones and at most ten nodes."""
    kind = {"gpu-a10g": "g5.12xlarge", "cpu": "m5.4xlarge"}.get(name, "p4d.24xlarge")
    zones = ("us-east-1a", "us-east-1b")
    return GroupEntry(**{"name": name, "instance_type": kind, "zones": zones, "max": 10} | given)


def a_cluster(*, pods: Any = (), nodes: Any = (), groups: Any = None, **given: Any) -> Cluster:
    """One look, with the three groups of the local ground in two zones each unless others are given."""
    if groups is None:
        groups = tuple(a_group(entry, zone) for entry in ("gpu-a10g", "gpu-a100", "cpu") for zone in ZONES)
    ordinary = {"seen_at": NOW, "pods": tuple(pods), "nodes": tuple(nodes), "groups": tuple(groups)}
    return Cluster(**ordinary | given)


ZONES = ("us-east-1a", "us-east-1b")


def a_daemon_set(name: str = "node-exporter", *, cpu: str = "100m", **given: Any) -> DaemonSet:
    """A DaemonSet on every node, whatever its taints."""
    given.setdefault("tolerations", (Toleration(operator="Exists"),))
    return DaemonSet(
        **{"namespace": "kube-system", "name": name, "requests": Resources.parse({"cpu": cpu, "pods": 1})} | given
    )


def later(**span: float) -> datetime:
    """A while after :data:`NOW`."""
    return NOW + timedelta(**span)
