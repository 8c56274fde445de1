"""What comes into an EKS cluster by an entry that the stack has not made."""

from __future__ import annotations

from pathlib import Path

import pulumi
import pytest

from autoscaler.model.errors import Unavailable
from stacks.local.pulumi_plugins.aws.kinds import Cloud
from stacks.preflight.foreign_entries import look_up_entries, tell_foreign_entries
from stacks.programs import build
from tests.test_stacks.declared import Recorder, plans
from tests.test_stacks.graph import graph
from tests.test_stacks.test_preflight.test_eks_versions import make_cluster, url

__all__ = ["url"]
ADMIN = "arn:aws:iam::123456789012:role/admins"
OF_OTHERS = "arn:aws:iam::123456789012:user/mallory"


def test_an_entry_of_others_is_told_with_the_command_that_takes_it_away() -> None:
    """Neither an administrator of the file, nor a role of the stack, nor AWS's own for EKS."""
    entries = [
        ADMIN,
        OF_OTHERS,
        "arn:aws:iam::123456789012:role/spillway/lab/lab-node",
        "arn:aws:iam::123456789012:role/spillway/lab-2/lab-2-node",
        "arn:aws:iam::123456789012:role/aws-service-role/eks.amazonaws.com/AWSServiceRoleForAmazonEKS",
    ]
    told = tell_foreign_entries(entries, cluster="lab", admins=[ADMIN])
    assert [line.split()[0] for line in told] == [entries[3], OF_OTHERS]
    assert f"aws eks delete-access-entry --cluster-name lab --principal-arn {OF_OTHERS}" in told[1]


@pytest.mark.usefixtures("url")
def test_entries_are_asked_of_eks(url: str) -> None:
    """All of them; and EKS that does not tell them is told of."""
    make_cluster(url, version="1.34")
    eks = Cloud(region="us-east-1", endpoint=url, default_tags={}).client("eks")
    eks.update_cluster_config(name="lab", accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    eks.create_access_entry(clusterName="lab", principalArn=OF_OTHERS)
    assert look_up_entries("lab", region="us-east-1") == (OF_OTHERS,)
    with pytest.raises(Unavailable, match="access entries of the cluster none"):
        look_up_entries("none", region="us-east-1")


@pytest.mark.usefixtures("url")
def test_every_preview_of_a_cluster_that_runs_tells_them(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A warning of the program, so `pulumi preview` and `pulumi up` both show it, also where nothing is to change."""
    make_cluster(url, version="1.35")
    eks = Cloud(region="us-east-1", endpoint=url, default_tags={}).client("eks")
    eks.update_cluster_config(name="lab", accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    for principal in (ADMIN, OF_OTHERS):
        eks.create_access_entry(clusterName="lab", principalArn=principal)
    warned: list[str] = []
    monkeypatch.setattr(pulumi.log, "warn", warned.append)
    wanted = plans(tmp_path, control_plane={"kind": "eks", "version": "1.35", "admins": [ADMIN]})
    graph(lambda: build(wanted), mocks=Recorder(getClusters={"names": ["lab"]}), preview=True)
    (told,) = [line for line in warned if "access entry" in line]
    assert told.startswith(f"{OF_OTHERS} has an access entry of the EKS cluster lab")
