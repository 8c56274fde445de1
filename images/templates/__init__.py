"""What a training job becomes, one module per target that can run it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from images.jobs import TrainingJob
from images.templates import kubernetes

RENDERERS: Final[Mapping[str, Callable[[TrainingJob], list[dict[str, Any]]]]] = {"kubernetes": kubernetes.render}
