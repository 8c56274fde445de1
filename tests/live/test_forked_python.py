"""The stand-in for Python that runs Pulumi's programs: to its caller it is Python."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.live.forked_python import forked_python
from tests.live.hybrid import until

pytestmark = pytest.mark.live

TELLS = """\
import os, sys
import pulumi_aws
print(os.path.basename(sys.argv[0]), *sys.argv[1:], os.getcwd(), os.environ.get("TOLD"), __name__, sys.path[0])
print(sys.stdin.read(), "stacks" in sys.modules, file=sys.stderr)
"""
ENDS = ["sys.exit()", "sys.exit(7)", "sys.exit('why')", "raise KeyError('why')", "exit(True)", "os._exit(3)", "1"]


def run(python: Path | str, *words: str, folder: Path) -> tuple[int, str, str]:
    """Exit status, and what was said."""
    done = subprocess.run(
        [str(python), *words], cwd=folder, env={"TOLD": "so"}, input="read", capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr.strip().rpartition("\n")[2]


@pytest.mark.parametrize("way", ["a file", "a folder", "a module", "code"])
def test_it_runs_what_python_runs(way: str, tmp_path: Path) -> None:
    """Arguments, folder, environment and files are the caller's."""
    program = tmp_path / "room" / "__main__.py"
    program.parent.mkdir()
    program.write_text(TELLS)
    words = {
        "a file": ["-u", str(program), "one"],
        "a folder": [str(program.parent), "one"],
        "a module": ["-m", "room", "one"],
        "code": ["-c", TELLS, "one"],
    }[way]
    assert run(forked_python(), *words, folder=tmp_path) == run(sys.executable, *words, folder=tmp_path)


@pytest.mark.parametrize("end", ENDS)
def test_it_ends_as_python_does(end: str, tmp_path: Path) -> None:
    """By each way that a program has; the last line of what it says is the same."""
    (tmp_path / "program.py").write_text(f"import os, sys\nprint('said', flush=True)\n{end}\n")
    assert run(forked_python(), "program.py", folder=tmp_path) == run(sys.executable, "program.py", folder=tmp_path)


def test_what_it_runs_ends_with_its_caller(tmp_path: Path) -> None:
    """As a plugin that the engine kills: it says nothing more, though others hold the file that it would say it to."""
    (tmp_path / "program.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    with subprocess.Popen(
        [forked_python(), tmp_path / "program.py"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout
        assert caller.stderr
        running = Path("/proc", caller.stdout.readline().strip())
        caller.kill()
        until(lambda: not running.exists(), within=10)
        assert not caller.stderr.read(), "which ends once all of it has"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("deals", ["ends", "goes on", "does not"])
def test_what_it_runs_gets_the_signals_of_its_caller(number: int, deals: str, tmp_path: Path) -> None:
    """As a program that the language host interrupts: nothing is said of it but by the program."""
    dealt = {
        "ends": f"signal.signal({number}, lambda *_: os._exit(5))",
        "goes on": f"signal.signal({number}, lambda *_: print('heard'))",
        "does not": f"signal.signal({number}, signal.SIG_DFL)",
    }[deals]
    text = f"import os, signal, time\n{dealt}\nprint('ready', flush=True)\ntime.sleep(1)\n"
    (tmp_path / "program.py").write_text(text)

    def ended(python: Path | str) -> tuple[int, str]:
        words = [str(python), str(tmp_path / "program.py")]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as caller:
            assert caller.stdout
            assert caller.stdout.readline() == "ready\n"
            caller.send_signal(number)
            said = caller.stdout.read()
        return caller.returncode if caller.returncode >= 0 else 128 - caller.returncode, said

    assert ended(forked_python()) == ended(sys.executable)
