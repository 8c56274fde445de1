"""The provider of on-prem machines: what it refuses, what it replaces, how it reads what a machine says."""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st
from pulumi.provider.experimental.provider import CheckRequest, DiffRequest

from autoscaler.config.node_registration import Declared
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from roles.membership import bootstrap
from stacks.on_prem_provider.drain import leaving, why_not
from stacks.on_prem_provider.machine_args import read_args, write_args
from stacks.on_prem_provider.node_objects import changes, kept_taints, new_node, register
from stacks.on_prem_provider.probe import SCRIPT, Seen, Wanted, findings, parse
from stacks.on_prem_provider.provider import OnPremProvider, _stack
from stacks.on_prem_provider.ssh import Answer
from stacks.on_prem_provider.values import plain, properties_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"
OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOkVFQMBm3KdfHdED88KlspCObjlgpANiOmFnnt0vaZm"
URN = "urn:pulumi:test::lab::spillway:machines:Machines$spillway-onprem:index:Machine::dgx-01"
GPUS = {"product": "NVIDIA-A100-SXM4-40GB", "count": 8, "memory": "40Gi"}


def entry(**changed: Any) -> dict[str, Any]:
    """Properties of an ordinary machine."""
    ordinary = {
        "name": "dgx-01",
        "cluster": "lab",
        "address": "10.20.0.11",
        "cpus": 128,
        "memory": "1Ti",
        "gpus": GPUS,
        "ssh": {"hostKey": KEY},
    }
    return {key: value for key, value in (ordinary | changed).items() if value is not None}


def check(**changed: Any) -> dict[str, str]:
    """Failures by property."""
    request = CheckRequest(URN, {}, properties_of(entry(**changed)), b"")
    found = asyncio.run(OnPremProvider().check(request)).failures or []
    return {failure.property: failure.reason for failure in found}


def diff(state: Mapping[str, Any] | None = None, **changed: Any) -> tuple[list[str], list[str], bool]:
    """What changes, what of it replaces, and whether the old one goes first."""
    old = {**write_args(read_args(entry())), "registered": True, "problems": [], **(state or {})}
    request = DiffRequest(URN, "dgx-01", properties_of(old), properties_of(write_args(read_args(entry(**changed)))), [])
    found = asyncio.run(OnPremProvider().diff(request))
    return found.diffs, found.replaces, found.delete_before_replace


def test_a_good_entry_passes_and_has_its_defaults_written_down() -> None:
    """So that a new default is a change that is seen."""
    request = CheckRequest(URN, {}, properties_of(entry()), b"")
    answer = asyncio.run(OnPremProvider().check(request))
    assert not answer.failures
    assert plain(answer.inputs or {})["drainTimeout"] == "10m"


@pytest.mark.parametrize(
    ("wrong", "where", "told"),
    [
        ({"name": "DGX_01"}, "name", "must be lower-case letters"),
        ({"address": "10.20.0.411"}, "address", "is not an IP address"),
        ({"ssh": {}}, "ssh.hostKey", "`ssh-keyscan -p 22 -t ed25519 10.20.0.11` prints it"),
        ({"ssh": {"hostKey": "ssh-ed25519 AAAA"}}, "ssh.hostKey", "is not a public host key"),
        ({"ssh": {"hostKey": KEY, "port": 70000}}, "ssh.port", "less than or equal to 65535"),
        ({"gpus": {**GPUS, "count": 0}}, "gpus.count", "greater than or equal to 1"),
        ({"labels": {"spillway.dev/origin": "ec2"}}, "labels", "Spillway's own"),
        ({"taints": [{"key": "x", "effect": "Never"}]}, "taints.0.effect", "NoSchedule"),
        ({"drainTimeout": "soon"}, "drainTimeout", "must be a span of time such as 90s"),
        ({"minDiskFree": "much"}, "minDiskFree", "is not a quantity"),
        ({"cluster": None}, "cluster", "is missing"),
        ({"colour": "red"}, "colour", "Extra inputs are not permitted"),
    ],
)
def test_a_bad_entry_is_refused_by_its_property(wrong: dict[str, Any], where: str, told: str) -> None:
    """With what would be right."""
    failures = check(**wrong)
    assert list(failures) == [where]
    assert told in failures[where]


def test_a_stand_in_needs_no_host_key() -> None:
    """There is nobody to ask."""
    assert check(probe="none", ssh={}) == {}


@pytest.mark.parametrize(
    ("changed", "replaces"),
    [
        ({"name": "dgx-02"}, ["name"]),
        ({"cluster": "other"}, ["cluster"]),
        ({"ssh": {"hostKey": OTHER}}, ["ssh"]),
        ({"ssh": {"hostKey": KEY, "user": "admin"}}, []),
        ({"address": "10.20.0.12"}, []),
        ({"labels": {"tier": "gold"}}, []),
        ({"taints": [{"key": "x"}]}, []),
        ({"owner": "vision"}, []),
        ({"renewJoin": "again"}, []),
        ({"forceRemoval": True}, []),
    ],
)
def test_another_machine_is_a_replacement_and_all_else_an_update(changed: dict[str, Any], replaces: list[str]) -> None:
    """It is another one when its name, its cluster or its host key is; the old one leaves before the new one joins."""
    found, replaced, first = diff(**changed)
    assert found == [next(iter(changed))]
    assert replaced == replaces
    assert first == bool(replaces)


def test_nothing_changes_where_nothing_does() -> None:
    """What the provider found out is no change."""
    assert diff({"found": {"kernel": "6.1"}, "joinToken": "x"}) == ([], [], False)


def test_what_a_refresh_found_wrong_stays_a_change() -> None:
    """Until an update has asked again."""
    assert diff({"problems": ["does not answer"]})[0] == ["problems"]
    assert diff({"registered": False})[0] == ["registered"]


# --- The probe --------------------------------------------------------------------------------------------------------


def probed(tmp_path: Path, **programs: str) -> Seen:
    """What the script says here, with these programs first on the PATH."""
    for name, script in programs.items():
        path = tmp_path / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        path.chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    said = subprocess.run(["sh", "-c", SCRIPT], env=env, capture_output=True, text=True, check=True, timeout=30).stdout
    began = float(next(line.partition("=")[2] for line in said.splitlines() if line.startswith("began=")))
    return parse(Answer(text=said, sent_at=began, ended_at=began + 60))


def test_gpus_are_counted_by_the_best_that_is_there(tmp_path: Path) -> None:
    """The driver knows names; where it is not there yet, the bus knows cards, and no audio function of one."""
    smi = "printf 'NVIDIA A100-SXM4-40GB, 580.65.06\\nNVIDIA A100-SXM4-40GB, 580.65.06\\n'"
    seen = probed(tmp_path, nvidia_smi=smi)
    assert (seen.gpus, seen.driver, seen.seen_by) == (2, "580.65.06", "nvidia-smi")
    assert set(seen.products) == {"NVIDIA-A100-SXM4-40GB"}
    cards = "echo '00:1e.0 3D controller: NVIDIA GA100'; echo '00:1e.1 Audio device: NVIDIA'"
    broken = "echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18"
    seen = probed(tmp_path, nvidia_smi=broken, lspci=cards, sudo="exit 0")  # whoever runs this
    assert (seen.gpus, seen.products) == (1, ())
    assert "version mismatch" in seen.broken
    [missing] = findings(seen, Wanted(gpus=8, product="x", disk_free=0))
    assert "1 GPUs are seen by lspci (nvidia-smi: Failed to initialize NVML" in missing.what


def certificate(name: str) -> x509.Certificate:
    """An authority of its own."""
    key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    made = (
        made.serial_number(x509.random_serial_number()).not_valid_before(now).not_valid_after(now + timedelta(days=1))
    )
    return made.sign(key, hashes.SHA256())


@pytest.mark.parametrize("written", [json.dumps, partial(json.dumps, indent=1), yaml.safe_dump])
def test_a_machine_of_another_cluster_is_refused_with_that_ones_address(
    tmp_path: Path, written: Callable[[Any], str]
) -> None:
    """Its kubelet believes other authorities; of two in its file one is enough, as while they are replaced."""
    one, two = certificate("one"), certificate("two")
    bundle = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in (one, two))
    cluster = {"certificate-authority-data": base64.b64encode(bundle).decode(), "server": "https://10.9.9.9:6443"}
    (tmp_path / "kubelet.conf").write_text(written({"clusters": [{"name": "c", "cluster": cluster}]}), encoding="utf-8")
    cat = (
        f'case $1 in */kubelet.conf) exec /bin/cat {tmp_path}/kubelet.conf ;; /var/lib/*) exit 1 ;; esac; /bin/cat "$@"'
    )
    seen = probed(tmp_path, cat=cat, id="echo 0", nvidia_smi="exit 1", lspci="exit 0")
    assert seen.server == "https://10.9.9.9:6443"
    prints = [each.fingerprint(hashes.SHA256()).hex() for each in (one, two)]
    assert seen.authorities == {*prints}
    wanted = Wanted(gpus=seen.gpus, product="x", disk_free=0, authorities=frozenset({"f" * 64}))
    (told,) = findings(seen, wanted)
    assert told.what == "it is a node of another cluster, https://10.9.9.9:6443"
    for known in (frozenset(prints[:1]), frozenset[str]()):
        assert findings(seen, replace(wanted, authorities=known)) == ()


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    """Each with its remedy."""
    seen = probed(tmp_path, uname="case $1 in -s) echo Darwin;; *) echo arm64e;; esac", id="echo 1000", sudo="exit 1")
    told = findings(seen, Wanted(gpus=1, product="x", disk_free=1 << 60))
    assert len(told) == 5
    assert all(finding.remedy for finding in told)


@given(ahead=st.floats(-3600, 3600), on_the_way=st.floats(0, 30), script=st.floats(0, 30))
def test_a_clock_is_never_blamed_for_the_time_on_the_way(ahead: float, on_the_way: float, script: float) -> None:
    """What is told is at most what it is off; and all of it, but for the journey."""
    sent, began = 1e9, 1e9 + on_the_way + ahead
    text = f"began={began!r}\nended={began + script!r}\n"
    told = parse(Answer(text=text, sent_at=sent, ended_at=sent + 2 * on_the_way + script)).clock_ahead
    assert abs(told) <= abs(ahead) + 1e-3
    assert told * ahead >= -1e-3
    assert abs(ahead) - abs(told) <= on_the_way + 1e-3


@given(text=st.text())
def test_whatever_a_login_shell_prints_is_read(text: str) -> None:
    """A banner is no answer, and no mistake."""
    assert parse(Answer(text=text, sent_at=0, ended_at=0)).gpus >= 0


# --- The node, the token, the pods ------------------------------------------------------------------------------------


def test_a_nodes_other_taints_and_labels_are_left_alone() -> None:
    """What the entry said before and does not say now is taken off."""
    before = read_args(entry(labels={"old": "1"}, taints=[{"key": "old"}]))
    now = read_args(entry(labels={"new": "1"}, taints=[{"key": "new", "effect": "NoExecute"}]))
    node = new_node(before)
    node["metadata"]["resourceVersion"] = "7"
    node["spec"]["taints"].append({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"})
    patch = changes(node, now, before=before)
    assert patch["metadata"]["labels"] == {"old": None, words.ORIGIN: words.ON_PREM, "new": "1"}
    assert [taint["key"] for taint in patch["spec"]["taints"]] == ["node.kubernetes.io/not-ready", "new"]
    assert kept_taints(now) == [{"key": "new", "effect": "NoExecute"}]


def test_provider_and_roles_keep_one_ledger_of_what_was_declared() -> None:
    """What either declared the other takes away once the inventory says it no more; what it adds itself stays."""
    before = read_args(entry(labels={"old": "1"}, taints=[{"key": "old"}]))
    node = new_node(before)
    assert Declared.on(node).taints == {("old", "NoSchedule")}
    roles = {**before.node_labels(), "nvidia.com/gpu.present": "true"}
    del roles["old"]
    patch = bootstrap.marks(node, labels=roles, taints=[])
    assert patch["metadata"]["labels"]["old"] is None
    assert patch["spec"]["taints"] == []
    node["metadata"]["annotations"] = patch["metadata"]["annotations"]
    node["metadata"] |= {"labels": roles, "resourceVersion": "8"}
    node["spec"]["taints"] = []
    again = changes(node, read_args(entry(labels={"new": "1"})), before=before)
    assert "nvidia.com/gpu.present" not in again["metadata"]["labels"]
    kept = Declared.on({"metadata": again["metadata"]}).labels
    assert {"new", "nvidia.com/gpu.present", words.ORIGIN} <= kept
    assert "old" not in kept


@pytest.mark.parametrize(
    ("meta", "phase", "leaves", "blocks"),
    [
        ({"ownerReferences": [{"kind": "Job", "controller": True}]}, "Running", True, ""),
        ({"ownerReferences": [{"kind": "DaemonSet", "controller": True}]}, "Running", False, ""),
        ({"annotations": {"kubernetes.io/config.mirror": "x"}}, "Running", False, ""),
        ({}, "Succeeded", False, ""),
        ({}, "Running", True, "no controller would make it anew"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "Running", True, ""),
        (
            {"annotations": {words.DO_NOT_DISRUPT: "true"}, "ownerReferences": [{"kind": "Job", "controller": True}]},
            "Running",
            True,
            "it asks not to be disrupted",
        ),
    ],
)
def test_which_pods_leave_and_which_block(meta: dict[str, Any], phase: str, leaves: bool, blocks: str) -> None:  # noqa: FBT001 - a table
    """As kubectl drain has it, and as Spillway's own annotation."""
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u", **meta}, "status": {"phase": phase}}
    assert bool(leaving([pod])) == leaves
    if leaves:
        assert why_not(pod).startswith(blocks)
        assert bool(why_not(pod)) == bool(blocks)


class OneNode:
    """An API server with room for one Node."""

    def __init__(self) -> None:
        self.node: dict[str, Any] | None = None

    def find(self, path: str) -> dict[str, Any] | None:
        """The Node, if it is there."""
        return self.node

    def send(self, method: str, path: str, body: Any, *, content: str = "") -> None:
        """Make it, or lay what is sent over it."""
        before = self.node or {"metadata": {"annotations": {}}, "spec": {}}
        annotations = {**before["metadata"]["annotations"], **body["metadata"]["annotations"]}
        metadata = {"resourceVersion": "1", "labels": body["metadata"]["labels"], "annotations": annotations}
        self.node = {"metadata": metadata, "spec": body["spec"]}


def test_a_machine_is_in_one_stack() -> None:
    """A second one would drain and unregister it under the first; the same stack may take it in again."""
    server: Any = OneNode()
    args = read_args(entry())
    register(server, args, stack="spillway/lab")
    register(server, args, stack="spillway/lab")  # as after a stop in the middle
    with pytest.raises(Unavailable, match=r"dgx-01 is in the stack spillway/lab already: .*\(spillway/other\)"):
        register(server, args, stack="spillway/other")
    assert server.node["metadata"]["annotations"][words.STACK] == "spillway/lab"
    register(server, args, before=args, stack="spillway/new")  # `pulumi stack rename`
    assert server.node["metadata"]["annotations"][words.STACK] == "spillway/new"


def test_the_stack_is_read_from_the_engines_name_of_the_resource() -> None:
    """With its project: a stack's name is unique within that alone."""
    assert _stack(URN) == "lab/test"
