"""The engine of the tests' own, on programs of a few lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from tests.test_stacks.graph import graph


class Pair(pulumi.ComponentResource):
    """A role, and a policy of it."""

    def __init__(self, name: str) -> None:
        super().__init__("test:pair:Pair", name, None, pulumi.ResourceOptions(aliases=[pulumi.Alias(name="old")]))
        child = pulumi.ResourceOptions(parent=self)
        role = aws.iam.Role(f"{name}-role", assume_role_policy="{}", opts=child)
        aws.iam.RolePolicy(f"{name}-policy", role=role.id, policy="{}", opts=child)
        self.register_outputs({"arn": role.arn})


def test_parents_edges_aliases_and_registered_outputs_are_seen() -> None:
    """What mocks leave out."""
    made = graph(lambda: Pair("a"))
    assert made.under("Pair a") == {"Role a-role", "RolePolicy a-policy"}
    assert made["RolePolicy a-policy"].needs_for["role"] == {"Role a-role"}
    assert made["Role a-role"].needs == set()
    assert made["Pair a"].aliases == ("old",)
    assert made.registered["Pair a"] == {"arn": "arn:aws:test:::a-role"}


def test_an_edge_without_a_value_is_seen() -> None:
    """`depends_on` stands in no input."""

    def program() -> None:
        first = aws.ec2.Vpc("first", cidr_block="10.0.0.0/16")
        second = aws.ec2.Vpc("second", cidr_block="10.1.0.0/16", opts=pulumi.ResourceOptions(depends_on=[first]))
        aws.ec2.Subnet("third", vpc_id=second.id, cidr_block="10.1.0.0/24")

    made = graph(program)
    assert made["Vpc second"].needs == {"Vpc first"}
    assert made["Vpc second"].needs_for == {}
    assert made.all_needs("Subnet third") == {"Vpc first", "Vpc second"}


def test_options_that_change_what_the_engine_does_are_seen() -> None:
    """Each of them has cost somebody a cluster."""
    options = pulumi.ResourceOptions(
        protect=True, retain_on_delete=True, ignore_changes=["desiredCapacity"], delete_before_replace=True
    )
    [node] = graph(lambda: aws.autoscaling.Group("g", max_size=1, min_size=0, opts=options)).nodes
    assert node.protected
    assert node.kept
    assert node.replaced_first
    assert node.ignores == ("desiredCapacity",)


def test_a_secret_stays_one_on_its_way_through() -> None:
    """From input to output to the input of another, and into an export."""

    def program() -> None:
        first = aws.ssm.Parameter("first", type="SecureString", value=pulumi.Output.secret("hush"))
        aws.ssm.Parameter("second", type="SecureString", value=first.value.apply(lambda value: f"{value}!"))
        pulumi.export("name", first.name)

    made = graph(program)
    assert made["Parameter second"].inputs["value"] == "hush!"
    assert "value" in made["Parameter second"].secrets
    assert "type" not in made["Parameter second"].secrets


def test_in_a_preview_nothing_is_known_but_what_was_said() -> None:
    """A program that forces an id to be there fails here, as it would for its user."""
    seen: list[str] = []

    def program() -> None:
        aws.ec2.Vpc("first", cidr_block="10.0.0.0/16").id.apply(seen.append)

    graph(program, preview=True)
    assert seen == []
    graph(program)
    assert seen == ["first-id"]


def test_what_is_exported_and_logged_is_kept() -> None:
    """As `pulumi up` shows it."""

    def program() -> None:
        pulumi.log.info("made")
        pulumi.export("answer", 42)

    made = graph(program)
    assert made.exports == {"answer": 42}
    assert "made" in made.said


@pytest.mark.parametrize("mistake", [ValueError("wrong"), pulumi.RunError("bad input")])
def test_what_the_program_raises_is_raised(mistake: Exception) -> None:
    """A test of a mistake sees the mistake."""

    def program() -> None:
        raise mistake

    with pytest.raises(type(mistake), match=str(mistake)):
        graph(program)


def test_a_look_up_is_answered_as_by_the_mocks() -> None:
    """So that both kinds of test see the same program."""
    seen: list[Any] = []
    looks: Callable[[], Any] = lambda: aws.ec2.get_ami_output().root_device_name.apply(seen.append)  # noqa: E731
    graph(looks)
    assert seen == ["/dev/sda1"]
