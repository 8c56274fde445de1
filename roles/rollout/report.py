"""What a run comes to: one record, which the JSON, the page, the message and the metrics are made of."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from autoscaler.model.enumeration import few
from roles.checks.findings import Finding
from roles.engine.disruption import Disruption
from roles.engine.host_plan import HostPlan, as_json, held, state
from roles.rollout.executor import Rolled
from roles.settings.own_files import write_whole

STATES: Final = ("clean", "drifted", "refused", "unreachable", "unknown")
NIGHTS: Final = 60
"""Runs that the history shows."""


def record(
    plans: Iterable[HostPlan],
    *,
    command: str,
    began: datetime,
    seconds: float,
    rolled: Rolled | None = None,
    journal: str = "",
    allowed: Disruption = Disruption.RELOAD,
    findings: Iterable[Finding] = (),
    command_line: str = "",
) -> dict[str, Any]:
    """Everything about one run, in plain values. ``plans``: as they were before anything was changed.

    What was found stands beside what is left of it: a machine's ``state`` is that of now. ``command_line``: by which an
    operator makes changes on the same machines.
    """
    plans = tuple(plans)
    now = {plan.host: (rolled.plans if rolled else {}).get(plan.host, plan) for plan in plans}
    return {
        "command": command,
        "command_line": command_line,
        "at": began.isoformat(timespec="seconds"),
        "seconds": round(seconds, 2),
        "counts": dict(Counter(state(plan) for plan in now.values())),
        "found": dict(Counter(state(plan) for plan in plans)),
        "machines": [_machine(plan, now[plan.host]) for plan in plans],
        "preflight": [asdict(one) for one in findings],
        "held": _held(now.values(), allowed) | rolled.held if rolled else {},  # a plan knows of no pods
        "changed": sorted(rolled.changed) if rolled else [],
        "failed": rolled.failed if rolled else {},
        "unsettled": rolled.unsettled if rolled else {},
        "halted": rolled.halted if rolled else "",
        "odd": odd_ones(now.values()),
        "journal": journal,
    }


def odd_ones(plans: Iterable[HostPlan]) -> dict[str, dict[str, Any]]:
    """The versions that are not the same everywhere: the most common one, and the machines that differ."""
    by_part: dict[str, dict[str, str]] = {}
    for plan in plans:
        for part, version in plan.versions.items():
            by_part.setdefault(part, {})[plan.host] = version
    found = {}
    for part, versions in sorted(by_part.items()):
        ranked = Counter(versions.values()).most_common()
        if len(ranked) > 1:
            usual = ranked[0][0]
            others = {host: version for host, version in sorted(versions.items()) if version != usual}
            found[part] = {"usual": usual, "odd": others}
    return found


def keep(run: Mapping[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Write the record of this run among those of the nights before; gives them all, the latest first."""
    nights = folder / "nights"
    nights.mkdir(parents=True, exist_ok=True)
    name = str(run["at"]).replace(":", "-")
    write_whole(nights / f"{name}.json", json.dumps(run, indent=1))
    for old in sorted(nights.glob("*.json"), reverse=True)[NIGHTS:]:
        old.unlink()
    return history(folder)


def history(folder: Path) -> list[dict[str, Any]]:
    """The records of the runs before, the latest first."""
    return [_read(path) for path in sorted((folder / "nights").glob("*.json"), reverse=True)[:NIGHTS]]


def in_words(run: Mapping[str, Any]) -> str:
    """A few lines for a chat."""
    counts = run["counts"]
    parts = [f"{counts[name]} {name}" for name in STATES if name in counts]
    lines = [f"Spillway nodes: {', '.join(parts) or 'no machines'}"]
    if run["changed"]:
        lines.append(f"Changed: {few(run['changed'], 5)}")
    in_the_way = [one for one in run["preflight"] if one["severity"] == "error" and one["check"] != "connection"]
    errors = [f"{one['host']} ({one['check']})" for one in in_the_way]
    lines += [f"Preflight: {', '.join(errors)}"] if errors else []
    lines += [f"*Halted*: {run['halted']}"] if run["halted"] else []
    lines += [f"{title}: {', '.join(hosts)}: {why}" for (title, why), hosts in open_reasons(run).items()]
    away = [f"{one['host']} ({one['reason']})" for one in run["machines"] if one["state"] in ("unreachable", "unknown")]
    lines += [f"Not seen: {', '.join(away)}"] if away else []
    lines += [
        f"Odd one out: {part} is {odd['usual']}, but {few((f'{h} {v}' for h, v in odd['odd'].items()), 5)}"
        for part, odd in run["odd"].items()
    ]
    return "\n".join(lines)


def open_reasons(run: Mapping[str, Any]) -> dict[tuple[str, str], list[str]]:
    """Why machines are not as they should be: what became of the change and the reason, to all machines of that reason.

    Each machine that has drifted is in it at least once.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for kind in ("failed", "unsettled", "held"):
        for host, why in run[kind].items():
            again = " is wanted again right after it was changed" if kind == "unsettled" else ""
            found.setdefault((kind.capitalize(), f"{why}{again}"), []).append(host)
    for one in run["machines"]:
        for refusal in one["refused"]:
            found.setdefault(("Refused", f"{refusal['resource']}: {refusal['reason']}"), []).append(one["host"])
    told = {host for hosts in found.values() for host in hosts}
    left = [one["host"] for one in run["machines"] if one["state"] == "drifted" and one["host"] not in told]
    if left:
        found["Drifted", "spillway nodes apply would mend it"] = left
    return found


@dataclass(frozen=True, slots=True)
class Item:
    """Something that is open after a run, and what to type once it is seen to."""

    hosts: tuple[str, ...]
    kind: str
    cause: str
    command: str


def open_items(run: Mapping[str, Any]) -> list[Item]:
    """What an operator has to see to: what was not seen first, then what is in the way, then what did not work."""
    away = [one for one in run["machines"] if one["state"] in ("unreachable", "unknown")]
    errors: dict[tuple[str, str], list[str]] = {}
    for one in run["preflight"]:
        if one["severity"] == "error" and one["check"] != "connection":
            errors.setdefault((one["check"], f"{one['found']}: {one['remedy']}"), []).append(one["host"])
    blocked = {host for hosts in errors.values() for host in hosts}
    items = [_item(run, [one["host"]], "Not seen", one["reason"]) for one in away]
    items += [_item(run, hosts, f"In the way: {check}", why) for (check, why), hosts in errors.items()]
    for (kind, why), hosts in open_reasons(run).items():
        left = [host for host in hosts if kind != "Held" or host not in blocked]  # held for what is told above
        items += [_item(run, left, kind, why)] if left else []
    return items


def _item(run: Mapping[str, Any], hosts: list[str], kind: str, cause: str) -> Item:
    """Where the same plan ended badly, only --retry tries it again; of a machine that was not seen, check says why."""
    base = run.get("command_line") or "spillway nodes apply"
    base = base.replace(" nodes apply", " nodes check", 1) if kind == "Not seen" else base
    again = " --retry" if kind == "Unsettled" or "--retry" in cause else ""
    return Item(tuple(hosts), kind, cause, f"{base} --limit {shlex.quote(','.join(hosts))}{again}")


def as_metrics(run: Mapping[str, Any]) -> str:
    """Writes metrics for the textfile collector of Prometheus' node exporter."""
    seen = [one for one in run["machines"] if one["state"] not in ("unreachable", "unknown")]
    drift = {f'{{host="{one["host"]}"}}': len(one["changes"]) + len(one["refused"]) for one in seen}
    left = {
        f'{{host="{one["host"]}"}}': sum(not change["mended"] for change in one["changes"]) + len(one["refused"])
        for one in seen
    }
    errors = Counter(f'{{host="{one["host"]}"}}' for one in run["preflight"] if one["severity"] == "error")
    states = {f'{{state="{name}"}}': run["counts"].get(name, 0) for name in STATES}
    became = {f'{{outcome="{name}"}}': len(run[name]) for name in ("changed", "failed", "unsettled", "held")}
    at = datetime.fromisoformat(run["at"]).timestamp()
    return "".join(
        (
            _metric("run_timestamp_seconds", "When the last run began.", {"": at}),
            _metric("run_seconds", "How long it took.", {"": run["seconds"]}),
            _metric("halted", "1 while a rollout is halted.", {"": int(bool(run["halted"]))}),
            _metric("machines", "Machines by how the run left them.", states),
            _metric("drift", "Resources that were found drifted, by machine.", drift),
            _metric("drift_left", "Resources that still are, by machine.", left),
            _metric("preflight_errors", "What stands in the way of a change, by machine.", errors),
            _metric("outcomes", "Machines by what became of their change.", became),
        )
    )


def _machine(found: HostPlan, now: HostPlan) -> dict[str, Any]:
    """A machine with all that was found on it, each change with whether it is still wanted."""
    (told,) = as_json([found])
    left = {change.resource for change in now.changes}
    is_known = not (now.unreachable or now.failed)
    return told | {
        "changes": [one | {"mended": is_known and one["resource"] not in left} for one in told["changes"]],
        "refused": as_json([now])[0]["refused"] if is_known else told["refused"],
        "state": state(now),
        "found": state(found),
        "reason": now.unreachable or now.failed,
        "versions": now.versions or found.versions,
    }


def _metric(name: str, words: str, samples: Mapping[str, float]) -> str:
    whole = f"spillway_nodes_{name}"
    lines = [f"# HELP {whole} {words}", f"# TYPE {whole} gauge"]
    return "\n".join([*lines, *(f"{whole}{labels} {value}" for labels, value in samples.items())]) + "\n"


def _held(plans: Iterable[HostPlan], allowed: Disruption) -> dict[str, str]:
    """What a nightly run would not do beside running GPU pods."""
    found = {}
    for plan in plans:
        waiting = held(plan, allowed)
        if waiting:
            worst = max(change.disruption for change in waiting)
            names = few((change.resource for change in waiting), 5)
            found[plan.host] = f"{names}: {worst} is more than {allowed} allows beside GPU pods"
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"at": path.stem, "counts": {}, "damaged": True}
    return found if isinstance(found, dict) else {"at": path.stem, "counts": {}, "damaged": True}
