"""Which nodes a spread counts: those that the pod selects and that have every label it is spread over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.constraints import Requirement
from autoscaler.model.feasibility import NODE_NAME
from autoscaler.planner.placement.topology_spread import EligibleDomains, Spreading
from autoscaler.planner.supply.candidate_nodes import Place

KEYS = ("zone", "rack", "pool")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("ab"))
REQUIREMENTS = st.builds(
    Requirement, st.sampled_from((*KEYS, NODE_NAME)), st.sampled_from(["In", "NotIn"]), st.just(("a", "node-1"))
)


@given(
    labels=st.lists(LABELS, max_size=8),
    affinity=st.lists(st.lists(REQUIREMENTS, min_size=1, max_size=2).map(tuple), max_size=2).map(tuple),
    topology_key=st.sampled_from(KEYS),
    others=st.sets(st.sampled_from(KEYS)),
)
def test_nodes_are_counted_all_at_once_as_they_are_one_by_one(
    labels: list[dict[str, str]],
    affinity: tuple[tuple[Requirement, ...], ...],
    topology_key: str,
    others: set[str],
) -> None:
    """Whatever their labels are, and whatever is asked of them; what is taken away is counted no longer."""
    places = [Place(f"node-{number}", own, (), {}, tier=0) for number, own in enumerate(labels)]
    spreading = Spreading(topology_key, affinity, frozenset({topology_key, *others}))
    one_by_one = EligibleDomains(lambda: ())
    assert one_by_one.of(spreading) == {}
    for place in places:
        one_by_one.count(place, 1)
    assert one_by_one.of(spreading) == EligibleDomains(lambda: places).of(spreading)
    for place in places:
        one_by_one.count(place, -1)
    assert one_by_one.of(spreading) == {}
