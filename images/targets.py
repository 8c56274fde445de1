"""Where a training job can go: one renderer per target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from images import kubernetes
from images.jobs import TrainingJob

RENDERERS: Final[Mapping[str, Callable[[TrainingJob], list[dict[str, Any]]]]] = {"kubernetes": kubernetes.render}
