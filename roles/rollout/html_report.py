"""The report as one self-contained HTML page: no script, no font, no picture from anywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any, Final

from roles.rollout.report import open_items

_STYLE: Final = Path(__file__).with_name("page.css")
_STATES: Final = ("clean", "drifted", "refused", "unreachable", "unknown")


def page(run: Mapping[str, Any], nights: Sequence[Mapping[str, Any]]) -> str:
    """The run, and those before it, the latest first."""
    command, machines = escape(f"spillway nodes {run['command']}"), len(run["machines"])
    body = [
        f"<h1>{escape(today(run))}</h1>",
        f'<p class="sub"><code>{command}</code> on {_when(run["at"])}, {run["seconds"]} s, {_many(machines)}</p>',
        _tiles(run["counts"]),
        *_alerts(run),
        _section("To do", _to_do(run), empty="Nothing."),
        _section("Mended", _changes_of(run["machines"], mended=True), empty="Nothing was changed."),
        _section("Still as it was found", _changes_of(run["machines"], mended=False), empty="No drift is left."),
        _section("Worth knowing", _warnings(run["preflight"]), empty="Nothing was found."),
        _section("Versions across the fleet", _versions(run), empty="No versions are known."),
        _section("Nights", _nights(nights), empty="This is the first."),
        f'<p class="soft">End of the journal: <code>{escape(run["journal"] or "none")}</code></p>',
    ]
    title = f"Nodes {run['at'][:10]}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE.read_text(encoding='utf-8')}</style>"
    )
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body><main>{"".join(body)}</main></body></html>\n'


def _tiles(counts: Mapping[str, int]) -> str:
    shown = [name for name in _STATES if counts.get(name) or name in ("clean", "drifted", "unreachable")]
    tiles = [
        f'<div class="tile"><b style="color:var(--{name})">{counts.get(name, 0)}</b><span>{name}</span></div>'
        for name in shown
    ]
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _alerts(run: Mapping[str, Any]) -> list[str]:
    if not run["halted"]:
        return []
    return [f'<div class="alert"><b>The rollout is halted.</b> {escape(run["halted"]).replace(chr(10), "<br>")}</div>']


def today(run: Mapping[str, Any]) -> str:
    """Says in one line whether there is anything to do."""
    items = open_items(run)
    machines = len(run["machines"])
    mended = sum(any(change["mended"] for change in one["changes"]) for one in run["machines"])
    changed = f"; {_many(mended)} {'was' if mended == 1 else 'were'} mended" if mended else ""
    if not items and not run["halted"]:
        return f"Nothing to do today: {_many(machines)}, all as they should be{changed}."
    hosts = {host for item in items for host in item.hosts}
    things = len(items) + bool(run["halted"])
    return (
        f"{things} {'thing' if things == 1 else 'things'} to do today, on {len(hosts)} of {_many(machines)}{changed}."
    )


def _to_do(run: Mapping[str, Any]) -> str:
    rows = [
        _row(
            ", ".join(item.hosts),
            escape(item.kind),
            f'{escape(item.cause)}<code class="command">{escape(item.command)}</code>',
        )
        for item in open_items(run)
    ]
    return _table(("Machines", "What", "Cause, and the command once it is seen to"), rows)


def _changes_of(machines: Iterable[Mapping[str, Any]], *, mended: bool) -> str:
    """One row a machine; each change unfolds."""
    rows = []
    for machine in machines:
        changes = [change for change in machine["changes"] if change["mended"] is mended]
        if changes:
            many = f"{len(changes)} {'resource' if len(changes) == 1 else 'resources'}"
            names = ", ".join(change["resource"].rpartition(" | ")[2] for change in changes)
            each = "".join(
                f"{_resource(change['resource'])}{_disruption(change)}{_change(change)}" for change in changes
            )
            shown = f"<details><summary>{escape(names)}</summary>{each}</details>"
            rows.append(_row(machine["host"], _state("clean" if mended else machine["state"]), many, shown))
    return _table(("Machine", "State", "How many", "What"), rows)


def _resource(name: str) -> str:
    """Role and operation, a line each."""
    role, _, operation = name.rpartition(" | ")
    return f'<div class="soft role">{escape(role)}</div>{escape(operation)} '


def _change(change: Mapping[str, Any]) -> str:
    """The diff where there is one, else the commands."""
    text = change["diff"] or "\n".join(change["commands"])
    lines = text.splitlines()
    first = next(
        (line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")), lines[0] if lines else ""
    )
    if len(lines) <= 1:
        return f"<code>{escape(text)}</code>"
    whole = "".join(map(_diff_line, lines))
    summary = f"<summary><code>{escape(first[:100])}</code></summary>"
    return f"<details>{summary}<pre>{whole}</pre></details>"


def _diff_line(line: str) -> str:
    kind = {"+": "add", "-": "cut"}.get(line[:1], "")
    return f'<span class="{kind}">{escape(line)}</span>\n' if kind else f"{escape(line)}\n"


def _disruption(change: Mapping[str, Any]) -> str:
    return "" if change["disruption"] == "none" else escape(change["disruption"])


def _warnings(findings: Iterable[Mapping[str, Any]]) -> str:
    """Renders the warnings of the preflight; what it found an error stands above, as something to do."""
    rows = [
        _row(one["host"], escape(one["check"]), escape(one["found"]), escape(one["remedy"]))
        for one in findings
        if one["severity"] == "warning"
    ]
    return _table(("Machine", "Check", "Found", "Remedy"), rows)


def _versions(run: Mapping[str, Any]) -> str:
    """One column for each part that more than one version of is about, and the rest in one line."""
    machines = [one for one in run["machines"] if one["versions"]]
    parts = sorted({part for one in machines for part in one["versions"]})
    if not parts:
        return ""
    mixed = [part for part in parts if part in run["odd"]]
    same = [part for part in parts if part not in run["odd"]]
    told = ", ".join(
        f"{part} {next(one['versions'][part] for one in machines if part in one['versions'])}" for part in same
    )
    foot = f'<p class="soft" style="padding:0 12px">The same wherever installed: {escape(told) or "nothing"}</p>'
    if not mixed:
        return foot
    rows = []
    for one in machines:
        cells = []
        for part in mixed:
            version = one["versions"].get(part, "")
            odd = ' class="odd"' if one["host"] in run["odd"][part]["odd"] else ""
            cells.append(f"<td{odd}>{escape(version) or '<span class=soft>none</span>'}</td>")
        rows.append(f"<tr><td>{escape(one['host'])}</td>{''.join(cells)}</tr>")
    return _table(("Machine", *mixed), rows, kind="grid") + foot


def _nights(nights: Sequence[Mapping[str, Any]]) -> str:
    rows = []
    for night in nights:
        counts = night.get("found") or night.get("counts", {})
        total = sum(counts.values()) or 1
        bar = "".join(
            f'<i style="width:{100 * counts[name] / total:.1f}%;background:var(--{name})"></i>'
            for name in _STATES
            if counts.get(name)
        )
        told = ", ".join(f"{counts[name]} {name}" for name in _STATES if counts.get(name))
        changed = len(night.get("changed", ()))
        ended = "halted" if night.get("halted") else "damaged record" if night.get("damaged") else ""
        rows.append(
            _row(
                _when(night["at"]),
                f'<div class="bar">{bar}</div>',
                told,
                f"{changed} changed" if changed else "",
                ended,
            )
        )
    return _table(("Run", "", "Found", "Done", ""), rows)


def _section(title: str, body: str, *, empty: str) -> str:
    inner = f'<div class="box">{body}</div>' if body else f'<p class="soft">{escape(empty)}</p>'
    return f"<h2>{escape(title)}</h2>{inner}"


def _table(heads: Iterable[str], rows: Sequence[str], *, kind: str = "list") -> str:
    """Renders a table; on a narrow screen the cells of a list stand below each other, those of a grid do not."""
    if not rows:
        return ""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    return f'<table class="{kind}"><tr>{head}</tr>{"".join(rows)}</table>'


def _row(first: str, *cells: str) -> str:
    """The first cell is text, the others are HTML already."""
    return f"<tr><td>{escape(first)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _when(at: str) -> str:
    """Writes a time as a person does; of a record that is damaged, the name of its file."""
    try:
        return f"{datetime.fromisoformat(at).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return escape(at)


def _many(machines: int) -> str:
    return "1 machine" if machines == 1 else f"{machines} machines"


def _state(name: str) -> str:
    return f'<span class="state" style="color:var(--{name})">{name}</span>'
