"""The kubeadm control plane, option by option, as an engine sees it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pulumi
import pytest
import yaml
from pydantic import ValidationError

from stacks.control_plane.kubeadm import KubeadmArgs, KubeadmControlPlane
from stacks.control_plane.member_user_data import KUBEADM_FILE, LIMIT, MEMBER_FILE, SCRIPT
from stacks.network.parts import NetworkPart
from stacks.nodes.join import NodeAdmission, join_parameter
from stacks.nodes.node_groups import NodeIdentity
from stacks.settings.control_plane import KubeadmSettings
from tests.test_stacks.declared import Recorder
from tests.test_stacks.graph import Graph, graph

ZONES = ("us-east-1a", "us-east-1b")
KUBECONFIG = '{"clusters": [{"cluster": {"certificate-authority-data": "UEVN"}}], "users": ["hush-hush"]}'


class Cloud(Recorder):
    """Also makes up addresses and names."""

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        """As EC2 and the load balancer do."""
        key, outputs = super().new_resource(args)
        made_up = {
            "aws:ec2/networkInterface:NetworkInterface": {"privateIp": f"10.0.0.{args.name[-1]}"},
            "aws:lb/loadBalancer:LoadBalancer": {"dnsName": "api.elb"},
            "aws:s3/bucket:Bucket": {"bucket": "snapshots"},
            "aws:ebs/volume:Volume": {},
        }
        return key, outputs | made_up.get(args.typ, {})

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The first member has written its kubeconfig."""
        if "getCallerIdentity" in args.token:
            return super().call(args)
        assert args.args["name"] == "/spillway/lab/control-plane/kubeconfig"
        return {"value": KUBECONFIG}, []


def made(*, zones: tuple[str, ...] = ZONES, preview: bool = False, **given: Any) -> Graph:
    """What the component registers, with its nodes' admission; the stack exports its part."""
    settings = KubeadmSettings.model_validate({"kind": "kubeadm", "ami": "ami-0123456789abcdef0", **given})

    def program() -> None:
        network = NetworkPart(
            vpc_id=pulumi.Output.from_input("vpc-1"),
            subnets={zone: pulumi.Output.from_input(f"subnet-{zone}") for zone in zones},
            node_security_group_id=pulumi.Output.from_input("sg-nodes"),
        )
        args = KubeadmArgs(
            settings=settings,
            cluster="lab",
            region="us-east-1",
            network=network,
            zones=zones,
            image_id="ami-1",
        )
        part = KubeadmControlPlane("lab", args).part
        NodeAdmission("lab-nodes", cluster="lab", control_plane=part, role=NodeIdentity("lab-node", cluster="lab").role)
        for name, value in part.fields().items():
            pulumi.export(name, value)

    return graph(program, mocks=Cloud(), preview=preview)


def user_data(found: Graph, number: int) -> dict[str, str]:
    """Files that a member's cloud-config writes."""
    text = base64.b64decode(found[f"Instance lab-control-plane-{number}"].inputs["userDataBase64"]).decode()
    return {one["path"]: one["content"] for one in yaml.safe_load(text)["write_files"]}


@pytest.mark.parametrize(("instances", "zones"), [(1, ["us-east-1a"]), (3, ["us-east-1a", "us-east-1b", "us-east-1a"])])
def test_members_stand_in_turn_in_the_zones(instances: int, zones: list[str]) -> None:
    """Each with a volume of its own zone."""
    found = made(instances=instances)
    names = [f"lab-control-plane-{number}" for number in range(instances)]
    assert [found[f"NetworkInterface {name}"].inputs["subnetId"] for name in names] == [
        f"subnet-{one}" for one in zones
    ]
    assert [found[f"Volume {name}"].inputs["availabilityZone"] for name in names] == zones
    assert len(found.of_type("Instance")) == len(found.of_type("TargetGroupAttachment")) == instances


def test_each_member_waits_for_the_gate_of_the_one_before() -> None:
    """And is ended before its successor takes its address and its data."""
    found = made()
    for number in (1, 2):
        instance = found[f"Instance lab-control-plane-{number}"]
        assert f"Association lab-control-plane-{number - 1}-healthy" in instance.needs
        assert f"Instance lab-control-plane-{number - 1}" in found.all_needs(str(instance))
    for instance in found.of_type("Instance"):
        assert instance.replaced_first
        assert instance.ignores == ()
        assert instance.inputs["userDataReplaceOnChange"] is True
        gate = found[f"Association {instance.name}-healthy"]
        assert gate.inputs["waitForSuccessTimeoutSeconds"] == 900
        assert "spillway-control-plane healthy" in gate.inputs["parameters"]["commands"]
        assert {str(instance), f"VolumeAttachment {instance.name}"} <= gate.needs


def test_an_image_is_meant_where_it_is_named_and_not_where_a_parameter_holds_the_newest() -> None:
    """An image that somebody else published must replace no control plane by itself."""
    for ami, ignored in (("ami-0123456789abcdef0", ()), ("ssm:/images/control-plane", ("ami",))):
        assert {one.ignores for one in made(ami=ami).of_type("Instance")} == {ignored}


def test_address_data_and_place_in_the_balancer_outlive_an_instance() -> None:
    """None of them needs it."""
    found = made()
    for number in range(3):
        name = f"lab-control-plane-{number}"
        for kind in ("NetworkInterface", "Volume", "TargetGroupAttachment"):
            assert f"Instance {name}" not in found.all_needs(f"{kind} {name}")


def test_disks_are_encrypted_and_instances_have_imdsv2() -> None:
    """With the stack's own key, or one that is given."""
    key = "arn:aws:kms:us-east-1:123456789012:key/1"
    for found, wanted in ((made(), "arn:aws:test:::lab-control-plane"), (made(key=key), key)):
        for volume in found.of_type("Volume"):
            assert (volume.inputs["encrypted"], volume.inputs["kmsKeyId"]) == (True, wanted)
        for instance in found.of_type("Instance"):
            root = instance.inputs["rootBlockDevice"]
            assert (root["encrypted"], root["kmsKeyId"]) == (True, wanted)
            assert instance.inputs["metadataOptions"]["httpTokens"] == "required"
            assert instance.inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
    assert not made(key=key).of_type("Key")


def test_members_are_open_to_the_balancer_and_each_other_and_to_pod_networks_of_the_others() -> None:
    """Neither nodes nor clients reach etcd, a kubelet or the API server of a member by itself."""
    found = made(clients=["10.20.0.0/16"])
    assert found["LoadBalancer lab-control-plane"].inputs["internal"] is True
    balancer, group = "lab-control-plane-balancer-id", "lab-control-plane-id"
    rules = [one.inputs for one in found.of_type("SecurityGroupIngressRule")]
    ways = {
        (
            one["securityGroupId"],
            one.get("referencedSecurityGroupId") or one.get("cidrIpv4"),
            one["ipProtocol"],
            one.get("fromPort"),
        )
        for one in rules
    }
    overlays = {("udp", 8472), ("udp", 4789), ("tcp", 179), ("tcp", 4240)}
    assert ways == {
        (balancer, "sg-nodes", "tcp", 6443),
        (balancer, group, "tcp", 6443),
        (balancer, "10.20.0.0/16", "tcp", 6443),
        (group, balancer, "tcp", 6443),
        (group, group, "-1", None),
        ("sg-nodes", group, "-1", None),
        *((group, source, *overlay) for source in ("sg-nodes", "10.20.0.0/16") for overlay in overlays),
    }
    for interface in found.of_type("NetworkInterface"):
        assert interface.inputs["securityGroups"] == [group], "what the nodes' group lets in is not let in here"
    assert found["TargetGroup lab-control-plane"].inputs["targetType"] == "ip"


def test_snapshots_are_private_encrypted_versioned_and_go_by_age() -> None:
    """And refused without TLS."""
    found = made(snapshots={"every": "2h", "keep_days": 7})
    name = "lab-etcd-snapshots"
    assert found[f"BucketVersioning {name}"].inputs["versioningConfiguration"] == {"status": "Enabled"}
    [rule] = found[f"BucketLifecycleConfiguration {name}"].inputs["rules"]
    assert rule["expiration"] == {"days": 7}
    assert rule["noncurrentVersionExpiration"] == {"noncurrentDays": 7}
    [encrypted] = found[f"BucketServerSideEncryptionConfiguration {name}"].inputs["rules"]
    assert encrypted["applyServerSideEncryptionByDefault"]["sseAlgorithm"] == "aws:kms"
    switches = {key: value for key, value in found[f"BucketPublicAccessBlock {name}"].inputs.items() if key != "bucket"}
    assert len(switches) == 4
    assert all(switches.values())
    [statement] = json.loads(found[f"BucketPolicy {name}"].inputs["policy"])["Statement"]
    assert (statement["Effect"], statement["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert "OnUnitActiveSec=7200s" in user_data(found, 0)["/etc/systemd/system/spillway-snapshot.timer"]


@pytest.mark.parametrize("outlive", [True, False])
def test_snapshots_outlive_the_cluster_where_that_is_asked_for(outlive: bool) -> None:  # noqa: FBT001
    """Else `destroy` empties the bucket first."""
    bucket = made(snapshots={"outlive_the_cluster": outlive})["Bucket lab-etcd-snapshots"]
    assert (bucket.kept, bucket.inputs["forceDestroy"]) == (outlive, not outlive)


def test_members_may_put_snapshots_and_no_more_of_the_bucket() -> None:
    """Neither read nor delete: who takes a member over cannot take the backups."""
    policies = made().of_type("RolePolicy")
    [rights] = [json.loads(one.inputs["policy"]) for one in policies if one.inputs["name"] == "member"]
    actions = {one["Sid"]: one["Action"] for one in rights["Statement"]}
    assert actions["PutSnapshots"] == "s3:PutObject"
    assert not [one for one in str(actions).split("'") if one.startswith("s3:") and one != "s3:PutObject"]
    resources = {one["Sid"]: one["Resource"] for one in rights["Statement"]}
    assert resources["PutSnapshots"] == "arn:aws:test:::lab-etcd-snapshots/lab/*"
    assert all("/spillway/lab/" in one for one in resources["KeepWhatJoinsOthers"])
    assert resources["UseTheKey"] == "arn:aws:test:::lab-control-plane"


def test_nodes_may_read_the_join_token_and_nothing_beside_it() -> None:
    """Not the kubeconfig, not the key of the control plane's certificates."""
    [rights] = [
        json.loads(one.inputs["policy"]) for one in made().of_type("RolePolicy") if one.inputs["name"] == "join"
    ]
    read, decrypt = rights["Statement"]
    assert read["Resource"].endswith(f":parameter{join_parameter('lab')}")
    assert "*" not in read["Resource"].rpartition("/")[2]
    assert decrypt["Condition"]["StringLike"]["kms:EncryptionContext:PARAMETER_ARN"] == read["Resource"]


def test_what_joins_others_stands_only_in_secure_strings_that_members_write() -> None:
    """The stack makes the places, so that they go with it, and leaves alone what is in them."""
    places = made().of_type("Parameter")
    assert {one.inputs["name"] for one in places} == {
        *("/spillway/lab/join-token", "/spillway/lab/control-plane/certificate-key"),
        *("/spillway/lab/control-plane/kubeconfig", "/spillway/lab/control-plane/version"),
    }
    for one in places:
        assert one.inputs["type"] == "SecureString"
        assert one.ignores == ("value", "keyId", "tier"), "an update of any would write the value too"


def test_user_data_names_places_and_holds_no_secret() -> None:
    """And fits; only the first member may found the cluster."""
    found = made(names=["api.lab.example.org", "203.0.113.9"], version="1.35.4")
    for number in range(3):
        files = user_data(found, number)
        assert f"FIRST={'yes' if number == 0 else 'no'}" in files[MEMBER_FILE]
        assert "KUBECONFIG_PARAMETER=/spillway/lab/control-plane/kubeconfig" in files[MEMBER_FILE]
        assert f"DATA_VOLUME=lab-control-plane-{number}-id" in files[MEMBER_FILE]
        assert "hush-hush" not in str(files)
        assert SCRIPT.read_text(encoding="utf-8") in files.values()
        raw = base64.b64decode(found[f"Instance lab-control-plane-{number}"].inputs["userDataBase64"])
        assert len(raw) <= LIMIT
    cluster = yaml.safe_load(user_data(found, 0)[KUBEADM_FILE])
    assert cluster["kubernetesVersion"] == "v1.35.4"
    assert cluster["controlPlaneEndpoint"] == "api.elb:6443"
    assert {"api.elb", "api.lab.example.org", "203.0.113.9"} <= set(cluster["apiServer"]["certSANs"])


def test_the_kubeconfig_is_read_when_all_are_healthy_and_stays_secret() -> None:
    """The authority in it does not: it is a public certificate."""
    found = made()
    assert found.exports["kubeconfig"] == KUBECONFIG
    assert found.exports["control_plane"]["certificateAuthority"] == "UEVN"
    assert found.exports["control_plane"]["endpoint"] == "https://api.elb:6443"
    assert found.exports["control_plane"]["joinParameter"] == join_parameter("lab")


def test_a_preview_asks_for_nothing_that_is_not_there_yet() -> None:
    """The kubeconfig's place is read only once it is made."""
    assert len(made(preview=True).of_type("Instance")) == 3


def test_everything_stands_under_the_component() -> None:
    """So that a tree of the stack shows what belongs together."""
    found = made()
    below = found.under("Kubeadm lab") | found.under("NodeAdmission lab-nodes") | found.under("NodeIdentity lab-node")
    assert {str(node) for node in found.nodes} - below == {
        "Kubeadm lab",
        "NodeAdmission lab-nodes",
        "NodeIdentity lab-node",
    }


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"instances": 2}, "1 or 3"),
        ({"version": "1.35"}, "match pattern"),
        ({"pod_network": "10.96.128.0/17"}, "overlap"),
        ({"clients": ["8.8.8.0/24"]}, "must be a private network"),
        ({"data_volume_gib": 5}, "greater than or equal to 10"),
        ({"snapshots": {"every": "soon"}}, "span of time"),
        ({"key": "alias/mine"}, "match pattern"),
        ({"ami": "ubuntu"}, "match pattern"),
    ],
)
def test_what_cannot_be_is_refused_before(given: dict[str, Any], says: str) -> None:
    """In the configuration's words."""
    with pytest.raises(ValidationError, match=says):
        KubeadmSettings.model_validate({"kind": "kubeadm", "ami": "ami-0123456789abcdef0", **given})


def test_an_image_must_be_named() -> None:
    """A plain Ubuntu has no kubeadm: `pulumi up` would wait in vain for its first member."""
    with pytest.raises(ValidationError, match="ami"):
        KubeadmSettings.model_validate({"kind": "kubeadm"})


def test_a_member_stays_where_it_was_made() -> None:
    """In the zone of its data, under its key: others would be other volumes."""
    found = made()
    assert {one.ignores for one in found.of_type("Volume")} == {("availabilityZone", "kmsKeyId")}
    assert {one.ignores for one in found.of_type("NetworkInterface")} == {("subnetId",)}
    assert {one.inputs["tags"]["spillway.dev/key"] for one in found.of_type("Volume")} == {"stack"}
