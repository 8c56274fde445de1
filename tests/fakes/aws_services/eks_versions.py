"""What the stand-in for EKS offers: versions of Kubernetes, and of add-ons for each."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from stacks.local.wire.aws_protocol import Refused

VERSIONS: Final = ("1.32", "1.33", "1.34", "1.35")
ENDED: Final = {"1.31": datetime(2026, 11, 26, tzinfo=UTC)}
"""Those that EKS once offered, and until when it supported them."""
ADD_ONS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "aws-ebs-csi-driver": {"v1.55.0-eksbuild.1": VERSIONS, "v1.54.0-eksbuild.1": VERSIONS},
    "coredns": {"v1.13.1-eksbuild.1": VERSIONS[2:], "v1.12.4-eksbuild.1": VERSIONS, "v1.11.4-eksbuild.2": VERSIONS[:2]},
    "eks-pod-identity-agent": {"v1.3.10-eksbuild.1": VERSIONS},
    "kube-proxy": {
        "v1.35.0-eksbuild.2": VERSIONS[3:],
        "v1.34.1-eksbuild.2": VERSIONS[2:],
        "v1.33.5-eksbuild.2": VERSIONS[1:],
        "v1.32.9-eksbuild.2": VERSIONS,
    },
    "vpc-cni": {"v1.21.1-eksbuild.1": VERSIONS, "v1.20.4-eksbuild.2": VERSIONS[:3]},
}
"""Versions of each, the newest first, with the versions of Kubernetes that they are for."""

Json = dict[str, Any]


def cluster_versions(asked: Json) -> Json:
    """``DescribeClusterVersions``; those that have ended where all are asked for."""
    _understand(asked, "includeAll")
    ended = ENDED if asked.get("includeAll") == ["true"] else {}
    told = [_version(one, "STANDARD_SUPPORT") for one in reversed(VERSIONS)]
    told += [_version(one, "UNSUPPORTED") | {"endOfExtendedSupportDate": end.timestamp()} for one, end in ended.items()]
    return {"clusterVersions": told}


def add_on_versions(asked: Json) -> Json:
    """``DescribeAddonVersions`` of one add-on and one version of Kubernetes: of one that there is not, nothing."""
    _understand(asked, "addonName", "kubernetesVersion")
    [name], [version] = asked["addonName"], asked["kubernetesVersion"]
    offered = versions_of(name, version)
    told = [
        {
            "addonVersion": one,
            "compatibilities": [
                {"clusterVersion": version, "platformVersions": ["*"], "defaultVersion": one == offered[0]}
            ],
        }
        for one in offered
    ]
    return {"addons": [{"addonName": name, "addonVersions": told}] if told else []}


def versions_of(add_on: str, version: str) -> list[str]:
    """Versions of an add-on for one of Kubernetes; the first is taken where none is asked for."""
    return [one for one, of in ADD_ONS.get(add_on, {}).items() if version in of]


def _version(version: str, status: str) -> Json:
    return {
        "clusterVersion": version,
        "clusterType": "eks",
        "defaultVersion": version == VERSIONS[-1],
        "versionStatus": status,
    }


def _understand(asked: Json, *keys: str) -> None:
    for key in asked.keys() - set(keys):
        raise Refused("InvalidParameterException", f"the stand-in for EKS does not serve the parameter {key}")
