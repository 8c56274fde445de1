"""Rules that others wrote and that let the whole internet in, told where they may stay."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from stacks.preflight.open_rules import Rule, look_up_rules, tell_open_rules

OPEN = Rule(id="sgr-1", source="0.0.0.0/0", ports="ports 22 to 22 (tcp)")


@pytest.mark.parametrize("source", ["0.0.0.0/0", "::/0", "0.0.0.0/1", "128.0.0.0/1"])
def test_a_rule_of_others_that_opens_to_the_world_is_told(source: str) -> None:
    """With the command that takes it away."""
    rule = Rule(id="sgr-1", source=source, ports="ports 22 to 22 (tcp)")
    [line] = tell_open_rules([rule], group="sg-1", cluster="lab")
    assert f"opens ports 22 to 22 (tcp) to {source}, the whole internet" in line
    assert "--group-id sg-1 --security-group-rule-ids sgr-1" in line


@pytest.mark.parametrize(
    "rule",
    [
        Rule(id="sgr-1", source="0.0.0.0/0", ports="port 80", cluster="lab"),
        Rule(id="sgr-1", source="10.0.0.0/8", ports="every port"),
        Rule(id="sgr-1", source="", ports="every port"),
    ],
)
def test_a_rule_of_the_stack_or_of_a_network_is_not(rule: Rule) -> None:
    """Nor one that names a group."""
    assert tell_open_rules([rule], group="sg-1", cluster="lab") == []


def test_rules_are_read_one_by_one_and_ways_out_are_left() -> None:
    """As the plugin tells them: ids first."""
    told: dict[str, dict[str, Any]] = {
        "sgr-1": {"isEgress": False, "cidrIpv4": "0.0.0.0/0", "ipProtocol": "tcp", "fromPort": 22, "toPort": 22},
        "sgr-2": {"isEgress": True, "cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"},
    }
    found: list[Rule] = []

    class Cloud(pulumi.runtime.Mocks):
        def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
            return args.name, {}

        def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
            if "Rules" in args.token:
                return {"ids": sorted(told)}
            key = args.args["securityGroupRuleId"]
            return {"securityGroupRuleId": key, **told[key]}

    def program() -> None:
        found.extend(look_up_rules("sg-1", provider=aws.Provider("aws", region="us-east-1")))

    pulumi.runtime.set_mocks(Cloud(), project="spillway", stack="test", preview=False)
    pulumi.runtime.test(program)()  # type: ignore[no-untyped-call]  # Pulumi's
    assert found == [OPEN]
