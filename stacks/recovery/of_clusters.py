"""What a killed engine left of a control plane: found by its name, and taken away."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from autoscaler.model import labels as words
from stacks.recovery.by_name import Finder, Found, Inputs, mapped, until

_CLUSTER_PATIENCE: Final = 1800.0
"""Seconds that EKS may take to make a cluster, which it does not take away before, and then to take it away."""


class ClusterFinder:
    """Looks into one region; ``session`` is boto3's."""

    def __init__(self, session: Any, *, cluster: str) -> None:
        self._session, self._name = session, cluster
        self.finders: dict[str, Finder] = {
            "aws:eks/cluster:Cluster": self._cluster,
            "aws:eks/accessEntry:AccessEntry": self._entry,
            "aws:eks/addon:Addon": self._add_on,
            "aws:iam/openIdConnectProvider:OpenIdConnectProvider": self._issuer,
            "aws:lb/listener:Listener": self._listener,
            "aws:ssm/association:Association": self._association,
            "aws:ssm/activation:Activation": self._activation,
        }

    # --- EKS ---

    def _cluster(self, inputs: Inputs) -> Found:
        name = inputs["name"]
        found = self._of_eks("describe_cluster", "cluster", name=name)
        if found and self._is_ours(found.get("tags", {})):
            yield name, partial(self._remove_cluster, name)

    def _remove_cluster(self, name: str) -> None:
        def state() -> str:
            return str((self._of_eks("describe_cluster", "cluster", name=name) or {}).get("status", ""))

        until(lambda: state() not in ("CREATING", "UPDATING"), patience=_CLUSTER_PATIENCE)
        self._session.client("eks").delete_cluster(name=name)
        until(lambda: not state(), patience=_CLUSTER_PATIENCE)

    def _entry(self, inputs: Inputs) -> Found:
        asked = {"clusterName": inputs["clusterName"], "principalArn": inputs["principalArn"]}
        found = self._of_eks("describe_access_entry", "accessEntry", **asked)
        if found and self._is_ours(found.get("tags", {})):
            yield ":".join(asked.values()), partial(self._session.client("eks").delete_access_entry, **asked)

    def _add_on(self, inputs: Inputs) -> Found:
        asked = {"clusterName": inputs["clusterName"], "addonName": inputs["addonName"]}
        found = self._of_eks("describe_addon", "addon", **asked)
        if found and self._is_ours(found.get("tags", {})):
            yield ":".join(asked.values()), partial(self._remove_add_on, asked)

    def _remove_add_on(self, asked: Mapping[str, str]) -> None:
        self._session.client("eks").delete_addon(**asked)
        until(lambda: self._of_eks("describe_addon", "addon", **asked) is None)

    def _of_eks(self, call: str, field: str, **asked: str) -> Any:
        eks = self._session.client("eks")
        try:
            return getattr(eks, call)(**asked)[field]
        except eks.exceptions.ResourceNotFoundException:
            return None

    def _issuer(self, inputs: Inputs) -> Found:
        iam, host = self._session.client("iam"), inputs["url"].removeprefix("https://")
        for one in iam.list_open_id_connect_providers()["OpenIDConnectProviderList"]:
            arn = one["Arn"]
            if arn.endswith(f"/{host}"):
                tags = iam.list_open_id_connect_provider_tags(OpenIDConnectProviderArn=arn)["Tags"]
                if self._is_ours(mapped(tags)):
                    yield arn, partial(iam.delete_open_id_connect_provider, OpenIDConnectProviderArn=arn)

    # --- kubeadm ---

    def _listener(self, inputs: Inputs) -> Found:
        """The load balancer is recorded, so whatever listens on it is ours."""
        elb, balancer = self._session.client("elbv2"), inputs["loadBalancerArn"]
        for one in elb.describe_listeners(LoadBalancerArn=balancer)["Listeners"]:
            if one["Port"] == inputs["port"]:
                yield one["ListenerArn"], partial(elb.delete_listener, ListenerArn=one["ListenerArn"])

    def _association(self, inputs: Inputs) -> Found:
        """The gate of a member: where an engine spends most of its time. The instance that it is of is recorded."""
        ssm, wanted = self._session.client("ssm"), [one["values"] for one in inputs["targets"]]
        by_name = [{"key": "AssociationName", "value": inputs["associationName"]}]
        for one in ssm.list_associations(AssociationFilterList=by_name)["Associations"]:
            if [target["Values"] for target in one.get("Targets", [])] == wanted:
                key = one["AssociationId"]
                yield key, partial(ssm.delete_association, AssociationId=key)

    def _activation(self, inputs: Inputs) -> Found:
        ssm = self._session.client("ssm")
        for page in ssm.get_paginator("describe_activations").paginate():
            for one in page["ActivationList"]:
                is_it = one.get("Description") == inputs["description"] and not one.get("Expired")
                if is_it and self._is_ours(mapped(one.get("Tags", []))):
                    key = one["ActivationId"]
                    yield key, partial(ssm.delete_activation, ActivationId=key)

    def _is_ours(self, tags: Mapping[str, str]) -> bool:
        return tags.get(words.TAG_CLUSTER) == self._name
