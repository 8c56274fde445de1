"""pyinfra as executor under a planner of our own: look at machines, plan, apply.

Runs in a process whose first import was gevent's monkey patch (``python -m roles``): machines are connected to and
looked at side by side. A plan is made without a pause for input or output, one machine after the other: pyinfra's
notion of the current state is global.
"""

from __future__ import annotations

import contextlib
import logging
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import gevent
import msgspec
from gevent.pool import Pool
from pyinfra import logger
from pyinfra.api.command import FileUploadCommand, FunctionCommand, PyinfraCommand
from pyinfra.api.config import Config
from pyinfra.api.exceptions import OperationError, PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.inventory import Inventory
from pyinfra.api.operations import run_host_op
from pyinfra.api.state import State, StateStage
from pyinfra.context import ctx_state

from autoscaler.model.errors import BadInput, Unavailable
from roles.engine import global_arguments
from roles.engine.batched_facts import Ask, Looking
from roles.engine.disruption import Disruption, Harmless, Waits, disruption_of
from roles.engine.fact_cache import KnownFacts, Questions
from roles.engine.host_plan import Change, Done, HostPlan, Refusal, held
from roles.engine.pyinfra_context import MergedData, current, one_state_each
from roles.facts.containers import RuncInUse
from roles.facts.gpu import Driver, DriverState
from roles.facts.packages import Package, Packages

Machines = Sequence[tuple[str, Mapping[str, Any]]]
"""pyinfra's inventory: name and data of each machine."""
Role = Callable[[], Any]
"""A pyinfra deploy: calls operations for the current host."""

AT_ONCE: Final = 50
CONNECT_SECONDS: Final = 5
_VERSIONED: Final = re.compile(
    r"kubelet|containerd(\.io)?|runc|nvidia-.*|libnvidia-.*|cuda-toolkit.*|docker(-ce|\.io)|kubernetes-cni"
)
"""Packages whose versions should be the same on all machines of a kind."""
_NUMBER: Final = re.compile(r"\[Errno [^]]*\] ")
"""What Python puts before the words of an error."""
_ROUNDS: Final = 12
"""A fact that depends on another is asked a round later; a role that still asks after this many never ends."""


class Fleet:
    """Machines that are connected, looked at and planned for, all with one role. Use :func:`connected`."""

    def __init__(self, machines: Machines, role: Role) -> None:
        self.role = role
        self.inventory = Inventory(([(name, dict(data)) for name, data in machines], {}))
        config = Config(CONNECT_TIMEOUT=CONNECT_SECONDS, PARALLEL=AT_ONCE)
        self.state = State(self.inventory, config, check_for_changes=False)
        self.unreachable: dict[str, str] = {}
        self.plans: dict[str, HostPlan] = {}
        self._learned: dict[str, Ask] = {}
        self._pool = Pool(AT_ONCE)
        questions: Questions = {}
        for number, host in enumerate(self.inventory):
            host.connector = Looking(host.connector)
            host.data = MergedData(host)
            vars(host)["get_fact"] = KnownFacts(host, host.connector, questions).get
            vars(host)["log_styled"] = partial(_note_warning, host)
            host.loop_position.append(number)  # else pyinfra takes the nth operations of two hosts for one

    def connect(self) -> None:
        """Connect to all, side by side; a machine that does not answer is noted."""
        self._pool.map(self._connect, list(self.inventory))

    def plan(self) -> dict[str, HostPlan]:
        """A plan for every machine. What the first one was asked, all others are asked in their first look."""
        hosts = [host for host in self.inventory if host.name not in self.unreachable]
        for host in hosts[:1]:
            self._plan(host)
            self._learned = looking(host).seen.asked
        self._pool.map(self._plan, hosts[1:])
        for name, reason in self.unreachable.items():
            self.plans[name] = HostPlan(host=name, unreachable=reason)
        return {host.name: self.plans[host.name] for host in self.inventory}

    def apply(self, names: Iterable[str], *, allowed: Disruption = Disruption.REBOOT) -> list[Done]:
        """Do what was planned for these machines, up to the class allowed; each fails alone."""
        self.state.set_stage(StateStage.Execute)
        self.state.is_executing = True
        try:
            with ctx_state.use(self.state):
                hosts = [self.inventory.get_host(name) for name in names]
                return list(self._pool.map(lambda host: self._apply(host, allowed), hosts))
        finally:
            self.state.is_executing = False

    def shell(self, name: str, script: str, *, seconds: int = 60) -> tuple[bool, str]:
        """A script on one machine, as root."""
        host = self.inventory.get_host(name)
        return looking(host).shell(script, seconds=seconds, sudo=bool(host.data.get("_sudo", False)))

    def shells(self, script: str, names: Iterable[str], *, seconds: int = 60) -> dict[str, tuple[bool, str]]:
        """The same on each of these machines, side by side; gives whether it went well, and what was said."""

        def said(name: str) -> tuple[bool, str]:
            try:
                return self.shell(name, script, seconds=seconds)
            except (PyinfraError, OSError, EOFError, TimeoutError) as error:
                return False, _words(error)

        asked = list(names)
        return dict(zip(asked, self._pool.map(said, asked), strict=True))

    def close(self) -> None:
        """Close every connection, side by side: each waits for its thread to look up."""
        self._pool.map(_close, list(self.inventory))

    def _connect(self, host: Host) -> None:
        try:
            with ctx_state.use(self.state):
                host.connect(show_errors=False, raise_exceptions=True)
            self.state.activate_host(host)
        except Exception as error:  # noqa: BLE001 - whatever it is, one machine fails alone
            self.unreachable[host.name] = _NUMBER.sub("", _words(error))

    def _plan(self, host: Host) -> None:
        here = looking(host)
        here.seen.asked |= self._learned
        try:
            for _ in range(_ROUNDS):
                if here.seen.unknown():
                    here.gather(here.seen.unknown())
                changes, refused = self._walk(host)
                if not here.seen.unknown():
                    self.plans[host.name] = self._conclude(host, changes, refused)
                    return
            self.plans[host.name] = HostPlan(host=host.name, failed="its roles ask for ever more facts")
        except (BadInput, Unavailable) as mistake:
            self.plans[host.name] = HostPlan(host=host.name, failed=str(mistake))
        except (PyinfraError, OSError, EOFError, TimeoutError) as error:
            self.plans[host.name] = HostPlan(host=host.name, failed=_words(error))
        except Exception as error:  # noqa: BLE001 - a mistake in a role: of one machine, with the place
            place = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__}: {error} ({place.filename.rpartition('/')[2]}:{place.lineno})"
            self.plans[host.name] = HostPlan(host=host.name, failed=said)

    def _conclude(self, host: Host, changes: list[Change], refused: list[Refusal]) -> HostPlan:
        seen = looking(host).seen
        if unreadable := seen.unreadable():
            return HostPlan(host=host.name, failed=f"could not be read: `{unreadable[0][:200]}`")
        return HostPlan(
            host=host.name,
            changes=tuple(changes),
            refused=tuple(refused),
            versions=_versions(host),
        )

    def _walk(self, host: Host) -> tuple[list[Change], list[Refusal]]:
        """Call the role and every operation of it once, against what is known."""
        for op_hash in host.op_hash_order:
            self.state.op_meta.pop(op_hash, None)  # else an operation bears the names of all that stood in its place
        host.op_hash_order.clear()
        self.state.ops[host].clear()
        for key in ("disruption", "disruption_found", "diffs", "would_owe"):
            host.connector_data.pop(key, None)
        global_arguments.forget(host)
        changes: list[Change] = []
        refused: list[Refusal] = []
        with current(self.state, host):
            host.connector_data["versions"] = _versions(host)
            self.role()
            spared = _left_alone(host)
            for op_hash in host.op_hash_order:
                resource = self._resource(op_hash)
                if resource in spared:
                    continue
                try:
                    commands = list(self.state.ops[host][op_hash].command_generator())
                except OperationError as error:
                    refused.append(Refusal(resource, _words(error), getattr(error, "setting", "")))
                    continue
                self.state.ops[host][op_hash].operation_meta._maybe_is_change = bool(commands)  # noqa: SLF001 - so that `will_change` does not ask again
                if commands:
                    changes.append(self._change(host, op_hash, resource, commands))
        return changes, refused

    def _resource(self, op_hash: str) -> str:
        meta = self.state.get_op_meta(op_hash)
        name = " ".join(sorted(meta.names))
        name = name.partition(" | ")[2] if name.count(" | ") > 1 else name  # the outermost deploy is every machine's
        return f"{name} ({', '.join(meta.args)[:80]})" if meta.args else name

    def _change(self, host: Host, op_hash: str, resource: str, commands: list[PyinfraCommand]) -> Change:
        return Change(
            resource=resource,
            commands=tuple(_shown(command) for command in commands),
            disruption=_worst(host, op_hash, commands),
            diff=host.connector_data.get("diffs", {}).get(op_hash, ""),
        )

    def _apply(self, host: Host, allowed: Disruption) -> Done:
        plan = self.plans[host.name]
        if plan.unreachable or plan.failed:
            return Done(host=host.name, failed=plan.unreachable or plan.failed)
        waiting = list(held(plan, allowed))
        skip = {change.resource for change in waiting} | {one.resource for one in plan.refused} | _left_alone(host)
        planned = {change.resource: change for change in plan.changes}
        applied: list[Change] = []
        alone: dict[str, str] = {}
        failed, late = "", {one.role for one in plan.refused if one.setting}
        host.connector_data["allowed"] = allowed
        for op_hash in list(host.op_hash_order):
            resource = self._resource(op_hash)
            change = planned.get(resource) or Change(resource=resource, commands=())
            too_much = resource not in planned and disruption_of(host, op_hash) > allowed
            if resource in skip or change.role in late or too_much:
                continue
            try:
                failed = self._run(host, op_hash, resource)
            except Waits as found_out:
                waiting.append(msgspec.structs.replace(change, disruption=found_out.worst))
                late.add(change.role)
                continue
            if failed and op_hash in host.connector_data.get("alone", ()):
                alone[resource], failed = failed, ""
                continue
            if self.state.ops[host][op_hash].operation_meta.executed:
                applied.append(change)
            if failed:
                break
        return Done(
            host=host.name,
            applied=tuple(applied),
            held=tuple(waiting),
            failed=failed,
            alone=alone,
            commands=tuple(looking(host).executed),
        )

    def _run(self, host: Host, op_hash: str, resource: str) -> str:
        """One operation; gives why it failed. Raises ``Waits`` where it turns out to disrupt more than is allowed."""
        here = looking(host)
        before = len(here.executed)
        try:
            with current(self.state, host):
                done = run_host_op(self.state, host, op_hash)
        except Waits:
            raise
        except Exception as error:  # noqa: BLE001 - one machine fails alone
            return f"{resource}: {_words(error)}"
        raised = host.connector_data.pop("raised", "")
        for command in self.state.ops[host][op_hash].operation_meta._commands or ():  # noqa: SLF001 - for the journal
            if isinstance(command, FunctionCommand):  # runs on this side: the connector has not seen it
                here.executed.append((repr(command), done, raised))
        if done:
            return ""
        said = next((tail for _, fine, tail in reversed(here.executed[before:]) if tail and not fine), "")
        return f"{resource}: {said.strip()[-400:] or 'failed without a word'}"


@contextlib.contextmanager
def connected(machines: Machines, role: Role) -> Iterator[Fleet]:
    """The machines, connected for the block."""
    logging.getLogger("pyinfra").setLevel(logging.CRITICAL)  # what it says is in the plan and the journal
    global_arguments.remember()
    one_state_each()
    if any("ssh_known_hosts_file" not in data for name, data in machines if not name.startswith("@")):
        _have_known_hosts()
    fleet = Fleet(machines, role)
    try:
        fleet.connect()
        yield fleet
    finally:
        fleet.close()


def looking(host: Host) -> Looking:
    """The connector that stands before the machine's own."""
    connector = host.connector
    if not isinstance(connector, Looking):
        raise TypeError(f"{host.name} is not part of a fleet")
    return connector


def _have_known_hosts() -> None:
    """An account that has never used ssh has no file of known hosts, without which no machine is connected to."""
    file = Path.home() / ".ssh" / "known_hosts"
    with contextlib.suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.touch(mode=0o600)


def _note_warning(host: Host, message: str, log_func: Callable[[str], Any] | None = None, **_style: object) -> None:
    """What a function of an operation raises, pyinfra tells in its log alone."""
    if log_func == logger.warning:
        host.connector_data["raised"] = message


def _close(host: Host) -> None:
    with contextlib.suppress(Exception):  # closing what is broken already
        looking(host).disconnect()


def _worst(host: Host, op_hash: str, commands: Iterable[PyinfraCommand]) -> Disruption:
    if all(isinstance(command, Harmless) for command in commands):
        return Disruption.NONE
    return disruption_of(host, op_hash)


def _left_alone(host: Host) -> frozenset[str]:
    """Resources that the machine's settings take out of its role."""
    return frozenset(getattr(host.data.get("settings"), "left_alone", ()))


def _versions(host: Host) -> dict[str, str]:
    """What is installed and what runs, for the matrix of the fleet; asked in the same look as everything else."""
    packages: dict[str, Package] = host.get_fact(Packages)
    driver: Driver = host.get_fact(DriverState)
    found = {name: one.version for name, one in packages.items() if one.installed and _VERSIONED.fullmatch(name)}
    running = {"kernel": driver.kernel, "driver (running)": driver.running, "driver (on disk)": driver.on_disk}
    others = {"driver (library)": ", ".join(driver.library), "runc (in use)": host.get_fact(RuncInUse)}
    return {name: version for name, version in sorted((running | others | found).items()) if version}


def _shown(command: PyinfraCommand) -> str:
    if isinstance(command, FileUploadCommand):
        return f"put {command.dest}"
    return str(command)


def _words(error: BaseException) -> str:
    """What went wrong, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def sleep(seconds: float) -> None:
    """Wait without holding the other machines up."""
    gevent.sleep(seconds)
