"""The local ground as a whole: what is refused, what is left behind, and the commands around it."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from autoscaler.model.errors import BadInput, Unavailable
from spillway import cli
from stacks.local.cli import INVENTORY, POLICY, local
from stacks.local.ground import lifecycle as grounds_module
from stacks.local.ground.control_plane import BINARIES
from stacks.local.ground.lifecycle import ENGINE_BINARIES, Ground, find, stand_up, sweep, take_down
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.paths import cache_root, grounds, written_in_cache
from stacks.local.process.supervisor import is_running, read_status, start_time
from stacks.local.toolchain.tools import ensure_tools
from tests import ROOT


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spillway"


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that holds the user's built tools and nothing else; what Python compiles goes where it went before."""
    ensure_tools((*BINARIES, *ENGINE_BINARIES), progress=lambda line: print(line, flush=True))
    tools = cache_root() / "tools"
    compiled = os.environ.get("PYTHONPYCACHEPREFIX") or str(cache_root() / "pycache")
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", compiled)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cache_root().mkdir(parents=True)
    (cache_root() / "tools").symlink_to(tools)
    return cache_root()


@pytest.fixture
def nobody() -> Iterator[list[int]]:
    """A pid and start time of a process that is gone."""
    with subprocess.Popen(["/bin/true"]) as process:
        gone = [process.pid, max(start_time(process.pid), 1)]
    return iter([gone])


def folder(name: str, *, owner: list[int], keeper: list[int] | None = None) -> Path:
    """What a ground leaves on disk."""
    directory = grounds() / name
    directory.mkdir(parents=True)
    (directory / "owner.json").write_text(json.dumps(owner), encoding="utf-8")
    if keeper:
        status = {"pid": keeper[0], "started": keeper[1], "ready": True, "failure": "", "held": []}
        (directory / "status.json").write_text(json.dumps(status), encoding="utf-8")
    return directory


def me() -> list[int]:
    """This process, as an owner."""
    return [os.getpid(), start_time(os.getpid())]


def no_tools(*_: object, **__: object) -> None:
    """A step that must not be reached."""
    pytest.fail("a wrong file must be told before anything is built or started")


@pytest.mark.parametrize(
    ("which", "text"), [("policy", "groups: nonsense\n"), ("inventory", "machines: [{name: X}]\n")]
)
def test_a_wrong_file_is_told_before_anything_starts(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str, text: str
) -> None:
    """Nothing is built for minutes, nothing is written."""
    monkeypatch.setattr(grounds_module, "ensure_tools", no_tools)
    wrong = tmp_path / f"{which}.yaml"
    wrong.write_text(text, encoding="utf-8")
    policy, inventory = (wrong, INVENTORY) if which == "policy" else (POLICY, wrong)
    with pytest.raises(BadInput, match=f"{which}.yaml"):
        stand_up(name="x", policy=policy, inventory=inventory)
    assert not cache.exists()


def test_a_wrong_script_of_faults_is_told_before_anything_starts(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a user's file like the others."""
    monkeypatch.setattr(grounds_module, "ensure_tools", no_tools)
    wrong = tmp_path / "faults.yaml"
    wrong.write_text("nonsense: 1\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"faults\.yaml"):
        stand_up(name="x", policy=POLICY, inventory=INVENTORY, faults=wrong)


@pytest.mark.parametrize("name", ["", "..", "../../x", "a/b", "Demo", "-a", "a" * 41])
@pytest.mark.parametrize("act", [take_down, find, lambda name: stand_up(name=name, policy=POLICY, inventory=INVENTORY)])
def test_a_name_that_could_be_another_folder_is_refused(cache: Path, act: Callable[[str], object], name: str) -> None:
    """`down` removes the folder of that name with all that is in it."""
    with pytest.raises(BadInput, match=r"--name '.*': must be at most 40 lower-case letters"):
        act(name)


def test_a_name_that_is_taken_is_told_with_what_to_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the ground that has it stays."""
    monkeypatch.setattr(grounds_module, "ensure_tools", lambda *_, **__: {})
    directory = folder("lab", owner=me())
    with pytest.raises(BadInput, match="'lab' is up already: `spillway local down --name lab` takes it down"):
        stand_up(name="lab", policy=POLICY, inventory=INVENTORY)
    assert directory.exists()


def test_a_ground_goes_as_a_whole_though_its_end_is_interrupted(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who presses Ctrl-C twice."""
    directory = folder("lab", owner=me())
    asked: list[Path] = []

    def stop(directory: Path) -> bool:
        asked.append(directory)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return True

    monkeypatch.setattr(grounds_module, "stop_keeper", stop)
    with pytest.raises(KeyboardInterrupt):
        take_down("lab")
    assert asked == [directory, directory]
    assert not directory.exists()


def test_a_disk_without_room_is_told_before_anything_starts(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else etcd says so, in a stack trace."""
    monkeypatch.setattr(grounds_module, "ensure_tools", lambda *_, **__: {})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10 << 30, 10 << 30, 5 << 20))
    with pytest.raises(Unavailable, match=f"^{cache}/grounds has 5 MiB free, and a ground writes 200: make room"):
        stand_up(name="lab", policy=POLICY, inventory=INVENTORY)
    assert list((cache / "grounds").iterdir()) == []


@pytest.mark.parametrize(
    ("base", "why"), [("/proc/nowhere", "No such file or directory"), ("/etc/passwd", "Not a directory")]
)
@pytest.mark.parametrize("command", [["local", "up"], ["demo"]])
def test_a_cache_that_cannot_be_written_is_told(
    monkeypatch: pytest.MonkeyPatch, base: str, why: str, command: list[str]
) -> None:
    """Whether it is the user's word or the machine that is wrong."""
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    done = spillway(*command)
    assert done.returncode == 1
    assert f"spillway: the cache {base}/spillway cannot be written: {why} ({base}" in done.stderr
    assert "or name another folder in XDG_CACHE_HOME" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", [["local", "up"], ["demo"]])
def test_an_install_without_what_only_the_ground_needs_is_told_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    """As `pip install .` leaves it: moto is for this alone."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "moto" else name)
    with pytest.raises(BadInput, match=r"needs moto, which a cluster does not: pip install 'spillway\[local\]'"):
        cli.main(command, standalone_mode=False)


def test_a_disk_that_fills_up_is_told(cache: Path) -> None:
    """Other mistakes of files are none of the cache's."""
    with pytest.raises(Unavailable, match=f"the cache {cache} cannot be written: No space left.*; make room there"):
        raise_inside(OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(ConnectionResetError):
        raise_inside(ConnectionResetError())


def raise_inside(error: OSError) -> None:
    """As something that writes there would."""
    with written_in_cache():
        raise error


def test_what_a_crashed_ground_left_is_swept_away(cache: Path, nobody: Iterator[list[int]]) -> None:
    """Neither who started it nor its keeper lives; grounds that stand are kept."""
    gone = next(nobody)
    folder("crashed", owner=gone, keeper=gone)
    folder("half", owner=gone)
    folder("starting", owner=me())
    folder("standing", owner=gone, keeper=me())
    assert sweep() == ["crashed", "half"]
    assert {path.name for path in grounds().iterdir()} == {"starting", "standing"}


def test_a_later_process_with_a_recorded_pid_is_left_alone(cache: Path) -> None:
    """Pids come round again: the start time tells."""
    with subprocess.Popen(["/bin/sleep", "60"]) as stranger:
        directory = folder("old", owner=[stranger.pid, 1], keeper=[stranger.pid, 1])
        held = {"name": "etcd", "pid": stranger.pid, "started": 1, "state": "ready"}
        status = json.loads((directory / "status.json").read_text(encoding="utf-8")) | {"held": [held]}
        (directory / "status.json").write_text(json.dumps(status), encoding="utf-8")
        assert take_down("old")
        assert stranger.poll() is None
        stranger.kill()
    assert not directory.exists()


def test_down_without_a_ground_is_no_fault(cache: Path) -> None:
    """It can be repeated."""
    done = CliRunner().invoke(local, ["down"])
    assert (done.exit_code, done.output) == (0, "no ground named 'default' was up\n")


@pytest.mark.parametrize("command", ["env", "status"])
def test_asking_after_a_ground_that_is_not_there_says_how_to_make_one(cache: Path, command: str) -> None:
    """Without a stack trace."""
    done = CliRunner().invoke(local, [command, "--name", "lab"])
    assert isinstance(done.exception, Unavailable)
    assert "no local ground named 'lab' is up: `spillway local up --name lab` makes one" in str(done.exception)


@pytest.mark.live
def test_a_ground_stands_answers_and_leaves_nothing(built: Path) -> None:
    """Processes and files; its parts are told by `status`, a part that dies is named and the others stay."""
    with Ground.up(name="lab", policy=POLICY, inventory=INVENTORY, with_stack=False) as ground:
        kube = KubeHttp(ground.autoscaler_kubeconfig)
        assert kube.get("/api/v1/nodes")["items"] == []
        processes = [(pid, start_time(pid)) for pid in ground.pids]
        assert len(processes) == 7
        assert f"export KUBECONFIG={ground.kubeconfig}\n" in CliRunner().invoke(local, ["env", "--name", "lab"]).output

        shown = CliRunner().invoke(local, ["status", "--name", "lab"]).output
        assert "kube-apiserver" in shown
        assert "gone" not in shown

        api = next(one for one in read_status(ground.directory).held if one.name == "kube-apiserver")  # type: ignore[union-attr]
        os.kill(api.pid, signal.SIGKILL)
        wait_until(lambda: bool(read_status(ground.directory).failure))  # type: ignore[union-attr]
        done = CliRunner().invoke(local, ["status", "--name", "lab"])
        assert done.exit_code == 0
        assert "kube-apiserver ended by itself (by signal SIGKILL)" in " ".join(done.output.split())
        assert f"the API server at {kube.url} does not answer" in " ".join(done.output.split())
        alive = [pid for pid, started in processes if is_running(pid, started)]
        assert {pid for pid, _ in processes} - set(alive) == {api.pid}
    assert not any(is_running(pid, started) for pid, started in processes)
    assert {path.name for path in built.iterdir()} == {"tools", "last-port"}


def test_a_ctrl_c_while_a_process_is_started_beside_the_ground_is_heeded(tmp_path: Path) -> None:
    """What Python runs around a fork cannot be interrupted: a Ctrl-C that falls in there would be lost."""
    program = (
        "import os, signal, sys; from pathlib import Path; from stacks.local.ground.lifecycle import Ground\n"
        "here = Path(sys.argv[1]); (here / 'logs').mkdir()\n"
        "ground = Ground(name='g', directory=here, kubeconfig=here, autoscaler_kubeconfig=here, aws_url='', region='',"
        " env={})\n"
        "os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))\n"
        "with ground.held('one', ['true'], env={}): pass\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.live
def test_what_runs_beside_the_ground_ends_with_all_that_it_started_when_its_starter_is_killed(tmp_path: Path) -> None:
    """As the autoscaler of a demo that crashes."""
    program = (
        "import sys, time; from pathlib import Path; from stacks.local.ground.lifecycle import Ground\n"
        "here = Path(sys.argv[1]); (here / 'logs').mkdir()\n"
        "ground = Ground(name='g', directory=here, kubeconfig=here, autoscaler_kubeconfig=here, aws_url='', region='',"
        " env={})\n"
        "with ground.held('one', ['sh', '-c', 'sleep 60 & echo $$ $! >pids.new; mv pids.new pids; wait'], env={}):\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)], cwd=tmp_path) as starter:
        wait_until((tmp_path / "pids").exists)
        starter.kill()
    pids = [int(pid) for pid in (tmp_path / "pids").read_text(encoding="utf-8").split()]
    wait_until(lambda: not any(start_time(pid) for pid in pids))


@pytest.mark.live
def test_nothing_outlives_a_demo_that_is_killed(built: Path) -> None:
    """The processes go at once, the files when the next ground comes."""
    program = (
        "import time; from stacks.local.ground.lifecycle import Ground\n"
        "from stacks.local.cli import INVENTORY, POLICY\n"
        "with Ground.up(name='crash', policy=POLICY, inventory=INVENTORY, with_stack=False) as ground:\n"
        "    print(*ground.pids, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, cwd=ROOT) as demo:
        assert demo.stdout is not None
        pids = [int(pid) for pid in demo.stdout.readline().split()]
        assert len(pids) == 7
        processes = [(pid, start_time(pid)) for pid in pids]
        demo.kill()
    wait_until(lambda: not any(is_running(pid, started) for pid, started in processes))
    assert sweep() == ["crash"]


@pytest.mark.live
def test_the_commands_stand_up_the_whole_ground_and_take_it_down(built: Path) -> None:
    """As a user types them: machines, groups and how to go on are told; a second `up` is refused; nothing is left."""
    up = spillway("local", "up")
    try:
        assert up.returncode == 0, up.stdout + up.stderr
        assert "4 on-prem machines registered from the inventory" in up.stdout
        assert "spillway local env" in up.stdout
        assert f"spillway jobs submit {ROOT}/images/examples/small.yaml" in up.stdout  # also from elsewhere
        again = spillway("local", "up")
        assert again.returncode == 2
        assert "'default' is up already: `spillway local down` takes it down" in again.stderr
        status = spillway("local", "status").stdout
        assert all(name in status for name in ("dgx-01", "dgx-04", "EC2 groups", "kube-scheduler"))
    finally:
        down = spillway("local", "down")
    assert down.stdout == "the ground 'default' is taken down\n"
    assert {path.name for path in built.iterdir()} == {"tools", "last-port"}


def spillway(*words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user types it."""
    command = [sys.executable, "-m", "spillway", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=240)


def wait_until(holds: Callable[[], bool]) -> None:
    """Give it a moment."""
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
