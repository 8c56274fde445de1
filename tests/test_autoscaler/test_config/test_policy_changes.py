"""What an edit changes, in words and dollars; and what of a policy does not stand yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.documents import parse_document
from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy
from autoscaler.config.policy_changes import built_from, changes, most, pending
from autoscaler.model.constraints import Taint
from tests.builders import a_group, a_policy, an_entry
from tests.test_autoscaler.test_config.test_policy import GOOD

SECOND = """\
  - {name: big, instance_type: p4d.24xlarge, zones: [us-east-1a], max: 2, usd_per_hour: 22}
"""


def policy(*edits: tuple[str, str]) -> Policy:
    """The good one, edited."""
    text = GOOD
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return parse_document(text, Policy, what="policy", source="policy.yaml")


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (
            ("limits: {usd_per_hour: 100}", "limits: {usd_per_hour: 150}"),
            ["limits.usd_per_hour: 100 -> 150: up to 50.00 $/h more"],
        ),
        (("limits: {usd_per_hour: 100}", ""), ["limits.usd_per_hour: 100 -> none"]),
        (("max: 6", "max: 4"), ["groups[gpu-a10g].max: 6 -> 4: up to 11.34 $/h less"]),
        (("5m", "300s"), []),
        (("5m", "90s"), ["scale_down.idle_after: 5m -> 90s"]),
        (("max: 6", "max: 6 # six"), []),
        (
            ("g5.12xlarge", "g6.12xlarge"),
            ["groups[gpu-a10g].instance_type: g5.12xlarge -> g6.12xlarge (pending `pulumi up`)"],
        ),
        (
            ("limits:", SECOND + "limits:"),
            ["groups[big]: comes with at most 2 nodes, up to 44.00 $/h more (2 x 22.00) (pending `pulumi up`)"],
        ),
        (
            ("max: 6", "max: 6\n    labels: {example.com/tier: batch}"),
            ["groups[gpu-a10g].labels: none -> {example.com/tier: batch} (pending `pulumi up`)"],
        ),
    ],
)
def test_an_edit_is_told_in_words_and_dollars(edit: tuple[str, str], told: list[str]) -> None:
    """Each key with what it was and is; what pulumi builds is said to be pending."""
    assert [str(one) for one in changes(policy(), policy(edit))] == told


def test_a_group_that_goes_is_told() -> None:
    """Nothing is bought in it from now on."""
    (gone,) = changes(policy(("limits:", SECOND + "limits:")), policy())
    assert str(gone).startswith("groups[big]: goes, up to 44.00 $/h less: nothing is bought in it from now on")


def test_a_group_that_is_renamed_is_compared_with_itself() -> None:
    """It neither comes nor goes."""
    renamed = policy(("name: gpu-a10g", "name: vision\n    formerly: [gpu-a10g]"), ("max: 6", "max: 5"))
    assert [str(one) for one in changes(policy(), renamed)] == [
        "groups[vision].name: gpu-a10g -> vision (pending `pulumi up`)",
        "groups[vision].formerly: none -> [gpu-a10g] (pending `pulumi up`)",
        "groups[vision].max: 6 -> 5: up to 5.67 $/h less",
    ]


def test_the_most_that_may_run_is_the_lower_of_limit_and_groups() -> None:
    """Unknown where neither says it."""
    assert most(policy()) == pytest.approx(34.03, abs=0.01)
    assert most(policy(("max: 6", "max: 600"))) == 100
    assert most(policy(("    usd_per_hour: 5.672\n", ""), ("limits: {usd_per_hour: 100}", ""))) is None


ENTRY: dict[str, Any] = {"zones": ("us-east-1a",), "max": 4}
STANDS = a_group(max_size=4, taints=(), labels={"example.com/tier": "batch"})


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({}, []),
        ({"max": 2}, []),
        ({"usd_per_hour": 3.0}, []),
        ({"max": 5}, ["groups[gpu-a100].max: 5 is wanted, MaxSize of what stands is 4"]),
        ({"min": 1}, ["groups[gpu-a100].min: 0 stands, 1 is wanted"]),
        (
            {"instance_type": "p5.48xlarge"},
            ["groups[gpu-a100].instance_type: p4d.24xlarge stands, p5.48xlarge is wanted"],
        ),
        ({"capacity_type": "spot"}, ["groups[gpu-a100].capacity_type: on-demand stands, spot is wanted"]),
        ({"zones": ("us-east-1b",)}, ["zones: us-east-1a is there still", "zones: us-east-1b is not there yet"]),
        ({"labels": {"example.com/tier": "prod"}}, ["labels[example.com/tier]: batch stands, prod is wanted"]),
        (
            {"name": "other"},
            ["groups[other]: stands nowhere yet", "groups[gpu-a100]: stands, and is not in the policy"],
        ),
    ],
)
def test_what_does_not_stand_yet_is_told_by_key(entry: dict[str, Any], told: list[str]) -> None:
    """By what the Auto Scaling groups show; live keys need no `pulumi up`."""
    found = pending(a_policy(an_entry(**ENTRY | entry)), (STANDS,))
    assert len(found) == len(told), found
    assert all(words in line for words, line in zip(told, found, strict=True)), found


def test_taints_that_differ_are_told() -> None:
    """Both as they are."""
    (line,) = pending(a_policy(an_entry(**ENTRY)), (replace(STANDS, taints=(Taint("a"),)),))
    assert line.startswith("groups[gpu-a100].taints: [[a, none, NoSchedule]] stands, none is wanted")


def test_what_groups_do_not_show_is_found_by_the_digest_of_what_they_were_built_from() -> None:
    """A disk that changes is pending; live keys, minimum and zones are not part of the digest."""

    def digest(**given: Any) -> str:
        return built_from(an_entry(**ENTRY | given), region="us-east-1", reserved=True)

    stands = replace(STANDS, built_from=digest())
    assert pending(a_policy(an_entry(**ENTRY)), (stands,)) == ()
    (line,) = pending(a_policy(an_entry(**ENTRY, disk="200Gi")), (stands,))
    assert (
        line == "groups[gpu-a100]: disk, efa, placement, a label that goes or scale_up.reserve differs from what stands"
    )
    assert pending(a_policy(an_entry(**ENTRY), scale_up={"reserve": False}), (stands,))
    assert digest(usd_per_hour=1.0, max=9, min=2, zones=("us-east-1b",), formerly=("old",)) == digest()


def test_an_entry_is_found_by_the_name_that_its_groups_still_have() -> None:
    """Between the edit and `pulumi up` they carry the former one."""
    renamed = a_policy(an_entry("new", formerly=("old",)))
    assert renamed.entry("old") == renamed.entry("new") == GroupEntry(**dict(renamed.groups[0]))
