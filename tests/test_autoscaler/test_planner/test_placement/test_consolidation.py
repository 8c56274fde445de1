"""Nodes that are bought anyway: two of a kind become one that is no dearer, and nobody loses his place."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.constraints import Requirement
from autoscaler.model.labels import GPU, INSTANCE_TYPE
from autoscaler.model.resources import CPU, MEMORY, PODS, Resources
from autoscaler.planner.demand.pod_rules import Company, Neighbours, Stance
from autoscaler.planner.placement.consolidation import Fresh, Tidying
from autoscaler.planner.supply.capacity import Room
from autoscaler.planner.supply.offers import Price, offers_of
from tests.builders import a_pod

GIB = 2**30


def _price(kind: str, cpu: int, usd: float, *, gpus: int = 0) -> Price:
    room = Resources({CPU: cpu * 1000, MEMORY: cpu * 4 * GIB, GPU: gpus, PODS: 100})
    return Price(kind, "amd64", room, usd)


PRICES = [_price("half", 8, 1.0), _price("whole", 16, 2.0), _price("dear", 16, 2.5), _price("gpu", 16, 2.0, gpus=1)]


def _tidying(*cpus: int, tied: bool = False) -> tuple[Tidying, Room]:
    affinity = ((Requirement(INSTANCE_TYPE, "In", ("half",)),),) if tied else ()
    pods = [a_pod(f"p{number}", cpu=cpu, gpus=0, affinity=affinity) for number, cpu in enumerate(cpus)]
    room = Room(offers_of(pods, PRICES, None, ()), (), pods, pods)
    return Tidying(range(len(pods)), room, Neighbours(pods, [1] * len(pods)), {}), room


def _half(room: Room, pod: int, company: Company | None = None) -> Fresh:
    offer = next(one for one in room.offers if one.price.instance_type == "half")
    return Fresh(offer, [pod], company or Company(), 1)


@settings(deadline=None, max_examples=40)
@given(cpus=st.lists(st.integers(1, 8), min_size=1, max_size=9))
def test_two_of_a_kind_become_one_that_is_no_dearer(cpus: list[int]) -> None:
    """Everyone keeps a place, nothing is over-committed, and at most one of the small kind is left."""
    tidying, room = _tidying(*cpus)
    before = [_half(room, pod) for pod in range(len(cpus))]
    after = tidying.joined(before)
    assert sorted(pod for node in after for pod in node.pods) == list(range(len(cpus)))
    assert sum(node.offer.kind.usd for node in after) <= len(cpus)
    for node in after:
        assert sum(cpus[pod] * 1000 for pod in node.pods) <= node.offer.kind.amounts[0]
    assert [node.offer.price.instance_type for node in after].count("half") == len(cpus) % 2


def test_who_is_tied_to_a_type_or_minds_company_stays() -> None:
    """A selector of the small kind, or a pod that keeps others off."""
    tidying, room = _tidying(4, 4, tied=True)
    assert len(tidying.joined([_half(room, 0), _half(room, 1)])) == 2
    tidying, room = _tidying(4, 4)
    alone = Company.of([Stance(repels=frozenset({1}), known_by=frozenset({1}))])
    assert len(tidying.joined([_half(room, 0, alone), _half(room, 1)])) == 2
