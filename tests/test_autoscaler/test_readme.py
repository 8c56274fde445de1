"""The room's page: what it names is there."""

from __future__ import annotations

import re

from tests import ROOT

_NAMED = re.compile(r"\| ((?:planner|live|test_\w+)/[\w/]+\.py)(?:::(\w+))? \|$", re.MULTILINE)


def test_each_test_that_the_feature_table_names_is_there() -> None:
    """A row whose test was renamed or has gone shows nothing any more."""
    found = _NAMED.findall((ROOT / "autoscaler" / "README.md").read_text(encoding="utf-8"))
    assert len(found) > 25
    for file, test in found:
        path = ROOT / "tests" / re.sub("^planner", "test_autoscaler/test_planner", file)
        assert path.is_file(), file
        assert not test or f"def {test}(" in path.read_text(encoding="utf-8"), f"{file}::{test}"
