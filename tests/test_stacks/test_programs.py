"""The whole program, declared against mocks from the files that a user writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pulumi
import pytest

from autoscaler.config.policy import read_policy
from autoscaler.model.errors import BadInput
from stacks.preflight.inputs import Plans, read_plans
from stacks.programs import build
from stacks.settings.outputs import exported_name, parse_outputs
from stacks.settings.stack import read_settings
from tests import ROOT
from tests.test_stacks.declared import Declared, Recorder, declare, of_type, plans
from tests.test_stacks.graph import graph

LOCAL = {
    "spillway:policy": "autoscaler/policies/local.yaml",
    "spillway:inventory": "stacks/local/inventory.yaml",
    "spillway:nodes": {"ami": "ami-12c6146b"},
}


def run(these: Plans) -> tuple[list[Declared], Any]:
    """What the program asks for, and what it exports."""
    seen: list[Any] = []

    def program() -> pulumi.Output[None]:
        exports = {exported_name(field): value for field, value in build(these).items()}
        return pulumi.Output.all(**exports).apply(seen.append)

    declared = declare(program)
    return declared, parse_outputs(seen[0])


def test_the_local_stack_exports_every_group_and_machine() -> None:
    """As its policy and inventory say."""
    _, outputs = run(read_plans(read_settings(LOCAL, stack="local")))
    policy = read_policy(ROOT / "autoscaler/policies/local.yaml")
    assert outputs.cluster == policy.cluster
    assert {(one.entry, one.zone) for one in outputs.groups} == {
        (entry.name, zone) for entry in policy.groups for zone in entry.zones
    }
    assert [machine.name for machine in outputs.machines] == ["dgx-01", "dgx-02", "dgx-03", "dgx-04"]
    assert outputs.subnets == {f"us-east-1{z}": f"local-nodes-us-east-1{z}-id" for z in "ab"}


def test_every_resource_comes_through_the_one_provider(tmp_path: Path) -> None:
    """With its region and its tags, whatever the shell's defaults are."""
    declared, _ = run(plans(tmp_path, tags={"team": "vision"}))
    provider = of_type(declared, "pulumi:providers:aws")["aws"]  # beside one that only reads the price list
    assert provider["region"] == "us-east-1"
    assert '"team": "vision"' in provider["defaultTags"]
    assert '"spillway.dev/cluster": "lab"' in provider["defaultTags"]


def test_an_image_may_be_given_by_a_public_parameter(tmp_path: Path) -> None:
    """The newest image of its kind."""
    declared, _ = run(plans(tmp_path, nodes={"ami": "ssm:/images/gpu"}))
    [template] = of_type(declared, "aws:ec2/launchTemplate:LaunchTemplate").values()
    assert template["imageId"] == "ami-0123456789abcdef0"


def test_a_policy_that_does_not_exist_is_told() -> None:
    """With its path."""
    with pytest.raises(BadInput, match=r"nowhere\.yaml"):
        read_plans(read_settings({"spillway:policy": "nowhere.yaml"}, stack="local"))


def test_instances_carry_the_clusters_tags(tmp_path: Path) -> None:
    """Auto Scaling does not hand the provider's default tags on."""
    declared, _ = run(plans(tmp_path, tags={"team": "vision"}))
    [template] = of_type(declared, "aws:ec2/launchTemplate:LaunchTemplate").values()
    for specified in template["tagSpecifications"]:
        assert specified["tags"]["team"] == "vision"
        assert specified["tags"]["spillway.dev/cluster"] == "lab"


def test_the_program_exports_each_field_of_the_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the names that readers know."""
    from stacks import programs  # noqa: PLC0415 - its function is looked at here

    exported: list[str] = []
    monkeypatch.setattr(pulumi, "export", lambda name, _: exported.append(name))
    these = plans(tmp_path)

    def program() -> Any:
        outputs = build(these)
        programs.export(outputs)
        return outputs

    declare(program)
    assert exported == [
        *(
            "cluster",
            "region",
            "cost",
            "vpcId",
            "subnets",
            "publicSubnets",
            "routeTables",
            "nodeSecurityGroupId",
            "groups",
            "nodeRoleArn",
            "machines",
        ),
    ]


EKS = {
    "kind": "eks",
    "admins": ["arn:aws:iam::123456789012:role/platform"],
    "remote_node_networks": ["10.80.0.0/16"],
    "hybrid": {"machines": 2},
}
KUBEADM = {"kind": "kubeadm", "ami": "ami-0123456789abcdef0"}
WIREGUARD = {"kind": "wireguard", "address": "198.51.100.7"}


@pytest.mark.parametrize(
    ("configured", "roles"),
    [
        ({"control_plane": EKS, "release": {"image": "registry.example.org/autoscaler:1"}}, 6),
        ({"control_plane": KUBEADM, "connectivity": WIREGUARD}, 4),
    ],
    ids=["eks", "kubeadm"],
)
def test_no_role_is_kept_from_a_destroy_by_a_policy_that_others_gave_it(
    tmp_path: Path, configured: dict[str, Any], roles: int
) -> None:
    """Each role of the programs: IAM deletes none that has policies, and remediations attach some."""
    config = {"clusters": [{"name": "a", "cluster": {"certificate-authority-data": "UEVN"}}]}
    network = {"flow_logs": {}, "on_prem": ["10.80.0.0/16"]}
    built = graph(
        lambda: build(plans(tmp_path, network=network, **configured)),
        mocks=Recorder(getParameter={"value": json.dumps(config)}),
    )
    made = built.of_type("Role")
    own = [one for one in made if one.token == "aws:iam/role:Role"]  # noqa: S105 - the name of a type
    assert len(own) == roles
    assert [str(one) for one in own if not one.inputs.get("forceDetachPolicies")] == []
