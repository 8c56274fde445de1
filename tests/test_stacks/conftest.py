"""What every test of the programs stands on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def loop() -> Iterator[None]:
    """An event loop of its own: Pulumi's mocks take the thread's, which whoever ran before may have ended."""
    own = asyncio.new_event_loop()
    asyncio.set_event_loop(own)
    yield
    own.close()
    asyncio.set_event_loop(None)
