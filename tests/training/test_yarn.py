"""The regression of the founding documents as a service of a real YARN: containers counted, lines kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import images
from images.cli import TEMPLATES
from tests.live.hybrid import until
from tests.training.frameworks import activate, environment
from tests.training.line import fitted, free_port, params, typed
from tests.training.yarn import DOMAIN, GOES_ON, Yarn, mini_yarn, why_not

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]
PROGRAM = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"
TASKS = ("worker-0", "worker-1", "ps-0")


def test_containers_train_and_the_service_ends_with_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service as it is rendered: two workers and a server, run by the launcher that travels in it."""
    if reason := why_not():
        pytest.skip(reason)
    activate(monkeypatch, environment("tensorflow"))
    logs, job, service = tmp_path / "logs", tmp_path / "line.yaml", tmp_path / "service.json"
    logs.mkdir()
    template = (TEMPLATES / "parameter-server-host-network.yaml").read_text()
    path = f"env: {{PATH: '{os.environ['PATH']}'}}"  # in place of the image's
    seen = f"    volumes: [{{mount: {logs}, host: {logs}}}]\n    {path}\n"
    job.write_text(template.replace("    entry:", f"{seen}    entry:") + f"logs: {logs}\n")
    given = params("name=line", "cpus=1", "memory=1Gi", "server_cpus=1", "server_memory=1Gi", "gpus=0")
    service.write_text(
        typed("render", str(job), *given, *params(f"program={PROGRAM}", f"port={free_port()}"), "--to", "yarn")
    )
    with mini_yarn(tmp_path, hosts=tuple(f"{task}.line.{DOMAIN}" for task in TASKS)) as yarn:
        application = yarn.ask("submit", service)
        until(lambda: running(yarn, application) == {*TASKS}, within=180)
        _state, _end, containers, *_ = yarn.ask("application", application).split()
        assert int(containers) == len(TASKS) + 1  # and the service's master
        until(
            lambda: yarn.ask("application", application).split()[0] not in GOES_ON, within=180, told=lambda: said(logs)
        )
        assert yarn.ask("application", application).split()[:2] == ["FINISHED", "SUCCEEDED"], said(logs)
    for index in ("0", "1"):
        fitted(typed("logs", "line", "--index", index, "--from", str(logs)), f"worker {index}")
    assert "ps 0 serves at" in typed("logs", "line", "--role", "ps", "--from", str(logs))


def said(logs: Path) -> str:
    """The end of what each task said, where it went wrong."""
    return "".join(f"{path.name}: {path.read_text()[-500:]}\n" for path in sorted(logs.rglob("*.log"))[:8])


def running(yarn: Yarn, application: str) -> set[str]:
    """Containers of the service that run."""
    if yarn.ask("application", application).split()[0] != "RUNNING":
        return set()
    parts = yarn.service("line")["components"]
    found = [one for part in parts for one in part.get("containers", ())]
    return {one["component_instance_name"] for one in found if one["state"] in ("RUNNING_BUT_UNREADY", "READY")}
