"""The script of a control plane's member, run for real with recorded commands in the place of kubeadm and AWS."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from stacks.control_plane.member_user_data import NOT_YET, SCRIPT

_FAKE = """#!/bin/bash
echo "$(basename "$0") $*" >> "$RECORD"
case "$(basename "$0") $*" in
  "kubeadm certs certificate-key") echo the-key ;;
  "kubeadm init --config"*)
    cp "$3" "$RECORD.init"; echo admin > "$KUBERNETES_DIR/admin.conf"; touch "$KUBERNETES_DIR/kubelet.conf" ;;
  "kubeadm join"*) echo admin > "$KUBERNETES_DIR/admin.conf"; cp "${@: -1}" "$RECORD.join" ;;
  "kubeadm token create"*) echo abcdef.0123456789abcdef ;;
  "mountpoint"*) exit 1 ;;
  "blkid"*) exit "${FORMATTED:-0}" ;;
  "kubectl"*kube-apiserver*) printf '%s' "${API_SERVERS:-}" ;;
  "kubectl"*config*) echo UEVN ;;
  "openssl x509"*) cat > /dev/null; echo key ;;
  "openssl pkey"*) cat ;;
  "etcdctl"*status*) echo "[{\\"Status\\": {\\"header\\": {\\"member_id\\": 1}, \\"leader\\": ${LEADER:-1}}}]" ;;
  "etcdctl"*snapshot*) echo data > "${@: -1}" ;;
  "aws ssm get-parameter"*) cat "$STORE/$(basename "$6")" ;;
  "aws ssm put-parameter"*) cp "${8#file://}" "$STORE/$(basename "$6")" ;;
esac
"""
TOKEN = "abcdef.0123456789abcdef"  # noqa: S105 - of no cluster
_COMMANDS = (
    "kubeadm",
    "kubectl",
    "etcdctl",
    "aws",
    "systemctl",
    "mount",
    "mountpoint",
    "blkid",
    "mkfs.ext4",
    "openssl",
)


@dataclass(frozen=True)
class Member:
    """A machine on which nothing is real but the script and its files."""

    folder: Path

    def run(self, verb: str, **env: str) -> subprocess.CompletedProcess[str]:
        """The script."""
        paths = {"SPILLWAY_MEMBER": str(self.folder / "member.env"), "PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        known = {"RECORD": str(self.folder / "record"), "STORE": str(self.folder / "store")}
        directory = {"KUBERNETES_DIR": str(self.folder / "kubernetes")}
        return subprocess.run(
            ["bash", str(self.folder / "script"), verb],
            env=os.environ | paths | known | directory | env,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def did(self) -> list[str]:
        """Commands that it ran."""
        return (self.folder / "record").read_text(encoding="utf-8").splitlines()

    def kept(self, name: str) -> str:
        """What stands in a SecureString."""
        return (self.folder / "store" / name).read_text(encoding="utf-8")

    def keep(self, **values: str) -> None:
        """Put it there."""
        for name, value in values.items():
            (self.folder / "store" / name.replace("_", "-")).write_text(value, encoding="utf-8")


@pytest.fixture
def member(tmp_path: Path) -> Member:
    """The first member of a cluster that is not founded yet."""
    for name in ("bin", "store", "run", "data"):
        (tmp_path / name).mkdir()
    for name in _COMMANDS:
        path = tmp_path / "bin" / name
        path.write_text(_FAKE, encoding="utf-8")
        path.chmod(0o755)
    # The device, and the folder for secrets, are the machine's own.
    text = SCRIPT.read_text(encoding="utf-8").replace(
        "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_", f"{tmp_path}/"
    )
    (tmp_path / "script").write_text(text.replace("-p /run", f"-p {tmp_path}/run"), encoding="utf-8")
    (tmp_path / "vol1").touch()
    (tmp_path / "kubeadm.yaml").write_text("kind: ClusterConfiguration\n", encoding="utf-8")
    one = Member(tmp_path)
    tell(one, first="yes")
    one.keep(token=NOT_YET, certificate_key=NOT_YET, kubeconfig=NOT_YET, version=NOT_YET)
    return one


def tell(member: Member, *, first: str) -> None:
    """Its environment file."""
    said = {
        "CLUSTER": "lab",
        "REGION": "us-east-1",
        "FIRST": first,
        "ENDPOINT": "api.elb:6443",
        "DATA_VOLUME": "vol-1",
        "KEY": "arn:key",
        "BUCKET": "snapshots",
        "TOKEN_PARAMETER": "/spillway/lab/token",
        "CERTIFICATE_KEY_PARAMETER": "/spillway/lab/certificate-key",
        "KUBECONFIG_PARAMETER": "/spillway/lab/kubeconfig",
        "VERSION_PARAMETER": "/spillway/lab/version",
        "NOT_YET": NOT_YET,
        "PATIENCE": "4",
        "KUBEADM_CONFIG": str(member.folder / "kubeadm.yaml"),
        "KUBERNETES_DIR": str(member.folder / "kubernetes"),
        "KUBELET_DIR": str(member.folder / "kubelet"),
        "ETCD_DIR": str(member.folder / "etcd"),
        "DATA_DIR": str(member.folder / "data"),
    }
    (member.folder / "member.env").write_text(
        "".join(f"{key}={value}\n" for key, value in said.items()), encoding="utf-8"
    )


def test_the_first_member_founds_the_cluster_and_keeps_what_joins_others(member: Member) -> None:
    """The key of the certificates last: whoever sees it may join. Nothing secret on a command line, or in a log."""
    done = member.run("up", FORMATTED="2")
    assert done.returncode == 0, done.stderr
    did = member.did()
    assert any(line.startswith("mkfs.ext4") for line in did), "a fresh volume is formatted"
    assert (member.kept("token"), member.kept("certificate-key")) == ("abcdef.0123456789abcdef", "the-key")
    assert member.kept("kubeconfig") == "admin"
    puts = [line for line in did if "put-parameter" in line]
    assert "certificate-key" in puts[-1]
    assert not [line for line in did if "the-key" in line or "abcdef" in line]
    assert "the-key" not in done.stdout + done.stderr
    assert 'certificateKey: "the-key"' in (member.folder / "record.init").read_text(encoding="utf-8")
    assert all("--key-id arn:key" in line for line in puts)
    assert not list((member.folder / "run").iterdir()), "no secret is left in a file"


def test_a_volume_that_holds_data_is_not_formatted(member: Member) -> None:
    """Whatever else fails."""
    assert member.run("up").returncode == 0
    assert not [line for line in member.did() if line.startswith("mkfs")]


def test_a_member_that_comes_back_with_its_data_goes_on(member: Member) -> None:
    """Neither init nor join: it is in etcd's list already."""
    member.keep(token=TOKEN, certificate_key="the-key", kubeconfig="admin")
    (member.folder / "kubernetes").mkdir()
    (member.folder / "kubernetes/kubelet.conf").touch()
    assert member.run("up").returncode == 0
    assert "systemctl enable --now kubelet" in member.did()
    assert not [line for line in member.did() if line.startswith(("kubeadm init", "kubeadm join"))]


def test_a_first_member_that_went_before_it_handed_anything_on_does_so_when_it_is_back(member: Member) -> None:
    """Else nobody could ever join: the key of the certificates is made anew, and they are uploaded under it."""
    (member.folder / "kubernetes").mkdir()
    (member.folder / "kubernetes/kubelet.conf").touch()
    (member.folder / "kubernetes/admin.conf").write_text("admin\n", encoding="utf-8")
    done = member.run("up")
    assert done.returncode == 0, done.stderr
    assert (member.kept("kubeconfig"), member.kept("token"), member.kept("certificate-key")) == (
        "admin",
        TOKEN,
        "the-key",
    )
    assert [line for line in member.did() if line.startswith("kubeadm init phase upload-certs")]
    assert not [line for line in member.did() if line.startswith("kubeadm init --config")]


@pytest.mark.parametrize(("first", "status"), [("yes", 1), ("no", 0)])
def test_the_first_members_gate_is_shut_until_it_has_handed_on_what_joins_others(
    member: Member, first: str, status: int
) -> None:
    """The stack reads its kubeconfig as soon as the gate is open; the others hand nothing on."""
    tell(member, first=first)
    assert member.run("healthy").returncode == status
    member.keep(token=TOKEN, certificate_key="the-key", kubeconfig="admin")
    assert member.run("healthy").returncode == 0


@pytest.mark.parametrize("first", ["no", "yes"])
def test_others_join_once_the_cluster_stands(member: Member, first: str) -> None:
    """The first one, too, where it has lost its data: a second cluster would split the nodes."""
    tell(member, first=first)
    member.keep(token=TOKEN, certificate_key="the-key", kubeconfig="admin")
    done = member.run("up")
    assert done.returncode == 0, done.stderr
    assert not [line for line in member.did() if line.startswith("kubeadm init --config")]
    joined = (member.folder / "record.join").read_text(encoding="utf-8")
    assert 'token: "abcdef.0123456789abcdef"' in joined
    assert 'certificateKey: "the-key"' in joined
    assert "caCertHashes" in joined
    assert not list((member.folder / "run").iterdir()), "no secret is left in a file"


def test_others_do_not_wait_for_ever(member: Member) -> None:
    """The gate closes on them, and `pulumi up` says so."""
    tell(member, first="no")
    done = member.run("up")
    assert done.returncode == 1
    assert "has_certificate_key: not within 4 s" in done.stderr


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("", NOT_YET),
        ("registry.k8s.io/kube-apiserver:v1.35.4\n", "1.35.4"),
        ("r:5000/kube-apiserver:v1.36.0\nr:5000/kube-apiserver:v1.35.10\nr:5000/kube-apiserver:v1.36.0\n", "1.35.10"),
    ],
)
def test_a_member_tells_which_version_the_oldest_api_server_runs(member: Member, servers: str, told: str) -> None:
    """When it is one, and each hour; where no pod of them is told of yet, what was told before stays."""
    for verb in ("up", "renew-token"):
        member.keep(version=NOT_YET)
        done = member.run(verb, API_SERVERS=servers)
        assert done.returncode == 0, done.stderr
        assert member.kept("version") == told


@pytest.mark.parametrize(("leader", "puts"), [("1", 1), ("2", 0)])
def test_the_leader_alone_puts_a_snapshot(member: Member, leader: str, puts: int) -> None:
    """And leaves no copy behind."""
    done = member.run("snapshot", LEADER=leader)
    assert done.returncode == 0, done.stderr
    put = [line for line in member.did() if line.startswith("aws s3 cp")]
    assert len(put) == puts
    assert all("s3://snapshots/lab/" in line for line in put)
    assert not list((member.folder / "data").iterdir())


def test_a_mistyped_verb_is_refused(member: Member) -> None:
    """With the ones that there are."""
    done = member.run("upp")
    assert (done.returncode, "usage:" in done.stderr) == (2, True)
