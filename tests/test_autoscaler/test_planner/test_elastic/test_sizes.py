"""Sizes of elastic jobs, and the faults of the published algorithm that ours must not have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.cluster import Pod
from autoscaler.model.constraints import Requirement, Taint, Toleration
from autoscaler.model.resources import PODS, Resources
from autoscaler.planner.elastic.sizes import followed, least_growth, sizes
from autoscaler.planner.elastic.values import Claim, ElasticJob, ElasticParameters, Follower, Look, Sizes
from autoscaler.planner.placement.offerings import Ceilings, Market, Offering
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import ON_PREM_TIER, Place
from autoscaler.planner.supply.node_places import new_place
from tests import examples
from tests.bench.edl import jain, may_begin
from tests.bench.edl_published import PublishedJob, PublishedLook, published
from tests.builders import a_group

NOW = datetime(2026, 8, 1, tzinfo=UTC)
OLD = NOW - timedelta(minutes=1)
GIVEN = ElasticParameters()


def cpus(count: int) -> Resources:
    """So many CPUs."""
    return Resources({"cpu": 1000 * count})


def a_task(count: int = 1, **given: object) -> Pod:
    """A pod of so many CPUs."""
    pod = Pod(namespace="team", name="p", uid="", requests=cpus(count), created=NOW)
    return replace(pod, **given)  # type: ignore[arg-type]


def a_job(name: str = "a", tasks: str = "", **changes: object) -> ElasticJob:
    """A job of 1 to 10 tasks of a CPU; ``tasks``: the node of each, a letter each."""
    job = ElasticJob(name, a_task(), minimum=1, maximum=10, created=OLD, tasks=tuple(tasks), warm_up=timedelta())
    return replace(job, **changes)  # type: ignore[arg-type]


def decided(*jobs: ElasticJob, free: dict[str, int], claims: tuple[Claim, ...] = (), **more: object) -> dict[str, int]:
    """The size of each job that runs or is to start, on nodes with so many free CPUs."""
    told = sized(Look(NOW, jobs, claims), nodes(free), **more)
    return {name: len(tasks) for name, tasks in told.tasks.items()}


def nodes(free: dict[str, int], **given: object) -> list[Place]:
    """Own machines with so many free CPUs."""
    places = [
        Place(name, {"name": name}, (), {"cpu": 1000 * count, PODS: 110}, ON_PREM_TIER) for name, count in free.items()
    ]
    for place in places:
        for key, value in given.items():
            setattr(place, key, value)
    return places


def sized(look: Look, places: list[Place], offerings: tuple[Offering, ...] = ()) -> Sizes:
    """What is decided, and nothing is left of it on the snapshot."""
    tasks = [pod for job in look.jobs for pod in (job.task, *job.others)]
    snapshot = Snapshot(places, residents=(), pending=[*tasks, *(pod for one in look.claims for pod in one.pods)])
    before = [dict(place.free) for place in places]
    told = sizes(look, Market(snapshot, offerings, Ceilings()), GIVEN)
    assert before == [place.free for place in places]
    return told


def a_claim(*pods: int, priority: int = 0) -> Claim:
    """Pods of so many CPUs that wait."""
    return Claim("other", tuple(a_task(pod) for pod in pods), NOW, priority)


def test_a_job_starts_at_its_minimum_with_all_that_it_needs_beside() -> None:
    """The gang is all or nothing, and has places for its parameter servers too."""
    job = a_job(minimum=2, others=(a_task(3),))
    assert decided(job, free={"x": 5}) == {"a": 2}
    assert decided(job, free={"x": 4}) == {}


def test_a_job_grows_into_free_room_up_to_its_maximum() -> None:
    """As far as there is room."""
    assert decided(a_job(tasks="x"), free={"x": 3, "y": 2}) == {"a": 6}
    assert decided(a_job(tasks="x"), free={"x": 30}) == {"a": 10}


def test_for_a_gang_that_job_shrinks_by_which_least_is_wasted() -> None:
    """Not the largest: its last tasks stand where a server leaves a CPU over. For one pod it is the largest."""
    large = a_job("large", tasks="abcd", task=a_task(5), maximum=4)
    small = a_job("small", tasks="eww", task=a_task(5), maximum=3)
    free = {"a": 0, "b": 0, "c": 0, "d": 0, "e": 0, "w": 3}
    assert decided(large, small, free=free, claims=(a_claim(4, 4),)) == {"large": 4, "small": 2}
    assert decided(large, small, free=free, claims=(a_claim(4),)) == {"large": 3, "small": 3}
    much = replace(large, tasks=tuple("abcdfghi"), maximum=8)
    more = free | dict.fromkeys("fghi", 0)
    assert decided(much, small, free=more, claims=(a_claim(4, 4),)) == {"large": 6, "small": 3}


def test_jobs_are_evened_out_where_one_has_a_quarter_more_than_another_at_least() -> None:
    """And two more: each change of size takes time."""
    for tasks, evened in (((16, 12), (15, 13)), ((16, 13), (16, 13)), ((4, 2), (3, 3)), ((3, 2), (3, 2))):
        large, small = (
            a_job(name, tasks="x" * many, maximum=20) for name, many in zip(("large", "small"), tasks, strict=True)
        )
        assert tuple(decided(large, small, free={"x": 0}).values()) == evened


def test_each_task_that_evens_out_comes_of_the_job_that_has_most_then() -> None:
    """Not of the one that has begun to shrink: three jobs end with as many tasks each."""
    rich = [a_job(name, tasks="x" * 8) for name in "ab"]
    assert decided(*rich, a_job("poor", tasks="xx"), free={"x": 0}) == {"a": 6, "b": 6, "poor": 6}


def test_own_machines_come_before_those_that_cost_money() -> None:
    """A node is bought only for what has no room on those that are there, and only for money that is allowed."""
    group = a_group("cpu", usd_per_hour=3.0, allocatable=Resources({"cpu": 2000, PODS: 110}))
    dear = Offering(group, lambda name: new_place(group, name, {"cpu": 2000, PODS: 110}), buyable=1)
    look = Look(NOW, (a_job(tasks="x", usd_per_hour=3.0),))
    told = sized(look, nodes({"own": 1}), (dear,))
    bought = f"{group.name}+1"
    assert (told.tasks["a"], told.bought) == (("x", "own", bought, bought), (bought,))
    poor = replace(look, jobs=(a_job(tasks="x", usd_per_hour=2.9),))
    assert sized(poor, nodes({"own": 1}), (dear,)).tasks["a"] == ("x", "own")


def test_what_is_paid_for_already_counts() -> None:
    """A job that has spent its money grows no further; one that has spent more gives up what it spends it on."""
    paid = a_job(tasks="xyz", paid={"y": 3.0, "z": 3.0}, usd_per_hour=3.0)
    assert decided(paid, free={"z": 0}) == {"a": 2}
    assert decided(replace(paid, minimum=3), free={"z": 0}) == {"a": 3}
    several = replace(paid, tasks=tuple("xyzw"), paid={"y": 3.0, "z": 3.0, "w": 3.0})
    assert decided(several, free={"z": 0}) == {"a": 2}
    assert decided(replace(paid, usd_per_hour=6.0), free={"z": 0}) == {"a": 3}


def test_rules_of_nodes_and_pods_hold_for_elastic_tasks() -> None:
    """Room behind a taint, beside a pod with the same port, or on a node that is not selected is none."""
    job = a_job(tasks="x")
    closed = nodes({"y": 5}, taints=(Taint("team", "other"),))
    assert sized(Look(NOW, (job,)), closed).tasks["a"] == ("x",)
    tolerates = replace(job, task=a_task(tolerations=(Toleration("team", "Exists"),)))
    assert len(sized(Look(NOW, (tolerates,)), nodes({"y": 5}, taints=(Taint("team", "other"),))).tasks["a"]) == 6
    port = replace(job, task=a_task(host_ports=frozenset({("TCP", 2222)})))
    assert sized(Look(NOW, (port,)), nodes({"y": 5, "z": 5})).tasks["a"] == ("x", "y", "z")
    selects = replace(job, task=a_task(affinity=((Requirement("name", "In", ("z",)),),)))
    assert sized(Look(NOW, (selects,)), nodes({"y": 5, "z": 1})).tasks["a"] == ("x", "z")


def test_a_claim_that_wants_one_zone_has_room_in_one() -> None:
    """Tasks end only where that makes it."""
    places = nodes({"y": 1, "z": 1})
    for place, zone in zip(places, "uv", strict=True):
        place.labels = {"zone": zone}
    claim = replace(a_claim(1, 1), topology="zone")
    look = Look(NOW, (a_job(tasks="zz", maximum=2),), (claim,))
    assert sized(look, places).tasks["a"] == ("z",)
    places = nodes({"y": 1, "z": 1})
    assert sized(replace(look, claims=(replace(claim, topology=None),)), places).tasks["a"] == ("z", "z")


def test_tasks_that_wait_and_have_no_room_any_longer_are_given_up() -> None:
    """Others came first. What has room goes there; within the interval the size stays."""
    job = replace(a_job(maximum=4), tasks=("x", "", ""))
    assert sized(Look(NOW, (job,)), nodes({"y": 1})).tasks["a"] == ("x", "y")
    recent = replace(job, changed=NOW)
    assert sized(Look(NOW, (recent,)), nodes({"y": 1})).tasks["a"] == ("x", "y", "")


def test_a_server_without_a_place_takes_no_task_of_the_minimum() -> None:
    """It goes on waiting."""
    assert decided(a_team("x", [""]), free={"x": 0}) == {"a": 1, "a-ps": 1}


def a_team(tasks: str, servers: Sequence[str], **changes: object) -> ElasticJob:
    """A job of 1 to 4 workers, and 1 to 2 parameter servers of 2 CPUs that follow."""
    servers_of = Follower("a-ps", a_task(2), minimum=1, maximum=2, tasks=tuple(servers))
    return a_job(tasks=tasks, maximum=4, followers=(servers_of,), **changes)


def test_f6_servers_follow_the_workers() -> None:
    """A worker more comes with what it needs of them, or not; they go with the workers that needed them."""
    assert [followed(a_team("x", "x").followers[0], a_team("x", "x"), size) for size in (1, 2, 3, 4)] == [1, 2, 2, 2]
    alike = replace(a_team("x", "x").followers[0], maximum=4)
    assert [followed(alike, a_team("x", "x"), size) for size in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert followed(a_team("x", "x").followers[0], replace(a_team("x", "x"), minimum=4, maximum=4), 4) == 1
    assert decided(a_team("x", "x"), free={"y": 3}) == {"a": 2, "a-ps": 2}
    assert decided(a_team("x", "x"), free={"y": 2}) == {"a": 1, "a-ps": 1}
    waits = a_claim(3, priority=1)
    assert decided(a_team("xx", "xx"), free={"x": 0}, claims=(waits,)) == {"a": 1, "a-ps": 1}
    assert decided(a_team("", ""), free={"x": 3}) == {"a": 1, "a-ps": 1}
    assert decided(a_team("", ""), free={"x": 2}) == {}


def test_servers_catch_up_with_workers_where_their_own_change_has_failed() -> None:
    """What lacks is added also within the interval, where there is room; what is too much ends after it."""
    recent = NOW - timedelta(seconds=5)
    behind, beyond = a_team("xxxx", "x"), a_team("x", "xx")
    for job in (behind, replace(behind, changed=recent)):
        assert decided(job, free={"y": 2}) == {"a": 4, "a-ps": 2}
        assert decided(job, free={"y": 1}) == {"a": 4, "a-ps": 1}
        for kept in (replace(job, stays=True), replace(job, may_grow=False)):
            assert decided(kept, free={"y": 2}) == {"a": 4, "a-ps": 1}
    assert decided(beyond, free={"y": 0}) == {"a": 1, "a-ps": 1}
    assert decided(replace(beyond, changed=recent), free={"y": 9}) == {"a": 1, "a-ps": 2}
    assert decided(beyond, free={"y": 5}) == {"a": 4, "a-ps": 2}
    found = sized(Look(NOW, (behind,)), nodes({"y": 2}))
    assert found.because == {"a-ps": "a has 4 tasks"}


def test_pods_go_where_the_least_of_a_machine_is_wasted() -> None:
    """A server of 4 CPUs goes beside another one rather than into the room of a task of 5."""
    job = a_job(task=a_task(5), others=(a_task(4),))
    told = sized(Look(NOW, (job,)), nodes({"x": 5, "y": 8}))
    assert (told.tasks["a"], told.others["a"]) == (("x",), ("y",))
    running = a_job("b", "z", task=a_task(5), maximum=1)
    told = sized(Look(NOW, (running, a_job(task=a_task(4)))), nodes({"x": 5, "y": 8}))
    assert told.tasks["a"] == ("y",)


def test_the_size_changes_once_in_an_interval() -> None:
    """Neither up nor down, also for others that wait."""
    recent = a_job(tasks="xx", changed=NOW - GIVEN.interval + timedelta(seconds=1))
    assert decided(recent, free={"x": 4}) == {"a": 2}
    assert decided(recent, free={"x": 0}, claims=(a_claim(1, priority=1),)) == {"a": 2}
    assert decided(replace(recent, changed=NOW - GIVEN.interval), free={"x": 4}) == {"a": 6}


def test_a_job_shrinks_for_a_whole_gang_and_not_for_a_part_of_one() -> None:
    """What makes room for no whole gang is not given up; nor is a task below the minimum."""
    assert decided(a_job(tasks="xxx"), free={"x": 0}, claims=(a_claim(1, 1),)) == {"a": 1}
    assert decided(a_job(tasks="xxx"), free={"x": 0}, claims=(a_claim(1, 1, 1),)) == {"a": 3}


def test_few_jobs_shrink_and_the_others_stay_free_to() -> None:
    """Each change keeps a job from another for a while: one gives up half of its tasks before the next is asked."""
    jobs = [a_job(name, "nnnnnn") for name in "abc"]
    for pods, left in ((1, (5, 6, 6)), (3, (3, 6, 6)), (4, (3, 5, 6)), (9, (3, 3, 3)), (12, (2, 2, 2))):
        claims = tuple(Claim(f"x{number}", (a_task(),), NOW, 1) for number in range(pods))
        assert sorted(decided(*jobs, free={"n": 0}, claims=claims).values()) == sorted(left), pods


def test_a_job_does_not_shrink_for_pods_of_lower_priority() -> None:
    """Those wait."""
    assert decided(a_job(tasks="xx", priority=1), free={"x": 0}, claims=(a_claim(1),)) == {"a": 2}


def test_the_highest_indexes_end_on_whatever_machine_they_are() -> None:
    """An Indexed Job ends those: a pod that fits on no machine but another gets no room from them."""
    look = Look(NOW, (a_job(tasks="xyy"),), (a_claim(2),))
    free = {"x": 1, "y": 0}
    assert sized(look, nodes(free)).tasks["a"] == ("x",)
    assert sized(replace(look, jobs=(a_job(tasks="xxy", minimum=2),)), nodes(free)).tasks["a"][:2] == ("x", "x")


def test_a_restart_that_costs_more_than_it_gains_is_not_made() -> None:
    """Ten workers that stand still for a minute lose what two more do in five minutes; the room goes to another job."""
    still = a_job(tasks="x" * 8, restart=timedelta(minutes=2))
    assert least_growth(still, GIVEN) == 4
    assert least_growth(replace(still, warm_up=GIVEN.horizon), GIVEN) == 10, "new ones would do nothing in time"
    assert decided(replace(still, maximum=20), free={"x": 3}) == {"a": 8}
    assert decided(replace(still, maximum=20), free={"x": 4}) == {"a": 12}
    assert decided(replace(still, maximum=20), a_job("b", "x", maximum=4), free={"x": 3}) == {"a": 8, "b": 4}
    assert decided(replace(still, maximum=9), free={"x": 3}) == {"a": 8}  # the last one is worth no more


def test_tasks_begin_when_what_ends_has_ended() -> None:
    """The look counts pods that are ending as gone; nothing begins before they are."""
    job = a_job(tasks="x")
    told = sized(Look(NOW, (job,)), nodes({"x": 1}))
    assert not may_begin(told, job, {"x": cpus(0)})
    assert may_begin(told, job, {"x": cpus(1)})


def test_f1_what_a_rich_job_has_goes_to_a_poor_one() -> None:
    """The published algorithm takes from no job while the total is below its limit."""
    assert decided(a_job("a", "xxxxxx"), a_job("b", "x"), free={"x": 0}) == {"a": 4, "b": 3}
    jobs = [PublishedJob("a", 1, 1, 10, 6, 6, 6, 0), PublishedJob("b", 1, 1, 10, 1, 1, 1, 0)]
    assert published(jobs, PublishedLook(total=10, asked=9, idle=0)) == {"a": 6, "b": 1}


def test_others_shrink_for_a_job_once_it_has_been_there_for_an_interval() -> None:
    """Into what is free it grows at once."""
    rich, young = a_job("a", "xxxxxx"), a_job("b", "x", created=NOW - GIVEN.interval + timedelta(seconds=1))
    assert decided(rich, young, free={"x": 0}) == {"a": 6, "b": 1}
    assert decided(rich, young, free={"x": 1}) == {"a": 6, "b": 2}
    assert decided(rich, replace(young, created=NOW - GIVEN.interval), free={"x": 0}) == {"a": 4, "b": 3}


def test_f2_room_in_pieces_is_no_room() -> None:
    """Three nodes with a CPU free hold no pod of two: the total is below the limit, and a job gives way."""
    free = {"x": 1, "y": 1, "z": 1}
    after = decided(a_job(tasks="xyz", changed=None), free=free, claims=(a_claim(2, priority=1),))
    assert after["a"] == 2
    jobs = [PublishedJob("a", 1, 1, 3, 3, 3, 3, 0)]
    assert published(jobs, PublishedLook(total=100, asked=90, idle=1)) == {"a": 3}


def test_f3_one_pod_that_waits_in_each_job_does_not_stop_everything() -> None:
    """The published gate then lets no job through, for ever; ours looks at what waits, not at what is stable."""
    jobs = [PublishedJob(name, 1, 1, 10, 5, 5, 4, 1) for name in "ab"]
    assert published(jobs, PublishedLook(total=10, asked=12, idle=0)) == {}
    after = decided(a_job("a", "xxxxx"), a_job("b", "yyyyy"), free={"x": 0, "y": 0}, claims=(a_claim(1),))
    assert sum(after.values()) == 9


def test_the_published_way_ranks_by_the_sizes_that_are_there_and_counts_what_ends() -> None:
    """Each job in turn gets one, whatever it has been given in this round; a job with a pod that ends is left alone."""
    jobs = [PublishedJob("a", 1, 1, 9, 3, 3, 3, 0), PublishedJob("b", 1, 1, 9, 2, 2, 2, 0)]
    assert published(jobs, PublishedLook(total=100, asked=94, idle=1)) == {"a": 4, "b": 4}
    jobs = [PublishedJob("a", 1, 1, 9, 3, 4, 3, 0), PublishedJob("b", 1, 1, 9, 2, 2, 2, 0)]
    assert published(jobs, PublishedLook(total=100, asked=94, idle=1)) == {"b": 5}


def test_f4_no_gang_starts_in_part() -> None:
    """With room for the tasks and not for the servers, nothing starts, and nothing shrinks for it in vain."""
    assert decided(a_job(minimum=2, others=(a_task(4),)), a_job("b", "xx"), free={"x": 2, "y": 3}) == {"b": 7}


def test_f5_a_higher_priority_is_served_first_and_by_those_below() -> None:
    """The higher gang gets the room that both want; the lower job gives way, the higher keeps its tasks."""
    low, high = a_job("low", minimum=2), a_job("zhigh", minimum=2, priority=1)
    assert decided(low, high, free={"x": 3}) == {"zhigh": 2}
    rich, poor = a_job("rich", "xxxxx", priority=1), a_job("poor", "xx")
    assert decided(rich, poor, free={"x": 0}, claims=(a_claim(1, priority=1),)) == {"rich": 5, "poor": 1}


def test_jain_is_one_where_all_are_equal() -> None:
    """And one over their number where one has everything."""
    assert jain([3, 3, 3]) == 1.0
    assert jain([5, 0, 0, 0]) == 0.25
    assert jain([]) == jain([0]) == 1.0


jobs_on_nodes = st.lists(
    st.builds(
        a_job,
        tasks=st.text("xyz", max_size=6),
        priority=st.integers(0, 2),
        minimum=st.integers(1, 3),
        others=st.lists(st.integers(1, 3).map(a_task), max_size=2).map(tuple),
        task=st.integers(1, 3).map(a_task),
        changed=st.sampled_from([None, NOW, NOW - timedelta(minutes=2)]),
        restart=st.sampled_from([timedelta(), timedelta(seconds=90)]),
    ).filter(lambda job: not job.tasks or len(job.tasks) >= job.minimum),
    max_size=5,
).map(lambda jobs: tuple(replace(job, name=f"job-{number}") for number, job in enumerate(jobs)))


@settings(max_examples=examples(200), deadline=None)
@given(
    jobs=jobs_on_nodes,
    free=st.lists(st.integers(0, 8), min_size=3, max_size=3),
    claims=st.lists(st.builds(a_claim, st.integers(1, 4), priority=st.integers(0, 2)), max_size=3),
)
def test_whatever_is_decided_fits_and_keeps_every_minimum(
    jobs: tuple[ElasticJob, ...], free: list[int], claims: list[Claim]
) -> None:
    """No node is overfull, no job is below its minimum or above its maximum, none that changed lately changes."""
    room = {name: cpus(count) for name, count in zip("xyz", free, strict=True)}
    claims = [replace(one, name=f"other-{number}") for number, one in enumerate(claims)]
    there = dict(zip("xyz", free, strict=True))
    look = Look(NOW, jobs, tuple(claims))
    told = sized(look, nodes(there))
    assert told == sized(replace(look, jobs=jobs[::-1], claims=tuple(claims[::-1])), nodes(there))
    for job in jobs:
        tasks = told.tasks.get(job.name, ())
        kept = min(len(tasks), len(job.tasks))
        assert tasks[:kept] == job.tasks[:kept], "tasks that stay stay where they are"
        assert not tasks or job.minimum <= len(tasks) <= job.maximum
        assert job.changed != NOW or not job.started or tasks == job.tasks
        for node, size in [(one, job.task) for one in tasks[kept:]]:
            room[node] -= size.requests
        for node in job.tasks[kept:]:
            room[node] += job.task.requests
        for node, size in zip(told.others.get(job.name, ()), job.others, strict=False):
            room[node] -= size.requests
    assert all(cpus(0).fits_in(one) and one["cpu"] >= 0 for one in room.values())
