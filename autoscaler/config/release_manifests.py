"""The autoscaler in the cluster as plain manifests: what `autoscale manifests` prints and `pulumi up` makes. No Pulumi.

Accounts and rights come from ``autoscaler/rbac.yaml``, the policy from the very file that the groups are made from. It
stands in a ConfigMap that the autoscaler follows through the API: a policy that changed restarts no pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from autoscaler.model import labels as words

RBAC: Final = Path(__file__).parents[1] / "rbac.yaml"
NAME: Final = words.AUTOSCALER
NAMESPACE: Final = words.NAMESPACE
METRICS_PORT: Final = 9090
_LABEL: Final = "app.kubernetes.io/name"
_MINE: Final = {_LABEL: NAME}
_CONTROL_PLANE: Final = "node-role.kubernetes.io/control-plane"

Manifest = dict[str, Any]
AwsAccess = Literal["irsa", "access-key"]
"""How its pods come to their rights on AWS: by the role of their ServiceAccount, or by a key in a Secret."""
_RECORD: Final = "/record"
_RECORD_MIB: Final = 256


@dataclass(frozen=True, kw_only=True)
class ReleaseSpec:
    """What one release is made from."""

    image: str
    region: str
    policy: str
    """The policy file's text."""
    aws_access: AwsAccess
    pull_secret: str | None = None


def manifests(spec: ReleaseSpec) -> list[Manifest]:
    """Every object but the Secret, in an order in which each finds what it needs."""
    rbac = [one for one in yaml.safe_load_all(RBAC.read_text(encoding="utf-8")) if one]
    return [*rbac, _priority_class(), _policy_map(spec), _deployment(spec), _disruption_budget()]


def monitoring() -> list[Manifest]:
    """Returns a Service without an address and its ServiceMonitor, for a cluster with the Prometheus operator.

    https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.ServiceMonitor
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": _MINE},
        "spec": {"clusterIP": "None", "selector": _MINE, "ports": [{"name": "metrics", "port": METRICS_PORT}]},
    }
    monitor = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "ServiceMonitor",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": _MINE},
        "spec": {"selector": {"matchLabels": _MINE}, "endpoints": [{"port": "metrics", "interval": "30s"}]},
    }
    return [service, monitor]


def with_role(manifest: Manifest, role_arn: Any) -> Manifest:
    """A ServiceAccount with the annotation by which EKS hands the role to its pods; any other manifest as it is."""
    if manifest["kind"] != "ServiceAccount" or role_arn is None:
        return manifest
    metadata = manifest["metadata"] | {"annotations": {"eks.amazonaws.com/role-arn": role_arn}}
    return manifest | {"metadata": metadata}


def as_yaml(many: list[Manifest]) -> str:
    """One document each; text of several lines as it stands in its file."""
    return yaml.dump_all(many, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Writes the policy as a person does."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - as in the base class
        """Each object is read by itself."""
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def _priority_class() -> Manifest:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": NAME},
        "value": 900_000_000,  # above every job: without it no pod makes room; below the cluster's own components
        "globalDefault": False,
        "description": "The autoscaler: jobs wait for it, not it for jobs.",
    }


def _policy_map(spec: ReleaseSpec) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": words.POLICY, "namespace": NAMESPACE, "labels": _MINE},
        "data": {words.POLICY_KEY: spec.policy},
    }


def _disruption_budget() -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": _MINE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _MINE}},
    }


def _deployment(spec: ReleaseSpec) -> Manifest:
    volumes = [
        {"name": "tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
        {"name": "record", "emptyDir": {"sizeLimit": f"{_RECORD_MIB * 2}Mi"}},
    ]
    return two_replicas(NAME, spec, container=_container(spec), volumes=volumes)


def two_replicas(name: str, spec: ReleaseSpec, *, container: Manifest, volumes: list[Manifest]) -> Manifest:
    """A Deployment of a program of this project: one replica acts, one waits for its lease."""
    mine = {_LABEL: name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": mine,
            # Whether there is a node for its pods yet is not what `pulumi up` waits for.
            "annotations": {"pulumi.com/skipAwait": "true"},
        },
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": mine},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": mine},
                "spec": _pod(name, spec) | {"containers": [container], "volumes": volumes},
            },
        },
    }


def _pod(name: str, spec: ReleaseSpec) -> Manifest:
    return {
        "serviceAccountName": name,
        "priorityClassName": NAME,
        "terminationGracePeriodSeconds": 30,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "runAsGroup": 10001,
            "fsGroup": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "affinity": _affinity(),
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": words.HOSTNAME,
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {_LABEL: name}},
            }
        ],
        "tolerations": [
            {"key": words.GPU, "operator": "Exists", "effect": "NoSchedule"},  # a lab may have GPU machines alone
            {"key": _CONTROL_PLANE, "operator": "Exists", "effect": "NoSchedule"},
        ],
        **({"imagePullSecrets": [{"name": spec.pull_secret}]} if spec.pull_secret else {}),
    }


def _affinity() -> Manifest:
    """Rather not on a node that it could terminate."""
    bought = {"key": words.ORIGIN, "operator": "NotIn", "values": [words.EC2]}
    return {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 100, "preference": {"matchExpressions": [bought]}}
            ]
        }
    }


def _container(spec: ReleaseSpec) -> Manifest:
    probe = {"httpGet": {"path": "/metrics", "port": "metrics"}, "timeoutSeconds": 5}
    alive = {"httpGet": {"path": "/healthz", "port": "metrics"}, "timeoutSeconds": 5}
    args = [
        *("autoscale", "run", "--policy", f"configmap:{NAMESPACE}/{words.POLICY}"),
        *("--namespace", NAMESPACE, "--identity", "$(POD_NAME)"),
        *("--log-format", "json", "--metrics-port", str(METRICS_PORT)),
        *("--record", _RECORD, "--record-mib", str(_RECORD_MIB)),
    ]
    return container("autoscaler", spec, args=args, memory=("256Mi", "1Gi")) | {
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "readinessProbe": {**probe, "periodSeconds": 10},
        "livenessProbe": {**alive, "periodSeconds": 20, "failureThreshold": 3},
        "startupProbe": {**probe, "periodSeconds": 2, "failureThreshold": 30},
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - where Python expects it
            {"name": "record", "mountPath": _RECORD},
        ],
    }


def aws_secret(program: str) -> str:
    """Name of the Secret with the access key of one program of the release: each has a user of its own."""
    return f"spillway-{program}-aws"


def container(name: str, spec: ReleaseSpec, *, args: list[str], memory: tuple[str, str]) -> Manifest:
    """A container of the release's image, with its way to AWS; ``memory`` asked for, and at most."""
    return {
        "name": name,
        "image": spec.image,
        "args": args,
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "AWS_REGION", "value": spec.region},
            {"name": "AWS_DEFAULT_REGION", "value": spec.region},
        ],
        **({"envFrom": [{"secretRef": {"name": aws_secret(name)}}]} if spec.aws_access == "access-key" else {}),
        "resources": {"requests": {"cpu": "100m", "memory": memory[0]}, "limits": {"memory": memory[1]}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
