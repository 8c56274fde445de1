"""The drift campaign: every kind in ``tests/drift`` on a real machine, and fifty nights on which nothing drifted."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from roles.checks import preflight
from roles.checks.exclusions import why_unknown
from roles.engine.batched_facts import Seen
from roles.engine.disruption import Disruption
from roles.engine.fleet import Fleet, connected, looking
from roles.engine.host_plan import HostPlan
from roles.node import prepare
from roles.settings.machine import MachineSettings
from stacks.local.toolchain.tools import ensure_tools
from tests.live.apt_repository import AptRepository
from tests.live.archive_part import BOOKWORM
from tests.live.debian import cached_root, debian_archive
from tests.live.drift import FOLDER, Kind, read_kinds, rounds
from tests.live.machines import Bench, Host
from tests.live.nvidia import packages
from tests.test_roles.signing import Signer

pytestmark = [pytest.mark.live, pytest.mark.long]

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"
KINDS = read_kinds()
ROUNDS = rounds(KINDS)
NIGHTS = 50
CHRONY = "/etc/systemd/system/chrony.service.d"
CLOCK_IS_OF_OTHERS = "[Unit]\\nConditionCapability=\\n[Service]\\nExecStart=\\nExecStart=!/usr/sbin/chronyd -F 0 -x\\n"
"""chrony runs as ever, and sets nothing: the clock of a test's machine is that of its host."""


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that was prepared, and the settings with which it was."""

    host: Host
    settings: MachineSettings

    def connected(self) -> AbstractContextManager[Fleet]:
        """The machine as the planner has it."""
        return connected([(self.host.name, {**self.host.ssh_data(), "settings": self.settings})], prepare)

    def night(self, *, apply: bool = True) -> tuple[HostPlan, str]:
        """What a nightly run finds, and, where it also mends, why it stopped early."""
        with self.connected() as fleet:
            plan = fleet.plan()[self.host.name]
            assert not plan.failed, plan.failed
            assert not plan.unreachable
            if not apply:
                return plan, ""
            (done,) = fleet.apply([self.host.name], allowed=Disruption.REBOOT)
            return plan, done.failed


@pytest.fixture(scope="module")
def node(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A machine that was made a GPU node from bare, and that reaches one other machine: the mirror of its packages."""
    if not shutil.which("gcc"):
        pytest.skip("needs gcc to make packages")
    folder = tmp_path_factory.mktemp("repository")
    ctk = ensure_tools(["nvidia-ctk"], progress=print)["nvidia-ctk"]
    signer = Signer("the tests")
    with mirror(folder, signer, bench) as repository:
        for version in ("580.126.09", "580.95.05", "590.48.01"):
            repository.add(*packages.driver(version))
        for version in ("1.20.0", "1.17.8"):
            repository.add(*packages.container_toolkit(version, ctk=ctk))
        repository.add(*packages.kernel(), packages.headers("6.99.0-test"))
        (host,) = bench.machines("gpu")
        host.run(f"ip route del default; mkdir -p {CHRONY}; printf '{CLOCK_IS_OF_OTHERS}' > {CHRONY}/bench.conf")
        made = Node(host, MachineSettings.model_validate(settings_of(repository, signer, folder, address=host.address)))
        _, failed = made.night()
        assert failed == ""
        assert said(made.night(apply=False)[0]) == ""
        yield made


def mirror(folder: Path, signer: Signer, bench: Bench) -> AptRepository:
    """Our packages, and a part of Debian's, which come from its own archive."""
    archive = debian_archive().rstrip("/")
    behind = {"/debian/": f"{archive}/", "/debian-security/": f"{archive}-security/"}
    made = AptRepository(folder, signer, listen=bench.gateway, passes_on=behind)
    made.carry(cached_root(), BOOKWORM, more=("docker.io", "etcd-client", "systemd-timesyncd", "tree"))
    return made


def settings_of(repository: AptRepository, signer: Signer, folder: Path, *, address: str) -> dict[str, Any]:
    """A machine with two A100s whose packages all come from one mirror, and which joins no cluster."""
    return {
        "name": "gpu",
        "address": address,
        "gpu_product": "NVIDIA-A100-SXM4-40GB",
        "gpu_count": 2,
        "gpu": {"mig": {"0": ["3g.20gb", "3g.20gb"], "1": []}, "fabric_manager": True},
        "sources": repository.for_all(signer, folder),
        "versions": {"containerd": "1.6.20", "runc": "1.1.5"},
        "container_runtime": {"package": "containerd", "cgroup_driver": "cgroupfs", "keep_oom_scores": True},
        "pod_network": {"kind": "bridge", "pods": "10.244.7.0/24"},
        "time": {"servers": ["192.0.2.1"]},  # nobody answers there
        # A newer kernel on the disk never runs here: the one of this machine does.
        "kernel": {"swap": "keep", "reboot_for": ["request", "nouveau"]},
        "users": [{"name": "ada", "keys": [f"{KEY} ada"], "sudo": True}],
        "ssh_passwords": "refused",
    }


def said(plan: HostPlan) -> str:
    """Everything that a plan has to say, a line each."""
    changes = [f"{change.resource}: {change.commands[0][:200]}" for change in plan.changes]
    return "\n".join(changes + [f"{refusal.resource}: {refusal.reason}" for refusal in plan.refused])


def test_the_campaign_is_as_large_as_it_says() -> None:
    """Names are unique; a kind is named by what drifted."""
    assert len({kind.name for kind in KINDS}) == len(KINDS)


def test_no_round_calls_apt_where_another_kind_leaves_it_unmet_dependencies() -> None:
    """``apt-get`` refuses whatever it is asked then, also what has nothing to do with them."""
    for kinds in ROUNDS:
        broken = any("--force-depends" in kind.inject for kind in kinds)
        assert not (broken and any("$APT" in kind.inject for kind in kinds)), [kind.name for kind in kinds]


@pytest.mark.parametrize("number", range(len(ROUNDS)), ids=lambda number: f"round-{number}")
def test_drift_is_found_and_mended_or_refused_with_the_reason(node: Node, number: int) -> None:
    """Each kind of the round by its own operation; then the plan is empty."""
    kinds = ROUNDS[number]
    for kind in kinds:
        node.host.run(kind.script())
    wrong, failed = not_told(kinds, node), ""
    if not all(kind.told for kind in kinds):
        plan, failed = node.night()
        wrong += [mistake for kind in kinds for mistake in mistakes(kind, plan, failed, node.host)]
    for kind in kinds:
        node.host.run(f"set -e; {kind.undo or kind.after or ':'}".replace("$APT", "apt-get -q -y"), check=False)
    assert wrong == []
    assert failed == "" or kinds[0].alone, failed
    assert said(node.night(apply=False)[0]) == ""


def test_every_resource_of_a_plan_may_be_left_alone(node: Node) -> None:
    """By the name that it has there: what a node may have is read from the roles, and nothing of this one is missed."""
    with node.connected() as fleet:
        fleet.plan()
        (host,) = fleet.inventory
        resources = [fleet._resource(op_hash) for op_hash in host.op_hash_order]  # a plan has only what drifted
    assert len(resources) > 80
    assert [resource for resource in resources if why_unknown(resource)] == []


def test_fifty_nights_and_more_after_ordinary_days_find_nothing(node: Node) -> None:
    """Comments, restarts, news of apt, a tool of somebody's own: none of it is drift, and nothing is ever planned."""
    days = yaml.safe_load((FOLDER / "ordinary" / "days.yaml").read_text(encoding="utf-8"))
    with node.connected() as fleet:
        (host,) = fleet.inventory
        for day in days * math.ceil(NIGHTS / len(days)):  # to the end of the list: a day may take back an earlier one
            node.host.run(day["shell"])
            looking(host).seen = Seen()
            plan = fleet.plan()[node.host.name]
            assert (day["name"], said(plan), plan.failed) == (day["name"], "", "")


def test_a_reboot_changes_nothing(node: Node, bench: Bench) -> None:
    """The driver is loaded, GPUs are divided and containers get their devices before anybody looks."""
    bench.restart(node.host)
    node.host.run("ip route del default")
    assert node.host.run("nvidia-smi -L").stdout.count("MIG 3g.20gb") == 2
    assert said(node.night(apply=False)[0]) == ""


def not_told(kinds: list[Kind], node: Node) -> list[str]:
    """What the preflight should have told as worth knowing, and did not."""
    wanted = [kind for kind in kinds if kind.told]
    if not wanted:
        return []
    with node.connected() as fleet:
        found = preflight.findings(fleet, [(node.host.name, {**node.host.ssh_data(), "settings": node.settings})])
    checks = {one.check for one in found}
    return [
        f"{kind.name}: not told by {kind.told!r}; only {sorted(checks)}" for kind in wanted if kind.told not in checks
    ]


def mistakes(kind: Kind, plan: HostPlan, failed: str, host: Host) -> list[str]:
    """What was not as the kind says."""
    wrong = []
    seen = [change.resource for change in plan.changes] + [refusal.resource for refusal in plan.refused]
    if kind.found and not any(resource.split(" (")[0].endswith(kind.found) for resource in seen):
        wrong.append(f"{kind.name}: not found by {kind.found!r}; the plan:\n{said(plan)}")
    if kind.refused and kind.refused not in failed + said(plan):
        wrong.append(f"{kind.name}: not refused; {failed}\n{said(plan)}")
    if kind.proof:
        proof = host.run(kind.proof, check=False)
        if proof.returncode:
            wrong.append(f"{kind.name}: not mended: {proof.stdout}{proof.stderr} {failed}")
    return wrong
