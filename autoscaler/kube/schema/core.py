"""Kubernetes objects as the API server writes them, reduced to the fields that a decision depends on.

Everything else in the JSON is skipped by the decoder, never built. ``convert.py`` makes our own words of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from autoscaler.model.constraints import Requirement, Term
from autoscaler.model.feasibility import term_holds

Quantities = dict[str, str | int | float]


class Json(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """Base of every object: camel case outside, absent means the default, unknown keys are skipped."""


class OwnerReference(Json, frozen=True):
    """metav1.OwnerReference."""

    kind: str
    name: str
    controller: bool = False


class Meta(Json, frozen=True):
    """metav1.ObjectMeta."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()

    def owner(self) -> OwnerReference | None:
        """Returns the owner that controls the object."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    def version(self) -> int:
        """The resource version as a number that grows; 0 where it is none."""
        return int(self.resource_version) if self.resource_version.isdigit() else 0


class ResourceNeeds(Json, frozen=True):
    """corev1.ResourceRequirements."""

    requests: Quantities = {}
    limits: Quantities = {}


class Port(Json, frozen=True):
    """corev1.ContainerPort."""

    container_port: int = 0
    host_port: int = 0
    """On the network of its host (``hostNetwork``) the API server sets it to the container's."""
    protocol: str = "TCP"


class Container(Json, frozen=True):
    """corev1.Container."""

    resources: ResourceNeeds = ResourceNeeds()
    ports: tuple[Port, ...] = ()
    restart_policy: str = ""

    @property
    def is_sidecar(self) -> bool:
        """Whether, as an init container, it runs as long as the pod does."""
        return self.restart_policy == "Always"


class Expression(Json, frozen=True):
    """One match expression of a label or node selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    def requirement(self) -> Requirement:
        """Returns the expression as the planner knows it."""
        return Requirement(self.key, self.operator, self.values)


class LabelSelector(Json, frozen=True):
    """metav1.LabelSelector. Empty: everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()

    def term(self) -> Term:
        """Returns the selector as requirements that must all hold."""
        equal = tuple(Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items()))
        return equal + tuple(expression.requirement() for expression in self.match_expressions)


class NodeSelectorTerm(Json, frozen=True):
    """corev1.NodeSelectorTerm."""

    match_expressions: tuple[Expression, ...] = ()
    match_fields: tuple[Expression, ...] = ()


class NodeSelector(Json, frozen=True):
    """corev1.NodeSelector: one of the terms must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(Json, frozen=True):
    """corev1.NodeAffinity."""

    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")


class PodAffinityTerm(Json, frozen=True):
    """corev1.PodAffinityTerm."""

    topology_key: str
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class PodAffinity(Json, frozen=True):
    """corev1.PodAffinity and PodAntiAffinity."""

    required: tuple[PodAffinityTerm, ...] = msgspec.field(
        default=(), name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Json, frozen=True):
    """corev1.Affinity."""

    node_affinity: NodeAffinity = NodeAffinity()
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class TolerationJson(Json, frozen=True):
    """corev1.Toleration."""

    key: str = ""
    operator: Literal["", "Exists", "Equal", "Gt", "Lt"] = ""
    value: str = ""
    effect: str = ""


class SpreadConstraint(Json, frozen=True):
    """corev1.TopologySpreadConstraint."""

    topology_key: str
    max_skew: int
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    match_label_keys: tuple[str, ...] = ()
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"


class Named(Json, frozen=True):
    """Anything of which only the name matters."""

    name: str = ""


class WorkloadRef(Json, frozen=True):
    """corev1.WorkloadReference (Kubernetes 1.35): a group of a Workload."""

    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class SchedulingGroup(Json, frozen=True):
    """corev1.PodSchedulingGroup (Kubernetes 1.36 and later): a PodGroup."""

    pod_group_name: str = ""


class PodSpec(Json, frozen=True):
    """corev1.PodSpec."""

    node_name: str = ""
    scheduler_name: str = ""
    host_network: bool = False
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Quantities = {}
    resources: ResourceNeeds = ResourceNeeds()
    """Of the pod as a whole; where it says an amount, the containers' do not count."""
    node_selector: dict[str, str] = {}
    affinity: Affinity = Affinity()
    tolerations: tuple[TolerationJson, ...] = ()
    topology_spread_constraints: tuple[SpreadConstraint, ...] = ()
    priority: int = 0
    priority_class_name: str = ""
    scheduling_gates: tuple[Named, ...] = ()
    resource_claims: tuple[Named, ...] = ()
    volumes: tuple[dict[str, str | dict[str, Any] | None], ...] = ()
    """Each its name, and under the name of its kind where it comes from."""
    """corev1.Volume: its name, and one key that says its kind."""
    workload_ref: WorkloadRef = WorkloadRef()
    scheduling_group: SchedulingGroup = SchedulingGroup()


class Condition(Json, frozen=True):
    """A condition of a pod, node or job."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: datetime | None = None


class Terminated(Json, frozen=True):
    """corev1.ContainerStateTerminated."""

    exit_code: int


class ContainerState(Json, frozen=True):
    """corev1.ContainerState."""

    terminated: Terminated | None = None


class ContainerStatus(Json, frozen=True):
    """corev1.ContainerStatus."""

    state: ContainerState = ContainerState()


class PodStatus(Json, frozen=True):
    """corev1.PodStatus."""

    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    container_statuses: tuple[ContainerStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()
    start_time: datetime | None = None
    nominated_node_name: str = ""


class PodJson(Json, frozen=True):
    """corev1.Pod."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class TaintJson(Json, frozen=True):
    """corev1.Taint."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class NodeSpec(Json, frozen=True):
    """corev1.NodeSpec."""

    unschedulable: bool = False
    taints: tuple[TaintJson, ...] = ()
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(Json, frozen=True):
    """corev1.NodeStatus."""

    allocatable: Quantities = {}
    conditions: tuple[Condition, ...] = ()


class NodeJson(Json, frozen=True):
    """corev1.Node."""

    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Template(Json, frozen=True):
    """corev1.PodTemplateSpec."""

    metadata: Meta = Meta()
    spec: PodSpec = PodSpec()


class DaemonSetSpec(Json, frozen=True):
    """appsv1.DaemonSetSpec."""

    template: Template = Template()


class DaemonSetJson(Json, frozen=True):
    """appsv1.DaemonSet."""

    metadata: Meta
    spec: DaemonSetSpec = DaemonSetSpec()


class JobStatus(Json, frozen=True):
    """batchv1.JobStatus."""

    conditions: tuple[Condition, ...] = ()
    succeeded: int = 0


class JobSpec(Json, frozen=True):
    """batchv1.JobSpec."""

    parallelism: int = 1
    completions: int | None = None
    completion_mode: str = ""
    suspend: bool = False


class JobJson(Json, frozen=True):
    """batchv1.Job."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class BudgetSpec(Json, frozen=True):
    """policyv1.PodDisruptionBudgetSpec."""

    selector: LabelSelector | None = None
    """Without one it is of no pod; an empty one is of each."""


class BudgetStatus(Json, frozen=True):
    """policyv1.PodDisruptionBudgetStatus."""

    disruptions_allowed: int = 0


class BudgetJson(Json, frozen=True):
    """policyv1.PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec = BudgetSpec()
    status: BudgetStatus = BudgetStatus()

    def is_of(self, labels: Mapping[str, str]) -> bool:
        """Whether it counts a pod of its namespace that has these labels."""
        return self.spec.selector is not None and term_holds(self.spec.selector.term(), labels)
