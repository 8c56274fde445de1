"""The roles as one file: what instances are told of how they are set up, and that it is made the same every time."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path

import pytest
import yaml

from autoscaler.model.errors import BadInput
from roles.deploys.apt_sources import checked_key, read_sources
from roles.deploys.openpgp import fingerprints
from roles.first_boot import bundle
from roles.inventory.instance_settings import instance_settings
from roles.settings.source_lines import Written
from stacks.settings.inventory import Inventory
from tests.test_roles.signing import Signer


def inventory(**more: object) -> Inventory:
    """A fleet with a cluster of its own."""
    settings = {
        "kubeconfig": "/home/ada/.kube/config",
        "kernel": {"swap": "keep"},
        "kubelet": {"server": "https://10.20.0.1:6443", "authority": "/home/ada/ca.crt", "max_pods": 60},
    }
    return Inventory.model_validate({"machines": [], "settings": settings, **more})


def test_instances_are_set_up_as_the_fleet() -> None:
    """But for what is of the machine that the roles are run from: which cluster they join, the stack tells them."""
    assert instance_settings(inventory(), source="inventory.yaml", written=Written()) == {
        "kernel": {"swap": "keep"},
        "kubelet": {"max_pods": 60},
    }


def test_a_bundle_carries_the_keys_of_repositories(tmp_path: Path) -> None:
    """Not where they lie on the controller: an instance refused that path, and never joined."""
    signer = Signer("the lab")
    (tmp_path / "lab.asc").write_bytes(signer.public)
    known = {"key": str(tmp_path / "lab.asc"), "fingerprints": [signer.fingerprint]}
    sources = {"mirror": "http://mirror.lab", "repositories": {"nvidia-cuda": known}}
    settings = {"sources": sources, "kernel": {"swap": "keep"}}
    written = Inventory.model_validate({"machines": [], "settings": settings})
    made = instance_settings(written, source="inventory.yaml", written=Written())
    assert str(tmp_path) not in yaml.safe_dump(made)
    (tmp_path / "lab.asc").unlink()  # as on the instance
    read = read_sources(made["sources"], source="settings.yaml", entry="settings: sources").repositories["nvidia-cuda"]
    assert fingerprints(checked_key("nvidia-cuda", read).encode(), source="it") == [signer.fingerprint]
    assert made["kernel"] == {"swap": "keep"}
    other = tmp_path / "other.asc"
    other.write_bytes(Signer("another").public)
    known["key"] = str(other)
    written = Inventory.model_validate({"machines": [], "settings": settings})
    with pytest.raises(BadInput, match=r"package source nvidia-cuda: the key at .*other\.asc is"):
        instance_settings(written, source="inventory.yaml", written=Written())


def test_what_differs_in_ec2_lies_over_it() -> None:
    """Key by key."""
    made = instance_settings(
        inventory(ec2_settings={"kubelet": {"max_pods": 110}}), source="inventory.yaml", written=Written()
    )
    assert made["kubelet"] == {"max_pods": 110}
    assert made["kernel"] == {"swap": "keep"}


def test_a_mistake_is_told_before_it_is_bundled() -> None:
    """At boot nobody would read it."""
    with pytest.raises(BadInput, match=r"inventory\.yaml: ec2_settings over settings: kernel\.swop is not a key here"):
        instance_settings(
            inventory(ec2_settings={"kernel": {"swop": "off"}}), source="inventory.yaml", written=Written()
        )


def test_a_bundle_says_first_what_it_is_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has the same digest every time it is made."""
    source = tmp_path / "source.py"
    source.write_text("x = 1\n", encoding="ascii")
    monkeypatch.setattr(bundle, "_files", lambda: iter([("roles/first_boot/boot.py", source)]))
    made = [bundle.make_bundle(tmp_path / name, {"kernel": {"swap": "keep"}}) for name in ("a", "b")]
    assert made[0] == made[1] == hashlib.sha256((tmp_path / "a").read_bytes()).hexdigest()
    with tarfile.open(tmp_path / "a") as archive:
        assert archive.getnames() == ["PYTHON", "settings.yaml", "roles/first_boot/boot.py"]
        settings = archive.extractfile("settings.yaml")
        assert settings
        assert yaml.safe_load(settings.read()) == {"kernel": {"swap": "keep"}}
