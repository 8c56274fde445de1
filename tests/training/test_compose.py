"""The regression of the founding documents by a rendered compose file: Docker Compose, and Podman as its engine.

podman-compose cannot stand in for the former: it passes over ``configs``, by which the launcher comes into containers.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.local.toolchain.tools import ensure_tools
from tests.live.machines import Bench, Host
from tests.training.line import PARAMETER_SERVER, SMALL, fitted, params, typed
from tests.training.podman import compose, podman_system

pytestmark = [pytest.mark.training, pytest.mark.timeout(2400)]  # the first run builds Docker Compose and the image


@pytest.fixture(scope="module")
def program() -> Path:
    """Docker Compose."""
    return ensure_tools(["docker-compose"], progress=lambda line: print(line, file=sys.stderr))["docker-compose"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the machine sees."""
    made = tmp_path_factory.mktemp("home")
    (made / "logs").mkdir(mode=0o777)
    (made / "logs").chmod(0o777)
    return made


@pytest.fixture(scope="module")
def engine(store: Path, home: Path, program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A machine with Podman that has the image of the project's Dockerfile."""
    with Bench(tmp_path_factory.mktemp("bench"), shared=(home,), installed=(store, program.parent)) as bench:
        (host,) = bench.machines("engine", system=podman_system(store))
        yield host


def test_containers_train_find_each_other_by_name_and_end_together(engine: Host, home: Path, program: Path) -> None:
    """Two workers and a server, which ends with them for all see one directory; each line is kept there."""
    seen = f"volumes: [{{mount: /logs, host: {home}/logs}}]"
    job, file = home / "line.yaml", home / "compose.yaml"
    job.write_text(
        PARAMETER_SERVER.replace("    image: ${image}\n", f"    image: ${{image}}\n    {seen}\n") + "logs: /logs\n"
    )
    file.write_text(typed("render", str(job), *params("name=line", *SMALL), "--to", "compose"))

    said = compose(engine, program, file, "up", "--no-color")
    states = [json.loads(line) for line in compose(engine, program, file, "ps", "--all", "--format=json").splitlines()]
    assert {one["Name"]: one["ExitCode"] for one in states} == {"line-worker-0": 0, "line-worker-1": 0, "line-ps-0": 0}
    compose(engine, program, file, "down")
    assert engine.run("podman ps --all --quiet; podman network ls --quiet --filter name=line").stdout == ""
    for index in ("0", "1"):
        fitted(typed("logs", "line", "--index", index, "--from", f"{home}/logs"), f"worker {index}")
    assert "ps 0 serves at line-ps-0:2222" in said
