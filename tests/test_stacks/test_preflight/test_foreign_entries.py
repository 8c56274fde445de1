"""What comes into an EKS cluster by an entry that the stack has not made."""

from __future__ import annotations

import pytest

from autoscaler.model.errors import Unavailable
from stacks.local.pulumi_plugins.aws.kinds import Cloud
from stacks.preflight.foreign_entries import look_up_entries, tell_foreign_entries
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
