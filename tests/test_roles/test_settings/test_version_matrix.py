"""The version matrix: which versions go together, and what is said where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from roles.settings import version_ranges
from roles.settings.version_matrix import MATRIX, choose, mistakes, of_other_branches, packages, read_matrix, refuse

MACHINE = {"kernel": "6.1.0-40-amd64", "os": "debian-12", "architecture": "hopper"}


def told(own: dict[str, str], **brought: str) -> list[str]:
    """What the shipped matrix says of a machine with these versions of its own."""
    matrix = read_matrix()
    chosen = choose(matrix, own, machine="gpu-01")
    return [found.text for found in mistakes(matrix, chosen, machine="gpu-01", brought=MACHINE | brought)]


def test_the_shipped_choice_goes_together() -> None:
    """Nobody who takes the defaults on a validated system is told anything."""
    assert told({}) == []


@pytest.mark.parametrize(
    ("own", "brought", "pair", "remedy"),
    [
        ({"fabric_manager": "580.95.05"}, {}, "driver 580.126.09 with fabric_manager 580.95.05", "must be 580.126.09"),
        ({"driver": "570.211.01"}, {}, "cuda 13.0 with driver 570.211.01", ">=580.65.06, or cuda 12 or 11"),
        ({}, {"kernel": "4.14.0"}, "driver 580.126.09 with kernel 4.14.0", "kernel must be >=4.15"),
        (
            {"driver": "590.48.01"},
            {"architecture": "volta"},
            "architecture volta with driver 590.48.01",
            "must be <581",
        ),
        ({}, {"architecture": "volta"}, "architecture volta with driver_modules open", "must be proprietary"),
        ({"driver": "560.35.05", "cuda": "12.6"}, {"architecture": "blackwell"}, "blackwell with driver", ">=570"),
        (
            {"driver_modules": "proprietary"},
            {"architecture": "blackwell"},
            "with driver_modules proprietary",
            "be open",
        ),
        (
            {"driver": "620.10.01", "driver_modules": "proprietary"},
            {},
            "driver 620.10.01 with driver_modules",
            "be open",
        ),
        ({"container_toolkit": "1.16.2"}, {}, "container_toolkit 1.16.2 with containerd", "nothing is known"),
        ({"containerd": "1.5.9"}, {}, "container_toolkit 1.20.0 with containerd 1.5.9", "containerd must be >=1.6"),
        ({"containerd": "1.6.20"}, {}, "kubelet 1.35.4 with containerd 1.6.20", ">=2.1 or >=1.7.28 and <2"),
        ({"runc": "1.1.5"}, {}, "containerd 1.7.28 with runc 1.1.5", "CVE-2025-31133"),
        ({"kubelet": "1.36.0"}, {}, "api_server 1.35.4 with kubelet 1.36.0", "not newer"),
        ({"kubelet": "1.31.2"}, {}, "api_server 1.35.4 with kubelet 1.31.2", "at most 3 minors older than 1.35.4"),
        ({}, {"kernel": "6.18.0"}, "os debian-12 with kernel 6.18.0", "kernel must be 6.1"),
        ({"cuda": "10.2"}, {}, "cuda 10.2 with driver", "choose one of 13; 12; 11"),
    ],
)
def test_a_pair_that_does_not_go_together_is_named(
    own: dict[str, str], brought: dict[str, str], pair: str, remedy: str
) -> None:
    """The message has machine, both versions, the reason, what would be right, and where that was read."""
    lines = told(own, **brought)
    line = next(line for line in lines if pair in line)
    assert line.startswith("gpu-01: ")
    assert remedy in line
    assert line.endswith(")")


def test_a_machine_with_a_driver_of_its_own_gets_that_fabric_manager() -> None:
    """Who overrides one must not have to remember the other."""
    assert choose(read_matrix(), {"driver": "580.95.05"}, machine="m").fabric_manager == "580.95.05"


def test_a_warning_does_not_stop_and_a_mistake_does() -> None:
    """A kernel that NVIDIA has not validated is told; a wrong fabric manager is refused."""
    matrix = read_matrix()
    warned = mistakes(matrix, choose(matrix, {}, machine="m"), machine="m", brought=MACHINE | {"kernel": "6.18.0"})
    assert [found.stops for found in warned] == [False]
    refuse(warned)
    wrong = choose(matrix, {"fabric_manager": "580.95.05"}, machine="m")
    with pytest.raises(BadInput, match=r"fabric_manager 580\.95\.05"):
        refuse(mistakes(matrix, wrong, machine="m", brought=MACHINE))


def test_an_override_of_something_that_is_no_part_is_refused() -> None:
    """The parts are listed."""
    with pytest.raises(BadInput, match=r"versions\.drivers is not a part here; the parts are: driver, "):
        choose(read_matrix(), {"drivers": "580.95.05"}, machine="gpu-01")


@pytest.mark.parametrize(
    ("product", "architecture"),
    [
        ("NVIDIA-A100-SXM4-80GB", "ampere"),
        ("NVIDIA-A10G", "ampere"),
        ("NVIDIA-L4", "ada"),
        ("NVIDIA-H200", "hopper"),
        ("Tesla-V100-SXM2-32GB", "volta"),
        ("Tesla-T4", "turing"),
        ("NVIDIA-B200", "blackwell"),
        ("NVIDIA RTX 6000 Ada Generation", "ada"),
        ("Something-New", ""),
    ],
)
def test_the_architecture_follows_from_the_product(product: str, architecture: str) -> None:
    """As GPU feature discovery writes it; an unknown GPU has none, and no rule speaks of it."""
    assert read_matrix().architecture(product) == architecture


def test_packages_carry_the_exact_version_and_the_names_of_their_branch() -> None:
    """Before R580 the fabric manager's package has the branch in its name, after it no longer; Ubuntu's until R590."""
    matrix = read_matrix()
    new, old = choose(matrix, {}, machine="m"), choose(matrix, {"driver": "570.211.01"}, machine="m")
    assert packages(matrix, new, "driver_open", distribution="debian") == {"nvidia-kernel-open-dkms": "580.126.09-1"}
    assert packages(matrix, new, "fabric_manager", distribution="debian") == {"nvidia-fabricmanager": "580.126.09-1"}
    assert packages(matrix, old, "fabric_manager", distribution="ubuntu") == {
        "nvidia-fabricmanager-570": "570.211.01-1*"
    }
    branched = {"libnvidia-compute-570": "570.211.01-?ubuntu1", "nvidia-utils-570": "570.211.01-?ubuntu1"}
    assert packages(matrix, old, "driver", distribution="ubuntu") == branched
    newest = choose(matrix, {"driver": "590.48.01"}, machine="m")
    assert packages(matrix, newest, "driver_open", distribution="ubuntu") == {"nvidia-dkms-open": "590.48.01-?ubuntu1"}
    assert packages(matrix, new, "cuda", distribution="debian") == {"cuda-toolkit-13-0": "*"}
    with pytest.raises(BadInput, match="packages are known for debian, ubuntu"):
        packages(matrix, new, "driver", distribution="fedora")


def test_packages_of_another_branch_are_known_by_their_names() -> None:
    """The new ones conflict with them; what has no branch in its name is upgraded in place."""
    others = ["libnvidia-compute-570", "nvidia-dkms-570-open", "nvidia-firmware-570-570.211.01", "cuda-drivers-570"]
    others += ["linux-modules-nvidia-570-6.8.0-100-generic", "nvidia-fabricmanager-570"]
    kept = ["libnvidia-compute-580", "nvidia-persistenced", "libnvidia-container1", "linux-headers-6.8.0-100-nvidia"]
    kept += ["cuda-toolkit-13-0", "nvidia-container-toolkit", "linux-image-6.8.0-100-generic"]
    have = dict.fromkeys([*others, *kept], "1")
    assert of_other_branches(have, "580.126.09", wanted=["nvidia-driver-cuda"]) == sorted(others)
    assert of_other_branches(have, "580.126.09", wanted=["nvidia-utils-580"]) == sorted(others)


def test_packages_of_a_branch_without_a_name_are_known_by_their_version() -> None:
    """On the way back from R590, on Ubuntu; on Debian no name ever had a branch, and they are downgraded in place."""
    others = ["libnvidia-compute", "nvidia-utils", "nvidia-dkms-open", "nvidia-kernel-common", "libnvidia-gl"]
    have = dict.fromkeys(others, "590.48.01-0ubuntu1") | {"libnvidia-compute-580": "580.126.09-0ubuntu1"}
    have |= dict.fromkeys(["nvidia-persistenced", "nvidia-fabricmanager", "nvidia-modprobe"], "590.48.01-0ubuntu1")
    have |= {"libnvidia-container1": "1.20.0-1", "nvidia-container-toolkit": "1.20.0-1"}
    assert of_other_branches(have, "580.126.09", wanted=["nvidia-utils-580"]) == sorted(others)
    assert of_other_branches(have, "580.126.09", wanted=["nvidia-driver-cuda"]) == []
    assert of_other_branches(have, "590.48.01", wanted=["nvidia-utils"]) == ["libnvidia-compute-580"]


def test_a_matrix_with_a_range_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    """With the line and what would be right."""
    file = tmp_path / "versions.yaml"
    file.write_text(MATRIX.read_text(encoding="utf-8").replace('">=580.65.06"', '"=>580"'), encoding="utf-8")
    with pytest.raises(BadInput, match="write a range such as"):
        read_matrix(file)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (('runc: "1.3.3"', "runc: 1.3"), "chosen.runc = 1.3: must be text"),
        (('cuda: "13.0"', 'cuda: "13"'), "chosen.cuda = '13': must be a whole version such as 13.0"),
        (('driver: "580.126.09"', 'driver: "580"'), "must be a whole version such as 580.126.09, not a branch"),
        (
            ('driver: ">=580.65.06"', 'driver: ">=580.65.06, <580"'),
            "holds '>=580.65.06, <580', and no version is all of",
        ),
        (("fabric_manager: same}", "fabric_manger: same}"), "a row of driver, fabric_manger: each says driver and"),
        (("same-minor-or-older 3}", "same-minor-or-older}"), "write same-minor-or-older N"),
        (('{driver}-1", libnvidia', '{drivr}-1", libnvidia'), "debian.driver has {drivr}, which stands for nothing"),
        (("    persistence: {", "    persistnce: {"), "debian.persistence are not there; the parts are driver"),
        (('{driver}-1", libnvidia', '{driver-1", libnvidia'), "debian.driver has a brace without its other one"),
        (
            ('{driver}-1", libnvidia', '{driver.x}-1", libnvidia'),
            "debian.driver has {driver.x}, which stands for nothing",
        ),
        (("[T4, RTX-8000]", "[]"), "architectures: turing has no product: name one, or leave it out"),
        (("hopper: [H100", "hopper: [A100, H100"), "architectures: have A100 twice: of hopper and of ampere"),
        (("architecture: turing", "architecture: turnig"), "architecture 'turnig' is none of ada, ampere, blackwell"),
        (("hopper: [H100", "hoper: [H100"), "architecture 'hopper' is none of ada, ampere, blackwell, hoper"),
        (("driver_modules: open}", "driver_modules: opne}"), "driver_modules 'opne' is none of open, proprietary"),
        (('rows:\n      - {driver: "*", fabric_manager: same}', "rows: []"), "rules[0].rows: must not be empty"),
        (('cuda: "13.0"', 'cuda: "13.0.2"'), "chosen.cuda = '13.0.2': must be a release such as 13.0"),
        (("chosen:", "chosen:\n\t"), "this version matrix file is not YAML: found character"),
    ],
)
def test_a_mistake_in_the_matrix_is_told_when_it_is_read(tmp_path: Path, change: tuple[str, str], told: str) -> None:
    """With its line; not by the first machine that needs that part."""
    text, file = MATRIX.read_text(encoding="utf-8"), tmp_path / "versions.yaml"
    assert change[0] in text
    file.write_text(text.replace(*change, 1), encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        read_matrix(file)
    assert told in str(refused.value)
    assert str(refused.value).startswith(f"{file}:")


VERSION = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(VERSION, VERSION)
def test_a_version_is_either_at_least_another_or_below_it(one: str, two: str) -> None:
    """Never both, never neither; trailing zeros mean nothing."""
    assert version_ranges.fits(one, f">={two}") != version_ranges.fits(one, f"<{two}")
    assert version_ranges.fits(one, f">={two}") == version_ranges.fits(f"{one}.0", f">={two}")
    assert version_ranges.fits(f"{one}.7", one)


@pytest.mark.parametrize(
    "text", ["<0", ">=2, <2.0", ">=2, <1 | 1.6", "1.6, 1.7", "1.6, >=1.7", "1.6.3, <1.6", "<1.7, 1.7.0", "ada, hopper"]
)
def test_a_range_that_holds_no_version_is_refused(text: str) -> None:
    """An alternative, too: it stands there for something that it does not say."""
    with pytest.raises(ValueError, match="no version is all of that"):
        version_ranges.check(text)


TERM = st.tuples(st.sampled_from(["", ">=", "<"]), VERSION).map("".join)


@given(VERSION, st.lists(TERM, min_size=1, max_size=3).map(", ".join))
def test_a_range_that_some_version_fits_is_taken(version: str, text: str) -> None:
    """Whatever it is made of: none is refused that says something."""
    choices = [version_ranges._term(part.strip()) for part in text.split(",")]
    if all(version_ranges._holds(version, term, "") for term in choices):
        version_ranges.check(text)
