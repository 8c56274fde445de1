"""A kubeadm control plane that stands, and what a stack file may no longer make of it."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.failures import BadInput
from stacks.control_plane_settings import KubeadmSettings
from stacks.standing_members import DataVolume, check_standing, key_from, member_name, tell_fewer

KEY, OTHER = (f"arn:aws:kms:us-east-1:123456789012:key/{name}" for name in ("ours", "other"))


def settings(**given: Any) -> KubeadmSettings:
    """Of a stack file."""
    return KubeadmSettings.model_validate({"kind": "kubeadm", "ami": "ami-0123456789abcdef0", **given})


def standing(count: int = 3, *, source: str = "stack") -> list[DataVolume]:
    """Volumes of 20 GiB under one key."""
    return [DataVolume(name=member_name("lab", number), key=KEY, key_from=source, gib=20) for number in range(count)]


def test_what_fits_is_let_through() -> None:
    """The same, larger volumes, more members, nothing that stands yet."""
    check_standing(settings(), standing())
    check_standing(settings(data_volume_gib=40), standing(1))
    check_standing(settings(key=KEY), standing(source="file"))
    check_standing(settings(key=OTHER), [])
    assert (key_from(settings()), key_from(settings(key=KEY))) == ("stack", "file")


@pytest.mark.parametrize(
    ("given", "source", "says"),
    [
        ({"key": OTHER}, "stack", "key/other': the data volume of lab-control-plane-0 stands under"),
        ({"key": OTHER}, "stack", "take it out again"),
        ({"key": OTHER}, "file", f"write key: {KEY}"),
        ({}, "file", "spillway:control_plane.key is gone"),
        ({}, "file", f"write key: {KEY}"),
        ({"data_volume_gib": 10}, "stack", "data_volume_gib = 10: the data volume of lab-control-plane-0 has 20 GiB"),
    ],
)
def test_another_key_or_a_smaller_volume_is_refused(given: dict[str, Any], source: str, says: str) -> None:
    """In words that mend it."""
    with pytest.raises(BadInput) as refused:
        check_standing(settings(**given), standing(1, source=source))
    assert says in str(refused.value)


def test_members_that_are_taken_away_are_told_of() -> None:
    """Their etcd has to be told first."""
    assert tell_fewer(settings(), standing()) == tell_fewer(settings(), standing(1)) == []
    [line] = tell_fewer(settings(instances=1), standing())
    assert "instances = 1, and 3 members stand" in line
    assert "on lab-control-plane-2 and lab-control-plane-1 first" in line
