"""The stack files that come with the project: each is one that the programs take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from stacks.preflight.inputs import read_plans
from stacks.settings.stack import Settings, read_settings
from tests import ROOT
from tests.test_stacks.test_nodes.test_bundle import bundle

FILES = sorted((ROOT / "stacks/config").glob("Pulumi.*.yaml"))


def settings_in(file: Path) -> Settings:
    """As the engine would hand them over."""
    text = yaml.safe_load(file.read_text(encoding="utf-8"))
    return read_settings(text["config"], stack=file.name.removeprefix("Pulumi.").removesuffix(".yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_stack_file_is_one_that_the_programs_take(file: Path, tmp_path: Path) -> None:
    """An existing cluster's kubeconfig is not there, nor is a bundle: they are the user's."""
    settings = settings_in(file)
    if settings.nodes.bundle:
        made = settings.nodes.model_copy(update={"bundle": str(bundle(tmp_path))})
        settings = settings.model_copy(update={"nodes": made})
    if settings.control_plane is None or settings.control_plane.kind != "existing":
        assert read_plans(settings).settings == settings


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_stack_file_holds_a_secret(file: Path) -> None:
    """In clear: neither a kubeconfig, nor a token, nor a key of AWS."""
    text = file.read_text(encoding="utf-8")
    assert not re.search(r"AKIA[0-9A-Z]{16}|[a-z0-9]{6}\.[a-z0-9]{16}\b|BEGIN|client-key-data", text)
    control_plane = yaml.safe_load(text)["config"].get("spillway:control_plane", {})
    assert not {"kubeconfig", "join_token"} & set(control_plane)


def test_each_kind_of_control_plane_and_each_part_of_the_split_has_its_file() -> None:
    """To start from."""
    settings = [settings_in(file) for file in FILES]
    whole = {one.control_plane.kind for one in settings if one.control_plane and one.program == "all"}
    assert whole == {"existing", "eks", "kubeadm"}
    assert {one.program for one in settings} >= {"network", "control-plane", "node-pools", "release"}


def test_the_split_speaks_of_one_control_plane() -> None:
    """Its parts must agree on what they all depend on."""
    split = [settings_in(file) for file in FILES if file.name.startswith("Pulumi.lab-")]
    assert len({str(one.control_plane) for one in split if one.control_plane}) == 1
    assert len({one.policy for one in split}) == 1


def test_nodes_that_we_make_ourselves_are_made_by_the_roles() -> None:
    """All but those of EKS, to which no bootstrap token leads."""
    settings = [settings_in(file) for file in FILES]
    whole = {one.control_plane.kind: one.nodes.roles for one in settings if one.control_plane and one.release}
    assert {kind: roles for kind, roles in whole.items() if kind != "eks"} == {
        "existing": "bundle",
        "kubeadm": "bundle",
    }
