"""A hybrid cluster on one machine: what `spillway local up` stands up and `down` takes away.

The real control plane, KWOK for fake machines, a stand-in for AWS, a real `pulumi up` of the stack `local` against it,
and the on-prem machines of an inventory file. Everything lives in one folder of the cache and ends with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from autoscaler.config.documents import read_document
from autoscaler.config.policy import Policy, read_policy
from autoscaler.model.errors import BadInput, Unavailable
from stacks import ROOT
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, wait_for_namespace
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.paths import grounds
from stacks.local.process.ports import free_ports
from stacks.local.process.reaper import leashed
from stacks.local.process.supervisor import (
    Process,
    is_running,
    read_status,
    start_keeper,
    start_time,
    stop_keeper,
)
from stacks.local.toolchain.tools import ensure_tools
from stacks.local.wire.faults import Script
from stacks.settings.inventory import Inventory, read_inventory

DEFAULT_NAME = "default"
ENGINE_BINARIES = ("pulumi", "pulumi-language-python")
RBAC = ROOT / "autoscaler" / "rbac.yaml"
_LEAST_ROOM = 200 << 20
"""Bytes: etcd takes two thirds of it at once."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")

Progress = Callable[[str], None]


def _quiet(_line: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Ground:
    """One local ground that stands."""

    name: str
    directory: Path
    kubeconfig: Path
    autoscaler_kubeconfig: Path
    aws_url: str
    region: str
    env: dict[str, str]
    """What a shell needs to talk to it."""
    pids: list[int] = field(default_factory=list)
    """Of every process that was started for it."""
    keeper: subprocess.Popen[bytes] | None = field(default=None, repr=False, compare=False)
    """Where this process started it: the pipe to it is what a tied ground hangs on."""

    @staticmethod
    @contextlib.contextmanager
    def up(
        *,
        name: str,
        policy: Path,
        inventory: Path,
        boot_delay: float = 3.0,
        faults: Path | None = None,
        tie: bool = True,
        with_stack: bool = True,
        progress: Progress = _quiet,
    ) -> Iterator[Ground]:
        """Stand a ground up for a ``with`` block; with ``tie`` it ends with this process, however that goes."""
        ground = stand_up(
            name=name,
            policy=policy,
            inventory=inventory,
            boot_delay=boot_delay,
            faults=faults,
            tie=tie,
            with_stack=with_stack,
            progress=progress,
        )
        try:
            yield ground
        except KeyboardInterrupt:
            _tell_that_it_ends(progress)
            raise
        finally:
            take_down(name)
            _bury(ground)

    @contextlib.contextmanager
    def held(self, name: str, argv: Sequence[str], *, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run one more process beside the ground for the length of a ``with`` block. Its log: ``logs/NAME.log``."""
        with (self.directory / "logs" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                leashed(argv),
                env=os.environ | env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pids.append(process.pid)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def stand_up(
    *,
    name: str,
    policy: Path,
    inventory: Path,
    boot_delay: float = 3.0,
    faults: Path | None = None,
    tie: bool = False,
    with_stack: bool = True,
    progress: Progress = _quiet,
) -> Ground:
    """Everything from files to a cluster. Wrong files are refused before anything starts.

    Raises ``BadInput`` for files, names and tools, ``Unavailable`` where a part does not come up; what had started by
    then is taken down again.
    """
    rules, machines = read_policy(policy), read_inventory(inventory)
    if faults:
        read_document(faults, Script, what="faults")
    _check_name(name)
    tools = ensure_tools((*BINARIES, *(ENGINE_BINARIES if with_stack else ())), progress=progress)
    directory = _claim(name)
    ground = None
    try:
        began = time.monotonic()
        ground = _start_processes(
            name=name,
            directory=directory,
            tools=tools,
            region=rules.region,
            boot_delay=boot_delay,
            faults=faults,
            tie=tie,
        )
        kube = KubeHttp(ground.kubeconfig)
        wait_for_namespace(kube)
        apply_manifests(kube, RBAC.read_text(encoding="utf-8"))
        progress(f"control plane and AWS stand-in answer ({time.monotonic() - began:.1f} s)")
        if with_stack:
            _furnish(
                kube,
                ground=ground,
                rules=rules,
                files=(policy.resolve(), inventory.resolve()),
                machines=machines,
                tools=tools,
                progress=progress,
            )
    except BaseException as reason:
        if isinstance(reason, KeyboardInterrupt):
            _tell_that_it_ends(progress)
        take_down(name)
        if ground:
            _bury(ground)
        raise
    return ground


def take_down(name: str) -> bool:
    """End every process of the ground and remove its folder; ``False`` where there was none. Safe to repeat."""
    directory = grounds() / _check_name(name)
    if not directory.exists():
        return False
    try:
        _remove(directory)
    except KeyboardInterrupt:  # half a ground is of no use to anybody
        _remove(directory)
        raise
    return True


def _remove(directory: Path) -> None:
    stop_keeper(directory)
    for _ in range(20):  # a process that is just ending may still write a last file
        shutil.rmtree(directory, ignore_errors=True)
        if not directory.exists():
            break
        time.sleep(0.1)
    with contextlib.suppress(OSError):
        grounds().rmdir()


def find(name: str) -> Ground:
    """The ground of that name that stands now. Raises ``Unavailable`` where none does."""
    directory = grounds() / _check_name(name)
    try:
        raw: dict[str, Any] = json.loads((directory / "ground.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Unavailable(
            f"no local ground named {name!r} is up: `spillway local up{_option(name)}` makes one"
        ) from None
    paths = ("directory", "kubeconfig", "autoscaler_kubeconfig")
    return Ground(**raw | {key: Path(raw[key]) for key in paths})


def names() -> list[str]:
    """Returns the names of all grounds that have a folder."""
    return sorted(path.name for path in grounds().glob("*") if _NAME.fullmatch(path.name) and path.is_dir())


def sweep() -> list[str]:
    """Take away what crashed grounds left: folders whose owner and keeper are gone. Returns their names."""
    dead = []
    for name in names():
        owner = grounds() / name / "owner.json"
        try:
            pid, started = json.loads(owner.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            continue
        status = read_status(grounds() / name)
        if not is_running(pid, started) and not (status and is_running(status.pid, status.started)):
            take_down(name)
            dead.append(name)
    return dead


def _tell_that_it_ends(progress: Progress) -> None:
    with contextlib.suppress(OSError):  # of a terminal that is closed
        progress("interrupted; taking everything down, which takes some seconds ...")


def _check_name(name: str) -> str:
    """It becomes a folder, which is removed with all that is in it."""
    if not _NAME.fullmatch(name):
        raise BadInput(
            f"--name {name!r}: must be at most 40 lower-case letters, digits and dashes, such as {DEFAULT_NAME!r}"
        )
    return name


def _option(name: str) -> str:
    return "" if name == DEFAULT_NAME else f" --name {name}"


def _bury(ground: Ground) -> None:
    """Waits for the keeper's end: else it stays in the process table for as long as its parent lives."""
    if ground.keeper:
        ground.keeper.wait()
        if ground.keeper.stdin:
            ground.keeper.stdin.close()


def _claim(name: str) -> Path:
    """Make the ground's folder, or say that the name is taken."""
    sweep()
    directory = grounds() / name
    directory.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory.parent).free
    if free < _LEAST_ROOM:
        raise Unavailable(
            f"{directory.parent} has {free >> 20} MiB free, and a ground writes {_LEAST_ROOM >> 20}: "
            "make room there, or name another folder in XDG_CACHE_HOME"
        )
    try:
        directory.mkdir(parents=True, mode=0o700)
    except FileExistsError:
        raise BadInput(
            f"a local ground named {name!r} is up already: `spillway local down{_option(name)}` takes it down; "
            "another can stand beside it with another --name"
        ) from None
    me = os.getpid()
    (directory / "owner.json").write_text(json.dumps([me, start_time(me)]), encoding="utf-8")
    return directory


def _start_processes(
    *,
    name: str,
    directory: Path,
    tools: Mapping[str, Path],
    region: str,
    boot_delay: float,
    faults: Path | None,
    tie: bool,
) -> Ground:
    client, peer, api, aws = free_ports(4)
    plane = control_plane(directory, tools=tools, ports=(client, peer, api))
    aws_url = f"http://127.0.0.1:{aws}"
    env = {
        "KUBECONFIG": str(plane.kubeconfig),
        "AWS_ENDPOINT_URL": aws_url,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,
    }
    stand_in = Process(
        name="aws",
        argv=(
            *(sys.executable, "-m", "stacks.local.fake_aws.server", "--port", str(aws)),
            *("--kubeconfig", str(plane.kubeconfig), "--boot-delay", f"{boot_delay}s"),
            *(("--faults", str(faults.resolve())) if faults else ()),
        ),
        env=env,
        log=str(directory / "logs" / "aws.log"),
        ready_url=f"{aws_url}/spillway/health",
    )
    keeper = start_keeper([stand_in, *plane.processes], directory=directory, tie=tie)
    status = read_status(directory)
    ground = Ground(
        name=name,
        directory=directory,
        kubeconfig=plane.kubeconfig,
        autoscaler_kubeconfig=plane.autoscaler_kubeconfig,
        aws_url=aws_url,
        region=region,
        env=env,
        pids=[status.pid, *(one.pid for one in status.held)] if status else [],
    )
    (directory / "ground.json").write_text(json.dumps(asdict(ground), default=str), encoding="utf-8")
    ground = replace(ground, keeper=keeper)
    exports = "".join(f"export {key}={value}\n" for key, value in env.items())
    (directory / "env").write_text(exports, encoding="utf-8")
    return ground


def _furnish(
    kube: KubeHttp,
    *,
    ground: Ground,
    rules: Policy,
    files: tuple[Path, Path],
    machines: Inventory,
    tools: Mapping[str, Path],
    progress: Progress,
) -> None:
    from stacks.local.ground.on_prem_nodes import register_on_prem  # noqa: PLC0415
    from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_up  # noqa: PLC0415 - Pulumi is slow to import

    began = time.monotonic()
    register_on_prem(kube, machines)
    progress(f"{len(machines.machines)} on-prem machines registered from the inventory (fake kubelets: KWOK)")
    progress("pulumi up of the stack `local` ...")
    outputs = pulumi_up(
        EngineSettings(
            directory=ground.directory / "pulumi",
            tools=tools,
            policy=files[0],
            inventory=files[1],
            env=ground.env,
            aws_url=ground.aws_url,
            cluster=rules.cluster,
            region=rules.region,
            kubeconfig=ground.kubeconfig,
        )
    )
    progress(
        f"pulumi up: network and {len(outputs.groups)} Auto Scaling groups stand ({time.monotonic() - began:.1f} s)"
    )
