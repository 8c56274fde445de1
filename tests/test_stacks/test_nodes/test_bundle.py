"""Nodes that the project's own roles make: what the programs declare for it, and what they refuse."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from stacks.nodes.bundle import check_architecture, read_bundle
from stacks.nodes.user_data import BOOT_FILE, BOOT_SCRIPT, FETCH_SCRIPT
from stacks.preflight.inputs import Plans
from stacks.programs import build
from tests.fakes.aws_services.validation.iam import check_iam
from tests.test_stacks.declared import Declared, declare, of_type, plans

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
KUBEADM = {"kind": "kubeadm", "ami": "ami-0123456789abcdef0"}
AUTHORITY = base64.b64encode(b"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n").decode()
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "lab",
    "clusters": [
        {"name": "lab", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority-data": AUTHORITY}}
    ],
    "users": [{"name": "ada", "user": {"token": "s3cr3t-of-ada"}}],
    "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "ada"}}],
}


def bundle(folder: Path, first: str = "PYTHON", says: str = "3.12 x86_64") -> Path:
    """A file as `spillway nodes bundle` writes it, but for the roles."""
    content, plain = says.encode(), io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        entry = tarfile.TarInfo(first)
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    file = folder / "nodes.tar.gz"
    file.write_bytes(gzip.compress(plain.getvalue(), mtime=0))
    return file


def existing(folder: Path) -> dict[str, Any]:
    """A cluster that is there."""
    file = folder / "kubeconfig"
    file.write_text(json.dumps(KUBECONFIG), encoding="utf-8")
    return {"kind": "existing", "kubeconfig_path": str(file)}


def with_bundle(folder: Path, **more: Any) -> Plans:
    """A stack whose nodes fetch it."""
    nodes = {"roles": "bundle", "bundle": str(bundle(folder))}
    return plans(folder, nodes=nodes, **({"control_plane": existing(folder)} | more))


def declared_by(these: Plans) -> list[Declared]:
    """All that the program asks for."""
    return declare(lambda: build(these).get("groups"))


def files_of(declared: list[Declared]) -> dict[str, str]:
    """What the group's machines write at boot."""
    [template] = of_type(declared, TEMPLATE).values()
    text = base64.b64decode(template["userData"]).decode()
    assert "s3cr3t" not in text
    return {one["path"]: one["content"] for one in yaml.safe_load(text)["write_files"]}


def rights_in(declared: list[Declared], name: str) -> list[dict[str, Any]]:
    """Statements of a policy of the nodes' role."""
    policies = of_type(declared, "aws:iam/rolePolicy:RolePolicy").values()
    [text] = [one["policy"] for one in policies if one["name"] == name]
    check_iam("PutRolePolicy", {"RoleName": "lab-node", "PolicyName": name, "PolicyDocument": text})
    statements: list[dict[str, Any]] = json.loads(text)["Statement"]
    return statements


def test_each_groups_machines_fetch_the_bundle_and_join_the_stacks_cluster(tmp_path: Path) -> None:
    """By its digest, from the bucket; the API server and its authority are those of the control plane."""
    these = with_bundle(tmp_path)
    assert these.bundle
    declared = declared_by(these)
    files = files_of(declared)
    [kept] = of_type(declared, "aws:s3/bucketObjectv2:BucketObjectv2").values()
    assert kept["key"] == f"{these.bundle.sha256}.tar.gz"
    assert these.bundle.sha256 in files[BOOT_SCRIPT]
    told = yaml.safe_load(files[BOOT_FILE])
    assert told["settings"]["kubelet"]["server"] == "https://10.0.0.1:6443"
    assert told["settings"]["kubelet"]["authority"].startswith("-----BEGIN CERTIFICATE")
    assert told["token_parameter"] == words.JOIN_PARAMETER.format(cluster="lab", instance="{instance}")


def test_a_node_may_read_its_own_token_and_the_one_object(tmp_path: Path) -> None:
    """No other's token, nothing else in the bucket, no shared token."""
    declared = declared_by(with_bundle(tmp_path))
    [read, decrypt] = rights_in(declared, "join")
    assert read["Resource"] == "arn:*:ssm:*:*:parameter/spillway/lab/join/*"
    assert read["Condition"] == {"StringEquals": {"aws:ResourceTag/spillway.dev/instance": "${ec2:SourceInstanceARN}"}}
    assert decrypt["Condition"]["StringLike"]["kms:EncryptionContext:PARAMETER_ARN"] == read["Resource"]
    [fetch] = rights_in(declared, "bundle")
    assert fetch["Action"] == "s3:GetObject"
    assert fetch["Resource"].endswith(".tar.gz")


def test_an_image_that_was_baked_needs_no_bucket(tmp_path: Path) -> None:
    """It joins in the same way."""
    declared = declared_by(
        plans(tmp_path, nodes={"roles": "baked", "ami": KUBEADM["ami"]}, control_plane=existing(tmp_path))
    )
    assert not of_type(declared, "aws:s3/bucketObjectv2:BucketObjectv2")
    files = files_of(declared)
    assert BOOT_FILE in files
    assert FETCH_SCRIPT not in files
    assert "ResourceTag" in str(rights_in(declared, "join"))


def test_an_image_with_its_own_way_is_told_what_it_is_and_nothing_more(tmp_path: Path) -> None:
    """And shares a token with its like."""
    declared = declared_by(plans(tmp_path, control_plane=existing(tmp_path)))
    assert list(files_of(declared)) == ["/etc/spillway/node.yaml"]
    assert rights_in(declared, "join")[0]["Resource"].endswith("/join-token")


@pytest.mark.parametrize(
    ("nodes", "control_plane", "says"),
    [
        ({"roles": "bundle"}, None, "spillway:nodes.*needs bundle, the file that `spillway nodes bundle` wrote"),
        ({"bundle": "x.tar.gz"}, None, "other roles take none"),
        ({"roles": "baked"}, None, "spillway:nodes.roles = 'baked': there is no control plane to join"),
        (
            {"roles": "baked"},
            {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/platform"]},
            "spillway:nodes.roles = 'baked': EKS lets no kubelet in by a bootstrap token",
        ),
        (
            {"roles": "bundle", "bundle": "no/such.tar.gz"},
            KUBEADM,
            r"spillway:nodes.bundle = '.*no/such.tar.gz': cannot be read",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, nodes: dict[str, Any], control_plane: dict[str, Any] | None, says: str
) -> None:
    """Before anything is made."""
    more = {"control_plane": control_plane} if control_plane else {}
    with pytest.raises(BadInput, match=says):
        plans(tmp_path, nodes=nodes, **more)


@pytest.mark.parametrize(("first", "says"), [("roles/first_boot/boot.py", "x"), ("PYTHON", "3.12"), ("PYTHON", "")])
def test_another_archive_is_no_bundle(tmp_path: Path, first: str, says: str) -> None:
    """An old one either, which did not say for what it was made."""
    with pytest.raises(BadInput, match="is not a bundle: `spillway nodes bundle` writes one"):
        read_bundle(bundle(tmp_path, first, says))


def test_a_file_that_is_no_archive_is_no_bundle(tmp_path: Path) -> None:
    """Nor half of one."""
    whole = bundle(tmp_path).read_bytes()
    for content in (b"", b"hello", whole[: len(whole) // 2]):
        (tmp_path / "it").write_bytes(content)
        with pytest.raises(BadInput, match="`spillway nodes bundle` writes one"):
            read_bundle(tmp_path / "it")


def test_a_bundle_for_another_kind_of_machine_is_refused_by_type(tmp_path: Path) -> None:
    """Its compiled parts would not load."""
    file = read_bundle(bundle(tmp_path, says="3.12 aarch64"))
    check_architecture(file, {"g5g.xlarge": "arm64"})
    with pytest.raises(BadInput, match=r"was made for arm64, and g5\.xlarge is x86_64"):
        check_architecture(file, {"g5g.xlarge": "arm64", "g5.xlarge": "x86_64"})
