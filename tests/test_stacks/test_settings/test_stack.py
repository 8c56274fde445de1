"""A stack's configuration: what it takes, and how it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.errors import BadInput
from stacks.settings.network import INTERFACE_ENDPOINTS
from stacks.settings.stack import check_secrets, read_settings
from tests import ROOT

PATHS = {"spillway:policy": "policy.yaml"}


def test_a_policy_is_all_that_must_be_said() -> None:
    """Everything else has a default that serves on AWS."""
    settings = read_settings(PATHS, stack="prod")
    assert settings.policy_path == ROOT / "policy.yaml"
    assert settings.inventory_path is None
    assert (settings.network.cidr, settings.network.nat) == ("10.40.0.0/16", "one")
    assert settings.nodes.ami is None
    assert settings.nodes.scale_in_protection


def test_keys_of_other_projects_are_left_alone() -> None:
    """`aws:profile` is the plugin's own business."""
    assert read_settings({**PATHS, "aws:profile": "lab"}, stack="prod").policy == "policy.yaml"


def test_objects_come_as_json_from_the_engine() -> None:
    """That is how Pulumi hands structured values to a program."""
    settings = read_settings({**PATHS, "spillway:network": '{"nat": "per-zone"}'}, stack="prod")
    assert settings.network.nat == "per-zone"


def test_an_absolute_path_is_taken_as_it_is() -> None:
    """The local ground keeps its files elsewhere."""
    settings = read_settings({"spillway:policy": "/etc/p.yaml"}, stack="prod")
    assert settings.policy_path == Path("/etc/p.yaml")


@pytest.mark.parametrize(
    ("configured", "says"),
    [
        ({"policy": None}, "spillway:policy"),
        ({"polcy": "p.yaml"}, "spillway:polcy is not a key here; did you mean spillway:policy?"),
        ({"network": "one"}, "spillway:network = 'one'"),
        ({"network": {"nat": "two"}}, "spillway:network.nat = 'two'"),
        ({"network": {"natt": "one"}}, "spillway:network.natt is not a key here; did you mean nat?"),
        ({"network": {"cidr": "10.40.0.0/8"}}, "spillway:network.cidr = '10.40.0.0/8': must be a network"),
        ({"network": {"cidr": "10.0.0.0/24"}}, "must be between /16 and /20"),
        ({"network": {"cidr": "10.40.0.1/16"}}, "must be a network such as 10.20.0.0/16"),
        ({"network": {"cidr": "all"}}, "must be a network such as 10.20.0.0/16"),
        ({"network": {"trusted": ["0.0.0.0/0"]}}, "trusted[0] = '0.0.0.0/0': must be a private network"),
        ({"network": {"trusted": ["lab"]}}, "spillway:network.trusted"),
        ({"nodes": {"ami": "ubuntu"}}, "spillway:nodes.ami = 'ubuntu': must be an image such as ami-"),
        ({"nodes": {"scale_in_protection": "sometimes"}}, "spillway:nodes.scale_in_protection = 'sometimes'"),
        ({"tags": {"aws:x": "1"}}, "spillway:tags: sets 'aws:x'"),
        ({"tags": {"spillway.dev/cluster": "other"}}, "spillway:tags: sets 'spillway.dev/cluster'"),
    ],
)
def test_a_mistake_is_told_with_its_key(configured: dict[str, Any], says: str) -> None:
    """The reader finds the line in the stack file by it."""
    configuration = PATHS | {f"spillway:{key}": value for key, value in configured.items()}
    configuration = {key: value for key, value in configuration.items() if value is not None}
    with pytest.raises(BadInput) as refused:
        read_settings(configuration, stack="prod")
    assert str(refused.value).startswith("Pulumi.prod.yaml: ")
    assert says in str(refused.value)


def test_every_mistake_is_told_at_once() -> None:
    """Nobody wants to mend a file one error at a time."""
    with pytest.raises(BadInput) as refused:
        read_settings({"spillway:network": {"nat": "two"}, "spillway:nodes": {"ami": "x"}}, stack="prod")
    assert len(str(refused.value).splitlines()) == 3


def test_every_stack_file_in_the_repository_can_be_read() -> None:
    """Also those that no test brings up."""
    files = sorted((ROOT / "stacks" / "config").glob("Pulumi.*.yaml"))
    assert files
    for file in files:
        configuration = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
        settings = read_settings(configuration, stack=file.name.split(".")[1])
        assert settings.policy_path.exists(), file


@pytest.mark.parametrize(
    ("network", "eks", "services"),
    [
        ({}, True, ()),
        ({"nat": "none"}, False, INTERFACE_ENDPOINTS),
        ({"nat": "none"}, True, tuple(sorted((*INTERFACE_ENDPOINTS, "eks")))),
        ({"nat": "none", "endpoints": []}, True, ()),
        ({"endpoints": ["sts", "ecr.api"]}, False, ("ecr.api", "sts")),
    ],
)
def test_endpoints_are_those_that_nodes_need_or_those_that_are_named(
    network: dict[str, Any], services: tuple[str, ...], *, eks: bool
) -> None:
    """With a way to the internet none is needed, and each is paid by the hour."""
    settings = read_settings({**PATHS, "spillway:network": network}, stack="prod")
    assert settings.network.interface_endpoints(eks=eks) == services


def test_a_secret_in_clear_is_refused() -> None:
    """The engine would encrypt it in the state, and everybody could read it in the stack file."""
    control_plane = {"kind": "existing", "kubeconfig": "text", "join_token": "abcdef.0123456789abcdef"}
    settings = read_settings({**PATHS, "spillway:control_plane": control_plane}, stack="prod")
    check_secrets(settings, encrypted=["spillway:control_plane"], stack="prod")
    with pytest.raises(BadInput) as refused:
        check_secrets(settings, encrypted=["spillway:tags"], stack="prod")
    said = str(refused.value)
    assert "Pulumi.prod.yaml: spillway:control_plane.kubeconfig stands there in clear" in said
    assert "`pulumi config set --secret --path spillway:control_plane.join_token`" in said
    assert "0123456789abcdef" not in said


def test_what_is_no_secret_may_stand_in_clear() -> None:
    """The path of a kubeconfig, and control planes that have none."""
    for control_plane in ({"kind": "existing", "kubeconfig_path": "lab/kubeconfig"}, {"kind": "kubeadm", "ami": AMI}):
        settings = read_settings({**PATHS, "spillway:control_plane": control_plane}, stack="prod")
        check_secrets(settings, encrypted=[], stack="prod")


AMI = "ami-0123456789abcdef0"
