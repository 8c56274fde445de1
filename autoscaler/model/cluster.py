"""One frozen look at a cluster, in plain values.

Everything that decides (``fit``, ``pack``, ``scale_up``, ``scale_down``, ``plan``) is a function of these.
``kube/schema`` and ``cloud/autoscaling_groups.py`` make them from what the two APIs say; tests make them
with builders.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from autoscaler.model.constraints import PodTerm, Spread, Taint, Term, Toleration
from autoscaler.model.jobs import EarlyStep, ElasticRole, LingeringJob, WaitingStep
from autoscaler.model.pauses import Pause
from autoscaler.model.resources import Resources
from autoscaler.model.volumes import Storage

CapacityType = Literal["on-demand", "spot", "capacity-block"]
Namespaces = Mapping[str, Mapping[str, str]]
"""Labels of each, by name."""

FOREVER: Final = timedelta(days=36500)
"""Longer than anything lasts: what is patient for so long is not bought for, what is kept for so long stays."""

YUNIKORN: Final = "yunikorn"
"""``schedulerName`` of pods that Apache YuniKorn binds."""


@dataclass(frozen=True, slots=True)
class GangRef:
    """Which gang a pod is of, as read from its labels, annotations, owner, or PodGroup.

    ``size`` is how many pods the whole gang has (``None``: not said, count what is seen); ``minimum`` how many must be
    placed together (``None``: all); ``topology`` a node label key of which all must share one value; ``size_source``
    the object that says the size where the pod does not (key of ``Cluster.gang_sizes``, with the namespace).
    """

    namespace: str
    name: str
    size: int | None = None
    minimum: int | None = None
    topology: str | None = None
    size_source: str = ""


@dataclass(frozen=True, slots=True)
class GangSize:
    """What an object such as a PodGroup says of a gang's size: as in :class:`GangRef`."""

    size: int | None = None
    minimum: int | None = None
    one_by_one: bool = False
    """Its pods are no gang: each is placed by itself."""
    stages: tuple[int, ...] = ()
    """Where pods are created once others run or have ended: how many there are with those of each stage, all in all."""


@dataclass(frozen=True, slots=True)
class Pod:
    """One pod, reduced to what placing it depends on. ``requests`` always counts 1 of ``pods``."""

    namespace: str
    name: str
    uid: str
    requests: Resources
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None
    """Name of the node it is bound to."""
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    affinity: tuple[Term, ...] = ()
    """Required node affinity and node selector: one of these terms must hold; none at all means anywhere."""
    tolerations: tuple[Toleration, ...] = ()
    apart_from: tuple[PodTerm, ...] = ()
    """Required pod anti-affinity."""
    near_to: tuple[PodTerm, ...] = ()
    """Required pod affinity."""
    spread: tuple[Spread, ...] = ()
    host_ports: frozenset[tuple[str, int]] = frozenset()
    """(protocol, port)"""
    claims: tuple[str, ...] = ()
    """Names of the volume claims that it mounts, in its namespace."""
    ties: tuple[tuple[Term, ...], ...] = ()
    """Where its volumes can be used: of each, one of the terms must hold for the node."""
    priority: int = 0
    gang: GangRef | None = None
    gates: tuple[str, ...] = ()
    """Scheduling gates still on it."""
    started: datetime | None = None
    """When the kubelet began with it."""
    duration: timedelta | None = None
    """How long it is expected to run."""
    patience: timedelta | None = None
    """How long it may wait for machines that we own; ``None``: as the policy says; ``FOREVER``: nothing is bought."""
    admitted_to: str = ""
    """The node that Spillway pinned it to when it lifted its gate."""
    owner: str = ""
    """``Kind/name`` of its controller."""
    is_daemon: bool = False
    """Made by a DaemonSet, or a static pod: it comes with the node."""
    role: str = ""
    """Its task type in a training job (label ``spillway.dev/role``): ``worker``, ``ps``, ..."""
    scheduler: str = ""
    """The scheduler that is to bind it (``schedulerName``); empty: Kubernetes' own."""
    unschedulable_because: str = ""
    """What the scheduler said last, where it found no place."""
    nominated: str = ""
    """The node that the scheduler tries first for it, and keeps its room on (``status.nominatedNodeName``)."""
    deleting: bool = False
    completed: bool = False
    """Each of its containers has ended with 0. The kubelet reports ``Succeeded`` some 3 s later, when nothing of the
    pod is left on its node; its room is taken until then."""
    consumes: str = ""
    """Name of the ProvisioningRequest in its namespace whose room it takes."""
    do_not_disrupt: bool = False
    safe_to_evict: bool = False
    """Its owner says that it may be evicted, whatever it holds."""
    unread: tuple[str, ...] = ()
    """Annotations of ours on it that make no sense and count as absent, in words."""
    not_understood: tuple[str, ...] = ()
    """Rules on the pod that Spillway does not model, in words: said per pod, never guessed."""

    @property
    def beyond_itself(self) -> tuple[str, ...]:
        """Its rules that only other objects of the cluster can answer (claims, namespaces), in words."""
        volumes = [f"volume claim {name}: where its volume can be attached" for name in self.claims]
        terms = [term for term in (*self.near_to, *self.apart_from) if term.namespace_selector is not None]
        return (*volumes, *(f"pod affinity by {term.topology_key} with a namespaceSelector" for term in terms))

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_finished(self) -> bool:
        """It holds nothing any more."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class NodeCondition:
    """What another than the kubelet says of a node: a node monitoring agent, node-problem-detector."""

    type: str
    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str = ""
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One registered node, on-prem or EC2."""

    name: str
    allocatable: Resources
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unready_since: datetime | None = None
    """Since when it has not been ready, where its kubelet's condition says so."""
    cordoned: bool = False
    cordoned_by: str = ""
    cordoned_at: datetime | None = None
    provider_id: str = ""
    do_not_disrupt: bool = False
    deleting: bool = False
    conditions: tuple[NodeCondition, ...] = ()
    """Without those of the kubelet itself."""
    notice: Notice | None = None
    """What the instance itself has heard from EC2."""

    @property
    def instance_id(self) -> str | None:
        """EC2 instance id from ``aws:///ZONE/i-...``; ``None`` for a machine that is not EC2's."""
        tail = self.provider_id.rsplit("/", 1)[-1]
        return tail if self.provider_id.startswith("aws://") and tail.startswith("i-") else None


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """What every new node that matches will carry: the overhead of a node."""

    namespace: str
    name: str
    requests: Resources
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance of a group. It has joined when a node carries its id."""

    id: str
    zone: str
    launched: datetime | None = None
    state: Literal["pending", "in-service", "terminating"] = "in-service"
    held: bool = False
    """It is terminating, and the group's termination hook waits for our word."""
    is_down: bool = False
    """It is being shut down, which AWS bills no more; what a hook holds still runs, and is billed.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-lifecycle.html
    """


@dataclass(frozen=True, slots=True)
class Notice:
    """EC2's word that it is going to take an instance back, or may."""

    instance: str
    kind: Literal["interruption", "rebalance", "maintenance", "capacity-block"]
    told: datetime
    ends: datetime | None = None
    """When EC2 acts; ``None``: it does not say."""

    @property
    def is_certain(self) -> bool:
        """The instance ends or restarts then; else the risk of it is higher than usual."""
        return self.kind != "rebalance"

    def __str__(self) -> str:
        """Says what EC2 is about to do, in words."""
        if self.kind == "rebalance":
            return "EC2 warns that its spot capacity is likely to be interrupted"
        what = {
            "interruption": "EC2 takes its spot instance back",
            "maintenance": "EC2 has scheduled its end",
            "capacity-block": "its Capacity Block ends, and EC2 takes it back",
        }[self.kind]
        return what + (f" at {self.ends:%Y-%m-%d %H:%M:%S} UTC" if self.ends else "")


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How much a pod uses the GPUs that it holds, as it was measured last."""

    pod: str
    """``namespace/name``."""
    node: str
    busiest: float
    """Share of the time in which its busiest GPU did something: 0 to 1."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """Errors of a node's GPUs, as the DCGM exporter there said it last."""

    node: str
    errors: str | None
    """In words; empty: none. ``None``: it does not answer, and they are not known."""
    since: datetime | None = None
    """From when on there have been some, or none; ``None`` where they are not known."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """EC2's word that it could not grow a group: data for the next plan."""

    at: datetime
    code: str
    """``InsufficientInstanceCapacity``, ``MaxSpotInstanceCountExceeded``, ``RequestLimitExceeded``, ..."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class CapacityBlock:
    """When instances may be launched into a Capacity Block for ML, and when EC2 takes them back.

    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html
    """

    starts: datetime
    ends: datetime
    instances: int = 0
    """That it has; 0 where it is not known."""

    @property
    def taken_back(self) -> datetime:
        """Returns the moment from which EC2 terminates what still runs in it."""
        return self.ends - timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class Group:
    """One Auto Scaling group: nodes of one offering (instance type, zone, capacity type).

    A policy entry that names several zones has one group in each of them; they share the entry's limits (``entry``).
    """

    name: str
    """Name of the Auto Scaling group."""
    entry: str
    """Name of the policy entry (``groups[].name``)."""
    instance_type: str
    """Of a set of types all of them, in words: ``g6.12xlarge or g5.12xlarge``."""
    zone: str
    allocatable: Resources
    """What pods may use on a new node of it, before DaemonSets: of a set, what every type has."""
    usd_per_hour: float
    capacity_type: CapacityType = "on-demand"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    minimum: int = 0
    maximum: int = 0
    desired: int = 0
    instances: tuple[Instance, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """Newest first."""
    launching: int = 0
    """Launches that Auto Scaling tries at this moment and of which there is no instance yet."""
    vcpus: int = 0
    """Of one node, as quotas count them."""
    quota: str = ""
    """Code of the quota of the account that its nodes draw on; empty where none is known."""
    quota_left: int | None = None
    """vCPUs that it leaves; ``None``: not known."""
    mixed: bool = False
    """Of a set of types: which one a node is of is known when it is there."""
    max_size: int | None = None
    """MaxSize as AWS has it; ``maximum`` is less where the group is not grown."""
    built_from: str = ""
    """Digest of the policy entry that the group was built from; empty where its tags do not say it."""
    reservation: str = ""
    """Id of the Capacity Reservation that its nodes are launched into, which is their quota then; empty: none."""
    block: CapacityBlock | None = None
    """Of a reservation that is a Capacity Block; ``None`` too where it is not known."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One frozen look at everything that a decision depends on."""

    seen_at: datetime
    pods: Collection[Pod] = ()
    """A tuple, or a ``pod_index.PodIndex``, which says the same faster."""
    nodes: tuple[Node, ...] = ()
    groups: tuple[Group, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    lingering: tuple[LingeringJob, ...] = ()
    workflow_steps: tuple[WaitingStep, ...] = ()
    early_steps: tuple[EarlyStep, ...] = ()
    gang_sizes: Mapping[tuple[str, str], GangSize] = field(default_factory=dict)
    """By namespace and ``GangRef.size_source``."""
    may_nominate: bool = True
    """The API server lets us name the node that the scheduler is to try first for a pod."""
    storage: Storage | None = None
    """``None``: not known, for no pod has asked so far."""
    namespaces: Namespaces | None = None
    """``None`` as above."""
    pauses: tuple[Pause, ...] = ()
    """What operators have told us to leave alone now."""
    notices: tuple[Notice, ...] = ()
    """What EC2 is about to take back, one for each instance."""
    provisioning_requests: tuple[ProvisioningRequest, ...] = ()
    """Room that is asked for, or booked, for pods that are not there yet."""
    elastic: tuple[ElasticRole, ...] = ()
    """Jobs whose size may be changed while they run."""
    gpu_use: tuple[GpuUse, ...] = ()
    """Of pods whose GPUs are measured."""
    gpu_health: tuple[GpuHealth, ...] | None = None
    """Of nodes on which the exporter runs; ``None``: it was not asked so far."""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A number of pods of one template."""

    pod: Pod | None
    """The template; ``None``: it is not there."""
    count: int
    template: str = ""
    """Name of the PodTemplate in the request's namespace."""


@dataclass(frozen=True, slots=True)
class ProvisioningRequest:
    """Room for all of its pods, which are created when it is there: a gang without pods."""

    namespace: str
    name: str
    uid: str
    created: datetime
    pod_sets: tuple[PodSet, ...]
    may_buy: bool = True
    """Of a class that asks for new nodes; else whether there is room is all that is asked."""
    provisioned: datetime | None = None
    """Since when the room has been there."""
    refused: bool = False
    """It has been told that there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether each of its templates is there: they may be created after it."""
        return all(one.pod is not None for one in self.pod_sets)
