"""A job as a Slurm batch script: one allocation (a component per role), one step per role, servers ended with the rest.

Tasks are told where the others are by the hosts that Slurm gave. The launcher travels in the script.
https://slurm.schedmd.com/heterogeneous_jobs.html
"""

from __future__ import annotations

import math
import re
import shlex
from pathlib import Path
from typing import Final

from autoscaler.model.errors import BadInput
from images.endpoints import launch_settings
from images.job_roles import Role
from images.jobs import Job
from images.launcher import __file__ as launcher_file
from images.renderers.rendering import Rendering, elastic_losses, losses, mebibytes, refuse, whole_cpus

_REFUSED: Final = {"depends_on": "one script is one allocation; JobSet (--to jobset) and local know an order"}
_LOSSES: Final = {
    "kind": "a batch job ends when its program does",
    "retain": "the accounting keeps what it is set up to keep",
    "namespace": "Slurm has no namespaces",
    "expected": "only its limit, failure.deadline, is told to Slurm",
    "patience": "what is bought is decided by Slurm's own power saving",
    "same": "Slurm knows no zones",
    "node_selector": "labels of Kubernetes nodes mean nothing to Slurm",
    "tolerations": "Slurm knows no taints",
    "roles.checkpoint": "Slurm sends SIGTERM to the program itself, which has to write down its state then",
    "roles.grace": "a task has KillWait of slurm.conf to end",
    "roles.image": "programs run on the machine itself; give python and entry",
    "roles.annotations": "they are for Kubernetes",
    "roles.volumes": "programs see the machine's directories as they are",
}
_BODY: Final = """\
set -uo pipefail
read -r -d '' SPILLWAY_LAUNCHER <<'END_OF_LAUNCHER'
{launcher}
END_OF_LAUNCHER
export SPILLWAY_LAUNCHER
# After a lost node Slurm puts back the first component alone: what the others still run, on places that the next run
# needs, is of the run before.
if [ "${{SLURM_RESTART_COUNT:-0}}" != 0 ]; then
  for component in "${{!SLURM_JOB_ID_HET_GROUP_@}}"; do
    squeue --steps --noheader --jobs="${{!component}}" --format=%i | awk '/[0-9]$/' | xargs -r scancel --signal=KILL
  done
fi
HOST=()
hosts() {{ srun "$@" sh -c 'echo "$SLURM_PROCID $(hostname)"' | sort -n | cut -d' ' -f2; }}
{hosts}
# The index of a task is its rank in its role's step.
run='SPILLWAY_INDEX=$SLURM_PROCID exec python3 -c "$SPILLWAY_LAUNCHER" "$@"'
ROLE=() JOB=() STEP=()
# SIGTERM to the tasks of a step; to its srun, it would be SIGKILL to them.
end() {{
  local step
  step=$(squeue --steps --noheader --jobs="${{JOB[$1]}}" --format='%i %j' |
    awk -v role="${{ROLE[$1]}}" '$2 == role && $1 ~ /[0-9]$/ {{ print $1 }}')
  if [ -z "$step" ] || ! scancel --signal=TERM "$step"; then kill "${{STEP[$1]}}" 2>/dev/null; fi
}}
trap 'for step in "${{!STEP[@]}}"; do end "$step"; done' TERM
# The signal cuts a wait short.
status_of() {{ while kill -0 "$1" 2>/dev/null; do wait "$1"; done; wait "$1"; }}
{steps}
status=0
is_put_back() {{
  local said
  said=$(scontrol --oneliner show job "${{SLURM_JOB_ID:-0}}" 2>/dev/null | grep -o ' Restarts=[0-9]*' | head -n 1)
  [ -n "$said" ] && [ "$said" != " Restarts=${{SLURM_RESTART_COUNT:-0}}" ]
}}
for step in {essential}; do status_of "${{STEP[$step]}}" || status=$?; done
# Where slurmd has died, this script outlives its run: its end would be taken for that of the next one.
while is_put_back; do sleep 10; done
for step in {others}; do end "$step"; done
for step in {others}; do status_of "${{STEP[$step]}}"; done
{ship}exit "$status"
"""

_SHIP: Final = """\
# What keeps lines may have ended with its step: those of a second are on the machine still.
timeout 120 srun {placed} sh -c 'exec python3 -c "$SPILLWAY_LAUNCHER" --ship' 2>/dev/null
"""


def render(job: Job, *, run: str = "${SLURM_JOB_ID:-0}.${SLURM_RESTART_COUNT:-0}") -> Rendering:
    """Renders the script for ``sbatch``."""
    refuse(job, "slurm", _REFUSED)
    roles = [(*pair, number) for number, pair in enumerate(job.roles.items())]
    for name, role, _number in roles:
        if not role.entry:
            raise BadInput(
                f"job {job.name!r} cannot be rendered to slurm: roles.{name}.entry is missing: say what runs"
            )
    head = "#SBATCH hetjob\n".join(_component(job, role, is_first=number == 0) for _name, role, number in roles)
    body = _BODY.format(
        launcher=Path(launcher_file).read_text(encoding="utf-8").rstrip("\n"),
        hosts="\n".join(f"HOST+=($(hosts {_placed(job, role, number)}))" for _, role, number in roles),
        steps="\n".join(_step(job, name, number, run=run) for name, _role, number in roles),
        essential=" ".join(str(number) for name, _role, number in roles if name in job.essential),
        others=" ".join(str(number) for name, _role, number in roles if name not in job.essential),
        ship="".join(_SHIP.format(placed=_placed(job, role, number)) for _, role, number in roles if _in_bucket(job)),
    )
    return Rendering(script=f"#!/bin/bash\n{head}{body}", losses=(*losses(job, _LOSSES), *_more_losses(job)))


def _in_bucket(job: Job) -> bool:
    return bool(job.logs) and not job.shared_logs


def _more_losses(job: Job) -> tuple[str, ...]:
    lost = list(elastic_losses(job, "an allocation has one size: the most"))
    lost += [
        f"roles.{name}.restart: Slurm starts the whole job again after a lost node, and no task after a failure"
        for name, role in job.roles.items()
        if role.restart in ("on-failure", "always")
    ]
    if job.failure.restarts:
        lost.append("failure.restarts: Slurm does not count them by task")
    if not job.gang:
        lost.append("gang: Slurm starts all tasks of a job together")
    if len(job.roles) > 1:
        lost.append(
            "roles: Slurm plans each on machines of its own: where there are fewer than roles, the job waits for ever"
        )
    if job.network == "own":
        lost.append("network: programs use the machine's own network")
    if job.success == "first":
        lost.append("success: a step ends with all of its tasks")
    return tuple(lost)


def _component(job: Job, role: Role, *, is_first: bool) -> str:
    options = {
        "ntasks": role.most,
        "cpus-per-task": whole_cpus(role),
        "mem-per-cpu": f"{math.ceil(mebibytes(role) / whole_cpus(role))}M",
    }
    if role.gpus:
        options["gpus-per-task"] = role.gpus
    lines = [f"#SBATCH --{key}={value}\n" for key, value in options.items()]
    return "".join([*(_of_the_job(job) if is_first else ()), *lines])


def _of_the_job(job: Job) -> list[str]:
    restarts = any(role.restart != "never" for role in job.roles.values())
    options = [f"--job-name={job.name}", "--requeue" if restarts else "--no-requeue"]
    if job.failure.deadline is not None:
        options.append(f"--time={math.ceil(job.failure.deadline.total_seconds() / 60)}")
    if job.queue:
        options.append(f"--partition={job.queue}")
    if job.owner:
        options.append(f"--account={job.owner}")
    if job.priority:
        options.append(f"--qos={job.priority}")
    return [f"#SBATCH {option}\n" for option in options]


def _placed(job: Job, role: Role, number: int) -> str:
    """Options of a step of all tasks of a role. Since Slurm 22.05 a step does not take its CPUs from the job's."""
    group = f"--het-group={number} " if len(job.roles) > 1 else ""
    return f"{group}--ntasks={role.most} --cpus-per-task={whole_cpus(role)}"


def _step(job: Job, name: str, number: int, *, run: str) -> str:
    """One role's tasks, in the background; where the others are is filled in by the shell."""
    role = job.roles[name]
    settings = launch_settings(job, "slurm", name, run=run) | role.env
    if role.python:
        settings["PATH"] = f"{role.python}/bin:${{PATH}}"
    told = " ".join(f"{key}={_quoted(value, key)}" for key, value in settings.items())
    command = " ".join(map(shlex.quote, (*role.entry, *role.args)))
    options = f"{_placed(job, role, number)} --job-name={name} --kill-on-bad-exit=1"
    known = f'ROLE+=({name}) JOB+=("${{SLURM_JOB_ID_HET_GROUP_{number}:-${{SLURM_JOB_ID:-0}}}}") STEP+=($!)'
    return f'env {told} \\\n  srun {options} sh -c "$run" {name} {command} &\n{known}'


_FILLED_IN: Final = re.compile(r"\$\{(?:HOST\[\d+\]|SLURM_[A-Z_]+:-0|PATH)\}")


def _quoted(value: str, key: str) -> str:
    """Quotes for the shell: what a user wrote as it is, our own places filled in."""
    if not key.startswith("SPILLWAY_") and key != "PATH":
        return shlex.quote(value)
    parts = _FILLED_IN.split(value)
    ours = [f'"{found}"' for found in _FILLED_IN.findall(value)] + [""]
    return "".join((shlex.quote(part) if part else "") + own for part, own in zip(parts, ours, strict=True))
