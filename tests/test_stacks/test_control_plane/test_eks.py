"""The EKS control plane, option by option, as an engine sees it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pulumi
import pytest
from pydantic import ValidationError

from autoscaler.model.errors import BadInput
from stacks.control_plane.eks import EksControlPlane, kubeconfig
from stacks.control_plane.hybrid_nodes import check_expires
from stacks.network.parts import ControlPlanePart, NetworkPart
from stacks.nodes.join import NodeAdmission
from stacks.nodes.node_groups import NodeIdentity
from stacks.settings.control_plane import EksSettings, HybridSettings
from tests.test_stacks.declared import Recorder
from tests.test_stacks.graph import Graph, graph

ADMIN = "arn:aws:iam::123456789012:role/platform"
EKS = "Eks lab"
CLUSTER = "Cluster lab-eks"
ZONES = ("us-east-1a", "us-east-1b")


def network() -> NetworkPart:
    """Of three zones, made before: in the third are nodes alone."""
    return NetworkPart(
        vpc_id=pulumi.Output.from_input("vpc-1"),
        subnets={zone: pulumi.Output.from_input(f"subnet-{zone}") for zone in (*ZONES, "us-east-1c")},
        node_security_group_id=pulumi.Output.from_input("sg-nodes"),
    )


def made(**given: Any) -> Graph:
    """What the component registers, with its nodes' admission; the stack exports its part."""
    settings = EksSettings.model_validate({"kind": "eks", "admins": [ADMIN], **given})

    def program() -> None:
        part: ControlPlanePart = EksControlPlane(
            "lab", settings, cluster="lab", region="us-east-1", network=network(), zones=ZONES
        ).part
        NodeAdmission("lab-nodes", cluster="lab", control_plane=part, role=NodeIdentity("lab-node", cluster="lab").role)
        for name, value in part.fields().items():
            pulumi.export(name, value)

    return graph(program, mocks=Recorder())


def test_by_itself_it_is_private_encrypted_and_logged() -> None:
    """The defaults are those that one would want."""
    found = made()
    inputs = found[CLUSTER].inputs
    assert inputs["vpcConfig"] == {
        "subnetIds": ["subnet-us-east-1a", "subnet-us-east-1b"],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": False,
    }
    assert inputs["accessConfig"] == {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    assert inputs["encryptionConfig"]["resources"] == ["secrets"]
    assert "Key lab-eks-secrets" in found[CLUSTER].needs
    assert found["Key lab-eks-secrets"].inputs["enableKeyRotation"] is True
    assert inputs["enabledClusterLogTypes"] == ["api", "audit", "authenticator"]
    assert found["LogGroup lab-eks-logs"].inputs["retentionInDays"] == 30
    assert "remoteNetworkConfig" not in inputs


def test_it_stands_before_whatever_it_needs_goes() -> None:
    """The log group would be made anew by a cluster that outlives it; a role without rights cannot delete it."""
    assert {"LogGroup lab-eks-logs", "RolePolicyAttachment lab-eks", "Role lab-eks"} <= made()[CLUSTER].needs


def test_everything_stands_under_the_component() -> None:
    """So that a tree of the stack shows what belongs together."""
    found = made(remote_node_networks=["10.80.0.0/16"], hybrid={"machines": 2})
    outside = {str(node) for node in found.nodes} - found.under(EKS) - found.under("NodeAdmission lab-nodes")
    assert outside - found.under("NodeIdentity lab-node") == {EKS, "NodeAdmission lab-nodes", "NodeIdentity lab-node"}


def test_a_public_endpoint_is_for_the_networks_that_are_named() -> None:
    """Not for the world, nor for the nodes: these stay inside the VPC."""
    config = made(endpoint="both", public_networks=["203.0.113.7/32"])[CLUSTER].inputs["vpcConfig"]
    assert config["endpointPublicAccess"] is True
    assert config["endpointPrivateAccess"] is True
    assert config["publicAccessCidrs"] == ["203.0.113.7/32"]


def test_administrators_and_nodes_come_in_by_access_entries() -> None:
    """Rights go to administrators alone; the nodes' entry waits for the cluster."""
    found = made()
    [association] = found.of_type("AccessPolicyAssociation")
    assert association.inputs["principalArn"] == ADMIN
    assert association.inputs["policyArn"].endswith("/AmazonEKSClusterAdminPolicy")
    assert f"AccessEntry {association.name}" in association.needs
    assert {entry.inputs["principalArn"]: entry.inputs["type"] for entry in found.of_type("AccessEntry")} == {
        ADMIN: "STANDARD",
        "arn:aws:test:::lab-node": "EC2_LINUX",
    }
    assert CLUSTER in found.all_needs("AccessEntry lab-nodes")
    of_joining = [one for one in found.of_type("RolePolicy") if one.inputs["name"] == "join"]
    [rights] = [json.loads(policy.inputs["policy"]) for policy in of_joining]
    assert [one["Action"] for one in rights["Statement"]] == [["ec2:DescribeInstances", "ec2:DescribeInstanceTypes"]]
    assert found.exports["control_plane"]["serviceNetwork"] == "10.100.0.0/16", "by which nodes find the name server"


def test_hybrid_nodes_have_a_role_an_entry_and_an_activation() -> None:
    """Its code is a secret wherever it goes."""
    found = made(remote_node_networks=["10.80.0.0/16"], remote_pod_networks=["10.85.0.0/16"], hybrid={"machines": 2})
    assert found[CLUSTER].inputs["remoteNetworkConfig"] == {
        "remoteNodeNetworks": {"cidrs": ["10.80.0.0/16"]},
        "remotePodNetworks": {"cidrs": ["10.85.0.0/16"]},
    }
    activation = found["Activation lab-hybrid"]
    assert activation.inputs["registrationLimit"] == 2
    assert activation.secret_outputs == ("activationCode",)
    assert found["AccessEntry lab-hybrid"].inputs["type"] == "HYBRID_LINUX"
    trust = json.loads(found["Role lab-hybrid"].inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Service": "ssm.amazonaws.com"}
    rights = {one["Sid"]: one for one in json.loads(found["RolePolicy lab-hybrid"].inputs["policy"])["Statement"]}
    assert rights["DeregisterItself"]["Condition"] == {
        "StringEquals": {"ssm:resourceTag/spillway.dev/cluster": "lab"}
    }, "machines of other clusters stay registered"
    assert found.exports["hybrid_activation_code"] == "hush-hush"
    ways = {rule.inputs.get("cidrIpv4") for rule in found.of_type("SecurityGroupIngressRule")}
    assert {"10.80.0.0/16", "10.85.0.0/16"} <= ways


def test_ways_are_open_between_nodes_and_the_api_server_alone() -> None:
    """No rule for everybody."""
    rules = [rule.inputs for rule in made().of_type("SecurityGroupIngressRule")]
    ways = {(one["referencedSecurityGroupId"], one["securityGroupId"], one["fromPort"], one["toPort"]) for one in rules}
    assert ways == {
        ("sg-nodes", "sg-own", 443, 443),
        ("sg-own", "sg-nodes", 443, 443),
        ("sg-own", "sg-nodes", 1025, 65535),
    }


def test_a_key_logs_and_add_ons_can_be_chosen() -> None:
    """Then no key is made."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    found = made(secrets_key=key, logs=[], log_days=365, addons={"coredns": "v1.13.1-eksbuild.1"}, version="1.34")
    inputs = found[CLUSTER].inputs
    assert inputs["encryptionConfig"]["provider"]["keyArn"] == key
    assert inputs["enabledClusterLogTypes"] == []
    assert inputs["version"] == "1.34"
    assert not found.of_type("Key")
    [add_on] = found.of_type("Addon")
    assert (add_on.inputs["addonName"], add_on.inputs["addonVersion"]) == ("coredns", "v1.13.1-eksbuild.1")


def test_add_ons_that_ask_aws_have_a_role_of_their_own() -> None:
    """Without one no pod gets an address; the pods of a node do not get it, only the add-on's ServiceAccount."""
    found = made(addons={"vpc-cni": "", "aws-ebs-csi-driver": "", "kube-proxy": ""})
    accounts = {"vpc-cni": "aws-node", "aws-ebs-csi-driver": "ebs-csi-controller-sa"}
    for add_on, account in accounts.items():
        addon = found[f"Addon lab-{add_on}"]
        assert addon.inputs["serviceAccountRoleArn"].endswith(f":lab-{add_on}")
        assert f"RolePolicyAttachment lab-{add_on}" in found.all_needs(str(addon)), "with its rights"
        trust = json.loads(found[f"Role lab-{add_on}"].inputs["assumeRolePolicy"])["Statement"][0]
        assert trust["Condition"]["StringEquals"]["issuer/id/1:sub"] == f"system:serviceaccount:kube-system:{account}"
    assert "serviceAccountRoleArn" not in found["Addon lab-kube-proxy"].inputs


def test_service_accounts_are_trusted_by_the_clusters_own_issuer() -> None:
    """For IRSA."""
    provider = made()["OpenIdConnectProvider lab-eks"]
    assert provider.inputs == {"url": "https://issuer/id/1", "clientIdLists": ["sts.amazonaws.com"]}
    assert CLUSTER in provider.needs


def test_the_kubeconfig_holds_no_credentials() -> None:
    """Its user asks the AWS CLI."""
    user = json.loads(kubeconfig(cluster="lab", region="us-east-1", endpoint="https://api", authority="UEVN"))["users"]
    assert user[0]["user"]["exec"]["args"][:4] == ["--region", "us-east-1", "eks", "get-token"]
    assert json.loads(made().exports["kubeconfig"])["clusters"][0]["cluster"]["server"] == "https://api"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"endpoint": "both"}, "needs public_networks"),
        ({"endpoint": "public", "public_networks": ["203.0.113.7/32"]}, "'private' or 'both'"),
        ({"public_networks": ["203.0.113.7/32"]}, "private takes none"),
        ({"endpoint": "both", "public_networks": ["0.0.0.0/0"]}, "not the whole internet"),
        ({"hybrid": {"machines": 1}}, "hybrid needs remote_node_networks"),
        ({"remote_pod_networks": ["10.85.0.0/16"]}, "needs remote_node_networks"),
        ({"remote_node_networks": ["10.80.0.0/16"], "remote_pod_networks": ["10.80.4.0/24"]}, "overlap"),
        ({"remote_node_networks": ["10.80.0.1/16"]}, "must be a network"),
        ({"admins": []}, "at least 1 item"),
        ({"admins": ["platform"]}, "should match pattern"),
        ({"log_days": 31}, "Input should be"),
        ({"version": "1.35.4"}, "should match pattern"),
        (
            {"remote_node_networks": ["10.8.0.0/16"], "hybrid": {"machines": 1, "expires": "soon"}},
            "must be a time in UTC",
        ),
    ],
)
def test_what_eks_would_refuse_is_refused_before(given: dict[str, Any], says: str) -> None:
    """In the configuration's words."""
    with pytest.raises(ValidationError, match=says):
        EksSettings.model_validate({"kind": "eks", "admins": [ADMIN], **given})


@pytest.mark.parametrize("expires", ["2026-11-30T23:59:59Z", "2026-12-31T12:00:01Z"])
def test_an_activation_that_systems_manager_would_refuse_is_told(expires: str) -> None:
    """A day that is over, or too far off; but not of one that was made, and is over since."""
    now = datetime(2026, 12, 1, 12, tzinfo=UTC)
    wanted = HybridSettings(machines=1, expires=expires)
    with pytest.raises(BadInput, match=rf"expires = '{expires}': .* to 2026-12-31T12:00:00Z, or leave it out"):
        check_expires(wanted, stands="", now=now)
    check_expires(wanted, stands=expires, now=now)
    for day in (None, "2026-12-31T12:00:00Z"):
        check_expires(HybridSettings(machines=1, expires=day), stands=expires, now=now)
