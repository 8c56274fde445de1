"""systemd's services: running, enabled, restarted only when something they depend on changed.

    with restarts("containerd"):
        files.place("/etc/containerd/config.toml", ...)
    services.running("containerd")

A change in the block leaves a mark on the machine *before* it is made, and the service's next restart takes the mark
away: a controller that ends between the two is made up for by the next run, and an unchanged machine restarts nothing.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyinfra.api.command import PyinfraCommand, StringCommand
from pyinfra.api.operation import operation
from pyinfra.context import host, state

from roles.engine.disruption import Disruption, Harmless, disrupts, note, of_restart
from roles.facts.services import DefaultTarget, Owed, OwningPackage, Unit, UnitState
from roles.operations.files import Commands, absent, forget_kept, kept_at

_PACKED: Final = ("/usr/lib/", "/lib/")
"""Where packages have their units; /usr/local/lib is the machine's own."""
DAEMON_RELOAD: Final = "daemon-reload"
"""In place of a unit's name in :func:`restarts`: the files of the block are unit files."""


def owed_at(data: Any) -> str:
    """The folder on a machine with this data that holds a file for each unit that owes a restart; a reboot settles all.

    Beside it, ``owed.done`` names those that were restarted since the machine was last found healthy.
    """
    return f"{run_directory(data)}/owed"


def run_directory(data: Any) -> str:
    """The folder on a machine with this data for what a reboot settles."""
    return str(data.get("run_directory", "/run/spillway"))


def settle(data: Any) -> str:
    """Shell for when a machine with this data proved healthy: what is there now, and runs, is the last good."""
    return f"{forget_kept(kept_at(data))} && rm -f {shlex.quote(owed_at(data))}.done"


def name_of(unit: str) -> str:
    """The one spelling of a unit in marks: systemd takes ``containerd`` and ``containerd.service`` for the same."""
    return unit.removesuffix(".service")


@contextmanager
def restarts(unit: str) -> Iterator[None]:
    """Whatever changes in the block obliges ``unit`` to restart, and disrupts as much as that restart does."""
    unit = name_of(unit)
    before = len(host.op_hash_order)
    with disrupts(of_restart(unit)):
        yield
    for op_hash in host.op_hash_order[before:]:
        data = state.get_op_data_for_host(host, op_hash)
        data.command_generator = _marking_first(unit, data.command_generator)


@operation()
def running(unit: str, *, enabled: bool | None = True, reload: bool = False, before: str = "") -> Commands:
    """Have the unit unmasked, running and (``None``: leave it) enabled, and restarted where a restart is owed.

    ``reload`` where the service reads its configuration anew without a restart. ``before``: shell without which there
    is none.
    """
    now: Unit = host.get_fact(UnitState, unit=unit)
    owed = _is_owed(unit)
    quoted = shlex.quote(unit)
    if now.is_masked:
        yield StringCommand(f"systemctl unmask {quoted}")
    if enabled is not None and (now.is_enabled and not now.is_masked) is not enabled:
        yield StringCommand(f"systemctl {'enable' if enabled else 'disable'} {quoted}")
    if owed:
        note(Disruption.RELOAD if reload else of_restart(unit))
        verb = "reload-or-restart" if reload and now.is_running else "restart"
        at = owed_at(host.data)
        first = f"{before} && " if before else ""
        mark = shlex.quote(name_of(unit))
        paid = f"echo {mark} >> {at}.done && rm -f {at}/{mark} {at}/{mark}.service"
        yield StringCommand(f"{first}systemctl {verb} {quoted} && {paid}")
    elif not now.is_running:
        note(Disruption.RELOAD)
        yield StringCommand(f"systemctl start {quoted}")
    elif now.is_enabled is enabled or enabled is None:
        host.noop(f"{unit} runs")


@operation()
def daemon_reload(*units: str) -> Commands:
    """Have systemd read unit files anew, where one really changed.

    Changed is one in a block of ``restarts(DAEMON_RELOAD)``, or one of ``units`` of which systemd itself says so.
    Never a matter of course: under a daemon-reload running GPU containers lose their devices.
    """
    stale = [unit for unit in units if host.get_fact(UnitState, unit=unit).needs_daemon_reload]
    if not stale and not _is_owed(DAEMON_RELOAD):
        host.noop("no unit file changed")
        return
    note(Disruption.DAEMON_RELOAD)
    yield StringCommand(f"systemctl daemon-reload && rm -f {owed_at(host.data)}/{DAEMON_RELOAD}")


@operation()
def only_drop_ins(unit: str, allowed: Iterable[str] = ()) -> Commands:
    """Remove overrides of the unit, in any of systemd's folders, that are not declared; ``allowed`` are paths.

    Below /usr/lib and /lib those of installed packages are declared by their package, as kubeadm's own is. Put it into
    ``restarts(DAEMON_RELOAD)`` and ``restarts(unit)``.
    """
    now: Unit = host.get_fact(UnitState, unit=unit)
    strangers = [path for path in now.drop_ins if path not in set(allowed) and not _is_packed(path)]
    for path in strangers:
        yield from absent._inner(path)  # noqa: SLF001 - pyinfra's way to nest operations


def _is_packed(path: str) -> bool:
    return path.startswith(_PACKED) and bool(host.get_fact(OwningPackage, path=path))


@operation()
def boots_into_service() -> Commands:
    """Have the machine boot into a target that starts its services: not into one for repairs."""
    if host.get_fact(DefaultTarget) in ("", "multi-user.target", "graphical.target"):
        host.noop("it does")
        return
    yield StringCommand("systemctl -q set-default multi-user.target")


@operation()
def unmasked(units: Iterable[str]) -> Commands:
    """Have none of these masked, which systemd starts by itself at boot."""
    for unit in units:
        if host.get_fact(UnitState, unit=unit).is_masked:
            yield StringCommand(f"systemctl unmask {shlex.quote(unit)}")


@operation()
def no_unit_of_that_name(unit: str) -> Commands:
    """Have no file under /etc that stands in for the packaged unit as a whole. Put it into ``restarts`` as above."""
    fragment = host.get_fact(UnitState, unit=unit).fragment
    if fragment.startswith("/etc/systemd/system/"):
        yield from absent._inner(fragment)  # noqa: SLF001 - as above


def _marking_first(
    unit: str, commands: Callable[[], Iterator[PyinfraCommand]]
) -> Callable[[], Iterator[PyinfraCommand]]:
    """The same commands, with the mark before the first that is not harmless; while planning it is remembered only."""

    def marked() -> Iterator[PyinfraCommand]:
        first = True
        for command in commands():
            if first and not isinstance(command, Harmless):
                note(of_restart(unit))  # it may have been planned as harmless
                host.connector_data.setdefault("would_owe", set()).add(unit)
                yield StringCommand(f"mkdir -p {owed_at(host.data)} && touch {owed_at(host.data)}/{shlex.quote(unit)}")
                first = False
            yield command

    return marked


def _is_owed(unit: str) -> bool:
    """Says whether a restart is owed, by a mark on the machine, or by a change that is planned before."""
    planned = () if host.state.is_executing else host.connector_data.get("would_owe", ())
    owed: frozenset[str] = host.get_fact(Owed, folder=owed_at(host.data))
    return name_of(unit) in {*planned, *map(name_of, owed)}
