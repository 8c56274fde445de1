"""Elastic jobs of one look: their tasks, what is asked of the sizes, and what follows for pods that wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from autoscaler.config.policy import Elastic
from autoscaler.model import labels as words
from autoscaler.model.actions import Resize
from autoscaler.model.cluster import Cluster, GangRef, Node, Pod
from autoscaler.model.constraints import Requirement, Toleration
from autoscaler.model.jobs import ElasticRole
from autoscaler.planner.demand.gangs import Gang, gangs_of, pinned_to
from autoscaler.planner.elastic.resizing import Resizing, in_turn, resize, roles_of
from autoscaler.planner.pinned_pods import settle
from autoscaler.planner.placement.available_offerings import offerings
from autoscaler.planner.placement.offerings import Ceilings, Market
from autoscaler.planner.placement.snapshot import Snapshot
from autoscaler.planner.supply.candidate_nodes import Place
from autoscaler.planner.supply.fleet import survey
from autoscaler.planner.supply.node_places import new_place
from tests.builders import a_cluster, a_gang, a_group, a_pod, a_policy, an_on_prem_node, later, nodes_of


def a_role(name: str = "a", size: int = 2, least: int = 1, most: int = 4, **given: Any) -> ElasticRole:
    """A Job of one to four tasks, and two now."""
    ordinary: dict[str, Any] = {
        "namespace": "team",
        "name": name,
        "size": size,
        "minimum": least,
        "maximum": most,
        "created": later(minutes=-1),
    }
    return ElasticRole(**ordinary | given)


def a_task(role: ElasticRole, index: int | str, node: str | None = None, **given: Any) -> Pod:
    """One CPU, on a node or behind the gate."""
    ordinary: dict[str, Any] = {"node": node, "phase": "Running"} if node else {"gates": (words.GATE,)}
    labels = {words.COMPLETION_INDEX: str(index)}
    gang = GangRef("team", role.name, size=role.maximum, minimum=role.minimum)
    return a_pod(f"{role.name}-{index}", **ordinary | {"owner": role.owner, "labels": labels, "gang": gang} | given)


def machines(*cpus: int) -> list[Node]:
    """Own ones, own-0 and so on."""
    return [an_on_prem_node(f"own-{n}", gpus=0, cpu=cpu) for n, cpu in enumerate(cpus)]


class Decided:
    """What is decided for a cluster as it is, in which pods may be planned on fresh nodes."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        planned: Mapping[str, str] | None = None,
        homes: Mapping[str, str] | None = None,
        fresh: Mapping[str, Place] | None = None,
        **rules: Any,
    ) -> None:
        policy = a_policy()
        fleet = survey(cluster, policy, {})
        self.gangs = gangs_of(cluster.pods)
        roles = roles_of(cluster)
        pending = [*(pod for gang in self.gangs for pod in gang.waiting), *(role.task for role in roles)]
        places = [*fleet.places, *(fresh or {}).values()]
        pinned = [pod for pod in cluster.pods if pinned_to(pod)]
        snapshot = Snapshot(places, residents=cluster.pods, pending=[*pending, *pinned])
        settle(pinned, snapshot, fleet, at_home=())
        market = Market(snapshot, offerings(cluster, policy, fleet), Ceilings())
        by_key = {pod.key: pod for pod in cluster.pods}

        def found(where: Mapping[str, str] | None) -> dict[str, Place]:
            return {f"team/{name}": _known(snapshot, node) for name, node in (where or {}).items()}

        for key, place in found(planned).items():
            snapshot.put(snapshot.shape(by_key[key]), place, key)
        before = [dict(place.free) for place in snapshot.places]
        self.told = resize(
            cluster,
            Elastic(**rules),
            fleet,
            roles=roles,
            gangs=self.gangs,
            homes=found(homes),
            market=market,
            planned=found(planned),
        )
        assert before == [place.free for place in snapshot.places]

    @property
    def sizes(self) -> list[tuple[str, int, int]]:
        """(Job, was, to), in order."""
        return [(step.name, step.was, step.to) for step in self.told.steps]

    @property
    def homes(self) -> dict[str, str]:
        """Pod -> node."""
        return {key.removeprefix("team/"): place.name for key, place in self.told.homes.items()}


def _known(snapshot: Snapshot, name: str) -> Place:
    place = snapshot.place(name)
    assert place is not None
    return place


# --- The roles of a cluster -------------------------------------------------------------------------------------------


def test_the_tasks_of_a_role_by_index_and_those_that_end() -> None:
    """Deleted, above the size, or without an index; finished ones and those of others are no tasks of it."""
    role = a_role(size=3, least=2)
    pods = [
        a_task(role, 0, "own-0"),
        a_task(role, 1),
        a_task(role, 2, "own-0", deleting=True),
        a_task(role, 3, "own-0"),
        a_task(role, "x", "own-0"),
        a_task(role, "2b", phase="Succeeded"),
        a_pod("other", owner="Job/b", labels={words.COMPLETION_INDEX: "2"}),
        a_task(role, 2, namespace="elsewhere"),
    ]
    (found,) = roles_of(a_cluster(pods=pods, elastic=(role,)))
    assert {index: pod.name for index, pod in found.pods.items()} == {0: "a-0", 1: "a-1"}
    assert {pod.name for pod in found.ending} == {"a-2", "a-3", "a-x"}
    assert [pod.name for pod in found.growth] == []
    assert (found.is_placed, found.task.node, found.task.phase) == (True, None, "Pending")
    (wider,) = roles_of(a_cluster(pods=pods[:2], elastic=(replace(role, minimum=1),)))
    assert [pod.name for pod in wider.growth] == ["a-1"]
    (waits,) = roles_of(a_cluster(pods=pods[1:2], elastic=(role,)))
    assert not waits.is_placed


def test_only_jobs_of_which_pods_are_there_are_roles_in_order_of_their_names() -> None:
    """Nothing is asked where none is elastic."""
    first, second, third = a_role("c"), a_role("b"), a_role("a")
    pods = [a_task(first, 0), a_task(second, 0), a_task(third, 0, deleting=True)]
    assert [role.job.name for role in roles_of(a_cluster(pods=pods, elastic=(first, second, third)))] == ["b", "c"]
    assert roles_of(a_cluster(pods=pods)) == ()


def test_what_a_task_is_wherever_it_runs() -> None:
    """Without the host that it was admitted to and the toleration of its reservation; its own rules stay."""
    role = a_role()
    host = Requirement(words.HOSTNAME, "In", ("own-0",))
    disk = Requirement("disk", "In", ("ssd",))
    other_host = Requirement(words.HOSTNAME, "In", ("own-0", "own-1"))
    tolerations = (Toleration(words.RESERVED, "Exists"), Toleration("team", "Exists"))
    for affinity, left in (
        (((host,),), ()),
        (((host, disk),), ((disk,),)),
        (((other_host,),), ((other_host,),)),
        (((host,), (disk,)), ((), (disk,))),
        ((), ()),
    ):
        pod = a_task(role, 0, "own-0", affinity=affinity, tolerations=tolerations, admitted_to="own-0")
        (found,) = roles_of(a_cluster(pods=[pod], elastic=(role,)))
        assert (found.task.affinity, found.task.tolerations, found.task.admitted_to) == (left, tolerations[1:], "")
    pod = a_task(role, 0, "own-0", affinity=((host,),))
    (found,) = roles_of(a_cluster(pods=[pod], elastic=(role,)))
    assert found.task.affinity == ((host,),)


# --- Sizes ------------------------------------------------------------------------------------------------------------


def test_without_elastic_jobs_nothing_is_decided() -> None:
    """And pods stay where they were meant to go."""
    told = Decided(a_cluster(pods=[a_pod("p")], nodes=machines(4)), homes={"p": "own-0"})
    assert (told.told.steps, told.homes, told.told.looks) == ((), {"p": "own-0"}, ())


def test_a_job_grows_into_free_room_once_its_least_runs() -> None:
    """Not while a task of its least waits, is missing, or is planned on a node that has not joined."""
    role = a_role(least=2)
    runs = [a_task(role, 0, "own-0"), a_task(role, 1, "own-0")]
    assert Decided(a_cluster(pods=runs, nodes=machines(8), elastic=(role,))).sizes == [("a", 2, 4)]
    waits = [runs[0], a_task(role, 1)]
    assert Decided(a_cluster(pods=waits, nodes=machines(8), elastic=(role,))).sizes == []
    assert Decided(a_cluster(pods=runs[:1], nodes=machines(8), elastic=(role,))).sizes == []
    assert Decided(a_cluster(pods=[a_task(role, 0)], nodes=machines(8), elastic=(role,))).sizes == []


def test_a_job_whose_growth_is_planned_on_a_node_that_has_not_joined_does_not_grow_further() -> None:
    """On one that is there it does."""
    role = a_role(size=2, least=1, most=4)
    pods = [a_task(role, 0, "own-0"), a_task(role, 1)]
    cluster = a_cluster(pods=pods, nodes=machines(1, 8), elastic=(role,))
    assert Decided(cluster, planned={"a-1": "own-1"}).sizes == [("a", 2, 4)]
    group = a_group("cpu", desired=1)
    fresh = {"coming": new_place(group, "coming", dict(group.allocatable))}
    assert Decided(cluster, planned={"a-1": "coming"}, fresh=fresh, usd_per_hour=5.0).sizes == []
    full = replace(cluster, nodes=tuple(machines(1)))
    assert Decided(full, planned={"a-1": "coming"}, fresh=fresh, usd_per_hour=5.0).sizes == []
    assert Decided(full, planned={"a-1": "coming"}, fresh=fresh).sizes == [("a", 2, 1)]  # it may not pay for that node


def test_a_job_that_stays_or_was_changed_a_moment_ago_keeps_its_size() -> None:
    """Its next look is when the interval is over; a follower's change or stay counts as its own.

    One that has just come grows at once, and others shrink for it when the interval is over.
    """
    for given, sizes, looks in (
        ({"stays": True}, [], ()),
        ({"changed": later(seconds=-10)}, [], (later(seconds=5),)),
        ({"changed": later(seconds=-15)}, [("a", 2, 4)], ()),
        ({"created": later(seconds=-10)}, [("a", 2, 4)], (later(seconds=5),)),
        ({}, [("a", 2, 4)], ()),
    ):
        role = a_role(**given)
        pods = [a_task(role, 0, "own-0"), a_task(role, 1, "own-0")]
        told = Decided(a_cluster(pods=pods, nodes=machines(8), elastic=(role,)))
        assert (told.sizes, told.told.looks) == (sizes, looks), given


def team(size: int = 2, **given: Any) -> tuple[ElasticRole, ElasticRole]:
    """Two to four workers, and servers, half as many."""
    return a_role("w", size, 2, 4), a_role("ps", size // 2, 1, 2, follows="w", **given)


def test_what_follows_grows_first_and_shrinks_last() -> None:
    """In proportion; it is no job of its own."""
    workers, servers = team()
    pods = [*(a_task(workers, n, "own-0") for n in range(2)), a_task(servers, 0, "own-0")]
    told = Decided(a_cluster(pods=pods, nodes=machines(8), elastic=(workers, servers)))
    assert told.sizes == [("ps", 1, 2), ("w", 2, 4)]
    assert len({step.because for step in told.told.steps}) == 1
    workers, servers = team(4)
    pods = [*(a_task(workers, n, "own-0") for n in range(4)), *(a_task(servers, n, "own-0") for n in range(2))]
    urgent = a_pod("urgent", cpu=3, priority=9, gates=(words.GATE,))
    told = Decided(a_cluster(pods=[*pods, urgent], nodes=machines(6), elastic=(servers, workers)))
    assert told.sizes == [("w", 4, 2), ("ps", 2, 1)]
    assert told.homes == {"urgent": "own-0"}
    assert told.told.unbought == {"team/urgent": "tasks of elastic jobs end to make room for it"}


def test_a_job_that_cannot_grow_is_no_reason_for_more_followers() -> None:
    """One of its tasks of the minimum waits: its size is not its maximum then."""
    workers, servers = a_role("w", 3, 2, 8), a_role("ps", 2, 1, 3, follows="w")
    pods = [*(a_task(workers, n, "own-0") for n in range(1, 3)), *(a_task(servers, n, "own-0") for n in range(2))]
    waits = a_task(workers, 0)
    assert Decided(a_cluster(pods=[*pods, waits], nodes=machines(16), elastic=(workers, servers))).sizes == []


def test_a_follower_that_stays_or_changed_or_lacks_its_least_keeps_its_job_as_it_is() -> None:
    """One that lacks a task does not let it grow."""
    for given, there in (({"stays": True}, True), ({"changed": later(seconds=-1)}, True), ({}, False)):
        workers, servers = team(**given)
        pods = [a_task(workers, n, "own-0") for n in range(2)]
        pods += [a_task(servers, 0, "own-0")] if there else [a_task(servers, 0)]
        assert Decided(a_cluster(pods=pods, nodes=machines(8), elastic=(workers, servers))).sizes == []


# --- Pods that wait ---------------------------------------------------------------------------------------------------


def test_tasks_of_a_job_that_has_no_room_for_them_any_more_are_left_out() -> None:
    """So are those that are about to be deleted; nothing is bought for growth that may spend nothing."""
    role = a_role(size=3, least=1)
    pods = [a_task(role, 0, "own-0"), a_task(role, 1), a_task(role, 2), a_task(role, 3)]
    told = Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(role,)))
    assert told.sizes == [("a", 3, 2)]
    assert told.told.left_out == {
        "team/a-2": "there is no room for so large a job team/a any more",
        "team/a-3": "its job team/a has fewer tasks by now",
    }
    assert told.homes == {"a-1": "own-0"}
    assert told.told.growing == {"team/a"}
    unpaid = "nothing is bought for tasks above the minimum of an elastic job that may spend nothing"
    assert told.told.unbought == {"team/a": unpaid}
    paying = Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(replace(role, usd_per_hour=1.0),)))
    assert unpaid not in paying.told.unbought.values()
    assert (
        unpaid
        not in Decided(
            a_cluster(pods=pods, nodes=machines(2), elastic=(role,)), usd_per_hour=1.0
        ).told.unbought.values()
    )
    own = a_cluster(pods=pods, nodes=machines(2), elastic=(replace(role, usd_per_hour=0.0),))
    assert unpaid in Decided(own, usd_per_hour=1.0).told.unbought.values()


def test_a_pod_that_its_job_is_about_to_delete_takes_no_room_of_others() -> None:
    """Neither of the job's other tasks nor by their end."""
    role = a_role(size=2, least=1, most=3)
    pods = [a_task(role, 0, "own-0"), a_task(role, 1, "own-0"), a_task(role, 2)]
    told = Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(role,)))
    assert (told.sizes, told.homes, told.told.unbought) == ([], {}, {})
    pods[1] = a_task(role, 1)
    assert Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(role,))).homes == {"a-1": "own-0"}


def test_a_gang_of_which_tasks_of_the_least_wait_does_not_only_grow() -> None:
    """It is served in its turn."""
    role = a_role(size=2, least=2)
    told = Decided(a_cluster(pods=[a_task(role, 0, "own-0"), a_task(role, 1)], nodes=machines(4), elastic=(role,)))
    assert (told.told.growing, told.told.unbought) == (frozenset(), {})


def test_a_task_of_the_least_that_waits_takes_room_once() -> None:
    """As a pod that waits, and not as a task of its job as well: another job grows into the rest."""
    started, other = a_role("a", size=2, least=2, most=2), a_role("b", size=1, least=1, most=3)
    pods = [a_task(started, 0, "own-0"), a_task(started, 1), a_task(other, 0, "own-0")]
    told = Decided(a_cluster(pods=pods, nodes=machines(4), elastic=(started, other)))
    assert told.sizes == [("b", 1, 2)]
    started = replace(started, created=later(minutes=-2))
    lacks = [pods[0], pods[2]]
    assert Decided(a_cluster(pods=lacks, nodes=machines(4), elastic=(started, other))).sizes == [("b", 1, 3)]


def test_a_task_that_was_let_go_to_a_machine_makes_room_there_when_it_ends() -> None:
    """Though nothing has bound it yet."""
    role = a_role(size=2, least=1, most=2)
    here = ((Requirement(words.HOSTNAME, "In", ("own-1",)),),)
    urgent = a_pod("urgent", cpu=1, priority=9, gates=(words.GATE,))
    pods = [a_task(role, 0, "own-0"), a_task(role, 1, gates=(), admitted_to="own-1", affinity=here), urgent]
    told = Decided(a_cluster(pods=pods, nodes=machines(1, 1), elastic=(role,)))
    assert (told.sizes, told.homes) == ([("a", 2, 1)], {"urgent": "own-1"})


def test_growth_waits_for_the_end_of_what_holds_its_place() -> None:
    """It is told where."""
    role, other = a_role("a", size=2, least=1, most=2), a_role("b", size=1, least=1, most=2)
    pods = [
        a_task(role, 0, "own-0"),
        a_task(role, 1),
        a_task(other, 0, "own-0"),
        a_task(other, 1, "own-1", deleting=True),
    ]
    told = Decided(a_cluster(pods=pods, nodes=machines(2, 1), elastic=(role, other)))
    assert told.homes == {"a-1": "own-1"}
    assert told.told.left_out == {"team/a-1": "its place on own-1 is free once what ends there has ended"}


@pytest.mark.parametrize("last", ["own-1", "own-2"])
def test_growth_goes_where_the_sizes_have_it_and_other_pods_stay_where_the_last_plan_had_them(last: str) -> None:
    """A task above the minimum is bound as soon as it has its place: the size that counts it knows where."""
    role = a_role(size=2, most=2)
    growing = a_cluster(pods=[a_task(role, 0, "own-0"), a_task(role, 1)], nodes=machines(1, 1, 1), elastic=(role,))
    assert Decided(growing, homes={"a-1": last}).homes == {"a-1": "own-1"}
    lone = replace(growing, pods=(a_task(role, 0, "own-0"), a_pod("lone", cpu=1, gates=(words.GATE,))))
    assert Decided(lone, homes={"lone": last}).homes == {"lone": last}


def test_a_claim_that_is_served_once_a_job_may_shrink_again_is_not_bought_for() -> None:
    """Where it changed a moment ago; later it shrinks at once."""
    urgent = a_pod("urgent", cpu=1, priority=9, gates=(words.GATE,))
    for ago, sizes, because in (
        (5, [], "an elastic job may shrink for it at 2026-11-21 09:00:10 UTC, so soon after its last change of size"),
        (15, [("a", 2, 1)], "tasks of elastic jobs end to make room for it"),
    ):
        role = a_role(changed=later(seconds=-ago))
        pods = [a_task(role, 0, "own-0"), a_task(role, 1, "own-0"), urgent]
        told = Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(role,)))
        assert (told.sizes, told.told.unbought) == (sizes, {"team/urgent": because})


def test_a_claim_that_no_shrinking_helps_is_bought_for() -> None:
    """Nothing is said of it."""
    role = a_role(changed=later(seconds=-5))
    large = a_pod("large", cpu=9, priority=9, gates=(words.GATE,))
    pods = [a_task(role, 0, "own-0"), a_task(role, 1, "own-0"), large]
    assert Decided(a_cluster(pods=pods, nodes=machines(2), elastic=(role,))).told.unbought == {}


def test_what_has_a_node_on_its_way_claims_no_room() -> None:
    """What is meant for a machine that stands does."""
    role = a_role(size=1)
    waits = a_pod("waits", cpu=3, gates=(words.GATE,))
    group = a_group("cpu", desired=1)
    coming = replace(new_place(group, "coming", dict(group.allocatable)), standing=False)
    cluster = a_cluster(pods=[a_task(role, 0, "own-0"), waits], nodes=machines(4), elastic=(role,))
    assert Decided(cluster).sizes == []
    assert Decided(cluster, homes={"waits": "own-0"}).sizes == []
    assert Decided(cluster, homes={"waits": "coming"}, fresh={"coming": coming}).sizes == [("a", 1, 4)]


def test_a_gang_claims_room_for_its_least_together_and_for_each_more() -> None:
    """Of three pods of which two must be together one that is planned leaves one and one."""
    role = a_role(size=4, least=1)
    pods = [a_task(role, number, "own-0") for number in range(4)]
    gang = a_gang("gang", 3, minimum=2, priority=5)
    told = Decided(a_cluster(pods=[*pods, *gang], nodes=machines(6), elastic=(role,)))
    assert (told.sizes, set(told.homes)) == ([("a", 4, 3)], {"gang-worker-0", "gang-worker-1", "gang-worker-2"})
    assert set(told.told.unbought) == {"team/gang", "team/gang team/gang-worker-2"}


def test_a_gang_claims_room_where_its_other_pods_run() -> None:
    """In their zone, though more is free in the other; of several hosts the first that has a zone says so."""
    role = a_role(size=3, least=1, most=3)
    zones = {"own-1": {words.ZONE: "b"}, "own-2": {words.ZONE: "a"}}
    nodes = [replace(one, labels={**one.labels, **zones.get(one.name, {})}) for one in machines(4, 4, 9)]
    tasks = [a_task(role, number, "own-1") for number in range(3)]
    *first, waits = a_gang("gang", 3, topology=words.ZONE, priority=5)
    runs = {
        node: replace(pod, node=node, phase="Running", gates=())
        for node, pod in zip(("own-0", "own-1"), first, strict=True)
    }
    for on, home, sizes in (
        ((), "own-2", [("a", 3, 4)]),
        (("own-0",), "own-2", [("a", 3, 4)]),
        (("own-0", "own-1"), "own-1", [("a", 3, 2)]),
    ):
        pods = [*tasks, *(runs[node] for node in on), waits]
        told = Decided(a_cluster(pods=pods, nodes=nodes, elastic=(replace(role, maximum=4),)))
        assert (told.homes, told.sizes) == ({"gang-worker-2": home}, sizes)


# --- The order of gangs -----------------------------------------------------------------------------------------------


def gangs(*pods: Pod) -> Sequence[Gang]:
    """Of these pods."""
    return gangs_of(pods)


def test_gangs_that_only_grow_come_last_without_pods_that_no_place_is_sought_for() -> None:
    """The others stay in order; one without a pod left is no gang."""
    found = gangs(*a_gang("a", 2), *a_gang("b", 1), *a_gang("c", 1), *a_gang("d", 2))
    left_out = {"team/a-worker-1": "", "team/c-worker-0": ""}
    done = in_turn(found, Resizing(left_out=left_out, growing=frozenset({"team/a"})))
    assert [(gang.name, len(gang.waiting)) for gang in done] == [("team/b", 1), ("team/d", 2), ("team/a", 1)]
    assert in_turn(found, Resizing()) == list(found)
    assert [gang.name for gang in in_turn(found, Resizing(growing=frozenset({"team/b"})))][-1] == "team/b"


@pytest.mark.parametrize(
    ("was", "to", "growing", "planned", "depends"),
    [
        (1, 2, (), (), True),
        (2, 1, (), (), False),
        (2, 2, (), (), False),
        (2, 1, ("team/a",), (), True),
        (2, 1, ("team/a",), ("team/a-worker-0",), False),
        (2, 1, ("team/b",), (), False),
    ],
)
def test_the_plan_may_leave_less_room_where_a_job_grows_or_its_new_tasks_have_no_place(
    was: int, to: int, growing: Sequence[str], planned: Sequence[str], *, depends: bool
) -> None:
    """Then growth is decided once more."""
    step = Resize("team", "a", was=was, to=to, because="")
    assert Resizing(steps=(step,), growing=frozenset(growing)).depends_on(planned, gangs(*a_gang("a", 1))) is depends


def test_a_node_that_only_growth_is_on_is_given_back_for_less_money() -> None:
    """A job that may spend nothing any more shrinks from the nodes that are bought; not where others are on it too."""
    group = a_group("cpu", joined=1)
    (node,) = nodes_of(group)
    role = a_role(size=2, least=1, most=2)
    pods = [a_task(role, 0, "own-0"), a_task(role, 1, node.name)]
    for other, sizes in (((), [("a", 2, 1)]), ((a_pod("other", node=node.name, phase="Running"),), [])):
        cluster = a_cluster(pods=[*pods, *other], nodes=[*machines(1), node], groups=[group], elastic=(role,))
        assert Decided(cluster).sizes == sizes
        assert Decided(cluster, usd_per_hour=5.0).sizes == []
