"""The first run: a virtual environment of the project's own, made once, and a command that runs in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stacks.local.process.paths import cache_root
from stacks.local.toolchain import bootstrap


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spillway"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A project with one command and no dependency."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "requirements.lock").write_text("# none\n", encoding="utf-8")
    (folder / "pyproject.toml").write_text('[project]\nname = "spillway"\nversion = "1.2.3"\n', encoding="utf-8")
    (folder / "spillway.py").write_text(
        "import importlib.metadata\n\ndef main():\n    print(importlib.metadata.version('spillway'))\n",
        encoding="utf-8",
    )
    return folder


def pretend_to_make(place: Path, *, cache: Path, checkout: Path, lock: int = 0) -> None:
    """What is there when an environment is complete."""
    (place / "bin").mkdir(parents=True)
    (place / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
    (place / "bin" / "python").touch()
    bootstrap._link_checkout(place, checkout)


def test_an_old_python_is_refused_in_words(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With what was found and what is needed."""
    monkeypatch.setattr(bootstrap, "OLDEST_PYTHON", (9, 1))
    assert bootstrap.main(["spillway"]) == 2
    said = capsys.readouterr().err
    assert f"this is Python {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})" in said
    assert "Spillway needs 9.1 or newer" in said


def test_an_old_python_can_read_the_file_at_all() -> None:
    """Else it would say `invalid syntax` and not what is wrong."""
    compile(Path(bootstrap.__file__).read_text(encoding="utf-8"), "bootstrap.py", "exec", dont_inherit=True)
    import ast  # noqa: PLC0415

    ast.parse(Path(bootstrap.__file__).read_text(encoding="utf-8"), feature_version=(3, 7))


def test_without_a_command_the_usage_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is made."""
    assert bootstrap.main([]) == 2
    assert "usage:" in capsys.readouterr().err


@pytest.mark.parametrize("base", ["", "/somewhere/cache"])
def test_it_agrees_with_the_ground_on_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, base: str) -> None:
    """It cannot import the other one."""
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    assert bootstrap.cache_root() == cache_root()


def test_a_relative_cache_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It would lie in whatever folder the user is in."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert bootstrap.main(["spillway"]) == 2
    assert "XDG_CACHE_HOME = 'cache': must be an absolute path" in capsys.readouterr().err


def test_the_command_finds_the_environment_first_and_writes_into_the_cache_only(tmp_path: Path) -> None:
    """Every tool's own cache is turned there, bytecode too; what could shadow the packages is dropped."""
    given = {"PATH": "/usr/bin", "PYTHONPATH": "/old", "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/home/me"}
    variables = bootstrap.environment(given, place=tmp_path / "venv", cache=tmp_path)
    assert variables["PATH"] == f"{tmp_path}/venv/bin:/usr/bin"
    assert not variables.keys() & {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}
    assert variables["HOME"] == "/home/me"
    caches = ("PYTHONPYCACHEPREFIX", "MYPY_CACHE_DIR", "RUFF_CACHE_DIR", "HYPOTHESIS_STORAGE_DIRECTORY")
    assert all(variables[name].startswith(f"{tmp_path}/") for name in (*caches, "PYTEST_DEBUG_TEMPROOT"))


def test_each_change_of_what_it_is_made_from_makes_another(cache: Path, checkout: Path) -> None:
    """An old environment is never taken for a new lock file."""
    before = bootstrap._fingerprint(checkout)
    assert before == bootstrap._fingerprint(checkout)
    (checkout / "requirements.lock").write_text("# still none\n", encoding="utf-8")
    assert bootstrap._fingerprint(checkout) != before


def test_while_another_process_makes_it_one_waits(cache: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes what the other one made."""
    venvs = cache / "venvs"
    venvs.mkdir(parents=True)
    place = venvs / bootstrap._fingerprint(checkout)
    told: list[str] = []
    with (venvs / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def finish(line: str) -> None:
            told.append(line)
            pretend_to_make(place, cache=cache, checkout=checkout)
            other.close()

        monkeypatch.setattr(bootstrap, "_tell", finish)
        assert bootstrap.ensure_environment(cache=cache, checkout=checkout) == place
    assert told == ["another process is preparing a Python environment; waiting for it"]


def test_environments_that_nobody_uses_are_thrown_away(
    cache: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes more than half a gigabyte; one in use is kept."""
    monkeypatch.setattr(bootstrap, "_make", pretend_to_make)
    for name, used in (("old", 1), ("new", None)):
        pretend_to_make(cache / "venvs" / name, cache=cache, checkout=checkout)
        if used:
            os.utime(cache / "venvs" / name / "complete", (used, used))
    place = bootstrap.ensure_environment(cache=cache, checkout=checkout)
    assert {path.name for path in (cache / "venvs").iterdir()} == {"lock", "new", place.name}


@pytest.mark.live
def test_the_first_run_makes_it_and_the_second_finds_it(
    cache: Path, checkout: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The project's command runs from the checkout, which stays as it was; one that was cut off is made anew."""
    before = sorted(checkout.rglob("*"))
    place = bootstrap.ensure_environment(cache=cache, checkout=checkout)
    assert "preparing a Python environment" in capsys.readouterr().err
    variables = bootstrap.environment(os.environ, place=place, cache=cache)
    said = subprocess.run(["spillway"], env=variables, capture_output=True, text=True, check=True).stdout
    assert said == "1.2.3\n"
    assert sorted(checkout.rglob("*")) == before

    assert bootstrap.ensure_environment(cache=cache, checkout=checkout) == place
    assert capsys.readouterr().err == ""

    project = checkout / "pyproject.toml"
    project.write_text(project.read_text(encoding="utf-8").replace("1.2.3", "1.2.4"), encoding="utf-8")
    assert bootstrap.ensure_environment(cache=cache, checkout=checkout) == place
    assert capsys.readouterr().err == ""
    said = subprocess.run(["spillway"], env=variables, capture_output=True, text=True, check=True).stdout
    assert said == "1.2.4\n"

    (place / "complete").unlink()
    again: list[Path] = []

    def make(place: Path, **_: object) -> None:
        again.append(place)
        bootstrap._link_checkout(place, checkout)

    monkeypatch.setattr(bootstrap, "_make", make)
    assert bootstrap.ensure_environment(cache=cache, checkout=checkout) == place
    assert again == [place]


@pytest.mark.live
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_that_is_interrupted_leaves_nothing_outside_the_cache(tmp_path: Path, how: signal.Signals) -> None:
    """No process, and none of the temporary files that pip leaves where it is cut off."""
    outside, cache = tmp_path / "outside", tmp_path / "cache"
    outside.mkdir()
    inside = cache / "spillway" / "venvs" / "tmp"
    env = os.environ | {"XDG_CACHE_HOME": str(cache), "TMPDIR": str(outside)}
    command = [sys.executable, bootstrap.__file__, "true"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as first:
        end = time.monotonic() + 60
        while not any(path.is_file() for folder in (outside, inside) for path in folder.rglob("*")):
            assert time.monotonic() < end
            time.sleep(0.02)
        first.send_signal(how)
        _, said = first.communicate(timeout=30)
    assert (first.returncode, said.splitlines()[-1]) == (
        130,
        "spillway: interrupted; the next run begins the environment anew",
    )
    assert list(outside.iterdir()) == []
    assert not inside.exists()
    end = time.monotonic() + 10
    while running(str(cache)):  # what pip had started is killed with it, and gone a moment later
        assert time.monotonic() < end, running(str(cache))
        time.sleep(0.02)


def running(named: str) -> list[str]:
    """Command lines of processes that name it."""
    found = []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().decode(errors="replace") if process.name.isdigit() else ""
            found += [words] if named in words else []
    return found


@pytest.mark.live
def test_packages_that_cannot_be_had_are_told_with_what_pip_said(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its own words."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    packages = tmp_path / "requirements.lock"
    packages.write_text(f"nowhere==1.0 --hash=sha256:{'0' * 64}\n", encoding="utf-8")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
    (tmp_path / "bin" / "python").chmod(0o755)
    with (
        (tmp_path / "lock").open("w") as lock,
        pytest.raises(bootstrap._BootstrapError, match=r"pip could not install(.*\n)*.*nowhere==1\.0"),
    ):
        bootstrap._install_packages(tmp_path, cache=cache, packages=packages, began=0.0, lock=lock.fileno())


def test_a_command_that_is_not_there_is_told(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a shell would."""
    monkeypatch.setattr(bootstrap, "_make", pretend_to_make)
    assert bootstrap.main(["no-such-command"]) == 127
    assert capsys.readouterr().err == "spillway: no-such-command: no such command\n"
