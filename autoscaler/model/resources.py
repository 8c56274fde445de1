"""Amounts: what pods ask for, what nodes have, and Kubernetes' way to write it."""

from __future__ import annotations

import re
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Final

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
ATTACHMENTS: Final = "attachable-volumes-csi-"
"""A driver's volumes that a node takes, counted like a resource; the name is Kubernetes' own."""

_SUFFIXES: Final[Mapping[str, Decimal]] = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}

_MOST: Final = Decimal(2**53)
"""Of any amount: no machine has as much, and 64 bits hold a sum of a thousand. The API server takes up to 2**63."""
_QUANTITY: Final = re.compile(
    r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)(|[numkMGTPE]|[KMGTPE]i)", flags=re.ASCII
)


def parse_quantity(text: str | float) -> Decimal:
    """A Kubernetes quantity (``500m``, ``1.5Gi``, ``2e3``, ``4``) as an exact number of units.

    Raises ``ValueError`` naming the text where it is not one.
    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
    """
    raw = str(text).strip()
    match = _QUANTITY.fullmatch(raw)
    if match is None:
        message = f"{raw!r} is not a quantity such as 500m, 4, 16Gi"
        raise ValueError(message)
    number, suffix = match.groups()
    return Decimal(number) * _SUFFIXES[suffix]


class Resources(Mapping[str, int]):
    """Amounts by resource name: ``cpu`` in millicores, everything else in its own unit (bytes, devices, pods).

    Never changed, and hashable; absent means zero. Amounts may be negative (a node that is over-committed).
    """

    __slots__ = ("_amounts", "_hash")

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        """Keep only the amounts that are not zero, so that equal amounts are equal values."""
        self._amounts: Mapping[str, int] = {name: amount for name, amount in (amounts or {}).items() if amount}
        self._hash = hash(frozenset(self._amounts.items()))

    @classmethod
    def parse(cls, quantities: Mapping[str, str | int | float]) -> Resources:
        """Parses Kubernetes quantities, e.g. ``{"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": 1}``.

        Fractions of a unit are rounded up, as the API server does; more than any machine has is as much as none has.
        Raises ``ValueError`` naming the resource.
        """
        amounts = {}
        for name, text in quantities.items():
            try:
                exact = parse_quantity(text) * (1000 if name == CPU else 1)
            except ValueError as error:
                message = f"{name}: {error}"
                raise ValueError(message) from None
            amounts[name] = int(max(-_MOST, min(exact, _MOST)).to_integral_value(rounding="ROUND_CEILING"))
        return cls(amounts)

    @classmethod
    def total(cls, many: Iterable[Resources]) -> Resources:
        """Returns the sum of all amounts."""
        amounts: dict[str, int] = {}
        for one in many:
            for name, amount in one._amounts.items():  # noqa: SLF001 - its own kind
                amounts[name] = amounts.get(name, 0) + amount
        return cls(amounts)

    def __getitem__(self, name: str) -> int:
        """Amount of ``name``; zero where nothing is said, unlike a plain mapping."""
        return self._amounts.get(name, 0)

    def __iter__(self) -> Iterator[str]:
        """Names with an amount other than zero."""
        return iter(self._amounts)

    def __contains__(self, name: object) -> bool:
        """Whether there is any of it."""
        return name in self._amounts

    def items(self) -> ItemsView[str, int]:
        """Names and amounts; as fast as a dict's, for this is asked of every pod at every look."""
        return self._amounts.items()

    def __len__(self) -> int:
        """How many resources have an amount other than zero."""
        return len(self._amounts)

    def __hash__(self) -> int:
        """Equal amounts have equal hashes."""
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Equal where every amount is."""
        return isinstance(other, Resources) and self._amounts == other._amounts

    def __add__(self, other: Resources) -> Resources:
        """Returns the sum of both amounts."""
        return Resources.total((self, other))

    def __sub__(self, other: Resources) -> Resources:
        """What is left of this when the other is taken out; may go below zero."""
        amounts = dict(self._amounts)
        for name, amount in other._amounts.items():
            amounts[name] = amounts.get(name, 0) - amount
        return Resources(amounts)

    def __mul__(self, times: int) -> Resources:
        """Returns each amount times a number."""
        return Resources({name: amount * times for name, amount in self._amounts.items()})

    def fits_in(self, room: Resources) -> bool:
        """Whether every amount asked for is there. What is not asked for may be over-committed (< 0)."""
        available = room._amounts
        return all(amount <= available.get(name, 0) for name, amount in self._amounts.items() if amount > 0)

    def __repr__(self) -> str:
        """Shows the amounts, for messages about defects."""
        return f"Resources({dict(self._amounts)})"

    def __str__(self) -> str:
        """Writes the amounts for people: ``8 nvidia.com/gpu, 32 cpu, 128Gi memory``."""
        return (
            ", ".join(f"{_readable(name, amount)} {name}" for name, amount in sorted(self._amounts.items()))
            or "nothing"
        )


def _readable(name: str, amount: int) -> str:
    if name == CPU:
        return f"{amount / 1000:g}"
    if name in (MEMORY, EPHEMERAL_STORAGE) or name.startswith("hugepages-"):
        for suffix in ("Ti", "Gi", "Mi", "Ki"):
            unit = int(_SUFFIXES[suffix])
            if abs(amount) >= unit:
                return f"{amount / unit:.4g}{suffix}"
    return str(amount)
