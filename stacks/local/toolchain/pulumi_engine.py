"""The real Pulumi engine, run for the stack ``local``: the project's own program against the stand-in for AWS.

State, plugins and the stack's settings lie in the ground's folder, as a project that links to this one's program:
nothing is written in the checkout or ``~/.pulumi``.
``pulumi-resource-aws`` on the engine's PATH is ``pulumi_plugins/aws/provider.py``, since the published plugin is a
download; where :data:`AWS_PLUGIN` names that one, it is run in its place, against the same stand-in for AWS.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.model.errors import BadInput, Unavailable
from stacks import ROOT
from stacks.local.process.paths import cache_root
from stacks.local.process.reaper import leashed
from stacks.local.wire.extension import FAKES
from stacks.settings.outputs import StackOutputs, parse_outputs

STACK: Final = "local"
AWS_PLUGIN: Final = "SPILLWAY_AWS_PLUGIN"
"""Environment variable: the path of the published plugin, which finds the stand-in for AWS by ``AWS_ENDPOINT_URL``."""
PROJECT: Final = {"name": "spillway", "runtime": "python", "main": "program/"}
"""As ``Pulumi.yaml`` has it, but for where things lie."""
_CHANGES_FOUND: Final = 7
"""Exit status with ``--expect-no-changes`` where there are some."""
_PACK_RUNTIME: Final = "spillway-local"
_VIOLATION: Final = re.compile(r"^ +- \[mandatory\] +(\S+) +\(\S+: (.+)\)$")
_BAD_INPUT: Final = re.compile(r"error: bad input: (.*?)\n(?:\n| *error: )", re.DOTALL)
_HEADER: Final = re.compile(r"^  (\S.*):$")
_ERROR: Final = re.compile(r"^    error: (.+)$")
_LAST_OF_TRACE: Final = re.compile(r"^    \w+(?:\.\w+)*(?:Error|Exception): ")
_SAYS_NOTHING: Final = ("update failed", "preview failed", "Program failed with an unhandled exception:")
_SHOWN: Final = 8
_STEP: Final = re.compile(
    r"^\s*([-+~=]{0,2})\s*(\S+) (\S+) (creating|created|updating|updated|deleting|deleted|replacing)\b"
)

Progress = Callable[[str], None]


def _quiet(_line: str) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What an engine run needs to know."""

    directory: Path
    """For state and all else that the engine keeps."""
    tools: Mapping[str, Path]
    """``pulumi`` and ``pulumi-language-python``."""
    policy: Path
    inventory: Path | None
    env: Mapping[str, str]
    """Added to this process's environment: where AWS is, and as whom."""
    aws_url: str
    cluster: str
    region: str
    stack: str = STACK
    """Several stacks can stand in one folder: the programs, split."""
    kubeconfig: Path | None = None
    """Of the control plane that the stack is given as an existing one; without it, it has none."""
    overrides: Mapping[str, Any] | None = None
    """Laid over the stack's configuration, e.g. ``{"spillway:network": {"nat": "none"}}``."""
    programs: Path = ROOT / "stacks"
    """The folder of the program that is run."""
    guardrails: Mapping[str, Any] | None = None
    """Configuration of the policy pack, which then watches each preview and update, e.g. ``{}``."""
    python: Path = Path(sys.executable)
    """Runs the program, our plugins and the policy pack."""


def pulumi_up(settings: EngineSettings, *, refresh: bool = False, progress: Progress = _quiet) -> StackOutputs:
    """Bring the stack up, or up to date; with ``refresh``, AWS is asked first what stands.

    Raises ``BadInput`` for the stack's files and ``Unavailable`` for all else, with the engine's own words.
    """
    _make_stack(settings)
    guarded = _guarded(settings)
    _run(settings, "up", *_on(settings), "--yes", "--skip-preview", _refresh(refresh), *guarded, progress=progress)
    return pulumi_outputs(settings)


def pulumi_outputs(settings: EngineSettings) -> StackOutputs:
    """What the stack exports now."""
    return parse_outputs(json.loads(_run(settings, "stack", "output", *_on(settings), "--json")))


def pulumi_preview(settings: EngineSettings, *, refresh: bool = True, progress: Progress = _quiet) -> bool:
    """Whether what stands is what the program says; with ``refresh``, AWS is asked what stands."""
    _make_stack(settings)
    arguments = ("preview", *_on(settings), "--expect-no-changes", _refresh(refresh), *_guarded(settings))
    said = _start(settings, *arguments, progress=progress)
    if said.returncode not in (0, _CHANGES_FOUND):
        raise _failure(said)
    return said.returncode == 0


def pulumi_destroy(settings: EngineSettings, *, progress: Progress = _quiet) -> None:
    """Take everything of the stack away."""
    prepare(settings)
    _run(settings, "destroy", *_on(settings), "--yes", "--skip-preview", _refresh(refresh=False), progress=progress)


def _on(settings: EngineSettings) -> tuple[str, str]:
    return "--stack", settings.stack


def _refresh(refresh: bool) -> str:  # noqa: FBT001 - it is all that is said
    return f"--refresh={str(refresh).lower()}"


def prepare(settings: EngineSettings) -> None:
    """A project of the ground's own around this one's programs, and the programs that the engine calls."""
    project = settings.directory / "project"
    for name in ("home", "state", "bin", "tmp", "project", "project/program"):
        (settings.directory / name).mkdir(parents=True, exist_ok=True)
    entry = project / "program" / "__main__.py"  # a link to the file, not to its folder: the program runs in here
    if not entry.is_symlink():
        entry.symlink_to(settings.programs / "__main__.py")
    _write_yaml(project / "Pulumi.yaml", PROJECT)
    own = project / f"Pulumi.{settings.stack}.yaml"
    kept = yaml.safe_load(own.read_text(encoding="utf-8")) if own.exists() else {}  # the engine's salt
    _write_yaml(own, kept | {"config": _configuration(settings)})
    python = shlex.quote(str(settings.python))
    stand_in = f"{python} -m stacks.local.pulumi_plugins.aws.provider"
    published = os.environ.get(AWS_PLUGIN)
    _script(settings, "pulumi-resource-aws", f'exec {shlex.quote(published) if published else stand_in} "$@"')
    _script(settings, "pulumi-resource-spillway-onprem", f'exec {python} -m stacks.on_prem_provider "$@"')
    if FAKES in os.environ:
        module = f"{os.environ[FAKES]}.kubernetes_plugin"
        _script(settings, "pulumi-resource-kubernetes", f'exec {python} -m {module} "$@"')
    _script(settings, f"pulumi-analyzer-policy-{_PACK_RUNTIME}", f"exec {python} -u -m stacks.guardrails")
    listed = f'case "$*" in "-m pip list -v "*) exec {python} -m stacks.local.toolchain.installed_packages ;; esac'
    for name in ("python", "python3"):
        _script(settings, name, f'{listed}\nexec {python} "$@"')


def _make_stack(settings: EngineSettings) -> None:
    """Where the engine keeps none of that name yet."""
    prepare(settings)
    if not any((settings.directory / "state").rglob(f"stacks/**/{settings.stack}.json")):
        _run(settings, "stack", "select", "--create", *_on(settings))


def _guarded(settings: EngineSettings) -> tuple[str, ...]:
    """Arguments by which the policy pack is asked.

    The language host that is built here is too old to start a pack, so the ground's copy of the pack's file names a
    runtime of its own, for which the engine takes the analyzer of that name; the pack itself is the same.
    """
    if settings.guardrails is None:
        return ()
    folder = settings.directory / "guardrails"
    folder.mkdir(exist_ok=True)
    pack = yaml.safe_load((ROOT / "stacks" / "guardrails" / "PulumiPolicy.yaml").read_text(encoding="utf-8"))
    _write_yaml(folder / "PulumiPolicy.yaml", pack | {"runtime": _PACK_RUNTIME})
    configuration = folder / "config.json"
    configuration.write_text(json.dumps(dict(settings.guardrails)), encoding="utf-8")
    return ("--policy-pack", str(folder), "--policy-pack-config", str(configuration))


def _configuration(settings: EngineSettings) -> dict[str, Any]:
    """The repository's stack file, with this ground's files in it."""
    stack = yaml.safe_load((ROOT / "stacks" / "config" / f"Pulumi.{STACK}.yaml").read_text(encoding="utf-8"))
    files = {"spillway:policy": settings.policy, "spillway:inventory": settings.inventory}
    own: dict[str, Any] = {key: str(path) if path else None for key, path in files.items()}
    if settings.kubeconfig is None:
        own["spillway:control_plane"] = None
    else:
        own["spillway:control_plane"] = {"kind": "existing", "kubeconfig_path": str(settings.kubeconfig)}
    configuration = stack["config"] | own | dict(settings.overrides or {})
    return {key: value for key, value in configuration.items() if value is not None}


def _write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False), encoding="utf-8")


def _script(settings: EngineSettings, name: str, command: str) -> None:
    path = settings.directory / "bin" / name
    path.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    path.chmod(0o755)


def _run(settings: EngineSettings, *arguments: str, progress: Progress = _quiet) -> str:
    said = _start(settings, *arguments, progress=progress)
    if said.returncode:
        raise _failure(said)
    return said.stdout


def _start(settings: EngineSettings, *arguments: str, progress: Progress) -> subprocess.CompletedProcess[str]:
    command = [str(settings.tools["pulumi"]), *arguments, "--non-interactive", "--color", "never"]
    lines = []
    with _engine(settings, command) as engine:
        try:
            for line in engine.stdout or ():
                lines.append(line)
                if _STEP.match(line):
                    progress(line.strip())
        except BaseException:
            engine.send_signal(signal.SIGINT)  # one: it lets what it has begun end, and writes that down
            raise
    return subprocess.CompletedProcess(command, engine.returncode, stdout="".join(lines))


def _engine(settings: EngineSettings, command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        leashed(command),  # its language host would outlive it
        cwd=settings.directory / "project",
        env=environment(settings),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        start_new_session=True,  # a Ctrl-C at the terminal reaches the caller, which passes on one
    )


def environment(settings: EngineSettings) -> dict[str, str]:
    """What a shell needs to run `pulumi` on the stack."""
    path = [
        str(settings.directory / "bin"),
        *dict.fromkeys(str(tool.parent) for tool in settings.tools.values()),
        str(Path(sys.executable).parent),
        os.environ.get("PATH", os.defpath),
    ]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,
        **settings.env,
        "AWS_ENDPOINT_URL": settings.aws_url,
        "PATH": os.pathsep.join(path),
        "TMPDIR": str(settings.directory / "tmp"),  # the engine logs into it, a file for each run, and removes none
        "PULUMI_HOME": str(settings.directory / "home"),
        "PULUMI_BACKEND_URL": f"file://{settings.directory / 'state'}",
        "PULUMI_CONFIG_PASSPHRASE": "local",
        "PULUMI_SKIP_UPDATE_CHECK": "1",
        # pulumi_aws is large: compiled once, it is loaded in a third of the time.
        "PYTHONPYCACHEPREFIX": os.environ.get("PYTHONPYCACHEPREFIX") or str(cache_root() / "pycache"),
    }


def _failure(said: subprocess.CompletedProcess[str]) -> BadInput | Unavailable:
    """The engine's own diagnostics, without its program's stack traces."""
    mistake = _BAD_INPUT.search(said.stdout.partition("Diagnostics:\n")[2])
    if mistake:
        return BadInput("\n".join(line.strip() for line in mistake[1].splitlines() if line.strip()))
    refused = list(_violations(said.stdout))
    if refused:
        return BadInput("\n".join(["the guardrails refuse this:", *(f"    {line}" for line in refused)]))
    found = list(_errors(said.stdout)) or said.stdout.strip().splitlines()[-5:]
    shown = [f"    {line}" for line in found[:_SHOWN]]
    if len(found) > _SHOWN:
        shown.append(f"    ... and {len(found) - _SHOWN} more")
    verb, words = said.args[1], dict(zip(said.args, said.args[1:], strict=False))
    return Unavailable(f"`pulumi {verb}` of the stack {words.get('--stack', STACK)} failed:\n" + "\n".join(shown))


def _violations(output: str) -> Iterator[str]:
    """Each refusal of the policy pack: ``encrypted-volumes: gpu: ...``."""
    lines = output.partition("\nPolicies:\n")[2].partition("\n\n")[0].splitlines()
    for place, line in enumerate(lines):
        violation = _VIOLATION.match(line)
        if violation:  # then the policy's description, then what it says of this resource
            yield f"{violation[1]}: {violation[2]}: {lines[place + 2].strip()}"


def _errors(output: str) -> Iterator[str]:
    """Each error with the resource that it is of: ``aws:ec2:Vpc (local-vpc): ...``."""
    resource = ""
    for line in output.partition("Diagnostics:\n")[2].splitlines():
        if line and not line.startswith(" "):
            return  # the next section
        header, error = _HEADER.match(line), _ERROR.match(line)
        resource = header[1] if header else resource
        if error and error[1] not in _SAYS_NOTHING:
            yield f"{resource}: {error[1]}"
        elif _LAST_OF_TRACE.match(line):
            yield f"{resource}: {line.strip()}"
