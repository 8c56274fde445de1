"""The policy file: what it accepts, and how it tells a person what is wrong."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from autoscaler import policies
from autoscaler.config.group_entry import GroupEntry
from autoscaler.config.policy import Policy, asg_name, read_policy
from autoscaler.model.constraints import Taint
from autoscaler.model.errors import BadInput

GOOD = """\
cluster: lab
region: us-east-1
groups:
  - name: gpu-a10g
    instance_type: g5.12xlarge
    zones: [us-east-1a, us-east-1b]
    max: 6
    usd_per_hour: 5.672
    taints: [{key: nvidia.com/gpu}]
limits: {usd_per_hour: 100}
scale_down: {idle_after: 5m}
"""


def read(tmp_path: Path, text: str) -> Policy:
    """The policy in ``text``, read from a file as a user's would be."""
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return read_policy(path)


def refusal(tmp_path: Path, text: str) -> str:
    """What the reader of a wrong file is told, without the folder's name."""
    with pytest.raises(BadInput) as told:
        read(tmp_path, text)
    return str(told.value).replace(f"{tmp_path}/", "")


def test_a_good_policy_is_read_with_its_units(tmp_path: Path) -> None:
    """Spans become timedeltas, taints those of the model, what is left out its default."""
    policy = read(tmp_path, GOOD)
    assert policy.scale_down.idle_after == timedelta(minutes=5)
    assert policy.groups[0].taints[0].as_taint() == Taint(key="nvidia.com/gpu")
    assert policy.groups[0].min == 0
    assert policy.limits.nodes is None


def test_the_shipped_policies_are_good() -> None:
    """Every policy file in the package can be read."""
    files = sorted(Path(str(policies.__path__[0])).glob("*.yaml"))
    assert files
    for file in files:
        read_policy(file)


def test_a_group_has_one_name_per_zone() -> None:
    """Stacks and the autoscaler agree on it."""
    assert asg_name("lab", "cpu", "us-east-1a") == "lab-cpu-us-east-1a"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            ("max: 6", "max: -1"),
            "policy.yaml:7: groups[0] (gpu-a10g).max = -1: input should be greater than or equal to 0",
        ),
        (("max: 6", "maxx: 6"), "policy.yaml:7: groups[0] (gpu-a10g).maxx is not a key here; did you mean max?"),
        (("    max: 6\n", ""), "groups[0] (gpu-a10g).max is missing: nodes at most, over all zones, e.g. 8"),
        (
            ("max: 6", "max: 6\n    min: 7"),
            "policy.yaml:4: groups[0] (gpu-a10g): min 7 is above max 6: max must be at least min",
        ),
        (("5m", "soon"), "scale_down.idle_after = 'soon': must be a span of time such as 90s, 10m or 1h"),
        (("us-east-1b", "us-east-1a"), "groups[0] (gpu-a10g).zones: names us-east-1a twice"),
        (("us-east-1b]", "eu-west-1b]"), "names zone 'eu-west-1b', which is not in region us-east-1"),
        (
            ("us-east-1b]", "us-east-1]"),
            "names zone 'us-east-1', which is not in region us-east-1: its zones are",
        ),
        (("max: 6", "max: yes"), "policy.yaml:7: groups[0] (gpu-a10g).max = True: must be a whole number"),
        (("usd_per_hour: 100", "usd_per_hour: on"), "limits.usd_per_hour = True: must be a number"),
        (("max: 6", "max: 6\n    1: x"), "policy.yaml:8: groups[0] (gpu-a10g).1 is not a key here; the keys here are"),
        (("max: 6", "max: 6\n    resources: {cpu: -1}"), "resources: cpu: -1 is less than nothing"),
        (("max: 6", "max: 6\n    resources: {cpu: yes}"), "resources: cpu: 'True' is not a quantity"),
        (("max: 6", 'max: 6\n    disk: "\0"'), "policy.yaml:8: this policy file has the character '\\x00', which YAML"),
        (("max: 6", "max: 6\n---\na: b"), "policy.yaml:8: this policy file begins a second document (---) here: write"),
        (("cluster: lab", "cluster: Lab_1"), "policy.yaml:1: cluster = 'Lab_1': must be lower-case letters"),
        (("cluster: lab\n", ""), "cluster is missing: the cluster's name"),
        (("max: 6", "max: 6\n    labels: {spillway.dev/group: x}"), "labels under spillway.dev/ are Spillway's own"),
        (("max: 6", "max: 6\n    labels: {node-role.kubernetes.io/gpu: x}"), "which no kubelet may give its own node"),
        (("max: 6", "max: 6\n    labels: {k8s.io/tier: x}"), "choose another prefix, e.g. example.com/tier"),
        (
            ("key: nvidia.com/gpu", "key: spillway.dev/reserved"),
            "taints: has spillway.dev/reserved, which Spillway puts on and takes off itself: choose another key",
        ),
        (("max: 6", "max: 6\n    resources: {cpu: lots}"), "cpu: 'lots' is not a quantity such as 500m, 4, 16Gi"),
        (("max: 6", "max: 6\n    disk: 1Gi"), "disk = '1Gi': must be at least 8Gi"),
        (("max: 6", "max: 6\n    max: 7"), "policy.yaml:8: this policy file is not YAML: the key 'max' is given twice"),
        (("region: us-east-1\n", "region: [\n"), "this policy file is not YAML"),
        (
            ("instance_type: g5.12xlarge", "instance_types: [g5.12xlarge, g5.12xlarge]"),
            "groups[0] (gpu-a10g).instance_types: names g5.12xlarge twice",
        ),
        (
            ("instance_type: g5.12xlarge", "instance_types: [g5]"),
            "groups[0] (gpu-a10g).instance_types[0] = 'g5': should match pattern",
        ),
        (
            ("    instance_type: g5.12xlarge\n", ""),
            "policy.yaml:4: groups[0] (gpu-a10g): gives neither of instance_type and instance_types: write",
        ),
        (
            ("max: 6", "max: 6\n    instance_types: [g6.12xlarge, g5.12xlarge]"),
            "policy.yaml:4: groups[0] (gpu-a10g): gives both of instance_type and instance_types",
        ),
        (("max: 6", "max: 6\n    efa: true"), "groups[0] (gpu-a10g): efa: true with zones us-east-1a, us-east-1b: nei"),
        (
            ("max: 6", "max: 6\n    placement: cluster"),
            "groups[0] (gpu-a10g): placement: cluster with zones us-east-1a",
        ),
        (
            ("max: 6", "max: 6\n    placement: spread"),
            "groups[0] (gpu-a10g).placement = 'spread': input should be 'any'",
        ),
        (
            ("max: 6", "max: 6\n    formerly: [gpu-a10g]"),
            "groups: formerly names 'gpu-a10g', which is an entry of this",
        ),
        (("max: 6", "max: 6\n    formerly: [Old]"), "groups[0] (gpu-a10g).formerly[0] = 'Old': must be lower-case"),
        (("usd_per_hour: 100", "usd_per_hour: 0"), "limits.usd_per_hour = 0: input should be greater than 0"),
    ],
)
def test_a_wrong_policy_names_place_key_value_and_remedy(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    """One mistake, one line that says where it is and what would be right."""
    assert change[0] in GOOD
    assert told in refusal(tmp_path, GOOD.replace(*change))


def test_amounts_may_be_written_as_numbers(tmp_path: Path) -> None:
    """Half a CPU too."""
    entry = read(tmp_path, GOOD.replace("max: 6", "max: 6\n    resources: {cpu: 0.5, pods: 20}")).groups[0]
    assert entry.resources == {"cpu": "0.5", "pods": "20"}


def test_two_entries_cannot_have_had_one_name(tmp_path: Path) -> None:
    """What stands under it could go to one of them only."""
    group = "  - {name: NAME, instance_type: m5.large, zones: [us-east-1a], max: 1, formerly: [old]}\n"
    text = "cluster: lab\ngroups:\n" + group.replace("NAME", "a") + group.replace("NAME", "b")
    assert "two entries were formerly 'old'" in refusal(tmp_path, text)


def test_an_entry_knows_its_types(tmp_path: Path) -> None:
    """The preferred one first."""
    assert read(tmp_path, GOOD).groups[0].types == ("g5.12xlarge",)
    of_a_set = GOOD.replace("instance_type: g5.12xlarge", "instance_types: [g6.12xlarge, g5.12xlarge]")
    assert read(tmp_path, of_a_set).groups[0].types == ("g6.12xlarge", "g5.12xlarge")


def test_every_mistake_is_told_at_once(tmp_path: Path) -> None:
    """A person mends a file in one go."""
    text = GOOD.replace("max: 6", "max: six").replace("5m", "soon")
    assert len(refusal(tmp_path, text).splitlines()) == 2


def test_two_groups_of_one_name_are_refused(tmp_path: Path) -> None:
    """Names are what the groups are found by."""
    entry = GOOD[GOOD.index("  - name") : GOOD.index("limits")]
    assert "two groups are named 'gpu-a10g'" in refusal(tmp_path, GOOD.replace("limits:", entry + "limits:"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a policy file is a mapping of keys to values; this one is empty"),
        ("- a", "a policy file is a mapping of keys to values; this one is a list"),
    ],
)
def test_a_file_of_another_kind_is_told_apart(tmp_path: Path, text: str, told: str) -> None:
    """An empty file or a list is no policy."""
    assert told in refusal(tmp_path, text)


def test_a_file_that_is_no_policy_is_not_echoed(tmp_path: Path) -> None:
    """Its lines may be secrets, and messages land in the logs of CI: neither keys nor values are told."""
    told = refusal(tmp_path, "".join(f"{user}:*:20228:0:99999:7:::\n" for user in ("root", "bin", "sys", "adm", "ops")))
    assert "is no policy file: none of its 5 keys is one of budget, cluster, dcgm_exporter, elastic, faults, " in told
    assert "20228" not in told
    assert "root" not in told


@pytest.mark.parametrize(
    ("text", "keys"),
    [("password: hunter2\n", "its one key is none"), ("a: 1\npassword: x\n", "none of its 2 keys is one")],
)
def test_a_small_file_that_is_no_policy_is_not_echoed_either(tmp_path: Path, text: str, keys: str) -> None:
    """Up to three keys were told by name, with their lines."""
    told = refusal(tmp_path, text)
    assert f"is no policy file: {keys} of budget, cluster" in told
    assert "password" not in told


def test_a_typo_in_the_region_is_not_blamed_on_the_zones(tmp_path: Path) -> None:
    """All groups name zones of one region, and the policy's is nearly that."""
    group = "{name: a, instance_type: m5.large, zones: [us-east-1a], max: 1}"
    text = f"cluster: lab\nregion: us-esat-1\ngroups: [{group}]\n"
    assert "region 'us-esat-1' has none of the zones" in refusal(tmp_path, text)
    assert "write region: us-east-1" in refusal(tmp_path, text)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    """Without a stack trace."""
    with pytest.raises(BadInput, match="cannot read this policy file: No such file"):
        read_policy(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("name", ["gpu\n", "-gpu", "gpu-", "GPU", "a" * 64])
def test_a_name_that_amazon_would_refuse_is_refused(name: str) -> None:
    """A newline at the end, too, though it does not show."""
    with pytest.raises(ValueError, match="lower-case letters"):
        GroupEntry(name=name, instance_type="m5.4xlarge", zones=("us-east-1a",), max=1)
