"""What a run leaves behind: record, page, summary, metrics, journal."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from autoscaler.model.errors import BadInput
from roles.checks.findings import Finding
from roles.engine.disruption import Disruption
from roles.engine.host_plan import BOTH, CLEAN, DRIFT, UNREACHABLE, Change, HostPlan, Refusal, exit_status, held
from roles.rollout import report
from roles.rollout.executor import Rolled
from roles.rollout.html_report import page, today
from roles.rollout.journal import Journal, why_broken

WORSE = Disruption.CONTAINERD_RESTART
DIFF = "--- /etc/a (now)\n+++ /etc/a\n@@ -1 +1 @@\n-<b>old</b>\n+new"
PLANS = (
    HostPlan(host="a", versions={"kernel": "6.1", "runc": "1.1"}),
    HostPlan(host="b", versions={"kernel": "6.1", "runc": "1.1"}),
    HostPlan(
        host="c",
        changes=(
            Change(resource="base | File", commands=("write",), diff=DIFF),
            Change(resource="runtime | Config", commands=("w",), disruption=Disruption.CONTAINERD_RESTART),
            Change(resource="runtime | Service", commands=("s",)),
        ),
        refused=(Refusal("driver | Version", "it is held"),),
        versions={"kernel": "5.10", "runc": "1.1"},
    ),
    HostPlan(host="d", unreachable="no route to host"),
)


def run(**rolled: Any) -> dict[str, Any]:
    """The record of a run over these machines."""
    return report.record(
        PLANS, command="plan", began=datetime(2026, 1, 2, 3, tzinfo=UTC), seconds=1.0, rolled=Rolled(**rolled)
    )


def test_what_was_mended_is_no_drift_any_more() -> None:
    """The first run over bare machines leaves them clean, and says what it found."""
    wanted = HostPlan(host="d", changes=(Change(resource="runtime | Config", commands=("w",), disruption=WORSE),))
    after = {"c": HostPlan(host="c"), "d": wanted}
    began = datetime(2026, 1, 2, tzinfo=UTC)
    found = [
        Finding("c", "apt", "warning", "its lock is held", "wait"),
        Finding("d", "disk", "error", "/ has 3 MiB free", "free some"),
    ]
    before = [PLANS[2], wanted]
    rolled = Rolled(plans=after, changed=["c"], held={"d": "the preflight found an error"})
    told = report.record(before, command="apply", began=began, seconds=1.0, rolled=rolled, findings=found)
    assert (told["counts"], told["found"]) == ({"clean": 1, "drifted": 1}, {"drifted": 2})
    assert [[one["mended"] for one in machine["changes"]] for machine in told["machines"]] == [[True] * 3, [False]]
    assert told["held"] == {"d": "the preflight found an error"}
    words = report.in_words(told)
    assert words.startswith("Spillway nodes: 1 clean, 1 drifted\nChanged: c\nPreflight: d (disk)\n")
    shown = page(told, [told])
    assert ">3 resources<" in shown
    assert "/ has 3 MiB free" in shown
    metrics = report.as_metrics(told)
    assert 'spillway_nodes_drift{host="c"} 3' in metrics
    assert 'spillway_nodes_drift_left{host="c"} 0' in metrics
    assert 'spillway_nodes_preflight_errors{host="d"} 1' in metrics
    assert 'spillway_nodes_preflight_errors{host="c"}' not in metrics


@pytest.mark.parametrize("lost", [{"unreachable": "no route to host"}, {"failed": "a check raised"}])
def test_of_a_machine_that_is_not_known_at_the_end_nothing_counts_as_mended(lost: dict[str, str]) -> None:
    """Whether it is silent or a look at it has failed: what was refused before is told still."""
    found = PLANS[2]
    told = report.record(
        PLANS,
        command="apply",
        began=datetime(2026, 1, 2, 3, tzinfo=UTC),
        seconds=1.0,
        rolled=Rolled(plans={"c": HostPlan(host="c", **lost)}),
    )
    (machine,) = (one for one in told["machines"] if one["host"] == found.host)
    assert [change["mended"] for change in machine["changes"]] == [False] * 3
    assert len(machine["refused"]) == 1
    assert machine["reason"] == next(iter(lost.values()))


def test_the_exit_status_tells_drift_from_silence() -> None:
    """0, 2, 3, 4."""
    assert exit_status(PLANS[:2]) == CLEAN
    assert exit_status(PLANS[:3]) == DRIFT
    assert exit_status([PLANS[0], PLANS[3]]) == UNREACHABLE
    assert exit_status(PLANS) == BOTH


def test_what_waits_holds_the_rest_of_its_role() -> None:
    """A service is not restarted whose configuration was held back."""
    assert [change.resource for change in held(PLANS[2], Disruption.RELOAD)] == [
        "runtime | Config",
        "runtime | Service",
    ]
    assert held(PLANS[2], Disruption.REBOOT) == ()


@pytest.mark.parametrize(("count", "end"), [(1, "r0"), (5, "r4"), (6, "r4 and 1 more"), (9, "r4 and 4 more")])
def test_of_much_that_waits_five_are_named(count: int, end: str) -> None:
    """And how many more there are."""
    changes = tuple(Change(resource=f"r{n}", commands=("x",), disruption=WORSE) for n in range(count))
    began = datetime(2026, 1, 2, tzinfo=UTC)
    plans = [HostPlan(host="a", changes=changes)]
    told = report.record(plans, command="reconcile", began=began, seconds=1.0, rolled=Rolled())
    assert f"{end}: containerd-restart is more than" in told["held"]["a"]


def test_the_odd_one_out_is_named() -> None:
    """Against the version that most have; what all share is not mentioned."""
    assert report.odd_ones(PLANS) == {"kernel": {"usual": "6.1", "odd": {"c": "5.10"}}}


def test_the_page_stands_alone_and_shows_everything() -> None:
    """Text of machines is text, never markup."""
    text = page(run(halted="c: unhealthy"), [run(), {"at": "2026-01-01", "counts": {}, "damaged": True}])
    for shown in ("no route to host", "it is held", "containerd-restart", "The rollout is halted", "damaged record"):
        assert shown in text
    for count, state in ((2, "clean"), (1, "drifted"), (1, "unreachable")):
        assert f'<div class="tile"><b style="color:var(--{state})">{count}</b><span>{state}</span></div>' in text
    assert '<div class="tile"><b style="color:var(--drifted)">0</b>' in page(run() | {"counts": {"clean": 2}}, [])
    assert "2026-01-01" in text
    assert "</div>Config containerd-restart<code>w</code>" in text
    assert "</div>Service <code>s</code>" in text
    assert "&lt;b&gt;old&lt;/b&gt;" in text
    assert "<summary><code>-&lt;b&gt;old&lt;/b&gt;</code></summary>" in text  # the first line that differs
    assert "<tr><th>Machine</th><th>kernel</th></tr>" in text
    assert '<td class="odd">5.10</td>' in text
    assert "<td>6.1</td>" in text
    assert "The same wherever installed: runc 1.1</p>" in text
    assert "<script" not in text
    assert "src=" not in text
    assert "href=" not in text


def test_the_summary_is_a_few_lines() -> None:
    """For a chat."""
    text = report.in_words(run(changed=["a"], failed={"c": "no space left on device"}))
    assert "2 clean, 1 drifted, 1 unreachable" in text
    assert "Failed: c: no space left on device" in text
    assert "Not seen: d (no route to host)" in text
    assert "Odd one out: kernel is 6.1, but c 5.10" in text


def test_the_page_says_first_whether_there_is_anything_to_do() -> None:
    """Then what is open, with cause and command; then what was mended, one row a machine."""
    found = [
        Finding("b", "disk", "error", "/ has 3 MiB free", "free some"),
        Finding("d", "connection", "error", "x", "y"),
        Finding("c", "host-name", "warning", "c does not resolve", "name it"),
    ]
    after = {"c": PLANS[2], "a": PLANS[0]}
    began = datetime(2026, 1, 2, tzinfo=UTC)
    changed = HostPlan(host="a", changes=PLANS[2].changes)
    rolled = Rolled(plans=after, unsettled={"c": "base | File"}, held={"b": "the preflight found an error"})
    base = "spillway nodes apply --inventory lab.yaml"
    given = {"command": "reconcile", "began": began, "seconds": 1.0, "findings": found, "command_line": base}
    told = report.record([changed, *PLANS[1:]], rolled=rolled, **given)  # type: ignore[arg-type]  # by name
    text = page(told, [told])
    first = text[text.index("<main>") :]
    assert first.startswith("<main><h1>5 things to do today, on 3 of 4 machines; 1 machine was mended.</h1>")
    assert text.index("<h1>") < text.index("<h2>To do") < text.index("<h2>Mended") < text.index("<h2>Worth")
    worth = text[text.index("<h2>Worth") : text.index("<h2>Versions")]
    assert (worth.count("<tr>"), "c does not resolve" in worth, "MiB free" in worth) == (2, True, False)
    items = {item.kind: item for item in report.open_items(told)}
    assert items["Unsettled"].command == f"{base} --limit c --retry"
    assert items["Not seen"].command == "spillway nodes check --inventory lab.yaml --limit d"
    assert items["In the way: disk"].cause == "/ has 3 MiB free: free some"
    assert items["Refused"].hosts == ("c",)
    assert items["Held"].hosts == ("c",)  # b's reason stands above it
    assert f'right after it was changed<code class="command">{base} --limit c --retry</code>' in text
    mended = text[text.index("<h2>Mended") : text.index("<h2>Still")]
    assert mended.count("<tr>") == 2  # the heading, and one machine with three resources
    assert ">3 resources<" in mended


@pytest.mark.parametrize(
    ("open_machines", "mended", "halted", "words"),
    [
        (1, 0, "", "1 thing to do today, on 1 of 3 machines."),
        (2, 0, "", "1 thing to do today, on 2 of 3 machines."),
        (1, 1, "", "1 thing to do today, on 1 of 3 machines; 1 machine was mended."),
        (1, 2, "c: unhealthy", "2 things to do today, on 1 of 3 machines; 2 machines were mended."),
        (0, 2, "", "Nothing to do today: 3 machines, all as they should be; 2 machines were mended."),
        (0, 0, "c: unhealthy", "1 thing to do today, on 0 of 3 machines."),
    ],
)
def test_one_thing_is_no_two(open_machines: int, mended: int, halted: str, words: str) -> None:
    """The line that is read on a phone, in numbers that agree."""
    plans = [
        HostPlan(host=name, refused=(Refusal("driver", "held"),) if number < open_machines else ())
        for number, name in enumerate("abc")
    ]
    record = report.record(
        plans, command="reconcile", began=datetime(2026, 1, 2, tzinfo=UTC), seconds=1.0, rolled=Rolled(halted=halted)
    )
    for machine in record["machines"][:mended]:
        machine["changes"] = [{"mended": True}, {"mended": True}]
    assert today(record) == words


def test_a_quiet_morning_is_one_line() -> None:
    """Nothing to do, and how many machines that is said of."""
    began = datetime(2026, 1, 2, tzinfo=UTC)
    told = report.record(PLANS[:2], command="reconcile", began=began, seconds=1.0, rolled=Rolled())
    assert "Nothing to do today: 2 machines, all as they should be." in page(told, [told])


def test_the_summary_names_every_machine_that_is_not_as_it_should_be_by_reason() -> None:
    """Not five of a kind: the sixth may be the one that matters."""
    wanted = Change(resource="runtime | Config", commands=("w",))
    names = [f"n{number:02}" for number in range(30)]
    plans = [HostPlan(host=name, changes=(wanted,)) for name in names]
    plans += [HostPlan(host=f"r{number}", refused=(Refusal("driver | Version", "it is held"),)) for number in range(7)]
    plans += [HostPlan(host=f"away{number}", unreachable="no route to host") for number in range(7)]
    rolled = Rolled(held=dict.fromkeys(names[:10], "its turn comes"), failed=dict.fromkeys(names[10:20], "disk full"))
    rolled.unsettled = dict.fromkeys(names[20:28], "runtime | Config")
    found = [Finding(name, "disk", "error", "/ is full", "free some") for name in names[:7]]
    began = datetime(2026, 1, 2, tzinfo=UTC)
    told = report.record(plans, command="apply", began=began, seconds=1.0, rolled=rolled, findings=found)
    lines = report.in_words(told).splitlines()
    assert f"Held: {', '.join(names[:10])}: its turn comes" in lines
    assert f"Failed: {', '.join(names[10:20])}: disk full" in lines
    again = "runtime | Config is wanted again right after it was changed"
    assert f"Unsettled: {', '.join(names[20:28])}: {again}" in lines
    assert "Drifted: n28, n29: spillway nodes apply would mend it" in lines
    assert "Refused: r0, r1, r2, r3, r4, r5, r6: driver | Version: it is held" in lines
    assert all(f"away{number} (no route to host)" in lines[-1] for number in range(7))
    assert f"Preflight: {', '.join(f'{name} (disk)' for name in names[:7])}" in lines


def test_the_metrics_parse() -> None:
    """By Prometheus' own parser."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - only here

    families = {one.name: one for one in text_string_to_metric_families(report.as_metrics(run()))}
    drift = {sample.labels["host"]: sample.value for sample in families["spillway_nodes_drift"].samples}
    assert drift == {"a": 0, "b": 0, "c": 4}


def test_what_was_found_before_a_run_is_counted_where_it_is_an_error() -> None:
    """By machine; what is only worth knowing is none."""
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415 - only here

    found = [
        {"host": host, "severity": severity} for host, severity in (("a", "error"), ("a", "error"), ("b", "warning"))
    ]
    text = report.as_metrics(run() | {"preflight": found})
    families = {one.name: one for one in text_string_to_metric_families(text)}
    counted = {sample.labels["host"]: sample.value for sample in families["spillway_nodes_preflight_errors"].samples}
    assert counted == {"a": 2}


def test_nights_are_kept_up_to_a_number(tmp_path: Path) -> None:
    """The latest first, in a folder that the first of them makes; a damaged record is shown as one."""
    tmp_path /= "not/there"
    for day in range(1, 71):
        night = run() | {"at": f"2026-{1 + day // 28:02}-{1 + day % 28:02}T02:30:00+00:00"}
        nights = report.keep(night, tmp_path)
    assert len(nights) == report.NIGHTS
    assert nights[0]["at"] > nights[1]["at"]
    latest = max((tmp_path / "nights").iterdir())
    for half in ('{"at": ', "[]"):
        latest.write_text(half, encoding="utf-8")
        assert report.history(tmp_path)[0] == {"at": latest.stem, "counts": {}, "damaged": True}


def test_the_chain_of_a_journal(tmp_path: Path) -> None:
    """A line changed, left out, or swapped is told; half a line, left by a crash, is cut off and the chain goes on."""
    path = tmp_path / "journal.jsonl"
    book = Journal(path)
    for number in range(4):
        book.write("command", host="a", command=f"echo {number}")
    assert why_broken(path) == ""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for broken, told in (
        ([lines[0], lines[1].replace("echo 1", "echo 9"), *lines[2:]], "line 2 was changed"),
        ([lines[0], *lines[2:]], "line 2 does not follow line 1"),
        ([lines[0], lines[2], lines[1], lines[3]], "line 2 does not follow"),
        (["no json\n"], "line 1 is no entry"),
    ):
        path.write_text("".join(broken), encoding="utf-8")
        assert told in why_broken(path)
    path.write_text("".join(lines) + '{"half": ', encoding="utf-8")
    book.write("command", host="a", command="echo 4")
    assert why_broken(path) == ""
    assert [json.loads(line)["command"] for line in path.read_text(encoding="utf-8").splitlines()][-1] == "echo 4"


def test_a_journal_that_is_not_there_is_told(tmp_path: Path) -> None:
    """By its path."""
    with pytest.raises(BadInput, match="there is no journal"):
        why_broken(tmp_path / "none")


def test_the_bar_of_a_night_has_its_parts_in_proportion() -> None:
    """One in which nothing was counted has none."""
    nights = [{"at": "2026-01-02", "counts": {"clean": 3, "drifted": 1}}, {"at": "2026-01-01", "counts": {}}]
    text = page(run(), nights)
    assert re.findall(r'<i style="width:(.*?)%;background:var\(--(.*?)\)"></i>', text) == [
        ("75.0", "clean"),
        ("25.0", "drifted"),
    ]


def section(text: str, title: str) -> str:
    """What stands on the page under a heading."""
    return text.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]


def test_what_was_mended_and_what_is_left_stand_apart() -> None:
    """Each machine's changes where they belong."""
    drift = Change(resource="base | Time", commands=("w",))
    left = HostPlan(host="e", changes=(drift,))
    rolled = Rolled(plans={"c": HostPlan(host="c"), "e": left}, changed=["c"], held={"e": "it is busy"})
    began = datetime(2026, 1, 2, tzinfo=UTC)
    shown = page(report.record([PLANS[2], left], command="apply", began=began, seconds=1.0, rolled=rolled), [])
    assert ("Config" in section(shown, "Mended"), "Time" in section(shown, "Mended")) == (True, False)
    rest = section(shown, "Still as it was found")
    assert ("Config" in rest, "Time" in rest) == (False, True)


def test_a_night_says_how_many_machines_it_changed_and_how_it_ended() -> None:
    """Nothing where it changed none and went well."""
    ordinary = {"at": "2026-01-02", "counts": {"clean": 1}}
    nights = [ordinary, ordinary | {"changed": ["a", "b"]}, ordinary | {"halted": "a"}, ordinary | {"damaged": True}]
    rows = section(page(run(), nights), "Nights").split("<tr>")[-4:]
    said = [[word in row for word in ("2 changed", "changed", "halted", "damaged record")] for row in rows]
    assert said == [
        [False, False, False, False],
        [True, True, False, False],
        [False, False, True, False],
        [False, False, False, True],
    ]


def test_what_is_refused_is_drift_that_is_left() -> None:
    """Beside what was not mended; a machine that was not seen has no figure."""
    metrics = report.as_metrics(run())
    for line in ('drift{host="a"} 0', 'drift{host="c"} 4', 'drift_left{host="a"} 0', 'drift_left{host="c"} 4'):
        assert f"spillway_nodes_{line}\n" in metrics
    assert 'host="d"' not in metrics
