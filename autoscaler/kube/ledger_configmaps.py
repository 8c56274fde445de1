"""The ledger in the cluster: one ConfigMap for each month of a year, beside the Lease; the next year's takes its place.

A ConfigMap holds 1 MiB: some 20,000 sums, which is 20 groups with 30 holders each on every day of a month.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

import msgspec

from autoscaler.kube.client import Expired, Kube, Refused
from autoscaler.kube.policy_configmap import ConfigMapJson
from autoscaler.kube.schema.core import Json
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.model.ledger import Account, Cost, Holder, Ledger

_KEY: Final = "ledger.json"
_NOT_FOUND: Final = 404
_DECODER: Final = msgspec.json.Decoder(ConfigMapJson)

Tell = Callable[[str, str], None]
_Holders = dict[str, dict[str, tuple[float, float]]]


class _Month(Json, frozen=True):
    """The sums of one month as they are written: day of the month -> entry -> namespace -> owner -> dollars, hours."""

    month: str = ""
    until: datetime | None = None
    days: dict[str, dict[str, _Holders]] = msgspec.field(default_factory=dict)


class LedgerBooks:
    """The ConfigMaps of one autoscaler."""

    def __init__(
        self, kube: Kube, *, namespace: str, tell: Tell = lambda _party, _why: None, read_only: bool = False
    ) -> None:
        self._kube = kube
        self._path = f"/api/v1/namespaces/{namespace}/configmaps"
        self._party = f"the ledger (ConfigMaps {namespace}/{words.LEDGER}-01 to -12)"
        self._tell = tell
        self._read_only = read_only
        self._written: dict[str, _Month] = {}

    def read(self, months: Iterable[str]) -> Ledger:
        """What was written for these months (``2026-11``). Raises ``Unavailable`` or ``Refused``."""
        found = [one for month in months if (one := self._read(month)).month == month]
        costs = {account: cost for one in found for account, cost in _sums(one)}
        return Ledger(costs, max((one.until for one in found if one.until is not None), default=None))

    def write(self, ledger: Ledger) -> None:
        """Write the months that have changed; what cannot be written is told, and tried again at the next call."""
        if self._read_only:
            return
        why = ""
        for month in sorted({f"{account.day:%Y-%m}" for account in ledger.costs} or {f"{ledger.until:%Y-%m}"}):
            said = _month_of(ledger, month)
            if said != self._written.get(month):
                try:
                    self._write(month, said)
                    self._written[month] = said
                except (Unavailable, Refused, Expired) as error:
                    why = str(error)
        self._tell(self._party, why)

    def _read(self, month: str) -> _Month:
        try:
            found = _DECODER.decode(self._kube.get(f"{self._path}/{_name(month)}"))
            return msgspec.json.decode(found.data.get(_KEY, "{}"), type=_Month)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
        except (Expired, msgspec.DecodeError) as error:
            self._tell(self._party, f"{month} cannot be read and begins anew ({error})")
        return _Month()

    def _write(self, month: str, said: _Month) -> None:
        data = {_KEY: msgspec.json.encode(said).decode()}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _name(month)}, "data": data}
        try:
            self._kube.send("PUT", f"{self._path}/{_name(month)}", body)
        except Refused as refused:
            if refused.status != _NOT_FOUND:
                raise
            self._kube.send("POST", self._path, body)


def months_at(now: datetime) -> tuple[str, str]:
    """The month before, and this one."""
    return f"{now.replace(day=1) - timedelta(days=1):%Y-%m}", f"{now:%Y-%m}"


def _name(month: str) -> str:
    return f"{words.LEDGER}-{month[5:]}"


def _month_of(ledger: Ledger, month: str) -> _Month:
    days: dict[str, dict[str, _Holders]] = {}
    for (day, entry, holder), cost in sorted(ledger.costs.items()):
        if f"{day:%Y-%m}" == month:
            holders = days.setdefault(f"{day:%d}", {}).setdefault(entry, {})
            holders.setdefault(holder.namespace, {})[holder.owner] = (round(cost.usd, 6), round(cost.hours, 6))
    end = datetime.combine((date.fromisoformat(f"{month}-01") + timedelta(days=32)).replace(day=1), time(), UTC)
    return _Month(month, min(ledger.until, end) if ledger.until is not None else None, days)


def _sums(said: _Month) -> Iterable[tuple[Account, Cost]]:
    for day, entries in said.days.items():
        for entry, namespaces in entries.items():
            for namespace, owners in namespaces.items():
                for owner, cost in owners.items():
                    holder = Holder(namespace, owner)
                    yield Account(date.fromisoformat(f"{said.month}-{day}"), entry, holder), Cost(*cost)
