"""Role: logs that do not fill the disk, and that are still there when the machine is not."""

from __future__ import annotations

from typing import Final

from pyinfra.api.deploy import deploy

from roles.operations import files, services
from roles.operations.services import DAEMON_RELOAD, restarts
from roles.settings.machine import settings

SHIPPING: Final = "/etc/rsyslog.d/90-spillway.conf"


@deploy("Logs")
def logs() -> None:
    """Rotation of what programs write to /var/log themselves, and shipping of the journal where it is asked for.

    Logs of containers are rotated by the kubelet, the journal by journald.
    """
    wanted = settings().logs
    files.place(
        name="logs are rotated",
        dest="/etc/logrotate.d/spillway",
        content=rotation(wanted.keep),
        meaning="logrotate",
        validate='said=$(logrotate -d {path} 2>&1) || {{ echo "$said" | grep "^error:" >&2; false; }}',
    )
    files.included(by="/etc/logrotate.conf", line="include /etc/logrotate.d", name="logrotate reads its folder")
    with restarts(DAEMON_RELOAD), restarts("logrotate.timer"):
        services.no_unit_of_that_name(unit="logrotate.timer", name="log rotation's timer is the packaged one")
        services.only_drop_ins(unit="logrotate.timer", name="log rotation's timer has no overrides")
    services.daemon_reload(name="systemd knows log rotation's timer")
    services.running(unit="logrotate.timer", name="log rotation runs daily")
    if not wanted.ship_to:
        files.absent(name="logs stay here", dest=SHIPPING)
        return
    with restarts("rsyslog"):
        files.place(
            name=f"logs go to {wanted.ship_to}",
            dest=SHIPPING,
            content=shipping(wanted.ship_to),
            meaning="rsyslog",
            validate="rsyslogd -N1 -f {path} 2>/dev/null",
        )
    services.running(unit="rsyslog", name="log shipping runs")


def rotation(keep: str) -> str:
    """Daily, compressed, for as many days as the journal is kept.

    Ubuntu lets the group of syslog write into /var/log: logrotate refuses to be root there unless it is told as whom.
    """
    number = int(keep.rstrip("daywekmonth"))
    days = number * {"day": 1, "week": 7, "month": 30}[keep[len(str(number)) :]]
    return (
        "/var/log/nvidia*.log /var/log/fabricmanager.log /var/log/spillway/*.log {\n"
        f"  su root adm\n  daily\n  rotate {days}\n  missingok\n  notifempty\n"
        "  compress\n  delaycompress\n  copytruncate\n}\n"
    )


def shipping(ship_to: str) -> str:
    """Over TCP with a queue on disk: a log server that is away for hours loses nothing and stops nobody."""
    host, _, port = ship_to.rpartition(":")
    return (
        'global(workDirectory="/var/spool/rsyslog")\n'
        f'action(type="omfwd" target="{host}" port="{port}" protocol="tcp" template="RSYSLOG_SyslogProtocol23Format"\n'
        '  action.resumeRetryCount="-1" action.resumeInterval="10"\n'
        '  queue.type="LinkedList" queue.filename="spillway" queue.maxDiskSpace="1g" queue.saveOnShutdown="on")\n'
    )
