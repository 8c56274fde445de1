"""How a container image is named, spelled once for all rooms: registry, path, tag, digest.

https://github.com/distribution/reference
"""

from __future__ import annotations

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_REGISTRY: Final = rf"(?:{_LABEL}(?:\.{_LABEL})*|\[[0-9a-fA-F:]+\])(?::[0-9]+)?/"
_PART: Final = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG: Final = r":[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST: Final = r"@[a-z0-9]+:[0-9a-f]{32,}"

_NAME: Final = re.compile(rf"(?:{_REGISTRY})?{_PART}(?:/{_PART})*(?:{_TAG})?(?:{_DIGEST})?")


def _an_image_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError("is not the name of an image: write one such as registry.example.com/team/mnist:1.0")
    return text


ImageName = Annotated[str, AfterValidator(_an_image_name)]
"""A field that names one."""
