"""What runs beside the driver: the persistence daemon, the fabric manager of NVSwitch machines, and MIG layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.batched_facts import PATH
from roles.engine.disruption import Disruption, note
from roles.facts.gpu import MigState
from roles.operations import files, packages, services
from roles.operations.files import Commands

_LAYOUT: Final = "/etc/spillway/mig-layout"
_SCRIPT: Final = "/usr/local/lib/spillway/mig-layout"
_APPLY: Final = f"""\
#!/bin/sh
PATH={PATH}; export PATH
# Divides the GPUs as /etc/spillway/mig-layout says: a line for each, "INDEX PROFILE,PROFILE" or "INDEX off".
# Instances are lost with every reboot: this runs before the kubelet starts.
set -eu
while read -r gpu profiles; do
  case $gpu in ''|'#'*) continue ;; esac
  nvidia-smi mig -i "$gpu" -dci >/dev/null 2>&1 || true
  nvidia-smi mig -i "$gpu" -dgi >/dev/null 2>&1 || true
  if [ "$profiles" = off ]; then nvidia-smi -i "$gpu" -mig 0 >/dev/null; continue; fi
  nvidia-smi -i "$gpu" -mig 1 >/dev/null
  nvidia-smi mig -i "$gpu" -cgi "$profiles" -C >/dev/null
done < /etc/spillway/mig-layout
"""
_UNIT: Final = f"""\
[Unit]
Description=MIG layout of the GPUs
After=nvidia-persistenced.service
Before=nvidia-cdi-refresh.service kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=PATH={PATH}
ExecStart={_SCRIPT}

[Install]
WantedBy=multi-user.target
"""


@deploy("persistence daemon")
def persistence_daemon(*, wanted: Mapping[str, str]) -> None:
    """GPUs stay initialised between programs: the first one of a job does not wait for seconds."""
    packages.pinned(name="persistence daemon pinned", pins_of="nvidia-persistenced", wanted=wanted)
    packages.installed(name="persistence daemon installed and held", wanted=wanted)
    packages.unaltered(name="persistence daemon as packed", names=tuple(wanted))
    _runs("nvidia-persistenced")


@deploy("fabric manager")
def fabric_manager(*, wanted: Mapping[str, str]) -> None:
    """Machines whose GPUs hang on NVSwitches: without it no program on them can start."""
    packages.pinned(name="fabric manager pinned to the driver's version", pins_of="nvidia-fabricmanager", wanted=wanted)
    with services.restarts("nvidia-fabricmanager"):
        packages.installed(name="fabric manager installed and held", wanted=wanted)
        packages.unaltered(name="fabric manager as packed", names=tuple(wanted))
    _runs("nvidia-fabricmanager")


@deploy("MIG layout")
def mig_layout(layout: Mapping[str, Sequence[str]]) -> None:
    """Each GPU, by its index, divided into these profiles; an empty list: undivided. Kept over reboots by a unit."""
    lines = "".join(f"{gpu} {','.join(layout[gpu]) or 'off'}\n" for gpu in sorted(layout, key=int))
    files.place(name="MIG layout", dest=_LAYOUT, content=lines, meaning="mig-layout")
    files.place(name="what divides the GPUs", dest=_SCRIPT, content=_APPLY, mode="755")
    with services.restarts(services.DAEMON_RELOAD):
        files.place(
            name="unit that divides them at boot",
            dest="/etc/systemd/system/spillway-mig.service",
            content=_UNIT,
            meaning="ini",
        )
        services.only_drop_ins(name="with no override", unit="spillway-mig.service")
    services.daemon_reload(name="units read anew where they changed")
    services.running(name="GPUs are divided at boot", unit="spillway-mig.service")
    divided(name="GPUs are divided as declared", layout=layout)


@operation()
def divided(layout: Mapping[str, Sequence[str]]) -> Commands:
    """Have the MIG devices of each GPU as declared, whatever was changed by hand since boot."""
    now = host.get_fact(MigState)
    wrong = sorted(gpu for gpu, profiles in layout.items() if now.get(gpu) != tuple(sorted(profiles)))
    if not wrong:
        host.noop("divided as declared")
        return
    note(Disruption.MODULE_RELOAD)  # every program on the GPU must have ended
    yield StringCommand(f"systemctl restart spillway-mig.service  # GPU {', '.join(wrong)}")


def _runs(unit: str) -> None:
    with services.restarts(services.DAEMON_RELOAD), services.restarts(unit):
        services.no_unit_of_that_name(name=f"{unit} is the packaged one", unit=f"{unit}.service")
        services.only_drop_ins(name=f"{unit} has no overrides", unit=f"{unit}.service")
    services.daemon_reload(name="units read anew where they changed")
    services.running(name=f"{unit} runs", unit=f"{unit}.service")
