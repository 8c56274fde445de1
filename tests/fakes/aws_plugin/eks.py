"""Types of EKS, as the stand-in for the aws plugin serves them."""

# ruff: noqa: D102 - they are documented once, in `Kind`
# ruff: noqa: S105 - a token is the name of a type here

from __future__ import annotations

from typing import Any, Final

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Kind, Properties, Tags, found, given


class _EksKind(Kind):
    """Tags of EKS are a mapping, set by ARN."""

    def tag(self, cloud: Cloud, key: str, tags: Tags) -> None:
        cloud.client("eks").tag_resource(resourceArn=self._arn(cloud, key), tags=dict(tags))

    def untag(self, cloud: Cloud, key: str, names: list[str]) -> None:
        cloud.client("eks").untag_resource(resourceArn=self._arn(cloud, key), tagKeys=names)

    def _arn(self, cloud: Cloud, key: str) -> str:
        raise NotImplementedError


class Cluster(_EksKind):
    """An EKS cluster."""

    token = "aws:eks/cluster:Cluster"
    inputs = frozenset(
        {
            *("name", "version", "roleArn", "accessConfig", "enabledClusterLogTypes", "encryptionConfig"),
            *("remoteNetworkConfig", "vpcConfig", "deletionProtection", "tags"),
        }
    )
    unordered = frozenset({"enabledClusterLogTypes"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        encryption = wanted.get("encryptionConfig")
        cloud.client("eks").create_cluster(
            name=wanted["name"],
            roleArn=wanted["roleArn"],
            resourcesVpcConfig=wanted["vpcConfig"],
            logging=_logging(wanted),
            tags=dict(tags),
            **given(wanted, version="version", accessConfig="accessConfig", deletionProtection="deletionProtection"),
            **({"encryptionConfig": [encryption]} if encryption else {}),
            **(
                {"remoteNetworkConfig": _listed(wanted["remoteNetworkConfig"])}
                if "remoteNetworkConfig" in wanted
                else {}
            ),
        )
        name: str = wanted["name"]
        return name

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        cluster = found(cloud.client("eks").describe_cluster, "cluster", name=key)
        if cluster is None:
            return None
        logging = [kind for one in cluster["logging"]["clusterLogging"] if one["enabled"] for kind in one["types"]]
        remote = cluster.get("remoteNetworkConfig")
        return {
            "name": key,
            "arn": cluster["arn"],
            "version": cluster["version"],
            "roleArn": cluster["roleArn"],
            "endpoint": cluster["endpoint"],
            "certificateAuthority": cluster["certificateAuthority"],
            "kubernetesNetworkConfig": cluster["kubernetesNetworkConfig"],
            "identities": [{"oidcs": [{"issuer": cluster["identity"]["oidc"]["issuer"]}]}],
            "accessConfig": cluster["accessConfig"],
            "enabledClusterLogTypes": logging,
            "encryptionConfig": next(iter(cluster.get("encryptionConfig", [])), None),
            "remoteNetworkConfig": remote and {name: value[0] for name, value in remote.items() if value},
            "vpcConfig": cluster["resourcesVpcConfig"],
            "deletionProtection": cluster.get("deletionProtection"),
            "tagsAll": cluster.get("tags", {}),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        eks = cloud.client("eks")
        if old.get("version") != new.get("version"):
            eks.update_cluster_version(name=key, version=new["version"])
        changes: list[dict[str, Any]] = []  # EKS takes one at a time
        if old["vpcConfig"] != new["vpcConfig"]:
            taken = ("endpointPrivateAccess", "endpointPublicAccess", "publicAccessCidrs")
            changes.append(
                {"resourcesVpcConfig": {key: new["vpcConfig"][key] for key in taken if key in new["vpcConfig"]}}
            )
            if set(old["vpcConfig"]["subnetIds"]) != set(new["vpcConfig"]["subnetIds"]):
                changes.append({"resourcesVpcConfig": {"subnetIds": new["vpcConfig"]["subnetIds"]}})
        if old.get("enabledClusterLogTypes") != new.get("enabledClusterLogTypes"):
            changes.append({"logging": _logging(new)})
        if old.get("remoteNetworkConfig") != new.get("remoteNetworkConfig"):
            changes.append({"remoteNetworkConfig": _listed(new.get("remoteNetworkConfig") or {})})
        mode = (new.get("accessConfig") or {}).get("authenticationMode")
        if mode and mode != (old.get("accessConfig") or {}).get("authenticationMode"):
            changes.append({"accessConfig": {"authenticationMode": mode}})
        if old.get("deletionProtection") != new.get("deletionProtection"):
            changes.append({"deletionProtection": bool(new.get("deletionProtection"))})
        for change in changes:
            eks.update_cluster_config(name=key, **change)

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("eks").delete_cluster(name=key)

    def _arn(self, cloud: Cloud, key: str) -> str:
        arn: str = cloud.client("eks").describe_cluster(name=key)["cluster"]["arn"]
        return arn


class AccessEntry(_EksKind):
    """Who may come in. Its id is made of the cluster's name and the principal."""

    token = "aws:eks/accessEntry:AccessEntry"
    inputs = frozenset({"clusterName", "principalArn", "type", "kubernetesGroups", "tags"})

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.client("eks").create_access_entry(
            clusterName=wanted["clusterName"],
            principalArn=wanted["principalArn"],
            tags=dict(tags),
            **given(wanted, type="type", kubernetesGroups="kubernetesGroups"),
        )
        return f"{wanted['clusterName']}:{wanted['principalArn']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        entry = found(cloud.client("eks").describe_access_entry, "accessEntry", **_principal(key))
        return entry and {
            **{name: entry[name] for name in ("clusterName", "principalArn", "type", "kubernetesGroups")},
            "accessEntryArn": entry["accessEntryArn"],
            "tagsAll": entry.get("tags", {}),
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cloud.client("eks").delete_access_entry(**_principal(key))

    def _arn(self, cloud: Cloud, key: str) -> str:
        arn: str = cloud.client("eks").describe_access_entry(**_principal(key))["accessEntry"]["accessEntryArn"]
        return arn


class AccessPolicyAssociation(Kind):
    """What somebody may do who came in. Its id is made of cluster, principal and policy."""

    token = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
    inputs = frozenset({"clusterName", "principalArn", "policyArn", "accessScope"})
    tagged = False

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.client("eks").associate_access_policy(
            clusterName=wanted["clusterName"],
            principalArn=wanted["principalArn"],
            policyArn=wanted["policyArn"],
            accessScope=wanted["accessScope"],
        )
        return "#".join((wanted["clusterName"], wanted["principalArn"], wanted["policyArn"]))

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        cluster, principal, policy = key.split("#")
        associated = found(
            cloud.client("eks").list_associated_access_policies,
            "associatedAccessPolicies",
            clusterName=cluster,
            principalArn=principal,
        )
        one = next((one for one in associated or [] if one["policyArn"] == policy), None)
        return one and {
            "clusterName": cluster,
            "principalArn": principal,
            "policyArn": policy,
            "accessScope": one["accessScope"],
        }

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cluster, principal, policy = key.split("#")
        cloud.client("eks").disassociate_access_policy(clusterName=cluster, principalArn=principal, policyArn=policy)


class Addon(_EksKind):
    """An add-on. Its id is made of the cluster's name and its own."""

    token = "aws:eks/addon:Addon"
    inputs = frozenset(
        {
            *("clusterName", "addonName", "addonVersion", "serviceAccountRoleArn", "tags"),
            *("resolveConflictsOnCreate", "resolveConflictsOnUpdate"),
        }
    )

    def create(self, cloud: Cloud, wanted: Properties, tags: Tags) -> str:
        cloud.client("eks").create_addon(
            clusterName=wanted["clusterName"],
            addonName=wanted["addonName"],
            tags=dict(tags),
            **given(
                wanted,
                addonVersion="addonVersion",
                serviceAccountRoleArn="serviceAccountRoleArn",
                resolveConflictsOnCreate="resolveConflicts",
            ),
        )
        return f"{wanted['clusterName']}:{wanted['addonName']}"

    def read(self, cloud: Cloud, key: str, wanted: Properties) -> Properties | None:
        cluster, _, name = key.partition(":")
        add_on = found(cloud.client("eks").describe_addon, "addon", clusterName=cluster, addonName=name)
        return add_on and {
            "clusterName": cluster,
            "addonName": name,
            "addonVersion": add_on["addonVersion"],
            "serviceAccountRoleArn": add_on.get("serviceAccountRoleArn"),
            "arn": add_on["addonArn"],
            "tagsAll": add_on.get("tags", {}),
        }

    def update(self, cloud: Cloud, key: str, old: Properties, new: Properties) -> None:
        changed = any(old.get(key) != new.get(key) for key in ("addonVersion", "serviceAccountRoleArn"))
        if changed:
            cloud.client("eks").update_addon(
                clusterName=new["clusterName"],
                addonName=new["addonName"],
                **given(
                    new,
                    addonVersion="addonVersion",
                    serviceAccountRoleArn="serviceAccountRoleArn",
                    resolveConflictsOnUpdate="resolveConflicts",
                ),
            )

    def delete(self, cloud: Cloud, key: str, state: Properties) -> None:
        cluster, _, name = key.partition(":")
        cloud.client("eks").delete_addon(clusterName=cluster, addonName=name)

    def _arn(self, cloud: Cloud, key: str) -> str:
        cluster, _, name = key.partition(":")
        arn: str = cloud.client("eks").describe_addon(clusterName=cluster, addonName=name)["addon"]["addonArn"]
        return arn


def _principal(key: str) -> dict[str, str]:
    cluster, _, principal = key.partition(":")
    return {"clusterName": cluster, "principalArn": principal}


def _logging(wanted: Properties) -> dict[str, Any]:
    types = wanted.get("enabledClusterLogTypes") or []
    every = ("api", "audit", "authenticator", "controllerManager", "scheduler")
    on, off = list(types), [one for one in every if one not in types]
    return {
        "clusterLogging": [{"types": on, "enabled": True}] * bool(on) + [{"types": off, "enabled": False}] * bool(off)
    }


def _listed(remote: Properties) -> dict[str, Any]:
    """EKS takes a list of each, of at most one."""
    return {name: [remote[name]] if name in remote else [] for name in ("remoteNodeNetworks", "remotePodNetworks")}


KINDS: Final = (Cluster(), AccessEntry(), AccessPolicyAssociation(), Addon())
