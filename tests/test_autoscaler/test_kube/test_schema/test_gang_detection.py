"""Gangs are recognised in every dialect, and their size is taken from whoever says it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import PodJson
from autoscaler.kube.schema.gang_kinds import SERVED, GangSizes, indexed_job_size
from autoscaler.model import labels as words
from autoscaler.model.cluster import GangRef, GangSize, Pod
from autoscaler.planner.demand.gangs import gangs_of

OWNER = {"controller": True, "uid": "u", "apiVersion": "v1"}


def pod(metadata: dict[str, Any], spec: dict[str, Any] | None = None, name: str = "p") -> Pod:
    """Returns a pod with that metadata."""
    raw = {"metadata": {"name": name, "namespace": "d"} | metadata, "spec": spec or {}}
    return pod_from(msgspec.convert(raw, PodJson))


def said(resource: str, group: str, raw: dict[str, Any]) -> GangSizes:
    """What an object of that API says."""
    api = next(one for one in SERVED if (one.resource, one.group) == (resource, group))
    return api.says(msgspec.convert(raw, api.model))


def sizes(said: GangSizes) -> dict[tuple[str, str], GangSize]:
    """As the cluster holds it, in the namespace of these tests."""
    return {("d", size_source): size for size_source, size in said}


@pytest.mark.parametrize(
    ("metadata", "spec", "gang"),
    [
        (
            {"labels": {words.GANG: "a"}, "annotations": {words.GANG_SIZE: "8", words.GANG_MIN: "6"}},
            {},
            GangRef("d", "a", size=8, minimum=6),
        ),
        ({"labels": {words.GANG: "a"}, "annotations": {words.GANG_SIZE: "many"}}, {}, GangRef("d", "a")),
        (
            {},
            {"schedulingGroup": {"podGroupName": "pg"}},
            GangRef("d", "pg", size_source="scheduling.k8s.io/podgroups/pg"),
        ),
        (
            {},
            {"workloadRef": {"name": "w", "podGroup": "workers", "podGroupReplicaKey": "1"}},
            GangRef("d", "w/workers/1", size_source="scheduling.k8s.io/workloads/w/workers"),
        ),
        (
            {"labels": {"scheduling.x-k8s.io/pod-group": "pg"}},
            {},
            GangRef("d", "pg", size_source="scheduling.x-k8s.io/podgroups/pg"),
        ),
        (
            {"annotations": {"scheduling.k8s.io/group-name": "pg", "scheduling.volcano.sh/group-min-member": "3"}},
            {},
            GangRef("d", "pg", minimum=3, size_source="scheduling.volcano.sh/podgroups/pg"),
        ),
        (
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "k"},
                "annotations": {
                    "kueue.x-k8s.io/pod-group-total-count": "4",
                    "kueue.x-k8s.io/podset-required-topology": words.ZONE,
                },
            },
            {},
            GangRef("d", "k", size=4, topology=words.ZONE),
        ),
        (
            {
                "labels": {"kueue.x-k8s.io/pod-group-name": "statefulset-k"},
                "annotations": {
                    "kueue.x-k8s.io/pod-group-total-count": "4",
                    "kueue.x-k8s.io/pod-group-fast-admission": "true",
                },
            },
            {},
            None,
        ),
        (
            {
                "labels": {
                    "kueue.x-k8s.io/pod-group-name": "k",
                    "leaderworkerset.sigs.k8s.io/name": "l",
                    "leaderworkerset.sigs.k8s.io/group-index": "0",
                },
                "annotations": {
                    "kueue.x-k8s.io/pod-group-total-count": "2",
                    "kueue.x-k8s.io/pod-group-fast-admission": "true",
                    "leaderworkerset.sigs.k8s.io/size": "2",
                },
            },
            {},
            GangRef("d", "l/0", size=2, size_source="leaderworkerset.x-k8s.io/leaderworkersets/l"),
        ),
        (
            {
                "labels": {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "2"},
                "annotations": {"leaderworkerset.sigs.k8s.io/size": "5"},
            },
            {},
            GangRef("d", "l/2", size=5, size_source="leaderworkerset.x-k8s.io/leaderworkersets/l"),
        ),
        (
            {
                "annotations": {
                    "gang.scheduling.koordinator.sh/name": "n",
                    "gang.scheduling.koordinator.sh/min-available": "2",
                    "gang.scheduling.koordinator.sh/total-number": "3",
                }
            },
            {},
            GangRef("d", "n", size=3, minimum=2),
        ),
        (
            {"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}},
            {},
            GangRef("d", "js", size_source="jobset.x-k8s.io/jobsets/js"),
        ),
        ({"labels": {"training.kubeflow.org/job-name": "tf"}}, {}, GangRef("d", "tf", size_source="kubeflow.org/tf")),
        (
            {"ownerReferences": [{"kind": "MPIJob", "name": "m"} | OWNER]},
            {},
            GangRef("d", "m", size_source="kubeflow.org/m"),
        ),
        (
            {
                "labels": {"batch.kubernetes.io/job-completion-index": "0"},
                "ownerReferences": [{"kind": "Job", "name": "j"} | OWNER],
            },
            {},
            GangRef("d", "j", size_source="batch/jobs/j"),
        ),
        ({"ownerReferences": [{"kind": "Job", "name": "plain"} | OWNER]}, {}, None),
        ({"ownerReferences": [{"kind": "ReplicaSet", "name": "web"} | OWNER]}, {}, None),
        ({}, {}, None),
    ],
)
def test_every_dialect_is_recognised(metadata: dict[str, Any], spec: dict[str, Any], gang: GangRef | None) -> None:
    """By a label, an annotation, a field or the owner; a pod of none of them is on its own."""
    assert pod(metadata, spec).gang == gang


def test_our_own_words_go_before_those_of_others() -> None:
    """A job of any dialect is made elastic, or kept in one zone, by our annotations."""
    notes = {words.GANG_MIN: "2", words.GANG_ZONE: words.ZONE}
    found = pod({"labels": {"jobset.sigs.k8s.io/jobset-name": "js"}, "annotations": notes}).gang
    assert found == GangRef("d", "js", minimum=2, topology=words.ZONE, size_source="jobset.x-k8s.io/jobsets/js")


@pytest.mark.parametrize(
    ("resource", "group", "spec", "expected"),
    [
        ("podgroups", "scheduling.x-k8s.io", {"minMember": 3}, {"scheduling.x-k8s.io/podgroups/n": GangSize(None, 3)}),
        ("podgroups", "scheduling.volcano.sh", {}, {"scheduling.volcano.sh/podgroups/n": GangSize()}),
        (
            "podgroups",
            "scheduling.k8s.io",
            {"schedulingPolicy": {"gang": {"minCount": 4}}},
            {"scheduling.k8s.io/podgroups/n": GangSize(None, 4)},
        ),
        (
            "podgroups",
            "scheduling.k8s.io",
            {"schedulingPolicy": {"basic": {}}},
            {"scheduling.k8s.io/podgroups/n": GangSize(one_by_one=True)},
        ),
        (
            "workloads",
            "scheduling.k8s.io",
            {
                "podGroups": [
                    {"name": "w", "policy": {"gang": {"minCount": 2}}},
                    {"name": "ps", "policy": {"basic": {}}},
                ]
            },
            {
                "scheduling.k8s.io/workloads/n/w": GangSize(None, 2),
                "scheduling.k8s.io/workloads/n/ps": GangSize(one_by_one=True),
            },
        ),
        (
            "jobsets",
            "jobset.x-k8s.io",
            {
                "replicatedJobs": [
                    {"name": "ps", "replicas": 2, "template": {"spec": {"parallelism": 1}}},
                    {"name": "worker", "template": {"spec": {"parallelism": 6}}},
                ]
            },
            {"jobset.x-k8s.io/jobsets/n": GangSize(8)},
        ),
        (
            "jobsets",
            "jobset.x-k8s.io",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 4, "completions": 3}}}
                ]
            },
            {"jobset.x-k8s.io/jobsets/n": GangSize(6)},
        ),
        (
            "jobsets",
            "jobset.x-k8s.io",
            {
                "startupPolicy": {"startupPolicyOrder": "InOrder"},
                "replicatedJobs": [
                    {"name": "driver"},
                    {"name": "none", "replicas": 0},
                    {"name": "worker", "template": {"spec": {"parallelism": 6}}},
                ],
            },
            {"jobset.x-k8s.io/jobsets/n": GangSize(7, stages=(1, 7))},
        ),
        (
            "jobsets",
            "jobset.x-k8s.io",
            {
                "replicatedJobs": [
                    {"name": "data", "replicas": 2},
                    {"name": "model"},
                    {"name": "node", "replicas": 4, "dependsOn": [{"name": "data"}, {"name": "model"}]},
                    {"name": "launcher", "dependsOn": [{"name": "node"}]},
                    {"name": "viewer", "dependsOn": [{"name": "model"}]},
                ],
            },
            {"jobset.x-k8s.io/jobsets/n": GangSize(9, stages=(3, 8, 9))},
        ),
        ("jobsets", "jobset.x-k8s.io", {}, {"jobset.x-k8s.io/jobsets/n": GangSize()}),
        (
            "leaderworkersets",
            "leaderworkerset.x-k8s.io",
            {"replicas": 2, "leaderWorkerTemplate": {"size": 3}},
            {"leaderworkerset.x-k8s.io/leaderworkersets/n": GangSize(3)},
        ),
        (
            "leaderworkersets",
            "leaderworkerset.x-k8s.io",
            {"startupPolicy": "LeaderReady", "leaderWorkerTemplate": {"size": 3}},
            {"leaderworkerset.x-k8s.io/leaderworkersets/n": GangSize(3, stages=(1, 3))},
        ),
        (
            "leaderworkersets",
            "leaderworkerset.x-k8s.io",
            {"startupPolicy": "LeaderReady"},
            {"leaderworkerset.x-k8s.io/leaderworkersets/n": GangSize(1)},
        ),
        (
            "tfjobs",
            "kubeflow.org",
            {"tfReplicaSpecs": {"PS": {"replicas": 2}, "Worker": {"replicas": 4}, "Chief": {}}},
            {"kubeflow.org/n": GangSize(7)},
        ),
        (
            "tfjobs",
            "kubeflow.org",
            {
                "tfReplicaSpecs": {"Worker": {"replicas": 4}},
                "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
            },
            {"kubeflow.org/n": GangSize(4, 3)},
        ),
        (
            "pytorchjobs",
            "kubeflow.org",
            {
                "pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 7}},
                "elasticPolicy": {"minReplicas": 3, "maxReplicas": 7},
            },
            {"kubeflow.org/n": GangSize(8, 4)},
        ),
        (
            "mpijobs",
            "kubeflow.org",
            {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}}},
            {"kubeflow.org/n": GangSize(5)},
        ),
        (
            "mpijobs",
            "kubeflow.org",
            {
                "launcherCreationPolicy": "WaitForWorkersReady",
                "mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 4}},
            },
            {"kubeflow.org/n": GangSize(4)},
        ),
    ],
)
def test_objects_say_how_large_a_gang_is(
    resource: str, group: str, spec: dict[str, Any], expected: dict[str, GangSize]
) -> None:
    """All of its replicas, the least that must be together, or that there is no gang at all."""
    assert dict(said(resource, group, {"metadata": {"name": "n"}, "spec": spec})) == expected


ALONE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
BY_LABELS = "alpha.jobset.sigs.k8s.io/node-selector"


@pytest.mark.parametrize(
    ("whole", "workers", "stages"),
    [
        ((), (), ()),
        ((ALONE,), (), (3, 9)),
        ((), (ALONE,), (3, 9)),
        ((ALONE, BY_LABELS), (), ()),
        ((ALONE,), (BY_LABELS,), ()),
    ],
)
def test_jobs_with_a_rack_of_their_own_begin_with_the_pod_that_finds_it(
    whole: tuple[str, ...], workers: tuple[str, ...], stages: tuple[int, ...]
) -> None:
    """Two jobs of four pods and one of one; where nodes are labelled beforehand they come at once."""
    job = {"metadata": {"annotations": dict.fromkeys(workers, "rack")}, "spec": {"parallelism": 4}}
    spec = {"replicatedJobs": [{"name": "driver"}, {"name": "workers", "replicas": 2, "template": job}]}
    written = {"metadata": {"name": "n", "annotations": dict.fromkeys(whole, "rack")}, "spec": spec}
    size = GangSize(9, stages=stages)
    assert dict(said("jobsets", "jobset.x-k8s.io", written)) == {"jobset.x-k8s.io/jobsets/n": size}


def test_a_job_with_a_rack_of_its_own_waits_for_what_it_depends_on_first() -> None:
    """Four stages: a driver, then the first pods of two jobs, then all others, then one more."""
    job = {"metadata": {"annotations": {ALONE: "rack"}}, "spec": {"parallelism": 4}}
    jobs = [
        {"name": "driver"},
        {"name": "workers", "replicas": 2, "template": job, "dependsOn": [{"name": "driver"}]},
        {"name": "viewer", "dependsOn": [{"name": "workers"}]},
    ]
    written = {"metadata": {"name": "n"}, "spec": {"replicatedJobs": jobs}}
    size = GangSize(10, stages=(1, 3, 9, 10))
    assert dict(said("jobsets", "jobset.x-k8s.io", written)) == {"jobset.x-k8s.io/jobsets/n": size}


def test_the_leader_of_a_group_with_a_rack_of_its_own_comes_first() -> None:
    """Its workers are made once it has a node."""
    note = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "rack"}
    written = {"metadata": {"name": "n", "annotations": note}, "spec": {"leaderWorkerTemplate": {"size": 4}}}
    size = GangSize(4, stages=(1, 4))
    found = dict(said("leaderworkersets", "leaderworkerset.x-k8s.io", written))
    assert found == {"leaderworkerset.x-k8s.io/leaderworkersets/n": size}


@pytest.mark.parametrize(
    ("mode", "parallelism", "completions", "is_gang"),
    [
        ("Indexed", 4, 4, True),
        ("Indexed", 4, 100, False),
        ("Indexed", 1, 1, False),
        ("NonIndexed", 4, 4, False),
        ("Indexed", 4, None, False),
    ],
)
def test_an_indexed_job_is_a_gang_if_all_its_indexes_run_at_once(
    *, mode: str, parallelism: int, completions: int | None, is_gang: bool
) -> None:
    """A queue of work that runs a few at a time is none."""
    found = indexed_job_size("j", mode=mode, parallelism=parallelism, completions=completions)
    assert found == ((("batch/jobs/j", GangSize(size=parallelism)),) if is_gang else ())


def test_a_gang_half_created_waits_for_the_pods_that_its_owner_promised() -> None:
    """The size is the job's, not what has been seen so far."""
    job = said(
        "tfjobs", "kubeflow.org", {"metadata": {"name": "tf"}, "spec": {"tfReplicaSpecs": {"W": {"replicas": 4}}}}
    )
    pods = [pod({"labels": {"training.kubeflow.org/job-name": "tf"}}, name=f"tf-{n}") for n in range(3)]
    (gang,) = gangs_of(pods, sizes(job))
    assert (gang.size, gang.missing) == (4, 1)


def test_pods_of_an_indexed_job_are_alone_until_their_job_says_otherwise() -> None:
    """Two pods on their own, or one gang of two."""
    metadata = {
        "labels": {"batch.kubernetes.io/job-completion-index": "0"},
        "ownerReferences": [{"kind": "Job", "name": "j"} | OWNER],
    }
    pods = [pod(metadata, name=name) for name in ("j-0", "j-1")]
    assert [gang.is_lone for gang in gangs_of(pods)] == [True, True]
    job = indexed_job_size("j", mode="Indexed", parallelism=2, completions=2)
    (gang,) = gangs_of(pods, sizes(job))
    assert (gang.name, gang.minimum, gang.is_lone) == ("d/j", 2, False)


def test_a_native_gang_is_held_until_its_pod_group_is_there() -> None:
    """The scheduler holds it too: to buy for it before would be to guess."""
    pods = [pod({}, {"schedulingGroup": {"podGroupName": "pg"}}, name=name) for name in "ab"]
    (gang,) = gangs_of(pods)
    assert gang.unknown_size_source == "scheduling.k8s.io/podgroups/pg"
    known = said(
        "podgroups",
        "scheduling.k8s.io",
        {"metadata": {"name": "pg"}, "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
    )
    (gang,) = gangs_of(pods, sizes(known))
    assert (gang.unknown_size_source, gang.minimum) == ("", 2)


def test_pods_of_a_group_with_the_basic_policy_are_placed_one_by_one() -> None:
    """The group is a name for them and nothing more."""
    pods = [pod({}, {"schedulingGroup": {"podGroupName": "pg"}}, name=name) for name in "ab"]
    basic = said(
        "podgroups", "scheduling.k8s.io", {"metadata": {"name": "pg"}, "spec": {"schedulingPolicy": {"basic": {}}}}
    )
    assert [gang.is_lone for gang in gangs_of(pods, sizes(basic))] == [True, True]


def test_what_a_pod_says_of_its_gang_goes_before_what_others_say() -> None:
    """An annotation on the pod makes any job elastic."""
    job = indexed_job_size("j", mode="Indexed", parallelism=4, completions=4)
    metadata = {
        "labels": {"batch.kubernetes.io/job-completion-index": "0"},
        "annotations": {words.GANG_MIN: "1"},
        "ownerReferences": [{"kind": "Job", "name": "j"} | OWNER],
    }
    (gang,) = gangs_of([pod(metadata)], sizes(job))
    assert (gang.size, gang.enough, gang.missing) == (4, 1, 0)


def test_a_pod_group_and_a_job_of_one_name_are_two_gangs() -> None:
    """Each with a name of its own in what is said of it."""
    group = pod({"labels": {"scheduling.x-k8s.io/pod-group": "x"}}, name="a")
    job = replace(group, name="b", gang=GangRef("d", "x", size_source="kubeflow.org/x"))
    assert sorted(gang.name for gang in gangs_of([group, job])) == [
        "d/x (kubeflow.org/x)",
        "d/x (scheduling.x-k8s.io/podgroups/x)",
    ]


TASK_GROUPS = '[{"name": "w", "minMember": 3}, {"name": "d", "minMember": 1}]'


def of_yunikorn(name: str, *, placeholder: bool = True, groups: str = TASK_GROUPS) -> Pod:
    """As YuniKorn makes a placeholder, or as a Spark operator makes an executor, which is of a Job besides."""
    mark = {"internal.yunikorn.apache.org/placeholder": "true"} if placeholder else {}
    metadata = {
        "labels": {"yunikorn.apache.org/app-id": "spark-1", "batch.kubernetes.io/job-completion-index": "0"},
        "annotations": {"yunikorn.apache.org/task-group-name": "w", "yunikorn.apache.org/task-groups": groups} | mark,
        "ownerReferences": [{"kind": "Job", "name": "j"} | OWNER],
    }
    return pod(metadata, {"schedulerName": "yunikorn"}, name=name)


def test_the_placeholders_of_yunikorn_s_task_groups_are_a_gang() -> None:
    """Of all groups of the application; what takes their places is none, whatever else it is marked as."""
    holders = [of_yunikorn(f"tg-{number}") for number in range(3)]
    (gang,) = gangs_of(holders)
    assert (gang.name, gang.size, gang.missing) == ("d/spark-1", 4, 1)
    job = indexed_job_size("j", mode="Indexed", parallelism=2, completions=2)
    executors = [of_yunikorn(f"exec-{number}", placeholder=False) for number in range(2)]
    assert [gang.is_lone for gang in gangs_of(executors, sizes(job))] == [True, True]


def test_task_groups_that_make_no_sense_say_no_size() -> None:
    """YuniKorn makes no placeholders for them either; those that are there are counted."""
    for groups in ("{", "[3]", '{"name": "w"}', "[]"):
        (gang,) = gangs_of([of_yunikorn(name, groups=groups) for name in "ab"])
        assert (gang.size, gang.missing) == (2, 0)


def test_task_groups_mean_nothing_to_another_scheduler() -> None:
    """They may be left on pods of which the schedulerName was changed."""
    metadata = {"annotations": {"yunikorn.apache.org/task-group-name": "w"}, "labels": {words.GANG: "a"}}
    assert pod(metadata).gang == GangRef("d", "a")
    assert pod(metadata, {"schedulerName": "yunikorn"}).gang is None
