"""The regression of the founding documents by Horovod with Gloo, as a local job: no MPI, and no horovodrun.

Its last release is of 2023: it is built against the TensorFlow of that time.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import images
from images.cli import TEMPLATES
from tests.training.frameworks import activate, horovod
from tests.training.line import fitted, params
from tests.training.local_jobs import delete_all, typed

pytestmark = [pytest.mark.training, pytest.mark.timeout(1800)]  # the first run builds Horovod: two minutes and more
PROGRAM: Final = Path(str(images.__path__[0])) / "containers" / "horovod" / "train.py"


@pytest.fixture(autouse=True)
def researcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A user with Horovod first on the path and no jobs; what is left of them ends at last."""
    if shutil.which("g++") is None:
        pytest.skip("Horovod is built here: install g++ and make")
    activate(monkeypatch, horovod())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    yield
    delete_all()


def test_ranks_meet_at_the_first_launcher_and_average_their_gradients() -> None:
    """Two ranks by the template: each sees the other, and both end with the very same line."""
    given = params("name=line", "image=none", "gpus=0", f"program={PROGRAM}")
    typed("submit", str(TEMPLATES / "horovod.yaml"), *given)
    lines = [fitted(typed("logs", "line", "--index", str(index), "--follow"), f"worker {index}") for index in (0, 1)]
    assert [line.partition(":")[0] for line in lines] == ["worker 0 of 2", "worker 1 of 2"]
    assert lines[0].partition(":")[2] == lines[1].partition(":")[2]
