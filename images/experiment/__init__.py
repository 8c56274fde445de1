"""Functions of a live Python prompt as jobs: ``launch`` runs one, ``map`` runs it over many settings.

    from images import experiment
    future = experiment.launch(train, roles={"worker": 3, "ps": 1}, gpus=1)
    search = experiment.map(train, {"lr": [0.1, 0.01]}, slots="1..8", gpus=1)

GPUs are held while the function runs, not while the prompt lives. Names are imported when they are used, so that a task
which only reports does not read the rest.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from images.experiment.calls import RemoteTraceback, TaskFailed
    from images.experiment.cluster import Cluster
    from images.experiment.futures import CancelledError, Future, StoppedEarly
    from images.experiment.halving import Halving, Report
    from images.experiment.launching import launch
    from images.experiment.places import Local
    from images.experiment.searching import Search, Trial, map, resume  # noqa: A004 - as in submitit
    from images.experiment.task import report

__all__ = [
    "CancelledError", "Cluster", "Future", "Halving", "Local", "RemoteTraceback", "Report", "Search", "StoppedEarly",
    "TaskFailed", "Trial", "launch", "map", "report", "resume",
]  # fmt: skip
_WHERE: Final = {
    "RemoteTraceback": "calls",
    "TaskFailed": "calls",
    "Cluster": "cluster",
    "CancelledError": "futures",
    "Future": "futures",
    "StoppedEarly": "futures",
    "Halving": "halving",
    "Report": "halving",
    "launch": "launching",
    "Local": "places",
    "Search": "searching",
    "Trial": "searching",
    "map": "searching",
    "resume": "searching",
    "report": "task",
}


def __getattr__(name: str) -> Any:
    """What the package exports, on first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    """Returns the names that a prompt completes."""
    return __all__
