"""A kubeadm control plane that stands, and what a stack file may no longer make of it."""

from __future__ import annotations

from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from stacks.control_plane.existing_members import DataVolume, check_standing, key_from, member_name
from stacks.settings.control_plane import KubeadmSettings

KEY, OTHER = (f"arn:aws:kms:us-east-1:123456789012:key/{name}" for name in ("ours", "other"))


def settings(**given: Any) -> KubeadmSettings:
    """Of a stack file."""
    return KubeadmSettings.model_validate({"kind": "kubeadm", "ami": "ami-0123456789abcdef0", **given})


def standing(count: int = 3, *, source: str = "stack") -> list[DataVolume]:
    """Volumes of 20 GiB under one key."""
    return [DataVolume(name=member_name("lab", number), key=KEY, key_from=source, gib=20) for number in range(count)]


def test_what_fits_is_let_through() -> None:
    """The same, larger volumes, more members, nothing that stands yet."""
    check_standing(settings(), standing(), running=None)
    check_standing(settings(data_volume_gib=40), standing(1), running="1.35.4")
    check_standing(settings(key=KEY), standing(source="file"), running=None)
    check_standing(settings(key=OTHER, version="1.34.0"), [], running="1.35.4")
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
        check_standing(settings(**given), standing(1, source=source), running=None)
    assert says in str(refused.value)


def test_members_go_only_once_they_have_left_etcd() -> None:
    """Said by name: three members of which two are merely ended have lost their majority."""
    check_standing(settings(), standing(1), running=None)
    with pytest.raises(BadInput) as refused:
        check_standing(settings(instances=1), standing(), running=None)
    assert "instances = 1, and 3 members stand: etcd would lose its majority" in str(refused.value)
    assert "`kubeadm reset` on lab-control-plane-2 and then on lab-control-plane-1" in str(refused.value)
    assert "reset: [lab-control-plane-1, lab-control-plane-2]" in str(refused.value)

    with pytest.raises(BadInput, match="on lab-control-plane-1, which"):
        check_standing(settings(instances=1, reset=["lab-control-plane-2"]), standing(), running=None)
    gone = ["lab-control-plane-1", "lab-control-plane-2"]
    check_standing(settings(instances=1, reset=gone), standing(), running=None)
    check_standing(settings(instances=1, reset=gone), standing(1), running=None)  # and it may stand there afterwards
    with pytest.raises(BadInput, match="reset names lab-control-plane-1, which is to stay"):
        check_standing(settings(reset=gone), standing(), running=None)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (
            "1.35.3",
            "version = '1.35.3', and the API servers run 1.35.4: Kubernetes does not go back: write version",
        ),
        ("1.34.10", "does not go back"),
        ("1.37.0", "one minor version at a time: 1.36 is next"),
        ("1.35.10", "`kubeadm upgrade apply v1.35.10` on lab-control-plane-0"),
        ("1.36.0", "`kubeadm upgrade node` on lab-control-plane-1 and lab-control-plane-2, then"),
        ("1.36.0", "`systemctl start spillway-renew-token`"),
    ],
)
def test_no_version_comes_before_the_api_servers_run_it(wanted: str, says: str) -> None:
    """Their kubelets would be newer than they are, which Kubernetes does not support."""
    with pytest.raises(BadInput) as refused:
        check_standing(settings(version=wanted), standing(), running="1.35.4")
    assert says in str(refused.value)


def test_a_single_member_is_upgraded_alone() -> None:
    """Nobody else is named."""
    with pytest.raises(BadInput, match="on lab-control-plane-0, then"):
        check_standing(settings(version="1.36.0", instances=1), standing(1), running="1.35.4")


def test_a_version_that_no_member_could_found_a_cluster_with_may_be_mended() -> None:
    """Nobody has told of one yet."""
    check_standing(settings(version="1.35.4"), standing(), running=None)
