"""What a changed stack file may not take away: read from a state as the programs leave it, and refused by key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput, Unavailable
from stacks.preflight.inputs import Plans, read_plans
from stacks.preflight.removals import check_nothing_is_given_up
from stacks.preflight.removed_zones import check_zones_stay
from stacks.preflight.stack_state import Resources, StandingStack, standing_in
from stacks.programs import build
from tests.test_stacks.declared import Recorder, plans
from tests.test_stacks.graph import Graph, graph, spoken

ALL = ("network", "control-plane", "node-pools", "on-prem", "release")
ADMIN = "arn:aws:iam::123456789012:role/platform"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
EKS: dict[str, Any] = {"kind": "eks", "admins": [ADMIN]}
KUBEADM: dict[str, Any] = {"kind": "kubeadm", "ami": "ami-0123456789abcdef0", "instances": 1}
VPC = {"id": "vpc-0123abcd", "subnets": {"us-east-1a": "subnet-0123abcd", "us-east-1b": "subnet-0123abce"}}


class Cloud(Recorder):
    """Also makes up what control planes and an existing VPC tell."""

    def __init__(self, **answers: dict[str, Any]) -> None:
        config = {"clusters": [{"name": "a", "cluster": {"certificate-authority-data": "UEVN"}}]}
        vpc: dict[str, dict[str, Any]] = {
            "getParameter": {"value": json.dumps(config)},
            "getVpc": {"cidrBlock": "10.60.0.0/16", "enableDnsSupport": True, "enableDnsHostnames": True},
            "getRouteTables": {"ids": ["rtb-1"]},
            "getRouteTable": {"routes": [{"cidrBlock": "0.0.0.0/0", "natGatewayId": "nat-1"}]},
        }
        vpc["getVpc"]["cidrBlockAssociations"] = []
        super().__init__(**{**vpc, **answers})

    def call(self, args: Any) -> Any:
        """A subnet is in the zone that its id ends with."""
        if args.token.endswith(":getSubnet"):
            zone = "us-east-1b" if args.args["id"].endswith("e") else "us-east-1a"
            return {"vpcId": VPC["id"], "availabilityZone": zone, "availableIpAddressCount": 999}, []
        return super().call(args)


def made(wanted: Plans, **answers: dict[str, Any]) -> Graph:
    """What the program registers."""
    return graph(lambda: build(wanted), mocks=Cloud(**answers))


def state_of(built: Graph) -> Resources:
    """As the engine keeps it."""
    return {
        node.urn: {"type": node.token, "outputs": built.registered.get(spoken(node.urn), node.inputs)}
        for node in built.nodes
    }


def standing(folder: Path, *groups: dict[str, Any], **configured: Any) -> StandingStack:
    """What is read from the state that these files lead to."""
    found = standing_in(state_of(made(plans(folder, *groups, **configured))))
    assert found
    return found


def refusal(wanted: Plans, there: StandingStack, *, parts: tuple[str, ...] = ALL) -> str:
    """In words."""
    with pytest.raises(BadInput) as refused:
        check_nothing_is_given_up(wanted, there, parts=parts)
    return str(refused.value)


@pytest.mark.parametrize("control_plane", [None, EKS, KUBEADM, {**EKS, "secrets_key": KEY}])
@pytest.mark.parametrize("network", [{}, {"nat": "none"}, {"vpc": VPC}, {"cidr": "10.50.0.0/16", "nat": "per-zone"}])
def test_the_same_files_give_nothing_up(
    tmp_path: Path, control_plane: dict[str, Any] | None, network: dict[str, Any]
) -> None:
    """A second `pulumi up` of any of them, and one with another tag or further zones."""
    group = {"name": "g", "instance_type": "g5.12xlarge", "zones": ["us-east-1a"], "max": 1, "usd_per_hour": 1}
    configured = {"control_plane": control_plane} if control_plane else {}
    there = standing(tmp_path, group, network=network, **configured)
    assert (there.cluster, there.region, there.kind) == ("lab", "us-east-1", (control_plane or {}).get("kind"))
    assert there.zones == ("us-east-1a", "us-east-1b")
    again = plans(tmp_path, group, network=network, tags={"team": "vision"}, **configured)
    check_nothing_is_given_up(again, there, parts=ALL)


def test_more_members_and_other_snapshots_give_nothing_up(tmp_path: Path) -> None:
    """Of a kubeadm cluster that has the names that it was founded with."""
    named = {**KUBEADM, "names": ["api.lab.example.org"]}
    there = standing(tmp_path, control_plane=named)
    grown = {**named, "instances": 3, "clients": ["10.20.0.0/16"], "snapshots": {"every": "2h"}}
    check_nothing_is_given_up(plans(tmp_path, control_plane=grown), there, parts=ALL)


def test_nothing_has_been_made_yet(tmp_path: Path) -> None:
    """By a stack that is new, or whose first `pulumi up` came no further than its provider: all may change."""
    provider = {"type": "pulumi:providers:aws", "outputs": {"defaultTags": "{}"}}
    assert standing_in({}) is None
    assert standing_in({"urn:pulumi:a::b::pulumi:providers:aws::aws": provider}) is None
    check_nothing_is_given_up(plans(tmp_path), None, parts=ALL)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"network": {"cidr": "10.50.0.0/16"}}, "network.cidr = '10.50.0.0/16', and the VPC that stands has 10.40"),
        ({}, {"network": {"vpc": VPC}}, "network.vpc.id = 'vpc-0123abcd', and this stack has made a VPC of its own"),
        ({"network": {"vpc": VPC}}, {}, "network.vpc is gone, and all of this stack stands in vpc-0123abcd"),
        (
            {"network": {"vpc": VPC}},
            {"network": {"vpc": {**VPC, "id": "vpc-0123abcf"}}},
            "network.vpc.id = 'vpc-0123abcf', and all of this stack stands in vpc-0123abcd",
        ),
        ({"control_plane": EKS}, {"control_plane": KUBEADM}, "control_plane.kind = 'kubeadm', and the control plane"),
        (
            {"control_plane": KUBEADM},
            {"control_plane": EKS},
            "control_plane.kind = 'eks', and the control plane that stands is 'kubeadm', which would be taken",
        ),
        ({"control_plane": KUBEADM}, {}, "control_plane is gone, and the control plane that stands is 'kubeadm'"),
        (
            {"control_plane": KUBEADM},
            {"control_plane": {**KUBEADM, "pod_network": "10.128.0.0/16"}},
            "control_plane.pod_network = '10.128.0.0/16', and the cluster was founded with 10.244.0.0/16",
        ),
        (
            {"control_plane": KUBEADM},
            {"control_plane": {**KUBEADM, "service_network": "10.112.0.0/12"}},
            "control_plane.service_network = '10.112.0.0/12', and the cluster was founded with 10.96.0.0/12",
        ),
        (
            {"control_plane": KUBEADM},
            {"control_plane": {**KUBEADM, "names": ["api.lab.example.org"]}},
            "control_plane.names = [api.lab.example.org], and the cluster was founded with [], which no later",
        ),
        (
            {"control_plane": {**KUBEADM, "names": ["api.lab.example.org", "10.20.0.5"]}},
            {"control_plane": {**KUBEADM, "instances": 3}},
            "control_plane.names = [], and the cluster was founded with [api.lab.example.org, 10.20.0.5], which no",
        ),
        (
            {"control_plane": EKS},
            {"control_plane": {**EKS, "secrets_key": KEY}},
            f"control_plane.secrets_key = '{KEY}': the cluster's Secrets stand under",
        ),
        (
            {"control_plane": {**EKS, "secrets_key": KEY}},
            {"control_plane": {**EKS, "secrets_key": KEY + "2"}},
            f"control_plane.secrets_key = '{KEY}2': the cluster's Secrets stand under {KEY}, and EKS changes no key",
        ),
        (
            {"control_plane": {**EKS, "secrets_key": KEY}},
            {"control_plane": EKS},
            f"control_plane.secrets_key is gone: the cluster's Secrets stand under {KEY}",
        ),
    ],
)
def test_what_would_make_another_of_what_stands_is_refused(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    """By key and value, with what would be right, and how it is done on purpose."""
    there = standing(tmp_path, **before)
    told = refusal(plans(tmp_path, **after), there)
    assert f"spillway:{says}" in told
    assert "`pulumi destroy` first (stacks/README.md, What makes another cluster of it)" in told


def half_gone(state: Resources, *kept: str) -> Resources:
    """After a destroy that failed: resources of these types, and all components with all that they told."""
    return {
        urn: one
        for urn, one in state.items()
        if one["type"] in kept or one["type"].startswith(("spillway:", "pulumi:providers:"))
    }


FOUNDED = {**KUBEADM, "names": ["api.lab.example.org"], "pod_network": "10.128.0.0/16"}


@pytest.mark.parametrize("before", [{}, {"network": {"vpc": VPC}}, {"control_plane": EKS}, {"control_plane": FOUNDED}])
@pytest.mark.parametrize("after", [{}, {"network": {"cidr": "10.50.0.0/16"}}, {"network": {"vpc": VPC}}], ids=str)
def test_what_a_destroy_has_taken_away_already_is_not_given_up(
    tmp_path: Path, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Only a role is left, by which it failed. `up` may make the rest anew, also in another network."""
    state = half_gone(state_of(made(plans(tmp_path, **before))), "aws:iam/role:Role")
    there = standing_in(state)
    assert there
    assert (there.vpc_id, there.cidr, there.zones, there.gateways) == ("", "", (), ())
    assert "network" not in there.parts
    control_plane = {"control_plane": KUBEADM} if before.get("control_plane") == FOUNDED else {}
    wanted = plans(tmp_path, **{**before, **control_plane, **after})
    check_nothing_is_given_up(wanted, there, parts=ALL)
    assert made(wanted, readStackResourceOutputs={"outputs": state})


def test_a_network_whose_bucket_alone_is_left_is_not_given_up(tmp_path: Path) -> None:
    """The VPC is what stands for it: a destroy may have failed at the bucket of its flow logs."""
    logs = {"flow_logs": {"to": "s3"}}
    there = standing_in(half_gone(state_of(made(plans(tmp_path, network=logs))), "aws:s3/bucket:Bucket"))
    assert there
    assert there.vpc_id == ""
    check_nothing_is_given_up(plans(tmp_path, network={"cidr": "10.50.0.0/16"}), there, parts=ALL)


def test_what_a_destroy_has_left_is_still_not_given_up(tmp_path: Path) -> None:
    """The VPC stands, though nothing stands in it."""
    there = standing_in(half_gone(state_of(made(plans(tmp_path))), "aws:ec2/vpc:Vpc"))
    assert there
    assert "network.cidr = '10.50" in refusal(plans(tmp_path, network={"cidr": "10.50.0.0/16"}), there)


def test_another_name_or_region_is_another_cluster(tmp_path: Path) -> None:
    """Both are told at once, by the policy's own keys."""
    there = standing(tmp_path)
    path = tmp_path / "policy.yaml"
    renamed = json.loads(path.read_text(encoding="utf-8")) | {"cluster": "vision", "region": "eu-west-1"}
    renamed["groups"][0]["zones"] = ["eu-west-1a"]
    wanted = plans(tmp_path)
    path.write_text(json.dumps(renamed), encoding="utf-8")
    network = wanted.settings.network.model_copy(update={"zones": ("eu-west-1a", "eu-west-1b")})
    told = refusal(read_plans(wanted.settings.model_copy(update={"network": network})), there)
    assert f"{path}: cluster = 'vision' (spillway:policy), and this stack has made 'lab'" in told
    assert "write region: us-east-1" in told


def test_nothing_is_declared_before_it_is_asked_for(tmp_path: Path) -> None:
    """Not even the provider: the state would have its new tags, and the next run would take them for what stands."""
    state = state_of(made(plans(tmp_path)))
    mocks = Cloud(readStackResourceOutputs={"outputs": state})
    with pytest.raises(BadInput, match=r"network\.cidr"):
        graph(lambda: build(plans(tmp_path, network={"cidr": "10.50.0.0/16"})), mocks=mocks)
    assert mocks.declared == []


def test_a_stack_goes_on_making_what_it_has_made(tmp_path: Path) -> None:
    """A part of the programs may come to it, none may leave; and of another stack's part it says nothing."""
    there = standing(tmp_path)
    assert there.parts == {"network", "node-pools"}
    told = refusal(plans(tmp_path, program="network"), there, parts=("network",))
    assert "spillway:program = 'network', and this stack has made node-pools as well" in told
    only = StandingStack(cluster="lab", region="us-east-1", parts=frozenset({"network"}), cidr="10.40.0.0/16")
    check_nothing_is_given_up(plans(tmp_path), only, parts=ALL)
    pools = StandingStack(cluster="lab", region="us-east-1", parts=frozenset({"node-pools"}))
    other_cidr = plans(tmp_path, network={"cidr": "10.50.0.0/16"})
    check_nothing_is_given_up(other_cidr, pools, parts=("node-pools",))


def test_a_zone_stays_while_something_is_in_it() -> None:
    """A control plane for good, nodes until they have gone."""
    zones = ("us-east-1a", "us-east-1b")
    check_zones_stay(zones, leaving=(), holds=zones, nodes=3)
    check_zones_stay(zones, leaving=["us-east-1c"], holds=zones)
    with pytest.raises(BadInput, match=r"no longer us-east-1c, where the control plane is"):
        check_zones_stay(zones, leaving=["us-east-1c"], holds=["us-east-1c", *zones])
    with pytest.raises(BadInput, match=r"no longer us-east-1c, where 3 nodes are, .*: name it in spillway:network.zo"):
        check_zones_stay(zones, leaving=["us-east-1c"], holds=zones, nodes=3)


THREE = ["us-east-1a", "us-east-1b", "us-east-1c"]


def left(folder: Path, **answers: dict[str, Any]) -> Graph:
    """A stack of three zones, brought up again with two."""
    state = state_of(made(plans(folder, network={"zones": THREE})))
    return made(plans(folder, network={"zones": THREE[:2]}), readStackResourceOutputs={"outputs": state}, **answers)


def test_who_is_in_a_zone_is_asked_of_aws(tmp_path: Path) -> None:
    """Of the groups in it alone, and of either control plane, whichever stack made it."""
    names = ["lab-gpu-us-east-1a", "lab-gpu-us-east-1c"]
    assert left(tmp_path, getAmiIds={"names": names[:1]}, getGroup={"desiredCapacity": 2})
    with pytest.raises(BadInput, match="no longer us-east-1c, where 2 nodes are"):
        left(tmp_path, getAmiIds={"names": names}, getGroup={"desiredCapacity": 2})
    volume = {"tags": {"Name": "lab-control-plane-0"}, "kmsKeyId": KEY, "size": 20}
    with pytest.raises(BadInput, match="no longer us-east-1c, where the control plane is"):
        left(tmp_path, getEbsVolumes={"ids": ["vol-1"]}, getVolume=volume)


def test_one_gateway_stays_where_it_is(tmp_path: Path) -> None:
    """Also when a zone comes that stands before its own: it keeps its address, which others may have on a list."""
    group = {"name": "g", "instance_type": "g5.12xlarge", "zones": THREE[1:2], "max": 1}
    state = state_of(made(plans(tmp_path, group, network={"zones": THREE[1:]})))
    wanted = plans(tmp_path, group, network={"zones": THREE})
    again = made(wanted, readStackResourceOutputs={"outputs": state})
    assert [str(one) for one in again.of_type("NatGateway")] == ["NatGateway lab-nat-us-east-1b"]
    assert [str(one) for one in made(wanted).of_type("NatGateway")] == ["NatGateway lab-nat-us-east-1a"]


class Silent(Cloud):
    """An engine that does not tell, the first times that it is asked."""

    def __init__(self, times: int) -> None:
        self.left = times
        super().__init__()

    def call(self, args: Any) -> Any:
        """As where its state is being written."""
        if args.token.endswith(":readStackResourceOutputs") and self.left:
            self.left -= 1
            raise RuntimeError("failed to load checkpoint: EOF")
        return super().call(args)


def test_an_engine_that_writes_its_state_just_now_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But nobody guesses that nothing stands."""
    monkeypatch.setattr("stacks.preflight.stack_state._PAUSES", (0.0, 0.0, 0.0))
    assert graph(lambda: build(plans(tmp_path)), mocks=Silent(3)).of_type("Vpc")
    with pytest.raises(Unavailable, match="the engine does not tell what the stack organization/spillway/test has"):
        graph(lambda: build(plans(tmp_path)), mocks=Silent(4))
