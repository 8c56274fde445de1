"""The nouns: one frozen look at a cluster, in plain values.

Everything that decides (``fit``, ``pack``, ``scale_up``, ``scale_down``, ``plan``) is a function of these.
``kube.py`` and ``ec2.py`` make them from what the two APIs say; tests make them with builders.
"""

from __future__ import annotations

import re
from collections.abc import Collection, ItemsView, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from autoscaler.storage import Storage

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
CapacityType = Literal["on-demand", "spot"]

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(|[numkMGTPE]|[KMGTPE]i)", flags=re.ASCII
)


def parse_quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity (``500m``, ``1.5Gi``, ``2e3``, ``4``) as an exact number of units.

    Raises ``ValueError`` naming the text where it is not one.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    raw = str(text).strip()
    match = _QUANTITY.fullmatch(raw)
    if match is None:
        message = f"{raw!r} is not a quantity such as 500m, 4, 16Gi"
        raise ValueError(message)
    number, suffix = match.groups()
    return Decimal(number) * _SUFFIXES[suffix]


@dataclass(frozen=True, slots=True, init=False)
class Resources(Mapping[str, int]):
    """Amounts by resource name: ``cpu`` in millicores, everything else in its own unit (bytes, devices, pods).

    Immutable and hashable; absent means zero. Amounts may be negative (a node that is over-committed).
    """

    _amounts: Mapping[str, int]
    _hash: int

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        """Keep only the amounts that are not zero, so that equal amounts are equal values."""
        kept = {name: amount for name, amount in (amounts or {}).items() if amount}
        object.__setattr__(self, "_amounts", kept)
        object.__setattr__(self, "_hash", hash(frozenset(kept.items())))

    @classmethod
    def parse(cls, quantities: Mapping[str, str | int | float]) -> Resources:
        """From Kubernetes quantities, e.g. ``{"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": 1}``.

        Fractions of a unit are rounded up, as the API server does. Raises ``ValueError`` naming the resource.
        """
        amounts = {}
        for name, text in quantities.items():
            try:
                exact = parse_quantity(text) * (1000 if name == CPU else 1)
            except ValueError as error:
                message = f"{name}: {error}"
                raise ValueError(message) from None
            amounts[name] = int(exact.to_integral_value(rounding="ROUND_CEILING"))
        return cls(amounts)

    @classmethod
    def total(cls, many: Iterable[Resources]) -> Resources:
        """The sum of many."""
        amounts: dict[str, int] = {}
        for one in many:
            for name, amount in one._amounts.items():  # noqa: SLF001 - its own kind
                amounts[name] = amounts.get(name, 0) + amount
        return cls(amounts)

    def __getitem__(self, name: str) -> int:
        """Amount of ``name``; zero where nothing is said, unlike a plain mapping."""
        return self._amounts.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        """Names with an amount other than zero."""
        return iter(self._amounts)

    def __contains__(self, name: object) -> bool:
        """Whether there is any of it."""
        return name in self._amounts

    def items(self) -> ItemsView[str, int]:
        """Names and amounts; as fast as a dict's, for this is asked of every pod at every look."""
        return self._amounts.items()

    def __len__(self) -> int:
        """How many resources have an amount other than zero."""
        return len(self._amounts)

    def __hash__(self) -> int:
        """Equal amounts, equal hash."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Equal where every amount is."""
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __add__(self, other: Resources) -> Resources:
        """Both together."""
        return Resources.total((self, other))

    def __sub__(self, other: Resources) -> Resources:
        """What is left of this when the other is taken out; may go below zero."""
        amounts = dict(self._amounts)
        for name, amount in other._amounts.items():
            amounts[name] = amounts.get(name, 0) - amount
        return Resources(amounts)

    def __mul__(self, times: int) -> Resources:
        """This many times over."""
        return Resources({name: amount * times for name, amount in self._amounts.items()})

    def fits_in(self, room: Resources) -> bool:
        """Whether every amount asked for is there. What is not asked for may be over-committed (< 0)."""
        available = room._amounts
        return all(amount <= available.get(name, 0) for name, amount in self._amounts.items() if amount > 0)

    def lacking_in(self, room: Resources) -> Resources:
        """What ``room`` is short of to hold this."""
        return Resources({name: amount - room[name] for name, amount in self._amounts.items() if amount > room[name]})

    def __str__(self) -> str:
        """For people: ``8 nvidia.com/gpu, 32 cpu, 128Gi memory``."""
        return (
            ", ".join(f"{_readable(name, amount)} {name}" for name, amount in sorted(self._amounts.items()))
            or "nothing"
        )


def _readable(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g}"
    if name in (MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-"):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_SUFFIXES[suffix])
            if abs(amount) >= unit:
                return f"{amount / unit:.4g}{suffix}"
    return str(amount)


@dataclass(frozen=True, slots=True)
class Taint:
    """Keeps pods off a node unless they tolerate it."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"

    def __str__(self) -> str:
        """As kubectl writes it: ``key=value:effect``."""
        return f"{self.key}={self.value}:{self.effect}" if self.value else f"{self.key}:{self.effect}"


@dataclass(frozen=True, slots=True)
class Toleration:
    """One toleration of a pod. No key with ``Exists`` tolerates everything; no effect means every effect."""

    key: str = ""
    operator: Literal["Exists", "Equal"] = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One match expression on labels. A node selector entry is ``Requirement(key, "In", (value,))``."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


Term = tuple[Requirement, ...]
"""All of these must hold."""


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required pod (anti-)affinity term: pods matching ``selector`` in ``namespaces``, in one ``topology_key``."""

    topology_key: str
    selector: Term
    namespaces: frozenset[str]
    namespace_selector: Term | None = None
    """Namespaces with such labels are meant too; no expression at all means every namespace."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A topology spread constraint with ``whenUnsatisfiable: DoNotSchedule``."""

    topology_key: str
    max_skew: int
    selector: Term
    min_domains: int | None = None


@dataclass(frozen=True, slots=True)
class GangRef:
    """Which gang a pod is of, as read from its labels, annotations, owner, or PodGroup.

    ``size`` is how many pods the whole gang has (``None``: not said, count what is seen); ``minimum`` how many must be
    placed together (``None``: all); ``topology`` a node label key of which all must share one value; ``told_by`` the
    object that says the size where the pod does not (key of ``Cluster.gang_sizes``, with the namespace).
    """

    namespace: str
    name: str
    size: int | None = None
    minimum: int | None = None
    topology: str | None = None
    told_by: str = ""


@dataclass(frozen=True, slots=True)
class GangSize:
    """What an object such as a PodGroup says of a gang's size: as in :class:`GangRef`."""

    size: int | None = None
    minimum: int | None = None
    one_by_one: bool = False
    """Its pods are no gang: each is placed by itself."""


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
    """How long it may wait for machines that we own; ``None``: as the policy says."""
    admitted_to: str = ""
    """The node that Spillway pinned it to when it lifted its gate."""
    owner: str = ""
    """``Kind/name`` of its controller."""
    is_daemon: bool = False
    """Made by a DaemonSet, or a static pod: it comes with the node."""
    role: str = ""
    """Its task type in a training job (label ``spillway.dev/role``): ``worker``, ``ps``, ..."""
    unschedulable_because: str = ""
    """What the scheduler said last, where it found no place."""
    nominated: str = ""
    """The node that the scheduler tries first for it, and keeps its room on (``status.nominatedNodeName``)."""
    deleting: bool = False
    do_not_disrupt: bool = False
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
class Node:
    """One registered node, on-prem or EC2."""

    name: str
    allocatable: Resources
    created: datetime
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    cordoned: bool = False
    cordoned_by: str = ""
    cordoned_at: datetime | None = None
    provider_id: str = ""
    do_not_disrupt: bool = False
    deleting: bool = False

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


@dataclass(frozen=True, slots=True)
class Refusal:
    """EC2's word that it could not grow a group: data for the next plan."""

    at: datetime
    code: str
    """``InsufficientInstanceCapacity``, ``MaxSpotInstanceCountExceeded``, ``RequestLimitExceeded``, ..."""
    message: str = ""


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
    mixed: bool = False
    """Of a set of types: which one a node is of is known when it is there."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """One frozen look at everything that a decision depends on."""

    seen_at: datetime
    pods: Collection[Pod] = ()
    """A tuple, or a ``roll.Roll``, which says the same faster."""
    nodes: tuple[Node, ...] = ()
    groups: tuple[Group, ...] = ()
    daemon_sets: tuple[DaemonSet, ...] = ()
    lingering: tuple[LingeringJob, ...] = ()
    gang_sizes: Mapping[tuple[str, str], GangSize] = field(default_factory=dict)
    """By namespace and ``GangRef.told_by``."""
    may_nominate: bool = True
    """The API server lets us name the node that the scheduler is to try first for a pod."""
    storage: Storage | None = None
    """``None``: not known, for no pod has asked so far."""
    namespaces: Mapping[str, Mapping[str, str]] | None = None
    """Labels by name; ``None`` as above."""


@dataclass(frozen=True, slots=True)
class LingeringJob:
    """A batch/v1 Job that still runs though the Job it ends with (its ``spillway.dev/ends-with``) has ended."""

    namespace: str
    name: str
    ended_with: str
