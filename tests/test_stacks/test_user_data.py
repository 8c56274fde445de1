"""User data: what a machine is told at boot."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.cluster import Taint
from stacks.user_data import LIMIT, NODE_FILE, Bundle, NodeSpec, parse_user_data, render_user_data

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


def test_a_bundle_is_fetched_by_its_digest_and_told_no_secret() -> None:
    """The machine prepares itself by it; what it is told of its node is read back as before."""
    bundle = Bundle(
        url="http://mirror.lab/bundle.tar.gz",
        sha256="ab" * 32,
        token_parameter="/spillway/lab/join/{instance}",  # noqa: S106 - where it is, not what it is
        settings={"kubelet": {"server": "https://10.0.0.1:6443", "authority": "-----BEGIN CERTIFICATE-----\nMII\n"}},
    )
    spec = NodeSpec(cluster="lab", labels={"a": "b"}, bundle=bundle)
    text = render_user_data(spec)
    assert parse_user_data(text) == replace(spec, bundle=None)
    config = yaml.safe_load(text)
    files = {one["path"]: one["content"] for one in config["write_files"]}
    assert config["runcmd"] == [["sh", "/etc/spillway/boot.sh"]]
    assert f"SHA256:{'ab' * 32}" in files["/etc/spillway/boot.sh"]
    assert yaml.safe_load(files["/etc/spillway/boot.yaml"])["settings"] == bundle.settings
    subprocess.run(["sh", "-n"], input=files["/etc/spillway/boot.sh"], text=True, check=True)
