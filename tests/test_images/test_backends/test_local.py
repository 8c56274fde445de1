"""Jobs as real processes of this machine: through the command line, as a researcher does it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from autoscaler.model.errors import BadInput
from images.backends import local
from images.backends.devices import VISIBLE, devices, given_to
from images.backends.states import RoleState, Stage
from images.cli import jobs
from images.jobs import Job
from tests.builders import NOW
from tests.test_images.test_launcher import is_there, until

TRAIN = f"""\
name: line
roles:
  worker: {{count: 2, cpus: 1, memory: 1Gi, entry: [{sys.executable}, -u, train.py]}}
  ps: {{cpus: 1, memory: 1Gi, entry: [{sys.executable}, -u, train.py]}}
"""
PROGRAM = '''\
"""w and b of y = 2x + 10, the parameters in the server's memory: a stand-in for TensorFlow's, by the same addresses."""
import json, os, random, socket, socketserver
config = json.loads(os.environ["TF_CONFIG"])
host, _, port = config["cluster"]["ps"][0].rpartition(":")
if config["task"]["type"] == "ps":
    held = [0.0, 0.0]
    class Serve(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                step = json.loads(line)
                held[:] = [held[0] + step[0], held[1] + step[1]]
                self.wfile.write((json.dumps(held) + "\\n").encode())
    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
    Server((host, int(port)), Serve).serve_forever()
while True:
    try:
        talk = socket.create_connection((host, int(port))).makefile("rw")
        break
    except ConnectionRefusedError:
        pass
step = (0.0, 0.0)
for _ in range(3000):
    print(json.dumps(step), file=talk, flush=True)
    w, b = json.loads(talk.readline())
    x = random.uniform(-1, 1)
    wrong = 2 * x + 10 - (w * x + b)
    step = (0.05 * wrong * x, 0.05 * wrong)
print(f"w = {w:.3f}, b = {b:.3f}")
raise SystemExit(abs(w - 2) > 0.15 or abs(b - 10) > 0.15)
'''


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A user's machine with no jobs; what is left of them ends at last."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    yield local.home()
    for state in {state.job for state in local.states()}:
        local.delete(name=state)


def typed(*words: str) -> Result:
    """What `spillway jobs WORDS --to local` did."""
    return CliRunner().invoke(jobs, [*words, "--to", "local"], catch_exceptions=False)


def submitted(text: str, program: str = PROGRAM) -> Result:
    """The job, from files in the user's directory."""
    Path("job.yaml").write_text(text)
    Path("train.py").write_text(program)
    return typed("submit", "job.yaml")


def seen() -> dict[str, RoleState]:
    """State by role."""
    return {state.role: state for state in local.states()}


def ended(name: str = "line") -> None:
    """Wait for the job's end."""
    until(lambda: not local.is_alive(local.home() / name), "the job's end")


def groups(name: str = "line") -> list[int]:
    """Process groups of the tasks that run."""
    marks = (local.home() / name / "state" / name).glob("*/groups/[!.]*")
    return [json.loads(mark.read_text())["group"] for mark in marks]


def test_the_line_is_fitted_and_the_server_ends_with_the_workers() -> None:
    """The founding documents' regression by two workers and a server, and nothing is left behind."""
    assert submitted(TRAIN).output.splitlines()[1:] == ["  worker-0", "  worker-1", "  ps-0"]
    until(lambda: len(groups()) == 3, "three programs")
    programs = groups()
    until(lambda: "waiting" not in {state.state for state in seen().values()}, "all of them to run")
    assert all(state.state == ("running" if state.running else "done") for state in seen().values())
    ended()
    assert {role: (state.state, state.succeeded) for role, state in seen().items()} == {
        "worker": ("done", 2),
        "ps": ("done", 1),
    }
    assert not [pid for pid in programs if is_there(pid)]
    for index in ("0", "1"):
        said = typed("logs", "line", "--index", index).output
        assert "w = " in said
        w, b = (float(part.rpartition("=")[2]) for part in said.split(","))
        assert abs(w - 2) < 0.15
        assert abs(b - 10) < 0.15
    assert "done for" in typed("list").output
    assert typed("delete", "line").output == "deleted line\n"
    assert not seen()


WAIT = "import signal; print('ready'); signal.pause()"


def test_a_job_outlives_the_terminal_that_it_was_submitted_from() -> None:
    """What supervises it is in a session of its own, which no hang-up and no Ctrl-C reaches."""
    submitted(TRAIN, WAIT)
    supervisor = json.loads((local.home() / "line" / "status.json").read_text())["pid"]
    assert os.getsid(supervisor) == supervisor
    CliRunner().invoke(jobs, ["stop", "line", "--to", "local"])


def test_delete_ends_every_task_of_a_job_that_runs() -> None:
    """And keeps nothing of it."""
    submitted(TRAIN, WAIT)
    until(lambda: len(groups()) == 3, "three programs")
    programs = groups()
    assert typed("delete", "line").output == "deleted line\n"
    until(lambda: not [pid for pid in programs if is_there(pid)], "the end of its programs")
    assert not (local.home() / "line").exists()


def test_stop_ends_every_task_and_keeps_the_lines() -> None:
    """Twice is once."""
    submitted(TRAIN, WAIT)
    until(lambda: typed("logs", "line", "--role", "ps").output, "the server's line")
    until(lambda: len(groups()) == 3, "three programs")
    programs = groups()
    shown = typed("show", "line").output.splitlines()
    assert shown[:2] == ["line: running: 3 of 3 tasks run", shown[1]]
    assert [line.split()[:3] for line in shown[2:]] == [
        ["worker", "0", "running"],
        ["worker", "1", "running"],
        ["ps", "0", "running"],
    ]
    assert CliRunner().invoke(jobs, ["stop", "line", "--to", "local"]).output == "stopped line\n"
    assert CliRunner().invoke(jobs, ["stop", "line", "--to", "local"]).output == "line had ended already\n"
    assert not [pid for pid in programs if is_there(pid)]
    assert {state.state for state in seen().values()} == {"stopped"}
    assert typed("logs", "line", "--role", "ps").output == "ready\n"


def test_a_launcher_that_hangs_is_killed_when_its_grace_is_over() -> None:
    """And its program with it: a job that was stopped holds nothing."""
    submitted(TRAIN.replace("{count: 2,", "{grace: 1s, count: 2,").replace("ps: {", "ps: {grace: 1s, "), WAIT)
    until(lambda: len(groups()) == 3, "three programs")
    programs, status = groups(), json.loads((local.home() / "line" / "status.json").read_text())
    hung = status["tasks"]["worker-0"]["pid"]
    os.kill(hung, signal.SIGSTOP)
    assert local.stop(name="line")
    assert not [pid for pid in (hung, *programs) if is_there(pid)]


FIRST = """\
name: first
success: first
roles:
  worker: {count: 2, cpus: 0.1, memory: 64Mi, entry: [python3, -u, train.py]}
"""


def test_of_a_job_that_its_first_task_decides_no_other_ends_it() -> None:
    """Task 1 ends at once; when task 0 has, one that still runs is ended."""
    submitted(FIRST, "import os, time\nif os.environ['TASK_INDEX'] == '0': time.sleep(1.5); print('whole')")
    ended("first")
    assert typed("logs", "first").output == "whole\n"
    assert {role: state.state for role, state in seen().items()} == {"worker": "done"}
    local.delete(name="first")
    submitted(FIRST, "import os, signal\nif os.environ['TASK_INDEX'] == '1': signal.pause()")
    ended("first")
    assert {role: state.state for role, state in seen().items()} == {"worker": "done"}


def test_a_task_that_fails_is_started_again_and_its_attempts_are_all_in_the_log() -> None:
    """Until the restarts are used up; then the job has failed, and its server ends."""
    fails = "import os, signal\nif os.environ['TASK_ROLE'] == 'ps': signal.pause()\nprint('tried'); raise SystemExit(1)"
    submitted(TRAIN.replace("count: 2, ", "") + "failure: {restarts: 2}\n", fails)
    ended()
    assert {role: (state.state, state.failed) for role, state in seen().items()} == {
        "worker": ("failed", 3),
        "ps": ("failed", 0),
    }
    shown = typed("show", "line").output.splitlines()
    assert shown[0] == "line: ended: failed"
    assert [line.split()[:3] for line in shown[2:]] == [["worker", "0", "failed"], ["ps", "0", "failed"]]
    assert shown[2].split()[-3:] == ["failed", "3", "times"]
    again = "spillway: here worker 0 was started again"
    assert typed("logs", "line", "-f").output.splitlines() == ["tried", again, "tried", again, "tried"]


def test_a_step_that_fails_stops_the_rest() -> None:
    """Those that wait for it never start."""
    text = f"""\
name: line
gang: false
failure: {{restarts: 0}}
depends_on: {{train: [prepare]}}
roles:
  train: {{cpus: 1, memory: 1Gi, entry: [{sys.executable}, train.py]}}
  prepare: {{cpus: 1, memory: 1Gi, entry: [{sys.executable}, train.py, $(TASK_ROLE)]}}
"""
    submitted(text.replace("restarts: 0", "restarts: 1"), "import sys; print(sys.argv)")
    ended()
    assert {state.state for state in seen().values()} == {"done"}
    assert typed("logs", "line", "--role", "prepare").output == "['train.py', 'prepare']\n"
    typed("delete", "line")
    submitted(text, "raise SystemExit(1)")
    ended()
    assert {state.state for state in seen().values()} == {"failed"}
    assert typed("logs", "line", "--role", "train").output == ""
    assert not list((local.home() / "line").glob("state/line/*/logs/train*"))


def test_a_deadline_ends_the_job() -> None:
    """As a failure."""
    submitted(TRAIN + "failure: {deadline: 250ms}\n", WAIT)
    ended()
    assert {state.state for state in seen().values()} == {"failed"}


@pytest.mark.parametrize("victim", ["supervisor", "launcher"])
def test_nothing_is_left_of_a_job_whose_keepers_are_killed(victim: str) -> None:
    """Not even what a program started itself, where a launcher is killed and its supervisor lives."""
    submitted(TRAIN.replace("count: 2", "restart: never, count: 2"), WAIT)
    until(lambda: len(groups()) == 3, "three programs")
    programs = groups()
    status = json.loads((local.home() / "line" / "status.json").read_text())
    parent = int(Path(f"/proc/{programs[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(status["pid"] if victim == "supervisor" else parent, signal.SIGKILL)
    until(lambda: not [pid for pid in programs if is_there(pid)], "the end of every program")
    ended()
    assert {state.state for state in seen().values()} == {"failed"}


def test_two_jobs_run_at_once_at_ports_of_their_own() -> None:
    """As many as there are free ones."""
    submitted(TRAIN, WAIT)
    submitted(TRAIN.replace("line", "other"), WAIT)
    first, second = (json.loads((local.home() / name / "plan.json").read_text())["ports"] for name in ("line", "other"))
    assert not {*first} & {*second}


def test_a_job_that_is_there_is_not_touched_by_a_second_of_its_name() -> None:
    """It is told, with what can be done."""
    submitted(TRAIN, WAIT)
    with pytest.raises(BadInput, match=r"job 'line' is there already.*`spillway jobs delete line --to local`"):
        submitted(TRAIN, WAIT)


def test_what_was_left_of_a_start_that_was_killed_halfway_is_in_the_way_of_none() -> None:
    """A folder without a word of a supervisor is no job."""
    (local.home() / "line").mkdir(parents=True)
    (local.home() / "line" / "plan.json").write_text("{")
    assert submitted(TRAIN, WAIT).exit_code == 0


@pytest.mark.parametrize("command", [("logs", "none"), ("delete", "none")])
def test_a_job_that_is_not_there_is_told(command: tuple[str, str]) -> None:
    """With how to see those that are."""
    with pytest.raises(BadInput, match=r"there is no job 'none' in .*`spillway jobs list --to local` shows them"):
        typed(*command)


def test_a_task_that_is_not_there_has_no_log() -> None:
    """Nor is another one's given for it."""
    submitted(TRAIN, WAIT)
    with pytest.raises(BadInput, match=r"job 'line' has no task worker 2: it has .*worker 0 to 1$"):
        typed("logs", "line", "--index", "2")


def test_a_job_is_followed_to_its_end_and_its_exit_status_is_told() -> None:
    """0 where it has succeeded; 1 where it has not."""
    task = "cpus: 1, memory: 1Gi, entry: [sh, -c, exit"
    Path("job.yaml").write_text(f"name: good\nroles: {{worker: {{{task} 0]}}}}\n")
    done = typed("submit", "job.yaml", "--follow")
    assert (done.exit_code, done.output.splitlines()[-1][-21:]) == (0, " UTC ended: succeeded")
    Path("job.yaml").write_text(f"name: bad\nfailure: {{restarts: 0}}\nroles: {{worker: {{{task} 3]}}}}\n")
    assert typed("submit", "job.yaml").exit_code == 0
    followed = typed("follow", "bad")
    assert (followed.exit_code, followed.output.splitlines()[-1][-18:]) == (1, " UTC ended: failed")


def test_a_job_starts_until_all_of_its_tasks_run() -> None:
    """And is told how many do."""
    servers = RoleState("mnist", "", "ps", 0, 1, 0, 0, 0, "running", NOW)
    workers = replace(servers, role="worker", waiting=2, running=1, state="waiting")
    assert local._stage([servers, workers]) == Stage("starting", "2 of 4 tasks run")
    assert local._stage([servers, replace(workers, waiting=0, running=3)]) == Stage("running", "4 of 4 tasks run")


@pytest.mark.parametrize("state", [None, ""])
def test_without_a_state_folder_jobs_are_below_the_home(monkeypatch: pytest.MonkeyPatch, state: str | None) -> None:
    """As the XDG base directory specification has it, also where the variable is empty."""
    with monkeypatch.context() as environment:
        environment.delenv("XDG_STATE_HOME")
        environment.setenv("HOME", "/home/ada")
        if state is not None:
            environment.setenv("XDG_STATE_HOME", state)
        assert local.home() == Path("/home/ada/.local/state/spillway/jobs")


def shown_gpus(name: str) -> dict[str, str]:
    """What each task of the job is told of its GPUs."""
    tasks = json.loads((local.home() / name / "plan.json").read_text())["tasks"]
    return {f"{task['role']}-{task['index']}": task["environment"].get(VISIBLE, "all") for task in tasks}


GPUS = TRAIN.replace("count: 2", "gpus: 1, count: 2")


def test_tasks_have_gpus_of_their_own_until_their_job_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """No two jobs share one, a task that asks for none sees none, and what is free again is given again."""
    monkeypatch.setenv(VISIBLE, "0,1,GPU-5a")
    submitted(GPUS, WAIT)
    assert shown_gpus("line") == {"worker-0": "0", "worker-1": "1", "ps-0": ""}
    assert {role: state.gpus for role, state in seen().items()} == {"worker": 2, "ps": 0}
    assert local.free_gpus() == ["GPU-5a"]
    with pytest.raises(
        BadInput, match="job 'other' asks for at least 2 GPUs at once, of which 1 of this machine's 3 are free now"
    ):
        submitted(GPUS.replace("line", "other"), WAIT)
    assert not (local.home() / "other").exists()
    local.stop(name="line")
    assert {role: state.gpus for role, state in seen().items()} == {"worker": 0, "ps": 0}
    submitted(GPUS.replace("line", "other"), WAIT)
    assert shown_gpus("other")["worker-1"] == "1"


def test_a_step_may_have_the_gpus_of_those_that_it_waits_for() -> None:
    """They have ended by then; steps that may run side by side share none, and what does not fit at once is refused."""
    task = {"image": "a:1", "cpus": 1, "memory": "1Gi", "gpus": 2}
    roles = {"prepare": task, "train": task, "serve": task, "watch": task | {"gpus": 1}}
    order = {"train": ["prepare"], "serve": ["train"]}
    steps = Job.model_validate({"name": "flow", "gang": False, "roles": roles, "depends_on": order})
    assert given_to(steps, ["0", "1", "2"], of=4) == {
        ("prepare", 0): ("0", "1"),
        ("train", 0): ("0", "1"),
        ("serve", 0): ("0", "1"),
        ("watch", 0): ("2",),
    }
    with pytest.raises(BadInput, match="asks for at least 3 GPUs at once, of which 2 of this machine's 4 are free now"):
        given_to(steps, ["0", "1"], of=4)


def test_where_a_machine_has_no_gpus_a_job_that_asks_for_some_is_tried_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Programs see what they see; with the driver, its GPUs are counted where nothing bounds them."""
    monkeypatch.setenv(VISIBLE, "")
    submitted(GPUS, WAIT)
    assert set(shown_gpus("line").values()) == {"all"}
    assert devices({}, driver=tmp_path / "none") == ()
    for place in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / place).mkdir(parents=True)
    assert devices({}, driver=tmp_path / "gpus") == ("0", "1")
    assert devices({VISIBLE: "1"}, driver=tmp_path / "gpus") == ("1",)


@pytest.mark.parametrize("said", ["no module named images", ""])
def test_a_supervisor_that_does_not_start_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    """In its own words, where it had any; nothing runs then."""
    broken = tmp_path / "broken"
    broken.write_text(f"#!/bin/sh\necho {said} >&2\nexit 3\n")
    broken.chmod(0o755)
    with monkeypatch.context() as changed:
        changed.setattr(sys, "executable", str(broken))
        with pytest.raises(BadInput, match=f"job 'line' did not start: {said or 'it ended with exit status 3'}"):
            submitted(TRAIN)
    assert not local.is_alive(local.home() / "line")


def test_how_a_job_stands_is_known_until_it_is_deleted() -> None:
    """And one that has ended is not stopped again."""
    assert local.outcome(name="line") == "gone"
    submitted(TRAIN, "raise SystemExit(0)")
    ended()
    assert local.outcome(name="line") == "done"
    assert not local.stop(name="line")
    submitted(TRAIN.replace("name: line", "name: other"), "raise SystemExit(1)")
    ended("other")
    assert local.outcome(name="other") == "failed"
    submitted(TRAIN.replace("name: line", "name: third"), "import time; time.sleep(60)")
    assert local.outcome(name="third") == "running"
    assert local.stop(name="third")
    assert local.outcome(name="third") == "failed"


@pytest.mark.parametrize(
    ("whole", "alive", "tasks", "told"),
    [
        ("running", True, ("waiting", "running"), ("waiting", 1, 1, 0)),
        ("running", True, ("running", "done"), ("running", 0, 1, 1)),
        ("running", True, ("done", "done"), ("done", 0, 0, 2)),
        ("running", False, ("running", "done"), ("failed", 0, 0, 1)),
        ("stopped", False, ("running", "waiting"), ("stopped", 0, 0, 0)),
        ("done", False, ("done", "done"), ("done", 0, 0, 2)),
    ],
)
def test_a_role_is_in_the_state_of_its_tasks_and_when_the_job_has_ended_in_that(
    monkeypatch: pytest.MonkeyPatch, whole: str, *, alive: bool, tasks: tuple[str, str], told: tuple[str, int, int, int]
) -> None:
    """Another role's tasks are not counted; GPUs are free then."""
    monkeypatch.setattr(local, "is_alive", lambda _: alive)
    folder = local.home() / "line"
    folder.mkdir(parents=True)
    asked = [{"role": "worker", "index": number, "gpus": [f"GPU-{number}"]} for number in range(2)]
    (folder / "plan.json").write_text(json.dumps({"job": "line", "tasks": [*asked, {"role": "ps-0", "index": 0}]}))
    at = "2026-01-02T03:04:05+00:00"
    states = dict(zip(("worker-0", "worker-1", "ps-0-0"), (*tasks, "running"), strict=True))
    status = {name: {"state": state, "failures": 3, "since": at, "pid": 1} for name, state in states.items()}
    (folder / "status.json").write_text(json.dumps({"state": whole, "since": at, "tasks": status}))
    role = seen()["worker"]
    assert (role.state, role.waiting, role.running, role.succeeded) == told
    assert (role.failed, role.gpus) == (6, 2 if whole == "running" and alive else 0)
    _, shown = local.show(name="line")
    begun = [3 + (state not in ("waiting", "failed")) for state in tasks]
    assert [task.starts for task in shown if task.role == "worker"] == begun
    shutil.rmtree(folder)
