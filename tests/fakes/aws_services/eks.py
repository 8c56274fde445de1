"""Amazon EKS as far as the programs use it, which moto does not serve: clusters with access entries and add-ons.

No control plane runs behind it. It keeps what was asked for, and refuses what EKS refuses: subnets of one zone,
versions and add-ons that there are not, roles and keys that nobody made, one principal twice, rights for entries of
nodes.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from moto.ec2.models import ec2_backends
from moto.iam.models import iam_backends
from moto.kms.models import kms_backends

from stacks.local.wire.aws_protocol import Refused, Reply
from tests.fakes.aws_services.eks_versions import ADD_ONS, VERSIONS, add_on_versions, cluster_versions, versions_of

_ZONES: Final = 2
_TYPES: Final = ("STANDARD", "EC2_LINUX", "HYBRID_LINUX")
_NAME: Final = re.compile(r"[0-9A-Za-z][A-Za-z0-9_-]{0,99}")
_NO_PEM: Final = base64.b64encode(b"no authority: nothing runs behind the stand-in for EKS").decode()

Json = dict[str, Any]
_CLUSTER: Final = r"/clusters/(?P<cluster>[^/]+)"
_PRINCIPAL: Final = rf"{_CLUSTER}/access-entries/(?P<principal>[^/]+)"
_ADD_ON: Final = rf"{_CLUSTER}/addons/(?P<add_on>[^/]+)"


class Eks:
    """EKS of every region of one account."""

    def __init__(self, account: str) -> None:
        self._account = account
        self._clusters: dict[tuple[str, str], Json] = {}
        self._entries: dict[tuple[str, str], dict[str, Json]] = {}
        self._add_ons: dict[tuple[str, str], dict[str, Json]] = {}
        calls: Mapping[tuple[str, str], Callable[..., Json]] = {
            ("POST", "/clusters"): self._create_cluster,
            ("GET", "/clusters"): self._list_clusters,
            ("GET", _CLUSTER): self._describe_cluster,
            ("DELETE", _CLUSTER): self._delete_cluster,
            ("POST", rf"{_CLUSTER}/update-config"): self._update_cluster,
            ("POST", rf"{_CLUSTER}/updates"): self._update_version,
            ("POST", rf"{_CLUSTER}/access-entries"): self._create_entry,
            ("GET", rf"{_CLUSTER}/access-entries"): self._list_entries,
            ("GET", _PRINCIPAL): self._describe_entry,
            ("DELETE", _PRINCIPAL): self._delete_entry,
            ("POST", rf"{_PRINCIPAL}/access-policies"): self._associate,
            ("GET", rf"{_PRINCIPAL}/access-policies"): self._list_associated,
            ("DELETE", rf"{_PRINCIPAL}/access-policies/(?P<policy>[^/]+)"): self._disassociate,
            ("POST", rf"{_CLUSTER}/addons"): self._create_add_on,
            ("GET", _ADD_ON): self._describe_add_on,
            ("POST", rf"{_ADD_ON}/update"): self._update_add_on,
            ("DELETE", _ADD_ON): self._delete_add_on,
            ("GET", "/cluster-versions"): lambda _, asked: cluster_versions(asked),
            ("GET", "/addons/supported-versions"): lambda _, asked: add_on_versions(asked),
            ("POST", r"/tags/(?P<arn>.+)"): self._tag,
            ("DELETE", r"/tags/(?P<arn>.+)"): self._untag,
        }
        self._calls = [(method, re.compile(pattern), call) for (method, pattern), call in calls.items()]

    def answer(self, *, region: str, method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> Reply:
        """What EKS says to one request."""
        asked = json.loads(body) if body else {}
        for verb, pattern, call in self._calls:
            found = pattern.fullmatch(path) if verb == method else None
            if found:
                given = {key: unquote(value) for key, value in found.groupdict().items()}
                try:
                    if "cluster" in given:
                        self._known(region, given["cluster"])
                    said = call(region, asked | dict(query), **given)
                except Refused as refused:
                    return _error(refused)
                return 200, "application/json", json.dumps(said).encode()
        return _error(Refused("InvalidAction", f"the stand-in for EKS does not serve {method} {path}"))

    # --- Clusters ---

    def _create_cluster(self, region: str, asked: Json) -> Json:
        name, network = asked["name"], asked["resourcesVpcConfig"]
        if not _NAME.fullmatch(name):
            raise _invalid(f"The cluster name {name!r} is invalid.")
        if (region, name) in self._clusters:
            raise Refused("ResourceInUseException", f"Cluster already exists with name: {name}", status=409)
        self._role(asked["roleArn"])
        _version(asked.get("version", VERSIONS[-1]))
        _endpoints(network)
        for encrypted in asked.get("encryptionConfig", []):
            self._key(region, encrypted["provider"]["keyArn"])
        vpc, group = self._own_group(region, name, network["subnetIds"])
        self._clusters[region, name] = {
            "name": name,
            "arn": f"arn:aws:eks:{region}:{self._account}:cluster/{name}",
            "createdAt": time.time(),
            "version": asked.get("version", VERSIONS[-1]),
            "endpoint": f"https://{secrets.token_hex(16).upper()}.gr7.{region}.eks.amazonaws.com",
            "roleArn": asked["roleArn"],
            "resourcesVpcConfig": {"endpointPublicAccess": True, "endpointPrivateAccess": False, **network}
            | {"clusterSecurityGroupId": group, "vpcId": vpc},
            "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"}
            | asked.get("kubernetesNetworkConfig", {}),
            "remoteNetworkConfig": asked.get("remoteNetworkConfig"),
            "logging": asked.get("logging", {"clusterLogging": []}),
            "identity": {
                "oidc": {"issuer": f"https://oidc.eks.{region}.amazonaws.com/id/{secrets.token_hex(16).upper()}"}
            },
            "status": "ACTIVE",
            "certificateAuthority": {"data": _NO_PEM},
            "platformVersion": "eks.1",
            "tags": asked.get("tags", {}),
            "encryptionConfig": asked.get("encryptionConfig", []),
            "accessConfig": {"authenticationMode": "CONFIG_MAP"} | asked.get("accessConfig", {}),
            "deletionProtection": asked.get("deletionProtection", False),
        }
        return self._describe_cluster(region, {}, cluster=name)

    def _list_clusters(self, region: str, _: Json) -> Json:
        return {"clusters": [name for where, name in self._clusters if where == region]}

    def _describe_cluster(self, region: str, _: Json, *, cluster: str) -> Json:
        return {"cluster": self._known(region, cluster)}

    def _update_cluster(self, region: str, asked: Json, *, cluster: str) -> Json:
        found = self._known(region, cluster)
        network = found["resourcesVpcConfig"] | asked.get("resourcesVpcConfig", {})
        _endpoints(network)
        before, after = (self._zones(region, one["subnetIds"]) for one in (found["resourcesVpcConfig"], network))
        if before != after:
            raise _invalid(
                f"Provided subnets belong to the AZs '{after}'. But they should belong to the exact set of AZs "
                f"'{before}' in which subnets were provided during cluster creation."
            )
        found["resourcesVpcConfig"] = network
        found["accessConfig"] |= asked.get("accessConfig", {})
        for key in ("logging", "remoteNetworkConfig", "deletionProtection"):
            if key in asked:
                found[key] = asked[key]
        return _done("ConfigUpdate")

    def _update_version(self, region: str, asked: Json, *, cluster: str) -> Json:
        found, wanted = self._known(region, cluster), asked["version"]
        _version(wanted)
        step = VERSIONS.index(wanted) - VERSIONS.index(found["version"])
        if step not in (0, 1):
            raise _invalid(f"Unsupported Kubernetes minor version update from {found['version']} to {wanted}")
        found["version"] = wanted
        return _done("VersionUpdate")

    def _delete_cluster(self, region: str, _: Json, *, cluster: str) -> Json:
        found = self._known(region, cluster)
        if found["deletionProtection"]:
            raise Refused("InvalidRequestException", f"Cluster {cluster} has deletion protection enabled")
        ec2_backends[self._account][region].delete_security_group(
            group_id=found["resourcesVpcConfig"]["clusterSecurityGroupId"]
        )
        for kept in (self._clusters, self._entries, self._add_ons):
            kept.pop((region, cluster), None)
        return {"cluster": found | {"status": "DELETING"}}

    def _own_group(self, region: str, cluster: str, subnet_ids: list[str]) -> tuple[str, str]:
        """The security group that EKS makes for a cluster, and the VPC that it is in."""
        ec2 = ec2_backends[self._account][region]
        known = {subnet.id: subnet for subnet in ec2.describe_subnets()}
        missing = [subnet for subnet in subnet_ids if subnet not in known]
        if missing:
            raise _invalid(f"The subnet ID '{missing[0]}' does not exist")
        if len(self._zones(region, subnet_ids).split(",")) < _ZONES:
            raise _invalid("Subnets specified must be in at least two different AZs")
        vpc = known[subnet_ids[0]].vpc_id
        name = f"eks-cluster-sg-{cluster}-{secrets.token_hex(4)}"
        group = ec2.create_security_group(name, "EKS created security group", vpc_id=vpc)
        return vpc, group.id

    def _zones(self, region: str, subnet_ids: list[str]) -> str:
        subnets = ec2_backends[self._account][region].describe_subnets()
        return ",".join(sorted({one.availability_zone for one in subnets if one.id in subnet_ids}))

    # --- Who may come in ---

    def _create_entry(self, region: str, asked: Json, *, cluster: str) -> Json:
        principal, kind = asked["principalArn"], asked.get("type", "STANDARD")
        if self._known(region, cluster)["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
            raise Refused("InvalidRequestException", "The cluster's authentication mode must be set to API")
        if kind not in _TYPES:
            raise _invalid(f"The type {kind} is not supported")
        if kind != "STANDARD":
            self._role(principal)
        entries = self._entries.setdefault((region, cluster), {})
        if principal in entries:
            raise Refused("ResourceInUseException", "The specified access entry resource is already in use", status=409)
        entries[principal] = {
            "clusterName": cluster,
            "principalArn": principal,
            "kubernetesGroups": asked.get("kubernetesGroups", []),
            "accessEntryArn": f"arn:aws:eks:{region}:{self._account}:access-entry/{cluster}/{secrets.token_hex(8)}",
            "tags": asked.get("tags", {}),
            "type": kind,
            "username": asked.get("username", principal),
            "policies": {},
        }
        return self._describe_entry(region, {}, cluster=cluster, principal=principal)

    def _list_entries(self, region: str, _: Json, *, cluster: str) -> Json:
        self._known(region, cluster)
        return {"accessEntries": list(self._entries.get((region, cluster), {}))}

    def _describe_entry(self, region: str, _: Json, *, cluster: str, principal: str) -> Json:
        entry = self._entry(region, cluster, principal)
        return {"accessEntry": {key: value for key, value in entry.items() if key != "policies"}}

    def _delete_entry(self, region: str, _: Json, *, cluster: str, principal: str) -> Json:
        self._entry(region, cluster, principal)
        del self._entries[region, cluster][principal]
        return {}

    def _associate(self, region: str, asked: Json, *, cluster: str, principal: str) -> Json:
        entry, policy = self._entry(region, cluster, principal), asked["policyArn"]
        if entry["type"] != "STANDARD":
            raise Refused("InvalidRequestException", f"Access policies cannot be associated with type {entry['type']}")
        if not re.fullmatch(r"arn:aws[a-z-]*:eks::aws:cluster-access-policy/AmazonEKS\w+Policy", policy):
            raise _invalid(f"The policyArn {policy} does not exist")
        entry["policies"][policy] = {"policyArn": policy, "accessScope": asked["accessScope"]}
        return {"clusterName": cluster, "principalArn": principal, "associatedAccessPolicy": entry["policies"][policy]}

    def _list_associated(self, region: str, _: Json, *, cluster: str, principal: str) -> Json:
        associated = list(self._entry(region, cluster, principal)["policies"].values())
        return {"clusterName": cluster, "principalArn": principal, "associatedAccessPolicies": associated}

    def _disassociate(self, region: str, _: Json, *, cluster: str, principal: str, policy: str) -> Json:
        self._entry(region, cluster, principal)["policies"].pop(policy, None)
        return {}

    # --- Add-ons ---

    def _create_add_on(self, region: str, asked: Json, *, cluster: str) -> Json:
        name = asked["addonName"]
        if name not in ADD_ONS:
            raise _invalid(f"Addon {name} specified is not supported")
        add_ons = self._add_ons.setdefault((region, cluster), {})
        if name in add_ons:
            raise Refused("ResourceInUseException", "Addon already exists.", status=409)
        if "serviceAccountRoleArn" in asked:
            self._role(asked["serviceAccountRoleArn"])
        offered = self._offered(region, cluster, name, asked)
        add_ons[name] = {
            "addonName": name,
            "clusterName": cluster,
            "status": "ACTIVE",
            "addonVersion": asked.get("addonVersion", offered[0]),
            "serviceAccountRoleArn": asked.get("serviceAccountRoleArn"),
            "addonArn": f"arn:aws:eks:{region}:{self._account}:addon/{cluster}/{name}/{secrets.token_hex(8)}",
            "tags": asked.get("tags", {}),
        }
        return {"addon": add_ons[name]}

    def _describe_add_on(self, region: str, _: Json, *, cluster: str, add_on: str) -> Json:
        return {"addon": self._add_on(region, cluster, add_on)}

    def _update_add_on(self, region: str, asked: Json, *, cluster: str, add_on: str) -> Json:
        found = self._add_on(region, cluster, add_on)
        if asked.get("addonVersion", found["addonVersion"]) != found["addonVersion"]:
            self._offered(region, cluster, add_on, asked)
        found |= {key: asked[key] for key in ("addonVersion", "serviceAccountRoleArn") if key in asked}
        return _done("AddonUpdate")

    def _delete_add_on(self, region: str, _: Json, *, cluster: str, add_on: str) -> Json:
        return {"addon": self._add_ons[region, cluster].pop(self._add_on(region, cluster, add_on)["addonName"])}

    def _offered(self, region: str, cluster: str, add_on: str, asked: Json) -> list[str]:
        """Versions of the add-on for the cluster's Kubernetes; the one that is asked for must be among them."""
        offered = versions_of(add_on, self._known(region, cluster)["version"])
        if not offered or asked.get("addonVersion", offered[0]) not in offered:
            raise _invalid("Addon version specified is not supported")
        return offered

    # --- All of them ---

    def _tag(self, region: str, asked: Json, *, arn: str) -> Json:
        self._tagged(region, arn)["tags"] |= asked["tags"]
        return {}

    def _untag(self, region: str, asked: Json, *, arn: str) -> Json:
        tags = self._tagged(region, arn)["tags"]
        for key in asked["tagKeys"]:
            tags.pop(key, None)
        return {}

    def _tagged(self, region: str, arn: str) -> Json:
        kept = [*self._clusters.values()]
        kept += [one for by_name in (*self._entries.values(), *self._add_ons.values()) for one in by_name.values()]
        for one in kept:
            if arn in (one.get("arn"), one.get("accessEntryArn"), one.get("addonArn")):
                return one
        raise _missing(f"No resource {arn} in {region}")

    def _known(self, region: str, cluster: str) -> Json:
        if (region, cluster) not in self._clusters:
            raise _missing(f"No cluster found for name: {cluster}.")
        return self._clusters[region, cluster]

    def _entry(self, region: str, cluster: str, principal: str) -> Json:
        entry = self._entries.get((region, cluster), {}).get(principal)
        if entry is None:
            raise _missing(f"The specified principalArn could not be found: {principal}")
        return entry

    def _add_on(self, region: str, cluster: str, name: str) -> Json:
        add_on = self._add_ons.get((region, cluster), {}).get(name)
        if add_on is None:
            raise _missing(f"No addon: {name} found in cluster: {cluster}")
        return add_on

    def _role(self, arn: str) -> None:
        roles = iam_backends[self._account]["aws"].roles.values()
        if arn not in [role.arn for role in roles]:
            raise _invalid(f"The specified principalArn is invalid: there is no role {arn}")

    def _key(self, region: str, arn: str) -> None:
        if arn not in [key.arn for key in kms_backends[self._account][region].keys.values()]:
            raise _invalid(f"The key {arn} does not exist")


def _endpoints(network: Json) -> None:
    private, public = network.get("endpointPrivateAccess", False), network.get("endpointPublicAccess", True)
    if not private and not public:
        raise _invalid("Private and public endpoint access cannot be false")
    if not public and network.get("publicAccessCidrs"):
        raise _invalid("publicAccessCidrs cannot be set when public access is disabled")


def _version(version: str) -> None:
    if version not in VERSIONS:
        raise _invalid(f"unsupported Kubernetes version {version}")


def _done(kind: str) -> Json:
    return {"update": {"id": secrets.token_hex(16), "status": "Successful", "type": kind}}


def _invalid(message: str) -> Refused:
    return Refused("InvalidParameterException", message)


def _missing(message: str) -> Refused:
    return Refused("ResourceNotFoundException", message, status=404)


def _error(refused: Refused) -> Reply:
    body = json.dumps({"__type": refused.code, "message": str(refused)})
    return refused.status, "application/json", body.encode()
