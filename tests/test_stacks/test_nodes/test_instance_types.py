"""Instance types against what an entry asks of them: told with file, entry and key before anything is made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws
import pytest

from autoscaler.config.group_entry import GroupEntry
from autoscaler.model.errors import BadInput
from stacks.nodes.instance_types import Shape, adapters_of, check_shapes, first_adapter_card, look_up_shapes
from stacks.programs import build
from tests.test_stacks.declared import Recorder, declare, group, plans, policy
from tests.test_stacks.graph import graph

FOUR = Shape(architecture="x86_64", vcpus=48, memory_mib=196608, gpus=4, gpu="A10G", adapters=1)


def shape(**changes: Any) -> Shape:
    """As a g5.12xlarge, but for the changes."""
    return replace(FOUR, **changes)


def told(entry: GroupEntry, **shapes: Shape) -> str:
    """What is said of an entry whose types are ``a.x``, ``b.x``, in the order of ``shapes``."""
    known = {f"{name}.x": one for name, one in shapes.items()}
    with pytest.raises(BadInput) as refused:
        check_shapes(policy(entry), known, source="policy.yaml")
    return str(refused.value)


def a_set(*names: str, **given: Any) -> GroupEntry:
    """An entry with a set of types."""
    return group(instance_type=None, instance_types=[f"{name}.x" for name in names], **given)


def test_types_of_one_shape_go_together() -> None:
    """Also where one has somewhat more of something: the least is promised."""
    check_shapes(policy(a_set("a", "b")), {"a.x": FOUR, "b.x": shape(vcpus=96, memory_mib=262144)}, source="p")


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (
            {"architecture": "arm64"},
            "not of one architecture (a.x: x86_64, b.x: arm64): the nodes of a group boot from",
        ),
        ({"gpus": 8}, "not of one number of GPUs (a.x: 4, b.x: 8)"),
        ({"gpus": 0, "gpu": ""}, "not of one number of GPUs (a.x: 4, b.x: 0)"),
        ({"gpu": "L4"}, "not of one kind of GPU (a.x: A10G, b.x: L4)"),
        ({"vcpus": 97}, "a.x: 48, b.x: 97 vCPUs: pods are promised the least"),
        ({"memory_mib": 65536}, "a.x: 196608, b.x: 65536 MiB of memory"),
    ],
)
def test_a_set_that_makes_no_sense_is_refused(other: dict[str, Any], says: str) -> None:
    """With the key, what differs, and why that matters."""
    words = told(a_set("a", "b"), a=FOUR, b=shape(**other))
    assert words.startswith("policy.yaml: groups[0] (gpu).instance_types: ")
    assert says in words
    assert "write an entry for each" in words


def test_adapters_must_be_there_and_be_as_many() -> None:
    """Every mistake is told at once."""
    words = told(a_set("a", "b", efa=True), a=shape(adapters=0), b=shape(adapters=4))
    assert "groups[0] (gpu).efa = true: a.x has no Elastic Fabric Adapter" in words
    assert "not of one number of EFAs (a.x: 0, b.x: 4)" in words


@pytest.mark.parametrize(
    ("asked", "lacks", "says"),
    [
        (
            {"placement": "cluster"},
            {"strategies": frozenset({"spread"})},
            "placement = 'cluster': a.x cannot be placed",
        ),
        (
            {"capacity_type": "spot"},
            {"sold_as": frozenset({"on-demand"})},
            "capacity_type = 'spot': a.x is not sold as",
        ),
    ],
)
def test_what_a_type_cannot_do_is_refused(asked: dict[str, Any], lacks: dict[str, Any], says: str) -> None:
    """With the key and a way out."""
    assert says in told(group(instance_type="a.x", **asked), a=shape(**lacks))


def test_adapters_are_counted_only_where_asked_for() -> None:
    """By type."""
    assert adapters_of(group(efa=True), {"g5.12xlarge": FOUR}) == 1
    assert adapters_of(group(), {"g5.12xlarge": FOUR}) == 0


def test_types_are_asked_of_ec2() -> None:
    """Each once; adapters are as many as the cards that can have one."""
    seen: list[dict[str, Shape]] = []

    def program() -> pulumi.Output[str]:
        provider = aws.Provider("aws", region="us-east-1")
        seen.append(look_up_shapes(policy(group(), group(name="more")), provider=provider, source="policy.yaml"))
        return provider.urn

    declare(program)
    assert seen == [
        {
            "g5.12xlarge": shape(
                gpu="A10G of 24576 MiB", adapters=4, strategies=frozenset({"cluster", "partition", "spread"})
            )
        }
    ]


class NoSuchType(Recorder):
    """EC2 knows no type."""

    def call(self, args: pulumi.runtime.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """As AWS words it."""
        if "getInstanceType" in args.token:
            raise RuntimeError("InvalidInstanceType: The following supplied instance types do not exist: [g5.12xlarge]")
        return super().call(args)


def test_a_type_that_is_not_there_is_told_before_anything_is_made(tmp_path: Path) -> None:
    """By the entry that names it."""
    made = NoSuchType()
    with pytest.raises(BadInput, match=r"groups\[0\] \(gpu\)\.instance_type: EC2 has no instance type g5\.12xlarge"):
        graph(lambda: build(plans(tmp_path)), mocks=made)
    assert [one.token for one in made.declared] in ([], ["pulumi:providers:aws"])


def test_ec2_tells_which_first_cards_take_no_adapter() -> None:
    """As moto has it from EC2: those are the types that are laid out so, among all that have adapters."""
    from moto.ec2.models.instance_types import INSTANCE_TYPES  # noqa: PLC0415 - slow to import

    plain = set()
    for name, one in INSTANCE_TYPES.items():
        cards = one["NetworkInfo"].get("NetworkCards", [])
        if one["NetworkInfo"].get("EfaSupported") and "efa" not in cards[0].get("InterfaceTypes", ["efa"]):
            plain.add(name)
        assert first_adapter_card(group(instance_type=name, efa=True)) == (name in plain)
    assert plain == {"p6-b300.48xlarge"}
