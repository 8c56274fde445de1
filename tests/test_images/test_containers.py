"""The programs that go into container images; ``tests/training`` runs them as the real processes that they would be."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import images

TRAIN = Path(str(images.__path__[0])) / "containers" / "tensorflow" / "train.py"


def test_the_image_holds_the_programs_that_examples_and_templates_run() -> None:
    """At the path that they give, as a user that is not root."""
    lines = (TRAIN.parent / "Dockerfile").read_text().splitlines()
    (copied,) = (line.split()[1:] for line in lines if line.startswith("COPY"))
    assert copied[-1] == "/opt/"
    assert {*copied[:-1]} == {path.name for path in TRAIN.parent.glob("[!_]*.py")}
    assert "USER 10001" in lines
    for example in (TRAIN.parents[2] / "examples").glob("*.yaml"):
        assert "entry: [python, /opt/train.py]" in example.read_text(), example


def test_the_learning_rate_is_the_one_that_the_template_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """``-p lr=0.5`` comes as a variable."""
    monkeypatch.setenv("LEARNING_RATE", "0.5")
    assert runpy.run_path(str(TRAIN))["LEARNING_RATE"] == 0.5
