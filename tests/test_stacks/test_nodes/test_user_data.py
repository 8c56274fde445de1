"""User data: what a machine is told at boot."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.constraints import Taint
from stacks.nodes.user_data import (
    BOOT_FILE,
    BOOT_SCRIPT,
    BOOT_UNIT,
    FETCH_SCRIPT,
    LIMIT,
    NODE_FILE,
    ROLES,
    Bundle,
    Join,
    NodeSpec,
    parse_user_data,
    render_user_data,
)

words = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=63)
taints = st.builds(
    Taint, key=words, value=words, effect=st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
)
specs = st.builds(
    NodeSpec,
    cluster=words,
    labels=st.dictionaries(words, words, max_size=8),
    taints=st.lists(taints, max_size=3).map(tuple),
)


@given(spec=specs)
def test_what_is_rendered_is_read_back(spec: NodeSpec) -> None:
    """Whatever the labels and taints look like (`yes`, `1`, `null`, colons), they arrive unchanged."""
    assert parse_user_data(render_user_data(spec)) == spec


@pytest.mark.parametrize("value", ["yes", "null", "1", "1.5", "a: b", "#x", "0x10", ""])
def test_values_that_yaml_would_take_for_something_else_stay_text(value: str) -> None:
    """A label value is always text for the kubelet."""
    spec = NodeSpec(cluster="lab", labels={"example.com/value": value})
    assert parse_user_data(render_user_data(spec)) == spec


def test_it_is_a_cloud_config_that_writes_one_file_of_root() -> None:
    """cloud-init reads it by its first line."""
    text = render_user_data(NodeSpec(cluster="lab", labels={"a": "b"}, taints=(Taint("nvidia.com/gpu"),)))
    assert text.startswith("#cloud-config\n")
    [entry] = yaml.safe_load(text)["write_files"]
    assert (entry["path"], entry["owner"], entry["permissions"]) == (NODE_FILE, "root:root", "0644")
    assert yaml.safe_load(entry["content"]) == {
        "cluster": "lab",
        "labels": {"a": "b"},
        "taints": [{"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}],
    }


def test_the_order_of_labels_does_not_change_a_byte() -> None:
    """Otherwise a launch template would get a new version for nothing."""
    one = NodeSpec(cluster="lab", labels={"a": "1", "b": "2"})
    other = NodeSpec(cluster="lab", labels={"b": "2", "a": "1"})
    assert render_user_data(one) == render_user_data(other)


def test_forty_labels_are_far_from_the_limit_of_ec2() -> None:
    """EC2 refuses more than 16 KiB."""
    labels = {f"example.com/label-{n}": "x" * 63 for n in range(40)}
    assert len(render_user_data(NodeSpec(cluster="lab", labels=labels))) < LIMIT


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not a cloud-config"),
        ("#!/bin/sh\necho hi\n", "not a cloud-config"),
        ("#cloud-config\nruncmd: [ls]\n", "not a cloud-config"),
        ("#cloud-config\n{", "not YAML"),
        ("#cloud-config\nwrite_files: []\n", NODE_FILE),
        (f"#cloud-config\nwrite_files: [{{path: {NODE_FILE}, content: ''}}]\n", "the cluster's name"),
    ],
)
def test_other_user_data_is_refused_in_words(text: str, says: str) -> None:
    """An instance that is not of this project is told apart from one that is."""
    with pytest.raises(ValueError, match=says):
        parse_user_data(text)


JOIN = Join(
    server="https://10.0.0.1:6443",
    authority="-----BEGIN CERTIFICATE-----\nMII\n",
    token_parameter="/spillway/lab/join/{instance}",  # noqa: S106 - where it is, not what it is
    cluster_dns=("10.96.0.10",),
    bundle=Bundle(url="https://b.s3.us-east-1.amazonaws.com/it's.tar.gz", sha256="ab" * 32),
)


def files_of(spec: NodeSpec) -> dict[str, str]:
    """What is written, by its path."""
    return {one["path"]: one["content"] for one in yaml.safe_load(render_user_data(spec))["write_files"]}


def test_a_machine_fetches_the_roles_by_their_digest_and_is_told_no_secret() -> None:
    """It prepares itself by them; what it is told of its node is read back as before."""
    spec = NodeSpec(cluster="lab", labels={"a": "b"}, join=JOIN)
    assert parse_user_data(render_user_data(spec)) == replace(spec, join=None)
    files = files_of(spec)
    fetch = next(line for line in files[BOOT_SCRIPT].splitlines() if line.startswith("python3 "))
    assert shlex.split(fetch)[1:4] == [FETCH_SCRIPT, "https://b.s3.us-east-1.amazonaws.com/it's.tar.gz", "ab" * 32]
    told = yaml.safe_load(files[BOOT_FILE])
    assert told["token_parameter"] == JOIN.token_parameter
    assert told["settings"]["kubelet"] == {
        "server": JOIN.server,
        "authority": JOIN.authority,
        "cluster_dns": ["10.96.0.10"],
    }
    assert f"ExecStart={BOOT_SCRIPT}\n" in files[BOOT_UNIT]
    subprocess.run(["sh", "-n"], input=files[BOOT_SCRIPT], text=True, check=True)
    compile(files[FETCH_SCRIPT], FETCH_SCRIPT, "exec")


def test_an_image_that_was_baked_fetches_nothing() -> None:
    """The roles lie there; the machine is prepared and joins in the same way."""
    files = files_of(NodeSpec(cluster="lab", join=replace(JOIN, bundle=None)))
    assert FETCH_SCRIPT not in files
    assert "tar" not in files[BOOT_SCRIPT]
    assert f"cd {ROLES}\n" in files[BOOT_SCRIPT]


@pytest.mark.parametrize(("python", "status"), [("3.11", 0), ("9.99", 2)])
def test_roles_for_another_python_are_told_and_not_tried_again(tmp_path: Path, python: str, status: int) -> None:
    """Compiled parts would not load: it stands in the log, and the unit does not start it over and over."""
    script = files_of(NodeSpec(cluster="lab", join=replace(JOIN, bundle=None)))[BOOT_SCRIPT]
    for folder in ("/var/log/spillway", "/var/lib/spillway", "/opt/spillway"):
        script = script.replace(folder, f"{tmp_path}{folder}")
    (tmp_path / ROLES[1:] / "roles").mkdir(parents=True)
    (tmp_path / ROLES[1:] / "PYTHON").write_text(f"{python} x86_64\n", encoding="ascii")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3.11").symlink_to("/bin/true")
    env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    assert subprocess.run(["sh", "-c", script], env=env, check=False).returncode == status
    assert (tmp_path / "var/lib/spillway/booted").exists() == (status == 0)
    said = (tmp_path / "var/log/spillway/boot.log").read_text(encoding="utf-8")
    assert ("bundled for python9.99, which is not on this image" in said) == (status != 0)
