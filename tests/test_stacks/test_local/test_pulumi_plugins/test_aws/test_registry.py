"""The types that the stand-in for the aws plugin serves."""

from __future__ import annotations

from collections import Counter
from itertools import chain

from stacks.local.pulumi_plugins.aws.registry import _SERVICES, KINDS


def test_no_type_is_served_by_two() -> None:
    """The later one would win unseen, and the programs of the first would fail."""
    served = Counter(kind.token for kind in chain.from_iterable(_SERVICES))
    assert [token for token, times in served.items() if times > 1] == []
    assert served.keys() == KINDS.keys()
