"""DataPrep by Spark, then training, then serving: the workflow template as a local job, by one shared directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import images
from images.cli import TEMPLATES
from tests.training.frameworks import activate, environment
from tests.training.line import fitted, params
from tests.training.local_jobs import delete_all, typed

pytestmark = pytest.mark.training
PROGRAMS = Path(str(images.__path__[0])) / "containers"
SERVE = """\
import sys, tensorflow as tf
model = tf.saved_model.load(sys.argv[1].removeprefix("--model=") + "/model")
at_0, at_1 = model.predict(tf.constant([0.0, 1.0])).numpy()
print(f"serve: w = {at_1 - at_0}, b = {at_0}")
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory that all steps see, of a user with TensorFlow, pyspark and Java."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java: install openjdk-17-jre-headless")
    [packages] = (environment("spark") / "lib").glob("python3*/site-packages")
    monkeypatch.setenv("PYTHONPATH", str(packages))
    activate(monkeypatch, environment("tensorflow"))
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("PYSPARK_PYTHON", str(environment("tensorflow") / "bin" / "python"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "shared"
    folder.mkdir()
    yield folder
    delete_all()


def test_training_reads_the_records_that_spark_wrote(shared: Path) -> None:
    """Each step starts when the one before has succeeded."""
    serve = shared / "serve.py"
    serve.write_text(SERVE)
    programs = (f"prepare={PROGRAMS}/spark/prepare.py", f"train={PROGRAMS}/tensorflow/records.py", f"serve={serve}")
    given = params("image=none", "gpus=0", "parts=1", f"directory={shared}", *programs)
    typed("submit", str(TEMPLATES / "workflow.yaml"), *given)
    said = {role: typed("logs", "flow", "--role", role, "--follow") for role in ("prepare", "train", "serve")}
    assert "wrote 4000 points into 2 files" in said["prepare"]
    assert "of 2 files" in fitted(said["train"], "train")
    fitted(said["serve"], "serve")
