"""Places in the order in which they are to be filled, for one shape of pod."""

from __future__ import annotations

from dataclasses import replace

from autoscaler.model.labels import ZONE
from autoscaler.model.resources import CPU, MEMORY, PODS
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import FillOrder, Place, Shelf
from tests.builders import a_pod


def a_place(name: str, cpu: int, *, tier: int = 0, gpus: int = 0) -> Place:
    """With so many CPUs free."""
    free = {CPU: cpu * 1000, MEMORY: 2**40, PODS: 110, "nvidia.com/gpu": gpus}
    return Place(name, {}, (), free, tier=tier)


def test_places_that_have_changed_are_found_again_and_again() -> None:
    """A search that is left before its end, or ended, takes none away from the next one."""
    places = [a_place(f"n{number}", 8) for number in range(4)]
    pods = [a_pod(f"p{number}", cpu=3) for number in range(9)]
    snapshot = Snapshot(places, (), pods)
    shape = snapshot.shape(pods[0])
    placed = []
    while (place := snapshot.find(shape)) is not None:
        snapshot.put(shape, place, f"team/p{len(placed)}")
        placed.append(place.name)
    assert placed == ["n0", "n0", "n1", "n1", "n2", "n2", "n3", "n3"]


def test_the_fullest_of_the_lowest_tier_comes_first_and_a_gpu_is_not_stranded() -> None:
    """Whatever they are called; undone, all is as it was."""
    places = [a_place("a", 9, tier=1), a_place("b", 20), a_place("c", 9, gpus=2), a_place("d", 10), a_place("e", 2)]
    pods = [a_pod(f"p{number}", cpu=4) for number in range(12)]
    snapshot = Snapshot(places, (), pods)
    shape = snapshot.shape(pods[0])

    def filled() -> list[str]:
        names = []
        for pod in pods:
            place = snapshot.find(shape)
            if place is not None:
                snapshot.put(shape, place, pod.key)
                names.append(place.name)
        return names

    mark = snapshot.mark()
    first = filled()
    assert first == ["d", "d", "b", "b", "b", "b", "b", "c", "c", "a", "a"]
    snapshot.undo(mark)
    assert filled() == first


def test_of_a_zone_only_its_own_places_are_found() -> None:
    """Whatever comes before them."""
    places = [replace(a_place(f"n{number}", 8), labels={ZONE: f"us-east-1{'ab'[number % 2]}"}) for number in range(4)]
    (pod,) = pods = [a_pod(cpu=3)]
    snapshot = Snapshot(places, (), pods)
    found = snapshot.find(snapshot.shape(pod), (ZONE, "us-east-1b"))
    assert found is not None
    assert found.name == "n1"
    assert snapshot.find(snapshot.shape(pod), (ZONE, "us-east-1c")) is None


def test_the_order_of_the_places_is_made_anew_once_many_have_changed() -> None:
    """What had changed before it was made does not count; a ranking that was behind counts from where it was."""
    places = [a_place(f"n{number}", 8) for number in range(64)]
    changed = places * 3
    shelf = Shelf(places, changed, FillOrder())
    assert not shelf.is_stale()
    changed += places[:33]
    assert not shelf.is_stale()
    assert not shelf.is_stale(len(changed))
    changed += places[:1]
    assert shelf.is_stale()
    assert shelf.is_stale(0)
