"""What programs look up of EKS, as the stand-in for the aws plugin answers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from stacks.local.pulumi_plugins.aws.kinds import Cloud, Properties, complaint, found


def look_up_clusters(cloud: Cloud, _: Properties) -> Properties:
    """``aws.eks.get_clusters``: names."""
    pages = cloud.client("eks").get_paginator("list_clusters").paginate()
    return {"id": cloud.region, "names": [name for page in pages for name in page["clusters"]]}


def look_up_cluster(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.eks.get_cluster``, as far as programs look at it."""
    cluster = _there(cloud.client("eks").describe_cluster, "cluster", name=asked["name"])
    return {
        "id": asked["name"],
        "name": asked["name"],
        "version": cluster["version"],
        "vpcConfig": {"subnetIds": cluster["resourcesVpcConfig"]["subnetIds"]},
    }


def look_up_cluster_versions(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.eks.get_cluster_versions``."""
    eks = cloud.client("eks")
    pages = eks.get_paginator("describe_cluster_versions").paginate(includeAll=bool(asked.get("includeAll")))
    return {
        "clusterVersions": [
            {
                "clusterVersion": one["clusterVersion"],
                "clusterType": one["clusterType"],
                "defaultVersion": one["defaultVersion"],
                "versionStatus": one["versionStatus"],
                "endOfExtendedSupportDate": _time(one.get("endOfExtendedSupportDate")),
            }
            for page in pages
            for one in page["clusterVersions"]
        ]
    }


def look_up_add_on(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.eks.get_addon``, as far as programs look at it."""
    cluster, name = asked["clusterName"], asked["addonName"]
    add_on = _there(cloud.client("eks").describe_addon, "addon", clusterName=cluster, addonName=name)
    return {"id": f"{cluster}:{name}", "addonName": name, "addonVersion": add_on["addonVersion"]}


def look_up_add_on_version(cloud: Cloud, asked: Properties) -> Properties:
    """``aws.eks.get_addon_version``: the newest or, where that is not asked for, the default one."""
    name, version = asked["addonName"], asked["kubernetesVersion"]
    pages = (
        cloud.client("eks").get_paginator("describe_addon_versions").paginate(addonName=name, kubernetesVersion=version)
    )
    for offered in (one for page in pages for add_on in page["addons"] for one in add_on["addonVersions"]):
        if asked.get("mostRecent") or any(one["defaultVersion"] for one in offered["compatibilities"]):
            return {"id": name, "addonName": name, "version": offered["addonVersion"]}
    told = f"reading EKS Add-On version info ({name}, {version}): empty result"
    raise ClientError(complaint(told), "DescribeAddonVersions")


def _there(call: Callable[..., Any], field: str, **asked: Any) -> Any:
    there = found(call, field, **asked)
    if there is None:
        raise ClientError(complaint(f"reading EKS {field}: couldn't find resource"), f"Describe{field.capitalize()}")
    return there


def _time(told: Any) -> str:
    return told.strftime("%Y-%m-%dT%H:%M:%SZ") if told else ""


LOOKUPS: Final[Mapping[str, Callable[[Cloud, Properties], Properties]]] = {
    "aws:eks/getAddon:getAddon": look_up_add_on,
    "aws:eks/getAddonVersion:getAddonVersion": look_up_add_on_version,
    "aws:eks/getCluster:getCluster": look_up_cluster,
    "aws:eks/getClusters:getClusters": look_up_clusters,
    "aws:eks/getClusterVersions:getClusterVersions": look_up_cluster_versions,
}
"""By token."""
