"""The demo judges itself by what was seen: every claim can fail."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stacks.local.demo.claims import (
    GroupSeen,
    InstanceSeen,
    Morning,
    NodeSeen,
    PodSeen,
    Purchase,
    Said,
    Told,
    claims,
    figures,
)


def pod(name: str, job: str, **changes: object) -> PodSeen:
    """A worker of 8 GPUs that was created, bound and succeeded."""
    ordinary = {
        "role": "worker", "gpus": 8, "created_at": 10.0, "node": "dgx-01", "bound_at": 20.0,
        "finished_at": 40.0, "succeeded": True,
    }  # fmt: skip
    return PodSeen(name=name, job=job, **ordinary | changes)  # type: ignore[arg-type]


SAID = Said(
    refused="job impossible could never start",
    explained="asks 16",
    edited_at=50.0,
    obeyed_at=50.4,
    sizes=(3, 2, 3),
)
GOOD = Morning(
    small="small",
    spill="spill",
    impossible="impossible",
    service="web",
    elastic="elastic",
    pods=(
        pod("small-worker-0", "small", created_at=1.0, bound_at=1.2),
        pod("small-ps-0", "small", role="ps", gpus=0, created_at=1.0, bound_at=1.2, succeeded=False, gone=True),
        pod("spill-worker-0", "spill"),
        pod("spill-worker-1", "spill", node="ip-1", bound_at=20.2),
        pod("spill-ps-0", "spill", role="ps", gpus=0, succeeded=False, gone=True),
        pod("impossible-worker-0", "impossible", node=None, bound_at=None, finished_at=None, succeeded=False),
        pod("web-1", "web", role="", gpus=0, node="ip-1", created_at=25.0, bound_at=25.1, succeeded=False, gone=True),
        pod("web-2", "web", role="", gpus=0, created_at=52.0, bound_at=53.5, finished_at=None, succeeded=False),
        pod("elastic-worker-0", "elastic", gpus=1, created_at=60.0, bound_at=61.0),
        pod("elastic-worker-1", "elastic", gpus=1, created_at=61.2, bound_at=61.5),
        pod("elastic-worker-2", "elastic", gpus=1, created_at=61.2, bound_at=61.5),
    ),
    nodes=(
        NodeSeen(name="dgx-01", on_prem=True, gpus=8, ready_at=0.0),
        NodeSeen(name="ip-1", on_prem=False, gpus=8, ready_at=19.0, gone=True),
    ),
    purchases=(Purchase(group="g", to=1, at=10.3),),
    instances=(InstanceSeen(id="i-1", group="g", usd_per_hour=36.0, launched_at=11.0, ended_at=111.0),),
    groups=(GroupSeen(name="g", minimum=0, desired=0),),
    told=(Told(pod="impossible-worker-0", reason="CannotBePlaced", message="asks 16"),),
    said=SAID,
    jobs_left=frozenset(),
)


def broken(morning: Morning) -> list[str]:
    """The texts of the claims that did not hold."""
    return [claim.text for claim in claims(morning) if not claim.held]


def change_pod(name: str, **changes: object) -> Morning:
    """The good morning with one pod's fate changed."""
    return replace(GOOD, pods=tuple(replace(p, **changes) if p.name == name else p for p in GOOD.pods))


def test_a_good_morning_keeps_every_claim() -> None:
    """The ordinary case."""
    assert broken(GOOD) == []


@pytest.mark.parametrize(
    ("morning", "claim"),
    [
        (change_pod("small-worker-0", node="ip-1"), "small fits on the machines that we own"),
        (replace(GOOD, purchases=(Purchase(group="g", to=1, at=2.0),)), "small fits on the machines that we own"),
        (change_pod("spill-worker-1", node="dgx-01"), "spill fills what is free on-prem and spills"),
        (change_pod("spill-worker-0", node="ip-1"), "spill fills what is free on-prem and spills"),
        (change_pod("spill-worker-0", bound_at=12.0), "spill waits as a whole and starts as a whole"),
        (change_pod("spill-ps-0", bound_at=None), "spill waits as a whole and starts as a whole"),
        (replace(GOOD, instances=GOOD.instances * 2), "every instance was bought once and was used"),
        (replace(GOOD, told=()), "impossible is refused at submit"),
        (replace(GOOD, told=GOOD.told * 2), "impossible is refused at submit"),
        (replace(GOOD, said=replace(SAID, refused="")), "impossible is refused at submit"),
        (replace(GOOD, said=replace(SAID, explained="")), "impossible is refused at submit"),
        (change_pod("impossible-worker-0", bound_at=30.0, node="ip-1"), "impossible is refused at submit"),
        (change_pod("spill-worker-0", succeeded=False), "both jobs finish"),
        (change_pod("spill-ps-0", gone=False, finished_at=None), "both jobs finish"),
        (replace(GOOD, jobs_left=frozenset({"spill-ps"})), "both jobs finish"),
        (replace(GOOD, said=replace(SAID, obeyed_at=1.0)), "an edit of the policy file is obeyed"),
        (change_pod("web-1", node="dgx-01"), "the node that only web kept is drained"),
        (change_pod("web-1", gone=False), "the node that only web kept is drained"),
        (change_pod("web-2", node="ip-1"), "the node that only web kept is drained"),
        (change_pod("web-2", created_at=49.0), "the node that only web kept is drained"),
        (change_pod("web-2", gone=True), "the node that only web kept is drained"),
        (replace(GOOD, groups=(GroupSeen(name="g", minimum=0, desired=1),)), "EC2 goes back to its minimum"),
        (replace(GOOD, instances=(replace(GOOD.instances[0], ended_at=None),)), "EC2 goes back to its minimum"),
        (replace(GOOD, groups=()), "EC2 goes back to its minimum"),
        (replace(GOOD, said=replace(SAID, sizes=(1, 1, 1))), "elastic grows into what is free"),
        (replace(GOOD, said=replace(SAID, sizes=(3, 3, 3))), "elastic grows into what is free"),
        (replace(GOOD, said=replace(SAID, sizes=(3, 2, 2))), "elastic grows into what is free"),
        (change_pod("elastic-worker-2", node="ip-1"), "elastic grows into what is free"),
        (
            replace(GOOD, purchases=(*GOOD.purchases, Purchase(group="g", to=1, at=62.0))),
            "elastic grows into what is free",
        ),
    ],
)
def test_each_claim_fails_where_it_should(morning: Morning, claim: str) -> None:
    """One thing goes wrong, and the claim about it says so."""
    assert any(text.startswith(claim) for text in broken(morning)), broken(morning)


def test_figures_count_seconds_and_dollars() -> None:
    """From the last pod of the gang to the first request after it; 100 s at 36 $/h are a dollar."""
    numbers = figures(GOOD, now=200.0)
    assert numbers.pending_to_request == pytest.approx(0.3)
    assert numbers.pending_to_bound == pytest.approx(10.2)
    assert numbers.peak_usd_per_hour == 36.0
    assert numbers.total_usd == pytest.approx(1.0)
    assert (numbers.instances, numbers.left_behind) == (1, 0)


def test_the_peak_is_of_instances_that_ran_together() -> None:
    """Two that follow each other cost no more at once than one."""
    first = GOOD.instances[0]
    second = replace(first, id="i-2", launched_at=111.0, ended_at=120.0)
    assert figures(replace(GOOD, instances=(first, second)), now=200.0).peak_usd_per_hour == 36.0
    together = replace(second, launched_at=50.0)
    assert figures(replace(GOOD, instances=(first, together)), now=200.0).peak_usd_per_hour == 72.0
