"""The launcher as a real process: what it tells its program, keeps of it, and does at its end."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from images import launcher
from stacks.local.process.supervisor import start_time

CLUSTER = {"worker": ["127.0.0.1:1", "127.0.0.1:2"], "ps": ["127.0.0.1:3"]}
Start = Callable[..., subprocess.Popen[str]]


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition, for as long as a busy machine may need."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"waited for {what} in vain"
        time.sleep(0.01)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a task with ``python -c PROGRAM``; ends at last what is left."""
    started: list[subprocess.Popen[str]] = []

    def start(program: str, *words: str, task: str = "worker-0", **settings: object) -> subprocess.Popen[str]:
        role, _, index = task.rpartition("-")
        told = {"SPILLWAY_ROLE": role, "SPILLWAY_INDEX": index, "SPILLWAY_CLUSTER": json.dumps(CLUSTER)}
        told |= {"SPILLWAY_STATE": str(tmp_path)} | {f"SPILLWAY_{key}": str(value) for key, value in settings.items()}
        process = subprocess.Popen(
            [sys.executable, launcher.__file__, sys.executable, "-uc", program, *words],
            env=os.environ | told,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kept(folder: Path, name: str = "worker-0.0") -> list[list[str]]:
    """Lines of a log: number, time, text."""
    return [line.split(" ", 2) for line in (folder / "logs" / f"{name}.log").read_text().splitlines()]


def exit_of(folder: Path, task: str = "worker-0") -> int:
    """What was written down."""
    status: int = json.loads((folder / "exits" / task).read_text())["status"]
    return status


def is_there(pid: int) -> bool:
    """Whether a process runs; one that has ended and is not waited for does not."""
    return start_time(pid) != 0


def test_it_needs_nothing_but_the_standard_library() -> None:
    """It is copied alone to machines that have a Python."""
    tree = ast.parse(Path(launcher.__file__).read_text())
    modules = [name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names]
    modules += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_a_program_finds_the_cluster_and_its_arguments_are_filled_in(start: Start) -> None:
    """In TF_CONFIG, in flags, in ranks."""
    program = "import os, sys; print(os.environ['TF_CONFIG']); print(sys.argv[1:], os.environ['RANK'])"
    said, _ = start(program, "--i=$(TASK_INDEX)", "$(WORKER_HOSTS)", "$(HOME_OF_NONE)", task="worker-1").communicate()
    config, words = said.splitlines()
    assert json.loads(config) == {"cluster": CLUSTER, "task": {"type": "worker", "index": 1}}
    assert words == "['--i=1', '127.0.0.1:1,127.0.0.1:2', '$(HOME_OF_NONE)'] 1"


def test_every_line_is_kept_with_its_number_and_goes_on(start: Start, tmp_path: Path) -> None:
    """Standard output and error, in order, the last one without an end too; another attempt has a file of its own."""
    program = "import sys\nfor i in range(500):\n print(i); print(-i, file=sys.stderr)\nprint('last', end='')"
    for attempt in range(2):
        said, _ = start(program).communicate()
        texts = [text for _number, _time, text in kept(tmp_path, f"worker-0.{attempt}")]
        assert texts == said.splitlines() == [str(n) for i in range(500) for n in (i, -i)] + ["last"]
        assert [int(number) for number, *_ in kept(tmp_path, f"worker-0.{attempt}")] == [*range(1, 1002)]


@pytest.mark.parametrize(
    ("program", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_exit_is_the_programs_and_is_written_down(start: Start, tmp_path: Path, program: str, status: int) -> None:
    """128 and the signal where it was killed."""
    assert start(program).wait() == status
    assert exit_of(tmp_path) == status


def test_a_program_that_cannot_be_started_is_told(tmp_path: Path) -> None:
    """As a shell would."""
    told = {"SPILLWAY_ROLE": "worker", "SPILLWAY_INDEX": "0", "SPILLWAY_STATE": str(tmp_path)}
    command = [sys.executable, launcher.__file__, "no-such-program"]
    done = subprocess.run(command, env=os.environ | told, capture_output=True, text=True, check=False)
    assert (done.returncode, exit_of(tmp_path)) == (127, 127)
    assert "spillway: worker-0: cannot start no-such-program: No such file or directory" in done.stderr


def test_a_program_starts_when_its_peers_are_there(start: Start, tmp_path: Path) -> None:
    """Not before; it is told for which it waits."""
    first = start("print('up')", NEEDS='{"worker": 1, "ps": 1}')
    assert first.stderr
    assert first.stderr.readline() == "spillway: worker-0 waits for 1 tasks, ps-0 among them\n"
    assert not (tmp_path / "logs").exists()
    start("pass", task="ps-0")
    assert first.communicate()[0] == "up\n"


RANKS = """
import sys, os, urllib.error, urllib.request as http
base = "http://{}:{}/global_/".format(*map(os.environ.get, sys.argv[1:]))
def ask(method, key, data=None):
    try: return http.urlopen(http.Request(base + key, data=data, method=method), timeout=60).read().decode()
    except urllib.error.HTTPError as error: return error.code
print(ask("GET", "1"), [ask("PUT", key, f"address of {key}".encode()) for key in "01"], ask("GET", "1"))
print(ask("DELETE", "1"), ask("GET", "1"), ask("DELETE", "0"), ask("GET", "1"))
"""
WHERE = ("HOROVOD_GLOO_RENDEZVOUS_ADDR", "HOROVOD_GLOO_RENDEZVOUS_PORT")


@pytest.fixture
def gloo(monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster of a Horovod job, whose rank 0 has a free port."""
    monkeypatch.setenv("HOROVOD_CONTROLLER", "gloo")
    with socket.create_server(("127.0.0.1", 0)) as free:
        return json.dumps({"worker": [f"127.0.0.1:{free.getsockname()[1]}", "127.0.0.1:1"]})


def test_the_launcher_of_rank_0_serves_the_rendezvous_of_all(start: Start, gloo: str) -> None:
    """An address is there until all ranks have found all others, and gone then: they may meet anew."""
    said, _ = start(RANKS, *WHERE, CLUSTER=gloo).communicate()
    assert said == "404 ['', ''] address of 1\n address of 1  404\n"


def test_ranks_do_not_start_before_the_rendezvous_is_served(start: Start, gloo: str, tmp_path: Path) -> None:
    """Horovod asks for a second and a half, then it fails."""
    late = start("print('up')", task="worker-1", CLUSTER=gloo)
    assert late.stderr
    assert "worker-1 waits for 1 tasks, the rendezvous at 127.0.0.1:" in late.stderr.readline()
    assert not (tmp_path / "logs").exists()
    start("import signal; signal.pause()", task="worker-0", CLUSTER=gloo)
    assert late.communicate()[0] == "up\n"


@pytest.mark.parametrize("state", ["", "shared"])
def test_peers_that_do_not_come_in_time_are_told(start: Start, tmp_path: Path, state: str) -> None:
    """With an exit status that says to try again; without a shared directory, by their names."""
    cluster = json.dumps({"worker": ["localhost:1"], "ps": ["ps-0.mnist.invalid:2"]})
    folder = str(tmp_path / state) if state else ""
    late = start("", NEEDS='{"worker": 1, "ps": 1}', PEERS_WITHIN=0, CLUSTER=cluster, STATE=folder)
    told = late.communicate()[1]
    assert late.returncode == launcher.PEERS_MISSING
    assert "worker-0: 1 tasks did not come in 0 s: ps-0" in told


def test_a_server_ends_when_all_essential_tasks_have_ended_well(start: Start, tmp_path: Path) -> None:
    """Not when one of them has, nor when one failed; its end is a good one."""
    server = start("import signal; signal.pause()", task="ps-0", ESSENTIAL='{"worker": 2}')
    assert start("", task="worker-0").wait() == 0
    assert start("raise SystemExit(1)", task="worker-1").wait() == 1
    until((tmp_path / "groups" / "ps-0").exists, "the server's program")
    assert server.poll() is None
    assert start("", task="worker-1").wait() == 0
    assert server.wait(60) == 0
    assert exit_of(tmp_path, "ps-0") == 0


def test_what_tasks_ended_with_the_last_time_ends_no_server_now(start: Start, tmp_path: Path) -> None:
    """A compose file is brought up for each training, with the same directory."""
    told = {"ESSENTIAL": '{"worker": 1}', "STATE": str(tmp_path), "ROLE": "ps", "INDEX": "0"}
    server = launcher.Settings.read({f"SPILLWAY_{key}": value for key, value in told.items()})
    assert start("", task="worker-0").wait() == 0
    assert start("import signal; signal.pause()", task="ps-0", ESSENTIAL='{"worker": 1}').wait(60) == 0
    since = launcher._come(tmp_path, "ps-0")
    assert not launcher._others_are_done(server, since)
    assert start("", task="worker-0").wait() == 0
    assert launcher._others_are_done(server, since)


def test_a_server_that_is_started_again_late_ends_with_those_that_have_ended(start: Start) -> None:
    """It was killed just before."""
    assert start("", task="worker-0").wait() == 0
    assert start("import signal; signal.pause()", task="ps-0", ESSENTIAL='{"worker": 1}').wait(60) == 0


def test_a_task_that_is_started_again_has_not_ended(start: Start, tmp_path: Path) -> None:
    """Whatever it ended with before: a server would not wait for it."""
    assert start("", task="worker-0").wait() == 0
    again = start("import signal; print('ready', flush=True); signal.pause()", task="worker-0")
    assert again.stdout
    assert again.stdout.readline() == "ready\n"
    assert not (tmp_path / "exits" / "worker-0").exists()


def test_a_server_does_not_end_with_the_first_of_an_elastic_role(start: Start, tmp_path: Path) -> None:
    """All that ever came must have ended well, be they more than were needed."""
    second = start("import signal; signal.pause()", task="worker-1")
    until((tmp_path / "groups" / "worker-1").exists, "the second worker")
    server = start("import signal; signal.pause()", task="ps-0", ESSENTIAL='{"worker": 1}')
    assert start("").wait() == 0
    until((tmp_path / "groups" / "ps-0").exists, "the server's program")
    assert server.poll() is None
    second.terminate()
    assert second.wait(60) == 143
    assert server.poll() is None


def test_sigterm_runs_the_checkpoint_and_is_passed_on(start: Start, tmp_path: Path) -> None:
    """The program may end in its own way; the hook knows its number."""
    program = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: (print('ended'), sys.exit(0)))
print('ready')
while True: signal.pause()
"""
    hook = [sys.executable, "-c", "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"]
    task = start(program, CHECKPOINT=json.dumps([*hook, f"{tmp_path}/saved-$(SPILLWAY_PID)"]))
    assert task.stdout
    assert task.stdout.readline() == "ready\n"
    group = json.loads((tmp_path / "groups" / "worker-0").read_text())["group"]
    task.terminate()
    assert task.communicate()[0] == "ended\n"
    assert task.returncode == exit_of(tmp_path) == 143
    assert (tmp_path / f"saved-{group}").exists()


def test_a_program_that_does_not_end_is_killed_after_the_grace(start: Start) -> None:
    """As is a hook that does not."""
    program = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready')\nwhile True: signal.pause()"
    hook = [sys.executable, "-c", "import signal; signal.pause()"]
    task = start(program, GRACE=0.2, CHECKPOINT=json.dumps(hook))
    assert task.stdout
    assert task.stdout.readline() == "ready\n"
    task.terminate()
    assert "its checkpoint program failed" in task.communicate()[1]
    assert task.returncode == 143


def test_what_a_program_leaves_running_ends_with_it(start: Start) -> None:
    """A data loader that its parent forgot does not keep the task open."""
    program = "import subprocess as s; print(s.Popen(['sleep', '1000']).pid)"
    said, _ = start(program).communicate(timeout=60)
    until(lambda: not is_there(int(said)), "the end of what was left")


def test_a_task_of_a_run_that_slurm_has_put_back_ends_when_the_next_one_begins(start: Start, tmp_path: Path) -> None:
    """On a machine without slurmd nothing else ends it: two of the same index would write the same checkpoints."""
    task = start("import signal; print('ready', flush=True); signal.pause()", STATE=tmp_path / "7.9")
    assert task.stdout
    assert task.stdout.readline() == "ready\n"
    (tmp_path / "7.10" / "up").mkdir(parents=True)
    _, told = task.communicate(timeout=60)
    assert task.returncode == 128 + signal.SIGTERM
    assert "worker-0: its job runs anew, and this is a task of the run before: it ends" in told


def test_a_program_dies_with_its_launcher(start: Start, tmp_path: Path) -> None:
    """Also where it had no time for anything, and with what it started, which no one else may know.

    Found by jobs that were killed on a Slurm without control groups.
    """
    task = start("import signal, subprocess as s; s.Popen(['sleep', '1000']); print('ready'); signal.pause()")
    assert task.stdout
    assert task.stdout.readline() == "ready\n"
    task.send_signal(signal.SIGKILL)
    until(lambda: not tasks_of(tmp_path), "the end of all of it")


def test_what_a_program_has_said_is_kept_though_its_launcher_is_killed(start: Start, tmp_path: Path) -> None:
    """It stood still before, so that it cannot have read them itself. Found by 20 jobs whose processes were killed."""
    program = (
        "import os, signal, sys; os.kill(os.getppid(), signal.SIGSTOP); os.write(1, b'line\\n' * 500);"
        "open(sys.argv[1], 'w'); signal.pause()"
    )
    task = start(program, str(tmp_path / "written"))
    until((tmp_path / "written").exists, "the lines")
    task.send_signal(signal.SIGKILL)
    until(lambda: len(kept(tmp_path)) == 500, "all lines in the log")
    until(lambda: not (set(tasks_of(tmp_path))), "the end of all of it")


def test_lines_are_kept_though_the_launcher_is_killed_as_soon_as_the_program_runs(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads them is there before the program is: on a busy machine it came after the first lines."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "slow"))
    (tmp_path / "slow").mkdir()
    slow = """
        import json, time
        dumps = json.dumps
        def dumped(*given, **named):
            time.sleep(0.5)  # what the launcher writes down of the program, right after its start
            return dumps(*given, **named)
        json.dumps = dumped
    """
    (tmp_path / "slow" / "sitecustomize.py").write_text(textwrap.dedent(slow))
    task = start("import os, signal; os.write(1, b'line\\n'); os.kill(os.getppid(), signal.SIGKILL); signal.pause()")
    until(lambda: task.poll() is not None, "the launcher's end")
    until(lambda: [text for *_, text in kept(tmp_path)] == ["line"], "the line in the log")
    until(lambda: not tasks_of(tmp_path), "the end of all of it")


def tasks_of(folder: Path) -> list[int]:
    """Processes that carry the task's state directory in their environment."""
    mark = f"SPILLWAY_STATE={folder}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark in (process / "environ").read_bytes().split(b"\0") and is_there(int(process.name)):
                found.append(int(process.name))
    return found


def notes(folder: Path) -> list[str]:
    """Names of what the launcher leaves beside the files of a task that is ended when it is idle."""
    return sorted(path.name for path in folder.glob("IDLE-*"))


def test_a_task_that_no_gpu_works_for_ends_and_says_so_beforehand(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is used it goes on; used again after the warning, too; and the end comes no sooner than was said."""
    use, work = tmp_path / "use", tmp_path / "work"
    work.mkdir()

    def works(text: str) -> None:
        """At once: a file that is half written says nothing, which the task would tell."""
        new = use.with_name("new")
        new.write_text(text)
        new.replace(use)

    works("97")
    smi = tmp_path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    asked = tmp_path / "asked"  # whole at once: the task asks again and again
    smi.write_text(f'#!/bin/sh\necho "$*" > {asked}.new && mv {asked}.new {asked}\nexec cat {use}\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", f"{smi.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("TRAIN_DIR", str(work))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,3")
    (work / "IDLE-HAS-ENDED-mine-worker-0.txt").touch()  # of the run before
    (work / "IDLE-HAS-ENDED-other-worker-0.txt").touch()
    idle = json.dumps({"job": "mine", "after": 1.0, "warning": 0.5, "by": "gpus"})
    task = start("import time; print('computes', flush=True); time.sleep(600)", IDLE=idle)
    until(lambda: notes(work) == ["IDLE-HAS-ENDED-other-worker-0.txt"] and asked.exists(), "a look")
    assert asked.read_text().split()[-2:] == ["-i", "1,3"]

    def ends_soon() -> bool:
        return any(name.startswith("IDLE-ENDS-AT-") for name in notes(work))

    works("[N/A]\n0")  # a part of a GPU does not say
    until(ends_soon, "the warning")
    works("0\n5")
    until(lambda: not ends_soon(), "the end to be called off")
    assert task.poll() is None
    works("0\n0")
    assert task.wait(60) == 0
    assert notes(work) == ["IDLE-HAS-ENDED-mine-worker-0.txt", "IDLE-HAS-ENDED-other-worker-0.txt"]
    said = kept(tmp_path)
    assert [number for number, *_ in said] == [str(number + 1) for number in range(len(said))]
    texts = [text for *_, text in said]
    assert texts[0] == "computes"
    assert re.fullmatch(r"spillway: worker-0 has been idle since .* UTC: at .* UTC it ends and .*", texts[1])
    assert texts[2] == "spillway: worker-0 is used again: it goes on"
    assert texts[-1].startswith("spillway: worker-0 was idle since")
    warned, ended = (datetime.fromisoformat(said[number][1]) for number in (-2, -1))
    assert ended - warned >= timedelta(seconds=0.45), "half a second, but for what clocks and files round"


def test_what_cannot_be_asked_is_not_taken_for_idle(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that is no Jupyter server; a machine whose GPUs nothing tells of: once it is said why they go on."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.chdir(tmp_path)
    for number, by in enumerate(("kernels", "gpus")):
        idle = json.dumps({"job": "mine", "after": 0.5, "warning": 0.2, "by": by})
        task = start("import time; time.sleep(3)", task=f"worker-{number}", IDLE=idle)
        assert task.wait(60) == 0
        (line,) = kept(tmp_path, f"worker-{number}.0")
        assert line[2].startswith(f"spillway: whether worker-{number} is idle cannot be told, so that it goes on: ")
    assert not notes(tmp_path)
