"""Each kind of control plane by the real engine, against the local AWS: up, up again, changed, destroyed."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from autoscaler.model.errors import BadInput
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.nodes.user_data import BOOT_FILE
from stacks.settings.outputs import parse_outputs
from tests.fakes.aws_services.systems_manager import EKS_IMAGES
from tests.live.stacks import asked_since, calls_so_far, client, everything_in, not_granted, settings_for
from tests.test_stacks.test_nodes.test_bundle import bundle
from tests.test_stacks.test_nodes.test_eks_node_config import config_in

pytestmark = [pytest.mark.live, pytest.mark.long]

ADMIN = "arn:aws:iam::123456789012:role/platform"
ZONES = ["us-east-1a", "us-east-1b"]
GROUPS = [{"name": "cpu", "instance_type": "m5.4xlarge", "zones": ZONES, "max": 2}]


def stack(
    folder: Path,
    *,
    aws_url: str,
    engine: dict[str, Path],
    cluster: str,
    groups: Sequence[dict[str, Any]] = GROUPS,
    **control_plane: Any,
) -> EngineSettings:
    """A stack of these groups, one cheap one by default, and a control plane."""
    folder.mkdir(exist_ok=True)
    made = settings_for(folder, aws_url=aws_url, tools=engine, cluster=cluster, groups=list(groups))
    return replace(made, overrides={"spillway:control_plane": control_plane})


def all_that_stands(url: str) -> dict[str, list[str]]:
    """As `everything_in`, with what control planes are made of; but for volumes, which moto keeps without instances."""
    keys = client("kms", url)
    return everything_in(url) | {
        "clusters": client("eks", url).list_clusters()["clusters"],
        "issuers": [
            one["Arn"] for one in client("iam", url).list_open_id_connect_providers()["OpenIDConnectProviderList"]
        ],
        "activations": [one["ActivationId"] for one in client("ssm", url).describe_activations()["ActivationList"]],
        "logs": [one["logGroupName"] for one in client("logs", url).describe_log_groups()["logGroups"]],
        "keys": [
            one["KeyId"]
            for one in keys.list_keys()["Keys"]
            if keys.describe_key(KeyId=one["KeyId"])["KeyMetadata"]["KeyState"] == "Enabled"
        ],
        "parameters": [one["Name"] for one in client("ssm", url).describe_parameters()["Parameters"]],
        "buckets": [one["Name"] for one in client("s3", url).list_buckets()["Buckets"]],
        "balancers": [
            one["LoadBalancerArn"] for one in client("elbv2", url).describe_load_balancers()["LoadBalancers"]
        ],
        "endpoints": [
            one["VpcEndpointId"]
            for one in client("ec2", url).describe_vpc_endpoints()["VpcEndpoints"]
            if one["State"] != "deleted"
        ],
        "flow logs": [one["FlowLogId"] for one in client("ec2", url).describe_flow_logs()["FlowLogs"]],
        "VPNs": [
            one["VpnConnectionId"]
            for one in client("ec2", url).describe_vpn_connections()["VpnConnections"]
            if one["State"] != "deleted"
        ],
        "targets": [one["TargetGroupArn"] for one in client("elbv2", url).describe_target_groups()["TargetGroups"]],
    }


def state_of(settings: EngineSettings) -> str:
    """The engine's state, as it lies on disk."""
    return "".join(
        file.read_text(encoding="utf-8") for file in (settings.directory / "state").rglob("*.json") if file.is_file()
    )


def test_eks_through_its_life(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """With hybrid nodes: up, nothing to do, a new version and a wider endpoint in place, and all of it away again."""
    before, began = all_that_stands(aws_url), calls_so_far(aws_url)
    expires = (datetime.now(UTC) + timedelta(days=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted: dict[str, Any] = {
        "kind": "eks",
        "version": "1.34",
        "admins": [ADMIN],
        "remote_node_networks": ["10.80.0.0/16"],
        "remote_pod_networks": ["10.85.0.0/16"],
        "hybrid": {"machines": 4, "expires": expires},
    }
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="eks", groups=WITH_GPUS, **wanted)
    own: dict[str, Any] = {**(settings.overrides or {}), "spillway:nodes": {}}  # the images of EKS
    inventory = tmp_path / "inventory.yaml"
    machine = {"name": "dgx-01", "address": "10.80.0.11", "cpus": 8, "memory": "64Gi", "probe": "none"}
    inventory.write_text(yaml.safe_dump({"machines": [machine]}), encoding="utf-8")
    settings = replace(settings, overrides=own, inventory=inventory)
    outputs = pulumi_up(settings)
    eks = client("eks", aws_url)
    cluster = eks.describe_cluster(name="eks")["cluster"]
    assert outputs.control_plane
    assert outputs.control_plane.endpoint == cluster["endpoint"]
    assert outputs.control_plane.oidc_issuer == cluster["identity"]["oidc"]["issuer"]
    assert outputs.kubeconfig == outputs.hybrid_activation_code == outputs.hybrid_node_configs == "[secret]"
    assert [one.name for one in outputs.machines] == ["dgx-01"]
    assert '"activationCode":"' not in state_of(settings).replace(" ", ""), "its plain text is not in the state"
    assert {
        eks.describe_access_entry(clusterName="eks", principalArn=arn)["accessEntry"]["type"]
        for arn in (ADMIN, outputs.node_role_arn, outputs.control_plane.hybrid_role_arn)
    } == {"STANDARD", "EC2_LINUX", "HYBRID_LINUX"}
    assert pulumi_preview(settings), "a second up changes nothing"
    assert_nodes_know_their_cluster(aws_url, cluster)
    for add_on, role in (("vpc-cni", "role/spillway/eks/eks-vpc-cni"), ("kube-proxy", "")):
        found = eks.describe_addon(clusterName="eks", addonName=add_on)["addon"]
        assert found.get("serviceAccountRoleArn", "").endswith(role)

    so_far = calls_so_far(aws_url)
    for version, why in (("1.33", "does not go back"), ("1.36", r"one minor version at a time: 1\.35 is next")):
        other = own | {"spillway:control_plane": wanted | {"version": version}}
        with pytest.raises(BadInput, match=rf"the cluster runs 1\.34: EKS .*{why}"):
            pulumi_up(replace(settings, overrides=other))
    assert calls_so_far(aws_url) == so_far

    wider = wanted | {"version": "1.35", "endpoint": "both", "public_networks": ["203.0.113.7/32"], "logs": ["audit"]}
    own["spillway:network"] = {"zones": [*ZONES, "us-east-1c"]}
    settings = replace(settings, overrides=own | {"spillway:control_plane": wider})
    with pytest.raises(BadInput, match=r"control_plane\.kind = 'kubeadm', and the control plane that stands is 'eks'"):
        pulumi_up(replace(settings, overrides=own | {"spillway:control_plane": {"kind": "kubeadm", "ami": IMAGE}}))
    assert calls_so_far(aws_url) == so_far

    assert len(pulumi_up(settings).subnets) == 3
    changed = eks.describe_cluster(name="eks")["cluster"]
    assert changed["arn"] == cluster["arn"]
    assert changed["createdAt"] == cluster["createdAt"], "updated, not replaced"
    assert changed["version"] == "1.35"
    subnets = set(changed["resourcesVpcConfig"]["subnetIds"])
    assert subnets == set(cluster["resourcesVpcConfig"]["subnetIds"]), "EKS takes no further zone"
    assert changed["resourcesVpcConfig"]["publicAccessCidrs"] == ["203.0.113.7/32"]

    eks.disassociate_access_policy(
        clusterName="eks",
        principalArn=ADMIN,
        policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
    )
    assert not pulumi_preview(settings), "an administrator whose rights were taken is found"
    pulumi_destroy(settings)
    assert all_that_stands(aws_url) == before
    assert not not_granted(aws_url, began, cluster="eks")


WITH_GPUS = [*GROUPS, {"name": "gpu", "instance_type": "g5.12xlarge", "zones": ZONES, "max": 2}]


def assert_nodes_know_their_cluster(url: str, cluster: dict[str, Any]) -> None:
    """By a NodeConfig in each group's user data, on the image for EKS that has what its machines need."""
    ec2, images = client("ec2", url), {}
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        asked = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": ["$Latest"]}
        [version] = ec2.describe_launch_template_versions(**asked)["LaunchTemplateVersions"]
        data = version["LaunchTemplateData"]
        images[template["LaunchTemplateName"]] = data["ImageId"]
        assert {"Key": "kubernetes.io/cluster/eks", "Value": "owned"} in data["TagSpecifications"][0]["Tags"]
        assert config_in(base64.b64decode(data["UserData"]).decode())["cluster"] == {
            "name": "eks",
            "apiServerEndpoint": cluster["endpoint"],
            "certificateAuthority": cluster["certificateAuthority"]["data"],
            "cidr": cluster["kubernetesNetworkConfig"]["serviceIpv4Cidr"],
        }
    assert images == {"eks-cpu": EKS_IMAGES["x86_64/standard"], "eks-gpu": EKS_IMAGES["x86_64/nvidia"]}


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (
            {"version": "1.99", "addons": {"vpc-cmi": ""}},
            [r"version = '1\.99': EKS does not offer it", "names 'vpc-cmi'"],
        ),
        (
            {"version": "1.34", "addons": {"kube-proxy": "v1.35.0-eksbuild.2", "coredns": "v1.11.4-eksbuild.2"}},
            [
                r"addons\.coredns = 'v1\.11\.4-eksbuild\.2': .* e\.g\. v1\.13\.1-eksbuild\.1",
                r"addons\.kube-proxy = 'v1\.35",
            ],
        ),
    ],
)
def test_what_eks_refuses_is_told(
    aws_url: str, engine: dict[str, Path], tmp_path: Path, wanted: dict[str, Any], says: list[str]
) -> None:
    """Versions and add-ons that it does not offer: all of them at once, and nothing has been made by then."""
    so_far = calls_so_far(aws_url)
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="old", kind="eks", admins=[ADMIN], **wanted)
    with pytest.raises(BadInput) as refused:
        pulumi_up(settings)
    assert all(re.search(one, str(refused.value)) for one in says), str(refused.value)
    assert "Traceback" not in str(refused.value)
    assert calls_so_far(aws_url) == so_far


def test_kubeadm_through_its_life(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """Three members: one up tells the nodes whom to trust, a new version takes one after another, all of it away."""
    before, began = all_that_stands(aws_url), calls_so_far(aws_url)
    wanted: dict[str, Any] = {"kind": "kubeadm", "ami": IMAGE, "version": "1.35.3", "names": ["api.lab.example.org"]}
    nodes = {"ami": IMAGE, "roles": "bundle", "bundle": str(bundle(tmp_path))}
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="own", **wanted)
    settings = replace(settings, overrides={**(settings.overrides or {}), "spillway:nodes": nodes})
    outputs = pulumi_up(settings)
    assert outputs.control_plane
    [balancer] = client("elbv2", aws_url).describe_load_balancers()["LoadBalancers"]
    assert outputs.control_plane.endpoint == f"https://{balancer['DNSName']}:6443"
    first = members(aws_url)
    assert len(first) == 3
    volumes = client("ec2", aws_url).describe_volumes(VolumeIds=[one["volumes"][0] for one in first.values()])[
        "Volumes"
    ]
    assert {one["AvailabilityZone"] for one in volumes} == set(ZONES)  # moto puts every instance into the first zone

    assert pulumi_preview(settings), "a second up changes nothing, and what members write is not drift"
    kept = client("ssm", aws_url).get_parameter(Name="/spillway/own/control-plane/kubeconfig", WithDecryption=True)
    written = yaml.safe_load(kept["Parameter"]["Value"])
    authority = written["clusters"][0]["cluster"]["certificate-authority-data"]
    secret = written["users"][0]["user"]["client-key-data"]
    assert outputs.control_plane.certificate_authority == authority
    assert outputs.kubeconfig == "[secret]"
    assert secret not in state_of(settings)
    assert secret not in str([one["user_data"] for one in first.values()])
    assert {one["authority"] for one in kubelets_told(aws_url)} == {base64.b64decode(authority).decode()}
    assert {one["server"] for one in kubelets_told(aws_url)} == {outputs.control_plane.endpoint}
    assert {tuple(one["cluster_dns"]) for one in kubelets_told(aws_url)} == {("10.96.0.10",)}

    so_far = calls_so_far(aws_url)
    newer: dict[str, Any] = {**wanted, "version": "1.35.4", "ami": NEWER_IMAGE}
    upgraded = replace(settings, overrides={**(settings.overrides or {}), "spillway:control_plane": newer})
    for version, why in (
        ("1.35.4", r"upgrade them first: `kubeadm upgrade apply v1"),
        ("1.34.9", r"Kubernetes does not go back: write version: 1\.35\.3"),
        ("1.37.0", r"Kubernetes goes up one minor version at a time: 1\.36 is next"),
    ):
        other = {**(settings.overrides or {}), "spillway:control_plane": newer | {"version": version}}
        with pytest.raises(BadInput, match=rf"and the API servers run 1\.35\.3: {why}"):
            pulumi_up(replace(settings, overrides=other))
    assert calls_so_far(aws_url) == so_far
    told = "/spillway/own/control-plane/version"  # as a member does once `kubeadm upgrade` has run on all of them
    client("ssm", aws_url).put_parameter(Name=told, Value="1.35.4", Type="SecureString", Overwrite=True)
    so_far = calls_so_far(aws_url)
    pulumi_up(upgraded)
    second = members(aws_url)
    assert {one["image"] for one in second.values()} == {NEWER_IMAGE}
    assert not {one["id"] for one in first.values()} & {one["id"] for one in second.values()}
    for name, one in second.items():
        assert (one["address"], one["volumes"]) == (first[name]["address"], first[name]["volumes"]), "the same member"
    assert_one_after_another(aws_url, so_far)
    assert_members_go_once_they_have_left(upgraded, newer)
    pulumi_destroy(upgraded)
    assert all_that_stands(aws_url) == before
    assert not not_granted(aws_url, began, cluster="own")


def assert_members_go_once_they_have_left(settings: EngineSettings, wanted: dict[str, Any]) -> None:
    """Two of three: not before somebody says that they are no members of etcd any more."""

    def with_one(**more: Any) -> EngineSettings:
        control_plane = {**wanted, "instances": 1, **more}
        return replace(settings, overrides={**(settings.overrides or {}), "spillway:control_plane": control_plane})

    so_far = calls_so_far(settings.aws_url)
    with pytest.raises(BadInput, match=r"`kubeadm reset` on own-control-plane-2 and then on own-control-plane-1"):
        pulumi_up(with_one())
    assert calls_so_far(settings.aws_url) == so_far
    [first, *others] = sorted(members(settings.aws_url))
    pulumi_up(with_one(reset=others))
    assert list(members(settings.aws_url)) == [first]


def test_what_a_member_has_written_and_stored_is_never_written_over(
    aws_url: str, engine: dict[str, Path], tmp_path: Path
) -> None:
    """By new tags, where a member writes under another key, by one more zone, or by a key that it cannot have."""
    wanted: dict[str, Any] = {"kind": "kubeadm", "ami": IMAGE, "instances": 1}
    groups = [{**GROUPS[0], "zones": ["us-east-1b", "us-east-1c"]}]
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="keeps", groups=groups, **wanted)
    pulumi_up(settings)
    written, [member] = secrets_in(aws_url, "keeps"), members(aws_url).values()
    assert "not-yet" not in written.values()

    ssm, kms = client("ssm", aws_url), client("kms", aws_url)
    token, other = "/spillway/keeps/join-token", kms.create_key()["KeyMetadata"]
    ssm.put_parameter(
        Name=token, Value="abcdef.0123456789abcdef", KeyId=other["Arn"], Type="SecureString", Overwrite=True
    )
    written[token] = "abcdef.0123456789abcdef"
    overrides = {**(settings.overrides or {}), "spillway:tags": {"team": "vision"}}
    overrides["spillway:network"] = {"zones": ["us-east-1a", "us-east-1b", "us-east-1c"]}
    changed = replace(settings, overrides=overrides)
    pulumi_up(changed, refresh=True)
    assert secrets_in(aws_url, "keeps") == written
    assert {"Key": "team", "Value": "vision"} in ssm.list_tags_for_resource(ResourceType="Parameter", ResourceId=token)[
        "TagList"
    ]
    assert [one["volumes"] for one in members(aws_url).values()] == [member["volumes"]]
    assert pulumi_preview(changed), "another key under what a member has written is not drift"

    so_far = calls_so_far(aws_url)
    overrides["spillway:control_plane"] = wanted | {"key": other["Arn"], "data_volume_gib": 10}
    with pytest.raises(BadInput, match=r"control_plane\.key = .*take it out again\n.*data_volume_gib = 10") as refused:
        pulumi_up(replace(settings, overrides=overrides))
    assert "Traceback" not in str(refused.value)
    overrides = {**overrides, "spillway:control_plane": wanted, "spillway:network": {"zones": groups[0]["zones"]}}
    with pytest.raises(BadInput, match=r"no longer us-east-1a, where the control plane is"):
        pulumi_up(replace(settings, overrides=overrides))
    assert calls_so_far(aws_url) == so_far
    pulumi_destroy(changed)
    kms.schedule_key_deletion(KeyId=other["KeyId"])


def secrets_in(url: str, cluster: str) -> dict[str, str]:
    """What stands in the SecureStrings of a cluster, by their names."""
    pages = client("ssm", url).get_paginator("get_parameters_by_path")
    asked = {"Path": f"/spillway/{cluster}", "Recursive": True, "WithDecryption": True}
    return {one["Name"]: one["Value"] for page in pages.paginate(**asked) for one in page["Parameters"]}


IMAGE, NEWER_IMAGE = "ami-12c6146b", "ami-076f415166b04f5fe"


def kubelets_told(url: str) -> list[dict[str, Any]]:
    """What the nodes' launch templates say to their kubelets."""
    ec2, told = client("ec2", url), []
    for template in ec2.describe_launch_templates()["LaunchTemplates"]:
        asked = {"LaunchTemplateId": template["LaunchTemplateId"], "Versions": ["$Latest"]}
        [version] = ec2.describe_launch_template_versions(**asked)["LaunchTemplateVersions"]
        text = base64.b64decode(version["LaunchTemplateData"]["UserData"]).decode()
        files = {one["path"]: one["content"] for one in yaml.safe_load(text)["write_files"]}
        told.append(yaml.safe_load(files[BOOT_FILE])["settings"]["kubelet"])
    return told


def members(url: str) -> dict[str, dict[str, Any]]:
    """Instances of the control plane that run, by name."""
    ec2 = client("ec2", url)
    running = [{"Name": "instance-state-name", "Values": ["running"]}]
    found = {}
    for reservation in ec2.describe_instances(Filters=running)["Reservations"]:
        for one in reservation["Instances"]:
            name = {tag["Key"]: tag["Value"] for tag in one.get("Tags", [])}.get("Name", "")
            kept = [{"Name": "attachment.instance-id", "Values": [one["InstanceId"]]}]
            told = ec2.describe_instance_attribute(InstanceId=one["InstanceId"], Attribute="userData")
            found[name] = {
                "id": one["InstanceId"],
                "image": one["ImageId"],
                "address": one["PrivateIpAddress"],
                "volumes": [
                    volume["VolumeId"]
                    for volume in ec2.describe_volumes(Filters=kept)["Volumes"]
                    if volume["Attachments"][0]["Device"] == "/dev/sdf"
                ],
                "user_data": base64.b64decode(told["UserData"]["Value"]).decode(),
            }
    return {name: one for name, one in found.items() if "control-plane" in name}


def assert_one_after_another(url: str, since: int) -> None:
    """A member is ended only when the gate of the one before has been passed."""
    watched = ("TerminateInstances", "RunInstances", "UpdateAssociation", "CreateAssociation")
    asked = [call["action"] for call in asked_since(url, since) if call["action"] in watched]
    ends = [place for place, action in enumerate(asked) if action == "TerminateInstances"]
    assert len(ends) == 3, asked
    for end, following in pairwise([*ends, len(asked)]):
        assert "RunInstances" in asked[end:following], asked
        assert asked[following - 1].endswith("Association"), asked


def test_split_programs_make_what_one_makes(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """Network, control plane and node pools as three stacks, up in order and down in the other."""
    before = all_that_stands(aws_url)
    eks: dict[str, Any] = {"kind": "eks", "admins": [ADMIN]}
    whole = stack(tmp_path / "whole", aws_url=aws_url, engine=engine, cluster="one", **eks)
    as_one = pulumi_up(whole)
    types = types_in(whole)
    pulumi_destroy(whole)

    folder = tmp_path / "split"
    made = stack(folder, aws_url=aws_url, engine=engine, cluster="one", **eks)
    names = {"network": f"{NAMED}network", "control_plane": f"{NAMED}control-plane"}
    parts = [
        replace(
            made, stack=part, overrides={**(made.overrides or {}), "spillway:program": part, "spillway:stacks": names}
        )
        for part in ("network", "control-plane", "node-pools")
    ]
    exported = [msgspec.to_builtins(pulumi_up(part)) for part in parts]
    together = parse_outputs(*exported)
    assert together.control_plane
    assert as_one.control_plane
    assert together.groups == as_one.groups
    assert set(together.subnets) == set(as_one.subnets)
    assert together.control_plane.kind == as_one.control_plane.kind
    assert sum((types_in(part) for part in parts), Counter()) == types
    assert all(pulumi_preview(part) for part in parts), "a second up of each changes nothing"
    for part in reversed(parts):
        pulumi_destroy(part)
    assert all_that_stands(aws_url) == before


NAMED = "organization/spillway/"


def types_in(settings: EngineSettings) -> Counter[str]:
    """How many resources of each type of AWS the engine's state holds."""
    [path] = (settings.directory / "state").rglob(f"stacks/**/{settings.stack}.json")
    resources = json.loads(path.read_text(encoding="utf-8"))["checkpoint"]["latest"]["resources"]
    return Counter(one["type"] for one in resources if one["type"].startswith("aws:"))


def test_a_part_that_does_not_know_its_network_says_so(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """By the key that is missing."""
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="lost", kind="eks", admins=[ADMIN])
    lost = replace(settings, overrides={**(settings.overrides or {}), "spillway:program": "node-pools"})
    with pytest.raises(BadInput, match=r"spillway:stacks\.network is missing"):
        pulumi_up(lost)
