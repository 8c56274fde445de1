"""The autoscaler's release: its objects in the cluster, and its rights on AWS.

How it comes to its rights depends on the control plane: on EKS its ServiceAccount takes a role (IRSA); elsewhere it
has an access key of a user that may do nothing else, which stands in a Secret of the cluster and in the stack's
encrypted state. The approver has a user and a key of its own: a hole in one of them gives none of the other's rights,
nor those of the control plane's instances.
"""

from __future__ import annotations

import json
from typing import Any, Final

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from autoscaler.config.release_manifests import NAME, NAMESPACE, Manifest, ReleaseSpec, aws_secret, manifests, with_role
from stacks.aws.boundary import path_of
from stacks.aws.identities import Role, boundary
from stacks.aws.trust import trust_of_service_account
from stacks.network.parts import ControlPlanePart
from stacks.release.approver_manifests import approver_manifests, approver_rights
from stacks.release.autoscaler_iam import autoscaler_rights
from stacks.settings.outputs import ReleaseOutput
from stacks.settings.stack import ReleaseSettings, access_of

_CLASSES: Final[dict[str, Any]] = {
    "Namespace": k8s.core.v1.Namespace,
    "ServiceAccount": k8s.core.v1.ServiceAccount,
    "ConfigMap": k8s.core.v1.ConfigMap,
    "Secret": k8s.core.v1.Secret,
    "ClusterRole": k8s.rbac.v1.ClusterRole,
    "ClusterRoleBinding": k8s.rbac.v1.ClusterRoleBinding,
    "ValidatingAdmissionPolicy": k8s.admissionregistration.v1.ValidatingAdmissionPolicy,
    "ValidatingAdmissionPolicyBinding": k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding,
    "Role": k8s.rbac.v1.Role,
    "RoleBinding": k8s.rbac.v1.RoleBinding,
    "PriorityClass": k8s.scheduling.v1.PriorityClass,
    "Deployment": k8s.apps.v1.Deployment,
    "PodDisruptionBudget": k8s.policy.v1.PodDisruptionBudget,
}
_NEEDS: Final = {
    "Deployment": ("ServiceAccount", "ClusterRoleBinding", "RoleBinding", "PriorityClass", "ConfigMap", "Secret")
}


class AutoscalerRelease(pulumi.ComponentResource):
    """Two replicas of the autoscaler, and whatever they need."""

    about: pulumi.Output[ReleaseOutput]

    def __init__(
        self,
        name: str,
        settings: ReleaseSettings,
        *,
        cluster: str,
        region: str,
        policy: str,
        control_plane: ControlPlanePart,
        approves_nodes: bool,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """``policy``: the text of the policy file; ``approves_nodes``: whether the approver comes along."""
        super().__init__("spillway:release:Autoscaler", name, None, opts)
        self._name, self._cluster, self._control_plane = name, cluster, control_plane
        self._rights = {"autoscaler": json.dumps(autoscaler_rights(cluster=cluster, region=region))}
        if approves_nodes:
            self._rights["approver"] = json.dumps(approver_rights(cluster=cluster, region=region))
        access = access_of(settings, control_plane.kind)
        spec = ReleaseSpec(
            image=settings.image, region=region, policy=policy, aws_access=access, pull_secret=settings.pull_secret
        )
        provider = k8s.Provider(
            f"{name}-cluster",
            kubeconfig=control_plane.kubeconfig,
            enable_config_map_mutable=True,  # else an edited policy is a map deleted and another made
            opts=pulumi.ResourceOptions(parent=self),
        )
        self._in_cluster = pulumi.ResourceOptions(parent=self, provider=provider)
        self._made: dict[str, list[pulumi.Resource]] = {}
        role_arn = self._role() if access == "irsa" else None
        objects = manifests(spec)
        for manifest in objects[:-2]:
            self._declare(with_role(manifest, role_arn))
        if access == "access-key":
            for program in self._rights:
                self._declare(self._secret(program))
        for manifest in objects[-2:]:
            self._declare(manifest)
        for manifest in approver_manifests(spec, cluster=cluster) if approves_nodes else ():
            self._declare(manifest)
        self.about = pulumi.Output.from_input(role_arn or "").apply(
            lambda arn: ReleaseOutput(namespace=NAMESPACE, image=settings.image, role_arn=arn)
        )
        self.register_outputs({"namespace": NAMESPACE})

    def _declare(self, manifest: Manifest) -> None:
        kind, named = manifest["kind"], manifest["metadata"]["name"]
        needed = [made for one in (*_NEEDS.get(kind, ()), "Namespace") for made in self._made.get(one, ())]
        fields = {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind")}
        renamed = {"roleRef": "role_ref", "globalDefault": "global_default", "stringData": "string_data"}
        # Roles of one name stand in several namespaces.
        place = manifest["metadata"].get("namespace", NAMESPACE)
        own = f"{self._name}-{named}" if place == NAMESPACE else f"{self._name}-{place}-{named}"
        made = _CLASSES[kind](
            own.replace(":", "-"),
            **{renamed.get(key, key): value for key, value in fields.items()},
            opts=pulumi.ResourceOptions.merge(self._in_cluster, pulumi.ResourceOptions(depends_on=needed)),
        )
        self._made.setdefault(kind, []).append(made)

    def _role(self) -> pulumi.Output[str]:
        trust = self._control_plane.about.apply(
            lambda known: json.dumps(
                trust_of_service_account(
                    provider_arn=known.oidc_provider_arn, issuer=known.oidc_issuer, namespace=NAMESPACE, account=NAME
                )
            )
        )
        role = Role(
            f"{self._name}-autoscaler",
            cluster=self._cluster,
            called=f"{self._cluster}-autoscaler",
            trust=trust,
            description=f"Autoscaler of the cluster {self._cluster}",
            parent=self,
        )
        role.grant(f"{self._name}-autoscaler", "autoscaler", self._rights["autoscaler"])
        role.close()
        return role.arn

    def _secret(self, program: str) -> Manifest:
        """Makes the Secret of one program, with the key of a user that has its rights alone."""
        own = f"{self._name}-{program}"
        user = aws.iam.User(
            own,
            name=f"{self._cluster}-{program}",
            path=path_of(self._cluster),
            permissions_boundary=boundary(self._cluster, parent=self),
            opts=self._child,
        )
        aws.iam.UserPolicy(own, name=program, user=user.name, policy=self._rights[program], opts=self._child)
        key = aws.iam.AccessKey(
            own,
            user=user.name,
            opts=pulumi.ResourceOptions(parent=self, additional_secret_outputs=["secret"]),
        )
        return {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": aws_secret(program), "namespace": NAMESPACE},
            "type": "Opaque",
            "stringData": {
                "AWS_ACCESS_KEY_ID": key.id,
                "AWS_SECRET_ACCESS_KEY": pulumi.Output.secret(key.secret),
            },
        }

    @property
    def _child(self) -> pulumi.ResourceOptions:
        return pulumi.ResourceOptions(parent=self)
