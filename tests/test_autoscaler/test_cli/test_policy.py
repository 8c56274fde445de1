"""`spillway policy`: check, diff and show, as an operator types them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

from autoscaler.inputs.tables import read_catalog
from autoscaler.kube.leader_election import Holder
from autoscaler.kube.policy_configmap import About, Record, Refusal
from autoscaler.model import labels as words
from autoscaler.replica.acting_replica import Replica
from autoscaler.views.policy import acting, prices_of
from tests.builders import NOW, an_entry, later
from tests.test_autoscaler.fake_api import Answer, fake_api
from tests.test_autoscaler.test_cli.test_autoscale import silent, typed
from tests.test_autoscaler.test_config.test_policy import GOOD
from tests.test_autoscaler.test_kube.test_policy_configmap import Shelf

RECORD = Record(GOOD, About(since=NOW, origin="policy.yaml", by="one"))


def file(directory: Path, name: str, text: str) -> str:
    """A policy file."""
    (directory / name).write_text(text)
    return str(directory / name)


def test_check_ends_with_zero_or_with_two_and_every_mistake(tmp_path: Path) -> None:
    """So that a pipeline can ask it."""
    good = typed("policy", "check", file(tmp_path, "good.yaml", GOOD))
    assert (good.returncode, good.stderr) == (0, "")
    assert "is right: cluster lab in us-east-1; groups: gpu-a10g (at most 6); 34.03 $/h at most" in good.stdout
    bad = typed("policy", "check", file(tmp_path, "bad.yaml", GOOD.replace("max: 6", "max: -1").replace("5m", "soon")))
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "bad.yaml:7: groups[0] (gpu-a10g).max = -1: input should be" in bad.stderr
    assert "scale_down.idle_after = 'soon': must be a span of time such as 90s" in bad.stderr
    assert typed("policy", "check", str(tmp_path / "nowhere")).returncode == 2


def test_diff_tells_what_is_live_what_is_pending_and_the_money(tmp_path: Path) -> None:
    """With prices of a catalogue where the policy says none."""
    old = file(tmp_path, "old.yaml", GOOD)
    group = "  - {name: big, instance_type: p4d.24xlarge, zones: [us-east-1a], max: 2}\nlimits: {usd_per_hour: 200}\n"
    new = file(tmp_path, "new.yaml", GOOD.replace("limits: {usd_per_hour: 100}\n", group))
    catalog = file(
        tmp_path,
        "catalog.csv",
        "instance_type,allocatable_cpu_milli,allocatable_memory_mib,num_gpu,usd_per_hour\np4d.24xlarge,96000,1179648,8,22\n",
    )
    done = typed("policy", "diff", old, new, "--catalog", catalog)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "taken over at once:",
        "  limits.usd_per_hour: 100 -> 200: up to 100.00 $/h more",
        "pending `pulumi up`:",
        "  groups[big]: comes with at most 2 nodes, up to 44.00 $/h more (2 x 22.00)",
        "before: 34.03 $/h at most",
        "after: 78.03 $/h at most",
    ]
    without = typed("policy", "diff", old, new).stdout
    assert "comes with at most 2 nodes, at a price to be asked" in without
    assert "after: 200.00 $/h at most" in without
    assert typed("policy", "diff", old, old).stdout == "nothing changes\n"


def test_of_a_set_of_types_the_dearest_is_counted(tmp_path: Path) -> None:
    """And nothing where one of them is not in the catalogue."""
    head = "instance_type,allocatable_cpu_milli,allocatable_memory_mib,num_gpu,usd_per_hour\n"
    rows = "a.large,1000,1000,0,1\nb.large,1000,1000,0,3\n"
    price_of = prices_of(read_catalog(Path(file(tmp_path, "catalog.csv", head + rows))))
    assert price_of(an_entry(instance_type=None, instance_types=("a.large", "b.large"))) == 3
    assert price_of(an_entry(instance_type=None, instance_types=("a.large", "c.large"))) is None


def test_show_says_first_whether_an_autoscaler_acts() -> None:
    """Then by which policy, since when, from where; what was refused and what is pending."""
    said = list(acting(RECORD, replica=Replica.of(Holder("one", NOW), later(seconds=2)), now=later(seconds=2)))
    assert said == [
        "acting: one",
        "policy: of policy.yaml, obeyed since 2026-11-21 09:00:00 UTC, written down by one",
    ]
    assert next(acting(None, replica=Replica.of(Holder(), NOW), now=NOW)) == "no autoscaler acts: the lease is not held"
    gone = next(acting(RECORD, replica=Replica.of(Holder("one", NOW), later(minutes=5)), now=later(minutes=5)))
    assert gone == "no autoscaler acts: one held the lease last, and renewed it 5m ago"
    about = About(since=NOW, origin="o", by="b", refused=Refusal(NOW, "line 7\nline 9"), pending=("groups[a]: x",))
    told = list(acting(Record(GOOD, about), replica=Replica.of(Holder("one", NOW), NOW), now=NOW))
    assert told[2:] == [
        "refused at 2026-11-21 09:00:00 UTC, so that the policy above goes on:",
        "  line 7",
        "  line 9",
        "pending `pulumi up`:",
        "  groups[a]: x",
    ]


def held_now(by: str) -> dict[str, object]:
    """A lease that is renewed as it is asked for, however long the command has taken to ask."""
    return {"spec": {"holderIdentity": by, "renewTime": datetime.now(UTC).isoformat()}}


def test_show_asks_the_cluster(tmp_path: Path) -> None:
    """For the lease and for what the acting autoscaler wrote down."""
    about = {"since": NOW.isoformat(), "origin": "policy.yaml", "by": "one"}
    answers = {
        words.ACTING_POLICY: {"data": {words.POLICY_KEY: GOOD, "about.json": json.dumps(about)}},
        "version": {},
        words.PAUSES: {},
    }
    with fake_api() as api:
        api.answer = lambda asked: Answer((answers | {words.LEASE: held_now("one")})[asked.path.rpartition("/")[2]])
        config = api.kubeconfig(tmp_path)
        done = typed("policy", "show", kubeconfig=config)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("acting: one\npolicy: of policy.yaml, obeyed since 2026-11-21 09:00:00 UTC, ")
        assert done.stdout.endswith(f"---\n{GOOD}")
        found = json.loads(typed("policy", "show", "--json", kubeconfig=config).stdout)
        assert (found["holder"], found["by"], found["text"]) == ("one", "one", GOOD)
        api.answer = lambda asked: Answer({}) if asked.path == "/version" else Answer({"message": "nothing"}, 404)
        assert typed("policy", "show", kubeconfig=config).stdout.splitlines() == [
            "no autoscaler acts: the lease is not held",
            "policy: none was written down yet",
        ]
    assert typed("policy", "show", kubeconfig=silent(tmp_path)).returncode == 1


def test_pause_and_resume_are_written_in_the_cluster(tmp_path: Path) -> None:
    """With reason, name and end; a group that the acting policy lacks is refused."""
    shelf = Shelf()
    shelf.kept[words.ACTING_POLICY] = {
        "data": {
            words.POLICY_KEY: GOOD,
            "about.json": json.dumps({"since": NOW.isoformat(), "origin": "policy.yaml", "by": "one"}),
        }
    }
    with fake_api() as api:
        api.answer = shelf.answer
        config = api.kubeconfig(tmp_path)

        def said(*line: str) -> tuple[int, str]:
            done = typed("autoscale", *line, kubeconfig=config)
            return done.returncode, done.stdout + done.stderr

        status, words_ = said("pause", "--buying", "--because", "budget", "--for", "2h", "--by", "ada")
        assert status == 0, words_
        assert words_.startswith("buying is paused until ")
        assert words_.endswith(" UTC by ada: budget\n")
        assert said("pause", "--because", "audit", "--by", "eve")[0] == 0
        assert set(shelf.kept[words.PAUSES]["data"]) == {"all", "buying"}
        status, words_ = said("pause", "--group", "nowhere", "--because", "x")
        assert (status, "the acting policy has no such group: it has gpu-a10g" in words_) == (2, True)
        assert said("pause", "--because", "x", "--for", "soon")[0] == 2
        status, words_ = said("resume", "--buying")
        assert words_.splitlines()[0] == "buying goes on"
        assert words_.splitlines()[1].startswith("still: buying and terminating is paused until it is resumed by eve")
        assert said("resume", "--buying")[1].startswith("nothing to resume: buying is not paused")
        assert "buying and terminating is paused" in typed("policy", "show", kubeconfig=config).stdout
