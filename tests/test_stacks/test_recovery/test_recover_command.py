"""`spillway recover` from its first question to its last word, with a script in the place of `pulumi`.

The engine itself is in `tests/live/test_engine_killed.py` and `test_engine_killed_at_many_kinds.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from stacks.project import CODE
from stacks.recovery.cli import recover as command
from stacks.recovery.recover import recover
from stacks.recovery.settling import Patience
from tests.test_stacks.stand_in import StandIn, client, stand_in

TAGS = {words.TAG_CLUSTER: "lab"}
URN = "urn:pulumi:lab::spillway::{}::{}"
AT_ONCE = Patience(wait=timedelta(0), sleep=lambda _: None)
PULUMI = """#!/bin/sh
echo "$*" >> "{folder}/asked"
case "$1 $2" in
"whoami --json") echo '{{"url": "s3://state"}}' ;;
"stack export") cat "{folder}/state.json" ;;
"cancel --yes") cat "{folder}/cancelled" >&2; [ ! -s "{folder}/cancelled" ] ;;
esac
"""


@pytest.fixture(scope="module")
def here() -> Iterator[StandIn]:
    """A stand-in for AWS."""
    with stand_in() as made:
        yield made


class Project:
    """A folder with a project in it, and what its engine knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        (folder / "Pulumi.yaml").write_text(f"{{name: spillway, runtime: python, main: {CODE}}}", encoding="utf-8")
        self.cancelled("")

    def state(self, *pending: tuple[str, str, str, dict[str, Any]]) -> None:
        """Operations that were cut off: their kind, and the type, name and inputs of the resource."""
        provider = {
            "urn": URN.format("pulumi:providers:aws", "aws"),
            "inputs": {"region": "us-east-1", "defaultTags": json.dumps({"tags": TAGS})},
        }
        operations = [
            {"type": kind, "resource": {"urn": URN.format(token, name), "inputs": inputs}}
            for kind, token, name, inputs in pending
        ]
        deployment = {"resources": [provider], "pending_operations": operations}
        (self.folder / "state.json").write_text(json.dumps({"deployment": deployment}), encoding="utf-8")

    def cancelled(self, refusal: str) -> None:
        """What `pulumi cancel` says against it."""
        (self.folder / "cancelled").write_text(refusal, encoding="utf-8")

    def mend(self, *, confirm: Callable[..., bool] = lambda _: True) -> bool:
        """The command, which waits for nothing."""
        return recover(stack="lab", project=self.folder, confirm=confirm, say=self.said.append, patience=AT_ONCE)

    @property
    def asked(self) -> list[str]:
        """What the engine was asked for: its verbs."""
        there = self.folder / "asked"
        lines = there.read_text(encoding="utf-8").splitlines() if there.exists() else []
        return [" ".join(line.split()[:2]) for line in lines]


@pytest.fixture
def project(here: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """With a `pulumi` of its own on the path."""
    for name, value in (("ENDPOINT_URL", here.url), ("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local")):
        monkeypatch.setenv(f"AWS_{name}", value)
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "pulumi"
    script.write_text(PULUMI.format(folder=tmp_path), encoding="utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return Project(tmp_path)


def group(url: str, name: str) -> tuple[str, str, str, dict[str, Any]]:
    """A log group of ours, whose creation was cut off once it was there."""
    client(url, "logs").create_log_group(logGroupName=name, tags=TAGS)
    return "creating", "aws:cloudwatch/logGroup:LogGroup", "lab-logs", {"name": name}


def names(url: str) -> set[str]:
    """Of the log groups that are there."""
    return {one["logGroupName"] for one in client(url, "logs").describe_log_groups()["logGroups"]}


def test_what_was_begun_is_shown_and_taken_away_and_the_state_forgets_it(here: StandIn, project: Project) -> None:
    """In this order; then it says how to go on."""
    project.state(group(here.url, "/one"))
    shown: list[str] = []

    def confirm(orphans: Any) -> bool:
        assert "/one" in names(here.url)
        shown.extend(one.what for one in orphans)
        return True

    assert project.mend(confirm=confirm)
    assert shown == ["LogGroup /one"]
    assert "/one" not in names(here.url)
    assert project.asked == ["whoami --json", "cancel --yes", "stack export", "refresh --stack"]
    assert "--clear-pending-creates" in (project.folder / "asked").read_text(encoding="utf-8")
    assert project.said == [
        "begun and not recorded: LogGroup /one, for lab-logs",
        "taken away: LogGroup /one",
        "lab is whole again: `pulumi up --refresh` goes on where it was cut off",
    ]


def test_the_last_that_was_begun_goes_first(here: StandIn, project: Project) -> None:
    """It may stand in the one before."""
    kind, token, _, inputs = group(here.url, "/outer")
    project.state((kind, token, "outer", inputs), group(here.url, "/inner"))
    assert project.mend()
    assert [one for one in project.said if one.startswith("taken")] == [
        "taken away: LogGroup /inner",
        "taken away: LogGroup /outer",
    ]


def test_nothing_is_taken_away_that_the_user_does_not_want_to(here: StandIn, project: Project) -> None:
    """Nor is anything forgotten: it can be asked for again."""
    project.state(group(here.url, "/two"))
    assert not project.mend(confirm=lambda _: False)
    assert "/two" in names(here.url)
    assert "refresh --stack" not in project.asked


def test_what_goes_while_it_is_confirmed_was_not_taken_away(here: StandIn, project: Project) -> None:
    """By somebody else."""
    project.state(group(here.url, "/three"))

    def confirm(_: Any) -> bool:
        client(here.url, "logs").delete_log_group(logGroupName="/three")
        return True

    assert project.mend(confirm=confirm)
    assert "gone by itself: LogGroup /three" in project.said


def test_after_a_destroy_that_was_killed_destroy_goes_on(project: Project) -> None:
    """Nothing is looked for, and nothing refreshed."""
    project.state(("deleting", "aws:iam/role:Role", "lab-node", {}))
    assert project.mend()
    [said] = project.said
    assert said.startswith("no creation was cut off in lab: the deletion of Role (lab-node) was cut off: `pulumi destr")
    assert project.asked[-1] == "stack export"


def test_what_nobody_looks_for_stops_it_with_what_there_is_to_look_for(here: StandIn, project: Project) -> None:
    """Before anything is taken away."""
    project.state(group(here.url, "/four"), ("creating", "aws:rds/cluster:Cluster", "lab-db", {}))
    with pytest.raises(Unavailable, match=r"aws:rds/cluster:Cluster \(lab-db\)"):
        project.mend()
    assert "/four" in names(here.url)
    assert "refresh --stack" not in project.asked


def test_what_is_written_over_is_not_looked_for_nor_waited_for(project: Project) -> None:
    """It is made again as the same thing."""
    project.state(("creating", "aws:iam/rolePolicy:RolePolicy", "lab-node", {"name": "node"}))
    assert project.mend()
    assert project.said == ["lab is whole again: `pulumi up --refresh` goes on where it was cut off"]


def test_a_project_of_another_checkout_is_refused_before_its_lock_is_taken(project: Project) -> None:
    """With both folders; as is a folder that is in no project."""
    (project.folder / "Pulumi.yaml").write_text("{name: spillway, runtime: python, main: stacks/}", encoding="utf-8")
    with pytest.raises(BadInput, match=f"main names the code in {project.folder}/stacks, .* runs that in {CODE}"):
        project.mend()
    (project.folder / "Pulumi.yaml").unlink()
    with pytest.raises(BadInput, match=r"no Pulumi\.yaml is here or in a folder above: name its folder by --cwd"):
        project.mend()
    assert project.asked == []


@pytest.mark.parametrize(
    ("refusal", "raised", "says"),
    [
        ("error: no stack named 'lab' found", BadInput, "there is no such stack here"),
        ("error: AccessDenied", Unavailable, "`pulumi cancel` failed:\nerror: AccessDenied"),
    ],
)
def test_a_lock_that_cannot_be_taken_away_is_told(
    project: Project, refusal: str, raised: type[Exception], says: str
) -> None:
    """With the engine's words."""
    project.state()
    project.cancelled(refusal)
    with pytest.raises(raised, match=says):
        project.mend()


def test_a_stack_without_a_lock_is_looked_at_all_the_same(project: Project) -> None:
    """Somebody has followed the engine's advice, and cancelled it."""
    project.state()
    project.cancelled("error: the stack has never been updated")
    assert project.mend()


def test_how_long_to_wait_is_said_as_a_span(project: Project) -> None:
    """Else it is refused by the option's name."""
    project.state()
    done = CliRunner().invoke(command, ["--stack", "lab", "--cwd", str(project.folder), "--wait", "soon"])
    assert isinstance(done.exception, BadInput)
    assert str(done.exception) == "--wait 'soon': must be a span of time such as 90s, 10m or 1h"
    assert CliRunner().invoke(command, ["--stack", "lab", "--cwd", str(project.folder), "--wait", "5s"]).exit_code == 0


def test_what_the_engine_refuses_is_told_in_its_words(project: Project) -> None:
    """Its state cannot be read: nothing is taken away."""
    with pytest.raises(Unavailable, match=r"`pulumi stack export` failed:\n.*state\.json"):
        project.mend()


def test_attributes_that_were_cut_off_are_taken_away_first(project: Project) -> None:
    """The engine would not even begin; the state beside them is whole."""
    project.state()
    stacks = project.folder / ".pulumi" / "stacks" / "spillway"
    stacks.mkdir(parents=True)
    (stacks / "lab.json").write_text("{}", encoding="utf-8")
    torn = stacks / "lab.json.attrs"
    torn.write_text('{"user', encoding="utf-8")
    script = project.folder / "bin" / "pulumi"
    script.write_text(script.read_text("utf-8").replace("s3://state", f"file://{project.folder}"), encoding="utf-8")
    assert project.mend()
    assert project.said[0] == f"taken away: {torn}, which was cut off while it was written; lab.json beside it is whole"
    assert [one.name for one in stacks.iterdir()] == ["lab.json"]
    assert project.asked[0] == "whoami --json"


@pytest.mark.parametrize(("words", "left"), [(["--yes"], 0), ([], 1)])
def test_it_is_asked_before_anything_is_taken_away_unless_told_not_to(
    here: StandIn, project: Project, words: list[str], left: int
) -> None:
    """With how many there are; without an answer nothing is done."""
    name = f"/asked/{len(words)}"
    project.state(group(here.url, name))
    asked = ["--stack", "lab", "--cwd", str(project.folder), "--wait", "0s", *words]
    done = CliRunner().invoke(command, asked, input="n\n")
    assert (done.exit_code, len(names(here.url) & {name})) == (left, left)
    assert ("Take away 1 of them?" in done.output) is bool(left)
