"""What a stack exports."""

from __future__ import annotations

import json
import sys
from subprocess import run

import msgspec
import pytest

from autoscaler.model.errors import BadInput
from stacks.settings.outputs import GroupOutput, MachineOutput, StackOutputs, parse_outputs

OUTPUTS = StackOutputs(
    cluster="lab",
    region="us-east-1",
    vpc_id="vpc-1",
    subnets={"us-east-1a": "subnet-1"},
    node_security_group_id="sg-1",
    groups=(
        GroupOutput(
            name="lab-gpu-us-east-1a",
            entry="gpu",
            zone="us-east-1a",
            instance_type="g5.12xlarge",
            capacity_type="spot",
            min=0,
            max=4,
        ),
    ),
    machines=(MachineOutput(name="dgx-01", address="10.20.0.11"),),
)


def test_what_is_exported_is_read_back() -> None:
    """Through JSON, as `pulumi stack output --json` gives it."""
    assert parse_outputs(json.loads(json.dumps(msgspec.to_builtins(OUTPUTS)))) == OUTPUTS


def test_names_are_spelled_as_pulumi_users_expect() -> None:
    """Camel case at every level."""
    exports = msgspec.to_builtins(OUTPUTS)
    assert list(exports) == ["cluster", "region", "vpcId", "subnets", "nodeSecurityGroupId", "groups", "machines"]
    assert exports["groups"][0]["instanceType"] == "g5.12xlarge"


def test_outputs_of_a_newer_program_are_read_too() -> None:
    """A reader ignores what it does not know."""
    assert parse_outputs(msgspec.to_builtins(OUTPUTS) | {"new": 1}) == OUTPUTS


@pytest.mark.parametrize(
    ("changed", "says"),
    [({"groups": 3}, r"\$.groups"), ({"region": None}, r"\$.region"), ({"groups": [{}]}, r"\$.groups\[0\]")],
)
def test_outputs_of_another_program_are_refused_by_name(changed: dict[str, object], says: str) -> None:
    """It says which output is not what it should be."""
    with pytest.raises(BadInput, match=says):
        parse_outputs(msgspec.to_builtins(OUTPUTS) | changed)


def test_a_missing_output_is_named() -> None:
    """As after an `up` that did not finish."""
    exports = msgspec.to_builtins(OUTPUTS)
    del exports["region"]
    with pytest.raises(BadInput, match="region"):
        parse_outputs(exports)


def test_outputs_of_split_programs_are_one_record() -> None:
    """Each stack exports the fields of the part that it makes."""
    exports = msgspec.to_builtins(OUTPUTS)
    common = {"cluster": "lab", "region": "us-east-1"}
    network = common | {name: exports[name] for name in ("vpcId", "subnets", "nodeSecurityGroupId")}
    pools = common | {"groups": exports["groups"]}
    assert parse_outputs(network, pools, {"machines": exports["machines"]}) == OUTPUTS
    assert parse_outputs(network).groups == ()
    with pytest.raises(BadInput, match="a JSON object, and are list"):
        parse_outputs(network, [])


@pytest.mark.parametrize("module", ["stacks.settings.outputs", "stacks.nodes.user_data"])
def test_reading_them_needs_no_pulumi(module: str) -> None:
    """`roles/` and the nodes' own tools read them where no Pulumi is installed."""
    code = f"import sys, {module}; assert not [m for m in sys.modules if m.split('.')[0].startswith('pulumi')]"
    assert run([sys.executable, "-c", code], check=False).returncode == 0
