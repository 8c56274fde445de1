"""Fillings with the pods that take others' places: what the master means by its swaps, written out.

The master may give a place to a smaller pod, and says only how often a pod of one shape takes one of another. Rounded
as they are, its fillings would ask for pods of which there are not as many, and what is put in their places is
missing elsewhere. Written out they hold the pods that there are, and cost the same; or nearly, where that takes many.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from autoscaler.solver.lp.arrays import Floats, Mask, Whole, dot

_NOTHING = 1e-6
_EACH, _MORE = 2, 2
"""Ways in which a filling is written out at most: so many for each time that it is used, and so many more. With all of
them, of 150 sizes 31,000 fillings were known in the end, where 3,000 led to as good plans."""


def written_out(fillings: Whole, values: Floats, swaps: Whole, swapped: Floats) -> list[Whole]:
    """Returns the fillings that each stands for; together they hold what these hold after all swaps.

    ``values``: how often each filling is used. ``swaps``: (which size gives a place away, which takes it);
    ``swapped``: how often.
    """
    shares = _shares(dot(fillings.T, values), swaps, swapped)
    whole: Mask = np.diagonal(shares) >= 1 - _NOTHING
    most = np.ceil(_EACH * values + _MORE).astype(np.int64).tolist()
    return [_variants(pods, shares, whole, most=many) for pods, many in zip(fillings, most, strict=True)]


def _shares(places: Floats, swaps: Whole, swapped: Floats) -> Floats:
    """[shape of a place, shape of a pod]: which part of such places goes to such pods in the end."""
    many = len(places)
    used = swapped > _NOTHING
    givers, takers, amounts = swaps[used, 0], swaps[used, 1], swapped[used]
    there = np.diag(places)  # [which has it now, whose it was]
    kept = np.zeros((many, many))
    open_ = np.bincount(takers, minlength=many)
    waiting = [row for row in range(many) if not open_[row]]
    while waiting:
        row = waiting.pop()
        mine = np.nonzero(givers == row)[0]
        total = there[row].sum()
        given = min(total, float(amounts[mine].sum()))
        kept[row] = there[row] * ((total - given) / total if total > 0 else 0.0)
        scale = given / max(float(amounts[mine].sum()), _NOTHING)
        for swap in mine.tolist():
            taker = int(takers[swap])
            there[taker] += there[row] * (amounts[swap] * scale / total if total > 0 else 0.0)
            open_[taker] -= 1
            if not open_[taker]:
                waiting.append(taker)
    shares: Floats = kept.T / np.where(places > 0, places, 1.0)[:, None]
    return shares


def _variants(pods: Whole, shares: Floats, whole: Mask, *, most: int) -> Whole:
    """The filling in as many ways as keep the shares of all its places, or about keep them where these are too many."""
    given = [row for row in np.nonzero(pods)[0].tolist() if not whole[row]]
    takers = {row: np.nonzero(shares[row] > _NOTHING)[0] for row in given}
    ends = {row: np.cumsum(shares[row, takers[row]]) for row in given}
    cuts = np.concatenate([[0.0, 1.0], *((ends[row][:-1] / ends[row][-1] * pods[row]) % 1 for row in given)])
    cuts.sort()
    middles = [(one + other) / 2 for one, other in pairwise(cuts.tolist()) if other - one > _NOTHING]
    if len(middles) > most:
        middles = ((np.arange(most) + 0.5) / most).tolist()
    found = np.repeat(pods[None], len(middles), axis=0)
    found[:, given] = 0
    for line, middle in enumerate(middles):
        for row in given:
            at = (np.arange(pods[row]) + middle) / pods[row] * ends[row][-1]
            np.add.at(found[line], takers[row][np.minimum(np.searchsorted(ends[row], at), len(takers[row]) - 1)], 1)
    return found
