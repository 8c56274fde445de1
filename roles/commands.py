"""The commands of `spillway nodes`, each from its options to its exit status."""

from __future__ import annotations

import fnmatch
import importlib
import json
import os
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import urllib3

from autoscaler.kube.client import Kube
from autoscaler.model.errors import BadInput
from autoscaler.model.labels import RACK
from roles import manifests as gpu_pods
from roles.checks import preflight
from roles.checks.exclusions import refuse_unknown, refuse_unknown_of_instances
from roles.checks.versions import signing_findings
from roles.engine.disruption import Disruption
from roles.engine.fleet import Role, connected
from roles.engine.host_plan import BOTH, CLEAN, DRIFT, UNREACHABLE, HostPlan, exit_status
from roles.first_boot.bundle import made_for, make_bundle
from roles.inventory.hosts import read_machines
from roles.inventory.instance_settings import instance_settings
from roles.rollout import journal as journals
from roles.rollout import report
from roles.rollout.executor import Patience, Roll, Rolled
from roles.rollout.html_report import page
from roles.rollout.journal import Journal
from roles.rollout.lock import only_run, own_name, why_not
from roles.rollout.model import Rules
from roles.rollout.node_state import Marks
from roles.rollout.ssh_hosts import SshHosts
from roles.rollout.state_machine import parse_batch
from roles.rollout.terminal import plan_lines
from roles.settings.controller_files import local_path
from roles.settings.machine import MachineSettings
from roles.settings.own_files import PUBLIC, write_whole
from roles.settings.source_lines import Written
from stacks.settings.inventory import Inventory, read_inventory

HALTED: Final = 5
_ROLE: Final = "roles.node:prepare"
_WHERE: Final = {
    "--inventory": "inventory",
    "--outputs": "outputs",
    "--limit": "limit",
    "--role": "role",
    "--state": "state",
    "--kubeconfig": "kubeconfig",
    "--no-cluster": "no_cluster",
}
"""Options that say which machines of which cluster a run is about."""
Machines = list[tuple[str, dict[str, Any]]]


def plan(*, as_json: bool, html: Path | None, state: Path | None, full: bool = False, **given: Any) -> int:
    """Looks at the machines and prints what would be changed."""
    machines, role = _machines(given), role_at(given["role"])
    began, clock = datetime.now(UTC), time.monotonic()
    with connected(machines, role) as fleet:
        plans = _placed(fleet.plan(), machines, given)
    run = report.record(
        plans.values(),
        command="plan",
        began=began,
        seconds=time.monotonic() - clock,
        command_line=how_to_go_on(given, state=state, retry=False),
    )
    _tell(run, plans.values(), as_json=as_json, full=full)
    if html:
        write_whole(html, page(run, report.history(_folder(state))))
    return exit_status(plans.values())


def check(*, as_json: bool, kubeconfig: Path | None, **given: Any) -> int:
    """Preflight of every machine; the versions of all are compared before any is asked."""
    machines = _machines(given)
    if kubeconfig:
        Kube.connect(kubeconfig)
    with connected(machines, role_at(given["role"])) as fleet:
        found = preflight.findings(fleet, machines)
        found += preflight.findings_of(_placed(fleet.plan(), machines, given).values())
    found += signing_findings(data.get("settings") for _, data in machines)
    if as_json:
        print(json.dumps([asdict(one) for one in found], indent=1))
    else:
        for one in found:
            print(f"{one.host}: {one.severity}: {one.check}: {one.found}\n    {one.remedy}")
        errors = sum(one.severity == "error" for one in found)
        print(f"{len(machines)} machines: {errors} errors, {len(found) - errors} warnings")
    away = any(one.check == "connection" for one in found)
    wrong = any(one.severity == "error" and one.check != "connection" for one in found)
    return {(False, False): CLEAN, (True, False): DRIFT, (False, True): UNREACHABLE, (True, True): BOTH}[wrong, away]


def apply(**given: Any) -> int:
    """Changes the machines, a few at a time."""
    return _roll("apply", **given)


def reconcile(**given: Any) -> int:
    """The same at night: kept for the history, told to others."""
    return _roll("reconcile", **given)


def manifests(*, inventory: Path | None, applies: bool, kubeconfig: Path | None) -> int:
    """Prints or applies the manifests of the device plugin and the exporter."""
    machines = read_machines(inventory) if inventory else []
    text = gpu_pods.gpu_manifests(gpu_pods.chosen_for(data["settings"] for _, data in machines))
    if not applies:
        print(text)
        return CLEAN
    for line in gpu_pods.apply_manifests(Kube.connect(kubeconfig or _kubeconfig(machines)), text):
        print(f"applied: {line}")
    return CLEAN


def bundle(*, file: Path, inventory: Path | None) -> int:
    """Write it, and say what it is."""
    written = read_inventory(inventory) if inventory else Inventory(machines=())
    lines = Written(inventory)
    settings = instance_settings(written, source=str(inventory), written=lines)
    refuse_unknown_of_instances(settings, source=str(inventory), written=lines)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        digest = make_bundle(file, settings)
    except OSError as error:
        raise BadInput(f"{file}: cannot be written: {error.strerror}") from None
    print(f"{file}: for Python {made_for()}, SHA-256 {digest}")
    return 0


def journal(state: Path | None) -> int:
    """Checks that the journal's chain of digests holds."""
    path = _folder(state) / "journal.jsonl"
    broken = journals.why_broken(path)
    digests = [entry["digest"] for entry in Journal(path).entries()] if not broken else []
    print(broken or f"{path}: {len(digests)} entries, the chain holds; the last digest is {(digests or [''])[-1]}")
    return 1 if broken else 0


def _roll(command: str, *, as_json: bool, html: Path | None, state: Path | None, **given: Any) -> int:
    machines, role, folder = _machines(given), role_at(given["role"]), _folder(state)
    rules, ignored = _rules(given, len(machines)), preflight.parse_ignored(given["ignore"])
    kube = None if given["no_cluster"] else Kube.connect(given["kubeconfig"] or _kubeconfig(machines))
    marks = Marks(kube) if kube else None
    began, clock = datetime.now(UTC), time.monotonic()
    with only_run(folder, kube) as lease:
        book = Journal(folder / "journal.jsonl")
        book.write("run", command=command, machines=[name for name, _ in machines])
        if given["retry"] and marks:
            marks.forget_outcomes(name for name, _ in machines)
        hosts = SshHosts(
            machines, role, marks=marks, smoke=given["smoke_image"], controller=own_name(folder), tell=_say_now
        )
        with connected(machines, role) as fleet:
            found = preflight.findings(fleet, machines)
            before = _placed(fleet.plan(), machines, given)
        found += preflight.findings_of(before.values())
        blocked = preflight.blocked(found, ignored=ignored)
        for name, why in blocked.items():
            book.write("preflight", host=name, why=why)
        roll = Roll(
            hosts,
            marks,
            domains={name: _domain(data) for name, data in machines},
            rules=rules,
            journal=book,
            patience=Patience(drain=given["drain_seconds"], health=given["health_seconds"]),
            tell=_say_now,
            why_not=partial(why_not, lease),
            blocked=blocked,
            go_on=how_to_go_on(given, state=state),
            retry=given["retry"],
        )
        rolled = roll.run(before)
        digest = book.write("run-over", command=command)
    run = report.record(
        before.values(),
        command=command,
        began=began,
        seconds=time.monotonic() - clock,
        rolled=rolled,
        journal=digest,
        allowed=rules.allowed,
        findings=found,
        command_line=how_to_go_on(given, state=state, retry=False),
    )
    nights = report.keep(run, folder)
    write_whole(folder / "report.json", json.dumps(run, indent=1))
    write_whole(html or folder / "report.html", page(run, nights))
    if given["textfile"]:
        write_whole(given["textfile"], report.as_metrics(run), mode=PUBLIC)
    _tell(run, rolled.plans.values(), as_json=as_json)
    if given["slack"]:
        _say(given["slack"], report.in_words(run))
    return _ended(rolled, blocked)


def _say_now(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def how_to_go_on(given: Mapping[str, Any], *, state: Path | None, retry: bool = True) -> str:
    """The command that makes changes on the machines of these options, as it is typed into a shell.

    With ``--retry`` it has a halted rollout go on.
    """
    words = ["spillway", "nodes", "apply"]
    for option, key in _WHERE.items():
        value = state if key == "state" else given.get(key)
        if value is True:
            words.append(option)
        elif value and (key, value) != ("role", _ROLE):
            words += [option, str(value)]
    return shlex.join([*words, "--retry"] if retry else words)


def _ended(rolled: Rolled, blocked: Collection[str]) -> int:
    """What is left after a run, as an exit status."""
    if rolled.halted:
        return HALTED
    drift = any(plan.changes or plan.refused for plan in rolled.plans.values()) or bool(rolled.failed or blocked)
    away = any(plan.unreachable or plan.failed for plan in rolled.plans.values())
    return {(False, False): CLEAN, (True, False): DRIFT, (False, True): UNREACHABLE, (True, True): BOTH}[drift, away]


def _rules(given: Mapping[str, Any], machines: int) -> Rules:
    try:
        allowed = Disruption.parse(given["allow"])
    except ValueError as error:
        raise BadInput(f"--allow: {error}") from None
    return Rules(
        batch=parse_batch(given["batch"], machines=machines),
        max_down=given["max_down"],
        allowed=allowed,
        drain=given["drain"],
        tolerate=given["tolerate"],
    )


def _machines(given: Mapping[str, Any]) -> Machines:
    """Reads the machines of the inventory, limited to those asked for."""
    machines = read_machines(given["inventory"], outputs=given["outputs"])
    if not machines:
        where = " and ".join(str(place) for place in (given["inventory"], given["outputs"]) if place)
        raise BadInput(f"{where}: machines is empty: there is nothing to look at; write an entry for each machine")
    if given.get("accept_new_host_keys"):
        believing = {"ssh_strict_host_key_checking": "accept-new"}
        machines = [(name, believing | _unless_pinned(data)) for name, data in machines]
    for name, data in machines:  # here and not where the file is read: making a bundle of it needs no key
        if (key := data.get("ssh_key")) and not Path(key).is_file():
            source = given["inventory"] or given["outputs"]
            line = Written(given["inventory"]).line("ssh", "key", machine=name)
            raise BadInput(f"{source}{line}: machine {name}: ssh.key = {key!r}: this controller has no such file")
    if given["role"] == _ROLE:  # another one has other resources
        source = str(given["inventory"] or given["outputs"])
        refuse_unknown(_settings_of(machines), source=source, written=Written(given["inventory"]))
    wanted = [pattern.strip() for pattern in given["limit"].split(",") if pattern.strip()]
    known = [name for name, _ in machines]
    for pattern in wanted:
        if not fnmatch.filter(known, pattern):
            raise BadInput(
                f"--limit: no machine of the inventory is called {pattern!r}; there are {', '.join(known[:10])}"
            )
    if not wanted:
        return machines
    return [one for one in machines if any(fnmatch.fnmatchcase(one[0], pattern) for pattern in wanted)]


def _unless_pinned(data: Mapping[str, Any]) -> dict[str, Any]:
    """The data of a machine, without its strictness where its host key stands nowhere."""
    strict = "ssh_strict_host_key_checking"
    return {key: value for key, value in data.items() if key != strict or "ssh_known_hosts_file" in data}


def _placed(plans: Mapping[str, HostPlan], machines: Machines, given: Mapping[str, Any]) -> dict[str, HostPlan]:
    """Returns the plans with the line of the inventory beside what is refused for a version that it asks for."""
    source, written = given["inventory"] or given["outputs"], Written(given["inventory"])

    def place(name: str, part: str) -> str:
        line = written.line_of_setting("versions", part, machine=name)
        return f"{source}{line}: machine {name}: settings: versions.{part}"

    return preflight.with_places(plans, machines, place)


def _settings_of(machines: Machines) -> dict[str, MachineSettings]:
    """Returns the settings of those that have any: a host of plain pyinfra has none."""
    return {name: found for name, data in machines if isinstance(found := data.get("settings"), MachineSettings)}


def _kubeconfig(machines: Machines) -> Path | None:
    """The one that the machines' settings name, where they name any."""
    named = {settings.kubeconfig for settings in _settings_of(machines).values()}
    given = sorted(named - {""})
    if len(given) > 1:
        raise BadInput(f"settings.kubeconfig: {' and '.join(given)} are two clusters: take one at a time, by --limit")
    return local_path(given[0]) if given else None


def role_at(path: str) -> Role:
    """Imports the role ``module:function``."""
    module, _, name = path.partition(":")
    try:
        role: Role = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadInput(f"--role: {path!r} is no function ({error}): write module:function") from None
    return role


def _domain(data: Mapping[str, Any]) -> str:
    """The rack, as the inventory says it."""
    labels = getattr(data.get("settings"), "labels", None) or data.get("labels") or {}
    return str(labels.get(RACK, ""))


def _folder(state: Path | None) -> Path:
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return state or Path(base) / "spillway" / "nodes"


def _tell(run: Mapping[str, Any], plans: Iterable[HostPlan], *, as_json: bool, full: bool | None = None) -> None:
    if as_json:
        print(json.dumps(run, indent=1))
        return
    for line in plan_lines(plans, full=full):
        print(line)
    print(report.in_words(run))


def _say(webhook: str, text: str) -> None:
    """A report that cannot be sent is no reason to fail: it is written down here as well."""
    try:
        answer = urllib3.request("POST", webhook, json={"text": text}, timeout=10.0, retries=False)
        why = f"HTTP status {answer.status}" if answer.status >= 400 else ""  # noqa: PLR2004 - where its errors begin
    except urllib3.exceptions.HTTPError as error:
        why = type(error).__name__
    if why:
        print(f"spillway: the summary could not be sent: {why}", file=sys.stderr)
