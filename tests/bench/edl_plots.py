# /// script
# requires-python = ">=3.11"
# dependencies = ["matplotlib==3.10.*"]
# ///
"""Plots of EDL's experiments for the documentation: fixed sizes, EDL as published and ours beside each other.

    python -m tests.bench edl --case 1 --policy off --passes 1 --json --series > off.json      (and edl, and spillway)
    uv run tests/bench/edl_plots.py off.json edl.json spillway.json autoscaler/edl-case-1.svg

In an environment of its own, which uv makes: nothing else needs matplotlib.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
from matplotlib import pyplot as plt

TITLES: Final = {"off": "fixed size", "edl": "EDL as published", "spillway": "Spillway"}
LINES: Final = {
    "cpu_utils": ("CPUs used, %", 100.0),
    "running_trainers": ("running trainers", 1.0),
    "pending_jobs": ("waiting jobs", 1.0),
    "nginx_pods": ("running nginx pods", 1.0),
}
"""What is drawn, one row each: its name, and what it is multiplied by."""


def main(arguments: Sequence[str]) -> int:
    """Read the passes, draw them, write the file."""
    *files, target = map(Path, arguments)
    told = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": "edl", "font.size": 8, "path.simplify_threshold": 0.5}
    rows = [key for key in LINES if any(point[key] for one in told for point in _series(one))]
    figure, axes = plt.subplots(
        len(rows),
        len(told),
        sharex=True,
        sharey="row",
        squeeze=False,
        figsize=(10, 1.7 * len(rows)),
        layout="constrained",
    )
    for row, key in enumerate(rows):
        name, times = LINES[key]
        axes[row][0].set_ylabel(name)
        for column, one in enumerate(told):
            plot, points = axes[row][column], _series(one)
            plot.plot([p["timestamp"] for p in points], [times * p[key] for p in points], linewidth=1, color="#1f5fa8")
            plot.set_ylim(0, 1.05 * times * max(p[key] for other in told for p in _series(other)))
            plot.locator_params(nbins=4)
            plot.grid(alpha=0.3)
            if row == 0:
                plot.set_title(TITLES[one["policy"]])
            if row == len(rows) - 1:
                plot.set_xlabel("seconds")
    figure.savefig(target, metadata={"Date": None})
    return 0


def _series(told: dict[str, Any]) -> list[dict[str, Any]]:
    """Every ten seconds of the first pass."""
    series: list[dict[str, Any]] = told["passes"][0]["series"]
    return series[::5]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
