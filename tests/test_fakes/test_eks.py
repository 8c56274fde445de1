"""What the stand-ins for EKS and Systems Manager refuse, as AWS does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import astuple, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from stacks.control_plane.existing_members import parameters_of
from stacks.control_plane.kubeadm import authority_in
from stacks.control_plane.member_user_data import NOT_YET, MemberSpec, render_member
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.server import serving
from tests.fakes.aws_services.systems_manager import EKS_IMAGES

ADMIN = "arn:aws:iam::123456789012:role/platform"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The local AWS, in threads of this process."""
    with serving(World()) as address:
        yield address


def client(service: str, url: str) -> Any:
    """A client of it."""
    make: Any = boto3.client
    keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
    return make(service, region_name="us-east-1", endpoint_url=url, **keys)


@pytest.fixture(scope="module")
def cluster(url: str) -> dict[str, Any]:
    """What a good cluster is made from; one of them stands."""
    ec2, iam = client("ec2", url), client("iam", url)
    subnets = [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]]
    trust = {
        "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "ssm.amazonaws.com"}}]
    }
    role = iam.create_role(RoleName="machines", AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", **trust}))
    wanted = {
        "name": "good",
        "version": "1.34",
        "roleArn": role["Role"]["Arn"],
        "resourcesVpcConfig": {"subnetIds": subnets[:2]},
        "accessConfig": {"authenticationMode": "API"},
    }
    client("eks", url).create_cluster(**wanted)
    return wanted


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, "ResourceInUseException"),
        ({"name": "no good"}, "is invalid"),
        ({"version": "1.12"}, "unsupported Kubernetes version"),
        ({"roleArn": "arn:aws:iam::123456789012:role/nobody"}, "there is no role"),
        ({"resourcesVpcConfig": {"subnetIds": ["subnet-0"]}}, "does not exist"),
        ({"encryptionConfig": [{"provider": {"keyArn": "arn:aws:kms:x"}, "resources": ["secrets"]}]}, "does not exist"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(
    url: str, cluster: dict[str, Any], changed: dict[str, Any], says: str
) -> None:
    """In AWS's words."""
    name = {} if not changed or "name" in changed else {"name": "another"}
    with pytest.raises(ClientError, match=says):
        client("eks", url).create_cluster(**{**cluster, **name, **changed})


def test_subnets_of_one_zone_and_a_cluster_that_nobody_reaches_are_refused(url: str, cluster: dict[str, Any]) -> None:
    """Both are about its network."""
    subnet = cluster["resourcesVpcConfig"]["subnetIds"][0]
    closed = {"endpointPublicAccess": False, "endpointPrivateAccess": False}
    eks = client("eks", url)
    with pytest.raises(ClientError, match="two different AZs"):
        eks.create_cluster(**{**cluster, "name": "a", "resourcesVpcConfig": {"subnetIds": [subnet, subnet]}})
    with pytest.raises(ClientError, match="cannot be false"):
        eks.create_cluster(**{**cluster, "name": "b", "resourcesVpcConfig": cluster["resourcesVpcConfig"] | closed})


def test_a_cluster_stays_in_its_zones(url: str, cluster: dict[str, Any]) -> None:
    """Other subnets of them it takes."""
    ec2, eks = client("ec2", url), client("eks", url)
    subnets = ec2.describe_subnets()["Subnets"]
    block = {"VpcId": subnets[0]["VpcId"], "CidrBlock": "172.31.240.0/24"}
    other = ec2.create_subnet(**block, AvailabilityZone=subnets[0]["AvailabilityZone"])["Subnet"]["SubnetId"]
    first, second, third = (one["SubnetId"] for one in subnets[:3])
    for wanted in ([first, second, third], [first, third]):
        with pytest.raises(ClientError, match="should belong to the exact set of AZs"):
            eks.update_cluster_config(name="good", resourcesVpcConfig={"subnetIds": wanted})
    eks.update_cluster_config(name="good", resourcesVpcConfig={"subnetIds": [other, second]})
    assert eks.describe_cluster(name="good")["cluster"]["resourcesVpcConfig"]["subnetIds"] == [other, second]


def test_entries_for_nodes_have_no_policies_and_each_principal_one_entry(url: str, cluster: dict[str, Any]) -> None:
    """And a cluster goes one version up at a time."""
    eks, role = client("eks", url), cluster["roleArn"]
    eks.create_access_entry(clusterName="good", principalArn=role, type="HYBRID_LINUX")
    with pytest.raises(ClientError, match="ResourceInUseException"):
        eks.create_access_entry(clusterName="good", principalArn=role)
    with pytest.raises(ClientError, match="cannot be associated"):
        eks.associate_access_policy(
            clusterName="good",
            principalArn=role,
            policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
            accessScope={"type": "cluster"},
        )
    with pytest.raises(ClientError, match="there is no role"):
        eks.create_access_entry(clusterName="good", principalArn=ADMIN, type="EC2_LINUX")
    with pytest.raises(ClientError, match="ResourceNotFoundException"):
        eks.create_access_entry(clusterName="none", principalArn=ADMIN)
    with pytest.raises(ClientError, match="is not supported"):
        eks.create_addon(clusterName="good", addonName="vpc-cmi")
    with pytest.raises(ClientError, match="Addon version specified is not supported"):
        eks.create_addon(clusterName="good", addonName="kube-proxy", addonVersion="v1.35.0-eksbuild.2")
    eks.create_addon(clusterName="good", addonName="kube-proxy")
    assert eks.describe_addon(clusterName="good", addonName="kube-proxy")["addon"]["addonVersion"].startswith("v1.34")
    with pytest.raises(ClientError, match="Addon version specified is not supported"):
        eks.update_addon(clusterName="good", addonName="kube-proxy", addonVersion="v1.35.0-eksbuild.2")
    with pytest.raises(ClientError, match="Unsupported Kubernetes minor version update"):
        eks.update_cluster_version(name="good", version="1.32")


def test_what_there_is_to_be_had_is_told(url: str) -> None:
    """Versions of Kubernetes, with those that have ended where they are asked for, and versions of an add-on."""
    eks = client("eks", url)
    told = {one["clusterVersion"] for one in eks.describe_cluster_versions()["clusterVersions"]}
    every = {one["clusterVersion"]: one for one in eks.describe_cluster_versions(includeAll=True)["clusterVersions"]}
    assert told == {one for one, version in every.items() if version["versionStatus"] == "STANDARD_SUPPORT"}
    assert every["1.31"]["versionStatus"] == "UNSUPPORTED"
    assert every["1.31"]["endOfExtendedSupportDate"] == datetime(2026, 11, 26, tzinfo=UTC)
    [add_on] = eks.describe_addon_versions(addonName="kube-proxy", kubernetesVersion="1.33")["addons"]
    versions = {one["addonVersion"]: one["compatibilities"][0]["defaultVersion"] for one in add_on["addonVersions"]}
    assert versions == {"v1.33.5-eksbuild.2": True, "v1.32.9-eksbuild.2": False}
    assert eks.describe_addon_versions(addonName="vpc-cmi", kubernetesVersion="1.33")["addons"] == []
    with pytest.raises(ClientError, match="does not serve the parameter defaultOnly"):
        eks.describe_cluster_versions(defaultOnly=True)
    with pytest.raises(ClientError, match="does not serve the parameter owners"):
        eks.describe_addon_versions(addonName="vpc-cni", kubernetesVersion="1.33", owners=["aws"])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"IamRole": "nobody"}, "Nonexistent role"),
        ({"RegistrationLimit": 1001}, "between 1 and 1000"),
        ({"ExpirationDate": datetime.now(UTC) + timedelta(days=31)}, "within 30 days"),
        ({"ExpirationDate": datetime.now(UTC) - timedelta(days=1)}, "in the future"),
    ],
)
def test_an_activation_that_cannot_be_is_refused(
    url: str, cluster: dict[str, Any], changed: dict[str, Any], says: str
) -> None:
    """Its role must trust Systems Manager, and it lasts 30 days at most."""
    assert cluster
    with pytest.raises(ClientError, match=says):
        client("ssm", url).create_activation(**{"IamRole": "machines", "RegistrationLimit": 2, **changed})


def test_an_association_is_done_when_its_instances_run(url: str) -> None:
    """Unknown ones, and documents, are refused."""
    ssm = client("ssm", url)
    with pytest.raises(ClientError, match="InvalidInstanceId"):
        ssm.create_association(Name="AWS-RunShellScript", Targets=[{"Key": "InstanceIds", "Values": ["i-0"]}])
    with pytest.raises(ClientError, match="InvalidDocument"):
        ssm.create_association(Name="AWS-RunShelScript")


def test_the_images_for_eks_are_told_by_version_architecture_and_kind(url: str) -> None:
    """By the parameters that AWS keeps for everybody, and the images are there."""
    ssm = client("ssm", url)
    path = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/{}/recommended/image_id"
    for kind, image in EKS_IMAGES.items():
        assert ssm.get_parameter(Name=path.format(kind))["Parameter"]["Value"] == image
        assert client("ec2", url).describe_images(ImageIds=[image])["Images"]
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name=path.format("arm64/neuron"))


def test_the_first_member_of_a_control_plane_has_handed_on_what_joins_others_when_its_gate_is_open(url: str) -> None:
    """Once: what stands there already is another's work. Other instances hand nothing on."""
    ssm, ec2 = client("ssm", url), client("ec2", url)
    names = astuple(MEMBER.parameters)
    for name in names:
        ssm.put_parameter(Name=name, Value=NOT_YET, Type="SecureString")
    told = {"first": MEMBER, "second": replace(MEMBER, first=False)}

    def gate(user_data: str) -> list[str]:
        asked = {"ImageId": "ami-12c6146b", "InstanceType": "m6i.large", "MinCount": 1, "MaxCount": 1}
        instance = ec2.run_instances(**asked, UserData=user_data)["Instances"][0]["InstanceId"]
        ec2.get_waiter("instance_running").wait(InstanceIds=[instance], WaiterConfig={"Delay": 0.1, "MaxAttempts": 200})
        targets = [{"Key": "InstanceIds", "Values": [instance]}]
        ssm.create_association(Name="AWS-RunShellScript", Targets=targets)
        return [ssm.get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"] for name in names]

    assert gate("") == gate(render_member(told["second"])) == [NOT_YET] * 4
    written = gate(render_member(told["first"]))
    assert NOT_YET not in written
    assert authority_in(written[2])
    assert written[3] == MEMBER.version
    assert gate(render_member(told["first"])) == written


MEMBER = MemberSpec(
    cluster="lab",
    region="us-east-1",
    version="1.35.4",
    first=True,
    endpoint="api.elb",
    names=(),
    pod_network="10.244.0.0/16",
    service_network="10.96.0.0/12",
    data_volume="vol-1",
    key="alias/aws/ssm",
    parameters=parameters_of("lab"),
    bucket="snapshots",
    snapshot_every=timedelta(hours=6),
)
