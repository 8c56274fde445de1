"""Role: a machine that notices by itself when it is ill, and says so where monitoring and the rollout look."""

from __future__ import annotations

import posixpath
from typing import Final

from pyinfra.api.deploy import deploy

from roles.engine.batched_facts import PATH
from roles.facts.nodes import AUTHORITY, PKI
from roles.operations import files, services
from roles.operations.nodes import KUBECONFIG
from roles.operations.services import DAEMON_RELOAD, restarts
from roles.settings.machine import MachineSettings, settings

SCRIPT: Final = "/usr/local/sbin/spillway-node-health"
METRICS: Final = "/var/lib/prometheus/node-exporter/spillway_health.prom"
SERVICE: Final = "/etc/systemd/system/spillway-node-health.service"
TIMER: Final = "/etc/systemd/system/spillway-node-health.timer"
CONDITION: Final = "AcceleratedHardwareReady"
"""Condition of the Node by which it says whether its GPUs are well, of the type that the EKS node monitoring agent has
(https://docs.aws.amazon.com/eks/latest/userguide/node-health.html); the autoscaler's ``faults`` go by it."""
_OF_GPUS: Final = ("gpus", "gpu_errors")


@deploy("Node health check")
def health() -> None:
    """A script, run by a timer: exit status 0 where all is well, each ill by name on a line and as a metric.

    Ills of GPUs become a condition of the Node, too.
    """
    machine = settings()
    files.place(
        name="what health means here", dest=SCRIPT, content=health_script(machine), mode="755", validate="sh -n {path}"
    )
    with restarts(DAEMON_RELOAD), restarts("spillway-node-health.timer"):
        files.place(
            name="the check as a unit",
            dest=SERVICE,
            content=f"[Unit]\nDescription=Node health check\n\n[Service]\nType=oneshot\n"
            f"Environment=PATH={PATH}\nExecStart={SCRIPT}\n"
            "SuccessExitStatus=0 1\nTimeoutStartSec=60\n",
            meaning="ini",
        )
        files.place(
            name="the check's timer",
            dest=TIMER,
            content=f"[Unit]\nDescription=Node health check\n\n[Timer]\nOnBootSec={machine.health.every}\n"
            f"OnUnitActiveSec={machine.health.every}\nAccuracySec=5s\n\n[Install]\nWantedBy=timers.target\n",
            meaning="ini",
        )
        for unit in (SERVICE, TIMER):
            services.only_drop_ins(unit=posixpath.basename(unit), name=f"no override of {posixpath.basename(unit)}")
    services.daemon_reload(name="systemd knows the check")
    services.running(unit="spillway-node-health.timer", name="the check runs")


def health_script(machine: MachineSettings) -> str:
    """Each check is a name and a command that fails where something is wrong."""
    full = 100 - machine.health.disk_free
    too_full = f"awk 'NR > 1 && $5 + 0 > {full} {{ bad = 1 }} END {{ exit !bad }}'"
    checks = {
        "disk_space": f"! df -P / /var/lib 2>/dev/null | {too_full}",
        "disk_inodes": f"! df -Pi / 2>/dev/null | {too_full}",
        "disk_writable": "touch /var/lib/spillway/.health && rm -f /var/lib/spillway/.health",
        "containerd": "timeout 10 ctr version",
        "runtimes": "timeout 10 containerd config dump | grep -q 'containerd.runtimes.runc\\]'",
    }
    if machine.kubelet:
        checks["kubelet"] = "curl -sf -m 5 http://127.0.0.1:10248/healthz"
        checks["client_certificate"] = (
            "openssl x509 -in /var/lib/kubelet/pki/kubelet-client-current.pem -checkend 86400"
        )
    if machine.time.service == "chrony":
        checks["clock"] = (
            "! systemctl -q is-active chrony || chronyc -n tracking | awk '/^System time/ { exit !($4 < 1) }'"
        )
    if machine.gpu_count:
        checks["gpus"] = f'[ "$(timeout 20 nvidia-smi -L | grep -c ^GPU)" -ge {machine.gpu_count} ]'
        checks["gpu_errors"] = "! dmesg 2>/dev/null | grep -qE 'NVRM: Xid.*: (48|63|64|74|79|95),'"
    lines = "".join(f"check {name} {_quoted(command)}\n" for name, command in checks.items())
    return f"""#!/bin/sh
PATH={PATH}; export PATH
# Written by roles/deploys/health.py: which of this machine's parts are ill.
ill=
metrics=$(mktemp)
check() {{
  if sh -c "$2" >/dev/null 2>&1; then value=1; else value=0; ill="$ill $1"; echo "ill: $1"; fi
  echo "spillway_node_healthy{{check=\\"$1\\"}} $value" >> "$metrics"
}}
{lines}# The collector's folders may be its own account's, which may put links there: from there on it does this.
as=
for folder in {posixpath.dirname(posixpath.dirname(METRICS))} {posixpath.dirname(METRICS)}; do
  $as mkdir -p $folder
  [ -n "$as" ] || [ "$(stat -c %u $folder)" = 0 ] ||
    as="setpriv --reuid $(stat -c %u $folder) --regid $(stat -c %g $folder) --clear-groups --no-new-privs"
done
$as sh -c 'cd "$1" && t=$(mktemp .spillway.XXXXXXXXXX) && cat > "$t" && chmod 644 "$t" && mv -fT "$t" "$2"' \
  sh {posixpath.dirname(METRICS)} {posixpath.basename(METRICS)} < "$metrics"
rm -f "$metrics"
{_condition() if machine.kubelet and machine.gpu_count else ""}[ -z "$ill" ]
"""


def _condition() -> str:
    """Tells the API server as the kubelet, which may change the status of its own Node alone (NodeRestriction)."""
    of_gpus = "".join(f'case "$ill " in *" {name} "*) found="$found {name}" ;; esac\n' for name in _OF_GPUS)
    certificate = f"{PKI}/kubelet-client-current.pem"
    return rf"""# The Node says of its GPUs whether they are well, and since when: the time of the last change is kept.
found=
{of_gpus}now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
if [ -z "$found" ]; then status=True reason=ChecksPassed; else status=False reason=CheckFailed; fi
kept=/var/lib/spillway/{CONDITION}
read -r was since 2>/dev/null < $kept || was=
[ "$was" = "$status" ] || since=$now
printf '%s %s\n' "$status" "$since" > $kept.new && mv -fT $kept.new $kept
server=$(awk '$1 == "server:" {{ print $2; exit }}' {KUBECONFIG})
node=$(openssl x509 -noout -subject -in {certificate} | sed 's/.*system:node:\([^,/ ]*\).*/\1/')
condition='"type":"{CONDITION}","status":"%s","reason":"%s","message":"spillway-node-health:%s"'
times='"lastHeartbeatTime":"%s","lastTransitionTime":"%s"'
body=$(printf "{{\"status\":{{\"conditions\":[{{$condition,$times}}]}}}}" \
  "$status" "$reason" "${{found:- all is well}}" "$now" "$since")
curl -sS -f -m 10 -o /dev/null -X PATCH --cert {certificate} --cacert {AUTHORITY} -d "$body" \
  -H 'Content-Type: application/strategic-merge-patch+json' "$server/api/v1/nodes/$node/status"
"""


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"
