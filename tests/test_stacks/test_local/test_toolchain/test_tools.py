"""The Go tools of the local ground: found, checked, built, and the ways in which that fails."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.toolchain import go_builds, tools
from stacks.local.toolchain.tools import TOOLS, Tool, cached, ensure_tools

HELLO = """package main

var version = "v0.0.0"

func main() { println("hello", version) }
"""


def script(path: Path, says: str, *, status: int = 0) -> Path:
    """A program that prints something and ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ncat <<'END'\n{says}\nEND\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH beside the system's ``/bin``, and a cache of the test's own."""
    folder = tmp_path / "on-path"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def fail_to_build(line: str) -> None:
    """A progress that must not be called: nothing is to be built."""
    pytest.fail(line)


def hello(module: Path, source: str = HELLO, **changes: object) -> Tool:
    """A tool of one file that the Go here can build in a moment."""
    module.mkdir()
    (module / "go.mod").write_text("module example.org/hello\n\ngo 1.25\n", encoding="utf-8")
    (module / "main.go").write_text(source, encoding="utf-8")
    ordinary = {
        "name": "hello",
        "module": module,
        "package": "example.org/hello",
        "version": "1.0.0",
        "says": r"^hello v1\.0\.0$",
        "ldflags": "-X main.version=v1.0.0",
    }
    return Tool(**ordinary | changes)  # type: ignore[arg-type]


def test_one_on_path_in_a_fitting_version_is_used(path: Path) -> None:
    """Same minor version of Kubernetes."""
    mine = script(path / "kube-scheduler", "Kubernetes v1.35.0")
    assert ensure_tools(["kube-scheduler"], progress=fail_to_build) == {"kube-scheduler": mine}


@pytest.mark.parametrize(
    ("name", "says", "fits"),
    [
        ("kube-apiserver", "Kubernetes v1.35.9", True),
        ("kube-apiserver", "Kubernetes v1.34.4", False),
        ("kube-apiserver", "Kubernetes v1.35.4-alpha", False),
        ("etcd", "etcd Version: 3.5.21\nGit SHA: a", True),
        ("etcd", "etcd Version: 3.4.23\nGit SHA: a", False),
        ("kwok", "kwok version v0.8.2 go1.26.0 (linux/amd64)", True),
        ("kwok", "kwok version v0.7.0 go1.24.0 (linux/amd64)", False),
        ("pulumi", "v3.200.0", True),
        ("pulumi", "v3.1000.0", False),
        ("pulumi", "v3.199.0", False),
    ],
)
def test_which_versions_fit(path: Path, name: str, says: str, fits: bool) -> None:  # noqa: FBT001 - a table
    """What a tool reports decides, not its name."""
    mine = script(path / name, says)
    assert tools._find(TOOLS[name]) == (mine if fits else None)


def test_the_language_host_is_never_taken_from_path(path: Path) -> None:
    """A newer engine's host finds its Python in another way."""
    script(path / "pulumi-language-python", "Usage of pulumi-language-python:")
    assert tools._find(TOOLS["pulumi-language-python"]) is None


def test_a_cached_tool_is_used_once_it_says_what_it_is(path: Path) -> None:
    """And no Go is needed then."""
    mine = script(cached(TOOLS["kube-scheduler"]), "Kubernetes v1.35.4")
    assert ensure_tools(["kube-scheduler"], progress=fail_to_build) == {"kube-scheduler": mine}


@pytest.mark.parametrize(
    ("says", "status"), [("Kubernetes v1.35.3", 0), ("Kubernetes v1.35.4", 1), ("Segmentation fault", 0)]
)
def test_a_cached_tool_that_says_something_else_is_not_trusted(path: Path, says: str, status: int) -> None:
    """It would be built anew: here the missing Go tells."""
    script(cached(TOOLS["kube-scheduler"]), says, status=status)
    with pytest.raises(BadInput, match="Go is not on PATH"):
        ensure_tools(["kube-scheduler"], progress=fail_to_build)


def test_a_cached_language_host_without_its_script_is_not_whole(path: Path) -> None:
    """The engine would start it and fail in the middle of an update."""
    tool = TOOLS["pulumi-language-python"]
    script(cached(tool), "Usage of /somewhere/pulumi-language-python:")
    assert tools._find(tool) is None
    script(cached(tool).with_name("pulumi-language-python-exec"), "")
    assert tools._find(tool) == cached(tool)


@pytest.mark.parametrize(
    ("says", "wrong"),
    [
        ("go version go1.24.9 linux/amd64", r"go is Go 1\.24\.9: .* Go 1\.25 or newer; install a newer one"),
        ("go version go1.9 linux/amd64", r"go is Go 1\.9: .*install a newer one"),
        ("The Game of Go 5", "says 'The Game of Go 5', which is no version"),
    ],
)
def test_a_go_that_will_not_do_is_named(path: Path, says: str, wrong: str) -> None:
    """With what is needed and what to do."""
    script(path / "go", says)
    with pytest.raises(BadInput, match=wrong):
        ensure_tools(["etcd"], progress=fail_to_build)


def test_a_go_that_does_not_run_is_named(path: Path) -> None:
    """For example one built for another machine."""
    (path / "go").write_text("not a program", encoding="utf-8")
    (path / "go").chmod(0o755)
    with pytest.raises(BadInput, match=r"go does not run \(.*Exec format error"):
        ensure_tools(["etcd"], progress=fail_to_build)


def test_go_1_25_is_new_enough(path: Path, tmp_path: Path) -> None:
    """The oldest that is promised."""
    script(path / "go", "go version go1.25 linux/amd64")
    assert go_builds.find_go(scratch=tmp_path / "go").version == (1, 25, 0)


def test_every_tool_is_pinned_with_all_that_goes_into_it() -> None:
    """Its module's go.mod requires the module that its package is in, at a version, or is it; go.sum has the hashes."""
    for tool in TOOLS.values():
        pins = (tool.module / "go.mod").read_text()
        known = re.findall(r"^(?:module (\S+)$|\s*(?:require )?(\S+) v\S+)", pins, re.MULTILINE)
        assert any(tool.package.startswith(own or required) for own, required in known), tool.name
        assert (tool.module / "go.sum").stat().st_size > 1000, tool.name


@pytest.fixture
def real_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go itself, with a cache of the test's own."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CONFIG_HOME", "GOCACHE", "GOMODCACHE", "GOENV"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def warm_go(real_go: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go with what earlier tests compiled; a cache that the user names is used and kept."""
    monkeypatch.setenv("GOCACHE", str(tmp_path_factory.getbasetemp() / "gocache"))


@pytest.mark.parametrize(("one", "other"), [("kwok", "jobset"), ("docker-compose", "training-operator")])
def test_two_modules_with_the_same_client_go_share_what_they_compile(one: str, other: str) -> None:
    """A package is compiled once for both only where all below it is the same: they agree in every common module."""
    pins = [
        dict(re.findall(r"^\s*(\S+\.\S+) (v\S+)", (tools.MODULES / name / "go.mod").read_text(), re.MULTILINE))
        for name in (one, other)
    ]
    common = pins[0].keys() & pins[1].keys()
    assert "k8s.io/client-go" in common
    assert {name: pins[0][name] for name in common} == {name: pins[1][name] for name in common}


@pytest.mark.live
def test_what_is_missing_is_built_checked_and_kept(real_go: None, tmp_path: Path) -> None:
    """A second time it is there, a broken one is replaced, and nothing is left beside it, in the home least of all."""
    tool = hello(tmp_path / "hello", beside="go.mod")
    told: list[str] = []
    built = ensure_tools(["hello"], progress=told.append, known={"hello": tool})
    assert built == {"hello": cached(tool)}
    assert told[0].startswith("building a tool from source, once for this user: hello")
    assert any(line.endswith(" s: built [1/1] hello") for line in told)
    assert ensure_tools(["hello"], progress=fail_to_build, known={"hello": tool}) == built

    cached(tool).write_bytes(b"half a program")
    assert ensure_tools(["hello"], progress=told.append, known={"hello": tool}) == built
    assert tools._is_itself(tool, cached(tool))

    left = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()}
    place = "cache/spillway/tools"
    assert left == {"hello/go.mod", "hello/main.go", f"{place}/lock", f"{place}/hello-1.0.0/hello"} | {
        f"{place}/hello-1.0.0/go.mod"
    }


@pytest.mark.live
def test_a_build_that_waited_for_another_goes_on_without_what_that_one_removed(warm_go: None, tmp_path: Path) -> None:
    """Go was asked for its version before, in a scratch folder that the other build removes at its end."""
    scratch = tmp_path / "go"
    go = go_builds.find_go(scratch=scratch)
    for name in ("one", "two"):
        module = hello(tmp_path / name).module
        target = tmp_path / "made" / name / "hello"
        build = go_builds.Build("hello", module, ".", target, is_good=Path.exists)
        go_builds.build(go, [build], scratch=scratch, progress=lambda _: None)
        assert target.exists()


@pytest.mark.live
def test_a_build_that_fails_says_what_the_compiler_said(warm_go: None, tmp_path: Path) -> None:
    """And leaves no binary that a later run would take."""
    tool = hello(tmp_path / "hello", HELLO.replace("println(", "prinln("))
    with pytest.raises(Unavailable, match=r"building \[1/1\] hello failed:\n.*(\n.*)*undefined: prinln"):
        ensure_tools(["hello"], progress=lambda _: None, known={"hello": tool})
    assert not cached(tool).exists()


@pytest.mark.live
def test_a_build_of_the_wrong_version_is_refused(warm_go: None, tmp_path: Path) -> None:
    """Pinned files and table must agree."""
    tool = hello(tmp_path / "hello", ldflags="-X main.version=v2.0.0")
    with pytest.raises(Unavailable, match="hello was built but does not say that it is the pinned version"):
        ensure_tools(["hello"], progress=lambda _: None, known={"hello": tool})
    assert not list(cached(tool).parent.parent.glob("hello-*"))


@pytest.mark.live
def test_a_module_for_a_newer_go_is_announced_and_a_user_who_forbids_fetching_does_not_break_it(
    warm_go: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Distributions ship Go with GOTOOLCHAIN=local; here the newer one cannot be had, and that is what is told."""
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    monkeypatch.setenv("GOPROXY", "off")
    tool = hello(tmp_path / "hello")
    (tool.module / "go.mod").write_text("module example.org/hello\n\ngo 1.99.0\n", encoding="utf-8")
    told: list[str] = []
    with pytest.raises(Unavailable, match=r"download go1\.99"):
        ensure_tools(["hello"], progress=told.append, known={"hello": tool})
    assert "  hello needs Go 1.99.0; Go fetches that itself, from the module proxy" in told


def test_while_another_process_builds_one_waits_and_takes_what_it_built(path: Path) -> None:
    """Here the other process is the first line that is told: it ends its build while this one waits."""
    script(path / "go", "go version go1.26.0 linux/amd64")
    tool = TOOLS["kube-scheduler"]
    lock = cached(tool).parents[1] / "lock"
    lock.parent.mkdir(parents=True)
    told: list[str] = []
    with lock.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)

        def finish(line: str) -> None:
            told.append(line)
            script(cached(tool), "Kubernetes v1.35.4")
            other.close()

        assert ensure_tools([tool.name], progress=finish) == {tool.name: cached(tool)}
    assert told == ["another process is building the tools; waiting for it"]


@pytest.mark.live
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_compiler_and_no_half_binary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """A stand-in for Go that compiles for long tells whether it is ended."""
    go = script(tmp_path / "bin" / "go", "go version go1.26.0 linux/amd64")
    go.write_text(
        f"#!/bin/sh\n[ $1 = version ] && echo go version go1.26.0 && exit\n"
        f"sleep 45 & echo $$ $! >{tmp_path}/pids.new; mv {tmp_path}/pids.new {tmp_path}/pids; wait\n",
        encoding="utf-8",
    )
    hello(tmp_path / "hello")
    program = (
        "import sys; from pathlib import Path; from stacks.local.toolchain.tools import Tool, ensure_tools;"
        "tool = Tool(name='hello', module=Path(sys.argv[1]), package='p', version='1', says='x');"
        "ensure_tools(['hello'], progress=print, known={'hello': tool})"
    )
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{tmp_path / 'bin'}:/bin:/usr/bin"}
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "hello")],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as builder:
        wait_until((tmp_path / "pids").exists)
        builder.send_signal(number)
        builder.wait(timeout=20)
    compiler, its_child = (Path("/proc") / pid for pid in (tmp_path / "pids").read_text().split())
    wait_until(lambda: not compiler.exists() and not its_child.exists())
    assert not list((tmp_path / "cache").glob("spillway/tools/hello*"))


def test_a_ctrl_c_while_a_compiler_is_started_is_not_lost(tmp_path: Path) -> None:
    """What Python runs around a fork cannot be interrupted: a Ctrl-C that falls in there would be lost."""
    go = script(tmp_path / "bin" / "go", "go version go1.26.0 linux/amd64")
    hello(tmp_path / "hello")
    program = (
        "import os, signal, sys; from pathlib import Path; from stacks.local.toolchain.tools import Tool, ensure_tools;"
        "os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT));"
        "tool = Tool(name='hello', module=Path(sys.argv[1]), package='p', version='1', says='x');"
        "ensure_tools(['hello'], progress=print, known={'hello': tool})"
    )
    env = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache"), "PATH": f"{go.parent}:/bin:/usr/bin"}
    command = [sys.executable, "-c", program, str(tmp_path / "hello")]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    assert "Exception ignored" not in done.stderr


def wait_until(holds: Callable[[], bool]) -> None:
    """Give it a moment."""
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)
