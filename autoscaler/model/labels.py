"""The words written on machines, pods and cloud resources, spelled once for all rooms.

Whatever one room writes and another reads at run time (a label on a node, a tag on an Auto Scaling group,
a scheduling gate on a pod) has its name here and nowhere else.
"""

from __future__ import annotations

from typing import Final

PREFIX: Final = "spillway.dev"

# --- Well-known Kubernetes names --------------------------------------------------------------------------------------
HOSTNAME: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ARCH: Final = "kubernetes.io/arch"
OS: Final = "kubernetes.io/os"
OLD_ARCH: Final = "beta.kubernetes.io/arch"
OLD_OS: Final = "beta.kubernetes.io/os"
"""Deprecated; a kubelet writes both still: https://kubernetes.io/docs/reference/labels-annotations-taints/."""
GPU: Final = "nvidia.com/gpu"
"""The extended resource of the NVIDIA device plugin, and the key of the usual taint on GPU nodes."""
EFA: Final = "vpc.amazonaws.com/efa"
"""The extended resource of the device plugin for Elastic Fabric Adapters."""
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""Label written by GPU feature discovery, e.g. ``NVIDIA-A100-SXM4-80GB``."""
GPU_MEMORY: Final = "nvidia.com/gpu.memory"
"""Label written by GPU feature discovery: memory of one GPU in MiB."""
GPU_COUNT: Final = "nvidia.com/gpu.count"
GPU_PRESENT: Final = "nvidia.com/gpu.present"
"""``true`` on nodes with GPUs: device plugin and metrics run there."""

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""Label and annotation on a pod of an Indexed Job: which of its tasks it is; the label since Kubernetes 1.28."""
CONTROLLER_UID: Final = "batch.kubernetes.io/controller-uid"
"""Label on a pod of a Job: that Job's uid."""

# --- Labels on nodes --------------------------------------------------------------------------------------------------
ORIGIN: Final = f"{PREFIX}/origin"
"""Where a node comes from: one of the two values below. A node without it counts as on-prem: it costs nothing."""
ON_PREM: Final = "on-prem"
EC2: Final = "ec2"
GROUP: Final = f"{PREFIX}/group"
"""On a node, and as a tag on the Auto Scaling group: the policy entry that the node belongs to."""
CAPACITY_TYPE: Final = f"{PREFIX}/capacity-type"
"""``on-demand``, ``spot`` or ``capacity-block``."""
RACK: Final = f"{PREFIX}/rack"
OWNER: Final = f"{PREFIX}/owner"
"""Label: whose it is; of a pod, also whose budget it counts for."""

# --- Marks on nodes (annotations): the autoscaler's memory lives here, so that a restart goes on where the last stopped
CORDONED_BY: Final = f"{PREFIX}/cordoned-by"
"""What cordoned the node. Spillway lifts and uses only cordons that carry its own name here."""
CORDONED_AT: Final = f"{PREFIX}/cordoned-at"
"""When, as RFC 3339 in UTC: the idle time counts from here."""
AUTOSCALER: Final = "spillway-autoscaler"
STACK: Final = f"{PREFIX}/stack"
"""On a node that you own: the stack whose inventory it is in, ``project/stack``."""
DECLARED: Final = f"{PREFIX}/declared"
"""Labels and taints that an inventory declared for the node, as JSON: what it declares no longer goes again."""
JOINING: Final = f"{PREFIX}/joining"
"""Taint of a node from its registration until it has the labels and taints that its inventory declares."""
RESERVED: Final = f"{PREFIX}/reserved"
"""Taint of a new EC2 node until the pods that it was bought for are there: they alone tolerate it. Its value is empty
at first, then the instance's id."""

# --- Words on pods and the objects that make them ---------------------------------------------------------------------
GANG: Final = f"{PREFIX}/gang"
"""Label: the gang (one job's pods, placed all or none) that a pod belongs to, unique in its namespace."""
GANG_SIZE: Final = f"{PREFIX}/gang-size"
"""Annotation: how many pods the whole gang has, so that a gang half created is not mistaken for a small one."""
GANG_MIN: Final = f"{PREFIX}/gang-min"
"""Annotation: how many of them must be placed together (elastic jobs); absent: all."""
GANG_ZONE: Final = f"{PREFIX}/gang-topology"
"""Annotation: a node label key; all pods of the gang must land on nodes with one value of it (e.g. one zone)."""
REQUESTED: Final = f"{PREFIX}/requested"
"""The gate, in a plan, of what a ProvisioningRequest asks room for: no pod is there that a scheduler could bind."""
GATE: Final = f"{PREFIX}/gang"
"""Scheduling gate carried by the pods of a gang until the autoscaler has a place for every one of them."""
DURATION: Final = f"{PREFIX}/expected-duration"
"""Annotation: how long the job is expected to run, e.g. ``2h``; others may wait for what it frees."""
PATIENCE: Final = f"{PREFIX}/patience"
"""Annotation: how long the job may wait for machines that we own before EC2 is bought, in place of the policy's."""
ADMITTED_TO: Final = f"{PREFIX}/admitted-to"
"""Annotation on a pod whose gate Spillway has lifted: the node that it was pinned to."""
ROLE: Final = f"{PREFIX}/role"
"""Label: the task type of a pod in its job: ``chief``, ``worker``, ``ps``, ``evaluator``, ``launcher``."""
JOB: Final = f"{PREFIX}/job"
"""Label on every object of a training job: the job's name."""
ENDS_WITH: Final = f"{PREFIX}/ends-with"
"""Annotation on a batch/v1 Job: name of the Job in the same namespace after whose end, good or bad, this one is ended
(parameter servers wait for ever in ``server.join()``, and would hold their nodes)."""
DEPENDS_ON: Final = f"{PREFIX}/depends-on"
"""Annotation on a suspended batch/v1 Job: names of Jobs in the same namespace, with commas; it is resumed when all of
them have succeeded, and fails when one of them has failed."""
STEP_BEGAN: Final = f"{PREFIX}/step-began"
"""Annotation on such a Job: when Spillway resumed it, as RFC 3339 in UTC; suspended after that, it stays so."""
STEP_STOPPED: Final = f"{PREFIX}/step-stopped"
"""Annotation on such a Job: why it was never begun."""
STOPPED: Final = f"{PREFIX}/stopped"
"""Annotation on a Job: when its owner stopped it, as RFC 3339 in UTC."""
ELASTIC: Final = f"{PREFIX}/elastic"
"""Annotation on an Indexed Job: ``MIN..MAX``, between which its number of tasks is changed while it runs."""
FOLLOWS: Final = f"{PREFIX}/follows"
"""Annotation on such a Job: name of another in the same namespace whose size it follows in proportion."""
ELASTIC_RESTART: Final = f"{PREFIX}/elastic-restart"
"""Annotation on it: how long its tasks stand still at a change of size, e.g. ``30s``."""
ELASTIC_WARM_UP: Final = f"{PREFIX}/elastic-warm-up"
"""Annotation on it: how long a new task does nothing of use, e.g. ``10s``."""
ELASTIC_USD: Final = f"{PREFIX}/elastic-usd-per-hour"
"""Annotation on it: what nodes for tasks above the minimum may cost, in place of the policy's."""
RESIZED_AT: Final = f"{PREFIX}/resized-at"
"""Annotation on it: when Spillway changed its size last, as RFC 3339 in UTC."""
INTERRUPTION: Final = f"{PREFIX}/interruption"
"""Annotation on a node of EC2, written by the node itself: ``KIND TOLD [ENDS]`` of what EC2 is about to do with it, the
times in RFC 3339 (``roles/deploys/interruption_watch.py``)."""
DO_NOT_DISRUPT: Final = f"{PREFIX}/do-not-disrupt"
"""Annotation on a pod or node: never drain it."""
CAPACITY_BLOCK: Final = f"{PREFIX}/capacity-block"
"""Key of a toleration by which a pod says that it may be placed in a Capacity Block that ends before it does. The
planner alone asks for it: no node carries such a taint."""

# --- Tags on Auto Scaling groups --------------------------------------------------------------------------------------
TAG_CLUSTER: Final = f"{PREFIX}/cluster"
"""Which Spillway cluster owns the group. The autoscaler touches only groups with its own cluster's name here."""
TAG_GROUP: Final = GROUP
TAG_DISK: Final = f"{PREFIX}/disk"
"""Size of its nodes' root volume."""
TAG_RESERVATION: Final = f"{PREFIX}/capacity-reservation"
"""Id of the Capacity Reservation that its nodes are launched into."""
TAG_BUILT_FROM: Final = f"{PREFIX}/built-from"
"""Digest of the policy entry that it was built from: where the policy's differs, an edit waits for ``pulumi up``."""
TEMPLATE_LABEL: Final = "k8s.io/cluster-autoscaler/node-template/label/"
"""+ label key: a label that the group's nodes will carry (the tag convention of the Kubernetes autoscaler)."""
TEMPLATE_TAINT: Final = "k8s.io/cluster-autoscaler/node-template/taint/"
"""+ taint key, value ``VALUE:EFFECT``."""
TEMPLATE_RESOURCE: Final = "k8s.io/cluster-autoscaler/node-template/resources/"
"""+ resource name: allocatable amount as a Kubernetes quantity."""
TERMINATION_HOOK: Final = "spillway-drain"
"""Name of the lifecycle hook by which a group's terminating instances wait until the autoscaler lets them go."""

# --- How a machine joins ----------------------------------------------------------------------------------------------
BOOTSTRAPPERS: Final = "system:bootstrappers:spillway"
"""Group of the holders of bootstrap tokens: may ask for a certificate, and see what becomes of that; nothing else."""
BOOTSTRAP_TOKEN: Final = f"{PREFIX}/bootstrap-token"
"""Label, ``true``, on the Secret of each token: of one node, whatever made it."""
TOKEN_OF: Final = f"{PREFIX}/node"
"""Annotation on it: the node that it is made for. No other name is approved for its bearer."""
JOIN_PARAMETER: Final = "/spillway/{cluster}/join/{instance}"
"""Name of the SecureString in SSM Parameter Store that holds the bootstrap token of one instance."""
TAG_INSTANCE: Final = f"{PREFIX}/instance"
"""Tag on that parameter: the instance's ARN. The nodes' role reads a parameter only as the instance named here."""
APPROVER: Final = "spillway-approver"
"""What makes those tokens and approves the certificates: name of its Deployment, its account, and its own Lease."""

LEASE: Final = "spillway-autoscaler"
"""Name of the coordination.k8s.io Lease that the acting autoscaler holds, in its own namespace."""
DOOR: Final = f"{PREFIX}/door"
"""Annotation on that Lease: where its holder answers, ``http://HOST:PORT``, or ``pod:NAME:PORT``."""
MEMORY: Final = "spillway-autoscaler-memory"
"""Name of the ConfigMap, in the same namespace, in which it writes down what its plans remember."""
POLICY: Final = "spillway-autoscaler-policy"
"""Name of the ConfigMap, in the same namespace, with the policy of a release."""
POLICY_KEY: Final = "policy.yaml"
"""Where in a ConfigMap the policy's text stands."""
ACTING_POLICY: Final = "spillway-autoscaler-acting-policy"
"""Name of the ConfigMap, in the same namespace, with the last good policy, which the acting autoscaler obeys."""
LEDGER: Final = "spillway-autoscaler-ledger"
"""Names of the ConfigMaps, in the same namespace, with what nodes have cost: this and the month, ``-01`` to ``-12``."""
PAUSES: Final = "spillway-autoscaler-pauses"
"""Name of the ConfigMap, in the same namespace, in which operators write what is to be left alone, and until when."""
NAMESPACE: Final = "spillway"

_OF_KUBERNETES: Final = (".kubernetes.io", ".k8s.io")
_OF_KUBELETS: Final = ("node.kubernetes.io", "kubelet.kubernetes.io")
_SELF_GIVEN: Final = (HOSTNAME, ARCH, OS, ZONE, REGION, INSTANCE_TYPE)


def may_kubelet_give(key: str) -> bool:
    """Whether a kubelet may give its own node this label: of Kubernetes' own names it may few.

    https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction
    """
    prefix = key.rpartition("/")[0]
    return key in _SELF_GIVEN or prefix in _OF_KUBELETS or not f".{prefix}".endswith(_OF_KUBERNETES)
