"""Whether further keys of a KubeletConfiguration can be.

A kubelet that is given a wrong one does not start, or says nothing of it but in its log.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from autoscaler.config.documents import Document, read_document

KEYS: Final = Path(__file__).with_suffix(".yaml")
_SPAN: Final = re.compile(r"0|([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+")
_OF_SIGNALS: Final = ("evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionMinimumReclaim")


class _Known(Document):
    """The file beside this module."""

    keys: dict[str, tuple[str, ...]]
    """By what is written there."""
    ours: dict[str, str]
    signals: tuple[str, ...]


def why_wrong(config: Mapping[str, Any]) -> str:
    """What cannot be among the further keys, and what would be right; empty where all can."""
    known = _known()
    return next((why for key, value in config.items() if (why := _why_wrong(known, str(key), value))), "")


def _why_wrong(known: _Known, key: str, value: Any) -> str:
    if key in known.ours:
        place = known.ours[key]
        instead = f"say it by the setting {place}" if place else "a node has to have it as they write it"
        return f"has {key}, which the roles write themselves: {instead}"
    kind = next((kind for kind, keys in known.keys.items() if key in keys), "")
    if not kind:
        every = [*known.ours, *(one for keys in known.keys.values() for one in keys)]
        close = difflib.get_close_matches(key, every, n=1)
        meant = f"did you mean {close[0]}?" if close else "they are listed in roles/settings/kubelet_keys.yaml"
        return f"has {key}, which is no key of a KubeletConfiguration; {meant}"
    if not _is_of(kind, value):
        shown = "" if isinstance(value, (dict, list)) else f" = {value!r}"
        return f"has {key}{shown}: must be {kind}{', e.g. 5m0s' if kind == 'a span of time' else ''}"
    return _why_no_signals(known, key, value) if key in _OF_SIGNALS else ""


def _is_of(kind: str, value: Any) -> bool:
    match kind:
        case "true or false":
            return isinstance(value, bool)
        case "a number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "a span of time":
            return isinstance(value, str) and _SPAN.fullmatch(value) is not None
        case "a mapping":
            return isinstance(value, dict)
        case "a list":
            return isinstance(value, list)
        case _:
            return isinstance(value, str)


def _why_no_signals(known: _Known, key: str, value: Mapping[str, Any]) -> str:
    for signal, amount in value.items():
        if signal not in known.signals:
            return f"has {key} of {signal!r}, which is no signal of eviction; there are {', '.join(known.signals)}"
        if not isinstance(amount, str):
            return f"has {key} of {signal} = {amount!r}: must be text, e.g. '1Gi' or '10%'"
    return ""


@cache
def _known() -> _Known:
    return read_document(KEYS, _Known, what="list of keys")
