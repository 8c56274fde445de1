"""What several of these tests stand on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.training.image import image_store, why_no_image


@pytest.fixture(scope="session")
def store() -> Path:
    """Where the image of the project's Dockerfile is."""
    reason = why_no_image()
    if reason:
        pytest.skip(reason)
    return image_store()
