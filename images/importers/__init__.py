"""Jobs out of other systems' files, one module each; what of a file is not understood is named."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from images.importers import compose, marathon, paddle, tfjob
from images.importers.reading import Imported

IMPORTERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Imported]]] = {
    "tfjob": tfjob.read,
    "compose": compose.read,
    "marathon": marathon.read,
    "paddle": paddle.read,
}
