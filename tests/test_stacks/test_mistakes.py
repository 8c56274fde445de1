"""Mistakes in the files of a stack: each is refused before any resource is touched, in words that mend it.

They stand in ``mistakes.yaml``, and go the way that ``pulumi up`` goes: through what ``stacks/__main__.py`` calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pulumi.runtime
import pytest
import yaml

from autoscaler.model.errors import BadInput
from stacks.preflight.inputs import read_plans
from stacks.programs import build, check, export
from stacks.settings.stack import check_secrets, read_settings
from tests.test_stacks.declared import Recorder
from tests.test_stacks.graph import graph

MISTAKES: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))
ZONES = ["us-east-1a", "us-east-1b"]
POLICY: dict[str, Any] = {
    "cluster": "lab",
    "groups": [
        {"name": "gpu", "instance_type": "g5.12xlarge", "zones": ZONES, "max": 4},
        {"name": "cpu", "instance_type": "m5.4xlarge", "zones": ZONES, "max": 2},
    ],
}
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
MACHINE = {"name": "dgx-01", "address": "10.20.0.11", "cpus": 128, "memory": "1Ti", "ssh": {"host_key": HOST_KEY}}
ADMIN = "arn:aws:iam::123456789012:role/platform"
INVENTORY: dict[str, Any] = {"machines": [MACHINE]}
VPC: dict[str, dict[str, Any]] = {
    "getVpc": {
        "cidrBlock": "10.60.0.0/16",
        "cidrBlockAssociations": [{"associationId": "a", "cidrBlock": "10.60.0.0/16", "state": "associated"}],
        "enableDnsSupport": True,
        "enableDnsHostnames": True,
    },
    "getSubnet": {"vpcId": "vpc-0123abcd", "availabilityZone": "us-east-1a", "availableIpAddressCount": 4000},
    "getRouteTables": {"ids": ["rtb-1"]},
    "getRouteTable": {"routes": [{"cidrBlock": "0.0.0.0/0", "natGatewayId": "nat-1"}]},
    "getVpcEndpoint": {"state": "available"},
}


class Answering(Recorder):
    """AWS as a mistake has it: an answer in words is one that it refuses with."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._refusals = {name: answer for name, answer in answers.items() if isinstance(answer, str)}
        given = {name: answer for name, answer in answers.items() if isinstance(answer, dict)}
        super().__init__(**{name: answer | given.get(name, {}) for name, answer in VPC.items()})
        for name, answer in given.items():
            self._answers[name] = self._answers[name] | answer
        self._moved = "availabilityZone" in given.get("getSubnet", {})

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        """Look-ups; a subnet is in the zone of its name, where the mistake does not say otherwise."""
        name = args.token.rpartition(":")[2]
        if name in self._refusals:
            raise RuntimeError(self._refusals[name])
        answer, failures = super().call(args)
        if name == "getSubnet" and not self._moved and args.args["id"].endswith("e"):
            answer = answer | {"availabilityZone": "us-east-1b"}
        return answer, failures


def written(mistake: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The ordinary files with the mistake laid over them; gives the stack's configuration."""
    policy = POLICY | mistake.get("policy", {})
    policy["groups"] = [policy["groups"][0] | mistake.get("group", {}), *policy["groups"][1:]]
    inventory = INVENTORY | mistake.get("inventory", {})
    inventory["machines"] = [inventory["machines"][0] | mistake.get("machine", {}), *inventory["machines"][1:]]
    for name, content in (("policy", policy), ("inventory", inventory)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    own = {"policy": str(folder / "policy.yaml"), "inventory": str(folder / "inventory.yaml")}
    return {f"spillway:{key}": value for key, value in (own | mistake.get("stack", {})).items()}


def run(configuration: dict[str, Any]) -> None:
    """What ``stacks/__main__.py`` does."""
    settings = read_settings(configuration, stack="lab")
    check_secrets(settings, encrypted=(), stack="lab")
    plans = read_plans(settings)
    check(plans)
    export(build(plans))


def test_there_are_enough_of_them() -> None:
    """At least twenty that are not the same, and some for the real engine."""
    assert len({one["mistake"] for one in MISTAKES}) == len(MISTAKES) >= 20
    assert sum(one.get("engine", False) for one in MISTAKES) >= 4


@pytest.mark.parametrize("mistake", MISTAKES, ids=[one["mistake"] for one in MISTAKES])
def test_a_mistake_is_refused_before_anything_is_made(mistake: dict[str, Any], tmp_path: Path) -> None:
    """With file, key, value and remedy; nothing but a provider has been declared by then."""
    mocks = Answering(mistake.get("answers", {}))
    with pytest.raises(BadInput) as refused:
        graph(lambda: run(written(mistake, tmp_path)), mocks=mocks, preview=True)
    missing = [words for words in mistake["says"] if str(words) not in str(refused.value)]
    assert not missing, str(refused.value)
    assert not [one for one in mocks.declared if not one.token.startswith("pulumi:providers:")]


def test_the_ordinary_files_are_not_refused(tmp_path: Path) -> None:
    """Else each mistake could be refused for another's sake."""
    graph(lambda: run(written({}, tmp_path)), mocks=Answering({}), preview=True)


def test_a_stack_that_is_to_come_may_be_named_already(tmp_path: Path) -> None:
    """By the first of several stacks, whose files say the same."""
    names = {"control_plane": "organization/spillway/lab-control-plane"}
    first = {"stack": {"program": "network", "stacks": names, "control_plane": {"kind": "eks", "admins": [ADMIN]}}}
    nowhere = Answering({"readStackOutputs": "unknown stack"})
    assert graph(lambda: run(written(first, tmp_path)), mocks=nowhere, preview=True).of_type("Vpc")


def test_an_ordinary_vpc_that_is_there_is_not_refused(tmp_path: Path) -> None:
    """And of it only the security group of the nodes is made."""
    existing = next(one["stack"] for one in MISTAKES if one["mistake"] == "an existing VPC that is not there")
    for nat in ("one", "none"):
        wanted = {"stack": {"network": existing["network"] | {"nat": nat}}}
        made = graph(lambda wanted=wanted: run(written(wanted, tmp_path)), mocks=Answering({}))
        assert not made.of_type("Vpc") + made.of_type("Subnet") + made.of_type("VpcEndpoint")
        assert made["SecurityGroup lab-nodes"].inputs["vpcId"] == "vpc-0123abcd"
        assert made.exports["subnets"] == {"us-east-1a": "subnet-0123abcd", "us-east-1b": "subnet-0123abce"}
        assert made.exports["routeTables"] == {"us-east-1a": "rtb-1", "us-east-1b": "rtb-1"}
