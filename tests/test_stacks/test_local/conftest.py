"""The stand-in for AWS, for the tests of the ground on one machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.test_stacks.stand_in import StandIn, stand_in


@pytest.fixture(scope="module")
def shared() -> Iterator[StandIn]:
    """One stand-in for the module; every test makes its own groups."""
    with stand_in() as made:
        yield made


@pytest.fixture
def here(shared: StandIn) -> Iterator[StandIn]:
    """The stand-in, without faults before and after."""
    yield shared
    shared.ask("DELETE", "faults")
