"""What YuniKorn makes of the task groups in a file: placeholders, in whose places pods go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from autoscaler.inputs.workload_objects import PodMade
from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import Container, Meta, PodJson, PodSpec, ResourceNeeds
from autoscaler.kube.schema.yunikorn import (
    APPLICATION,
    PLACEHOLDER,
    TASK_GROUP,
    TASK_GROUPS,
    TaskGroup,
    application_of,
    is_in_task_group,
    is_placeholder,
    task_groups,
)
from autoscaler.model.cluster import YUNIKORN


@dataclass(slots=True)
class Application:
    """One of YuniKorn's, as far as it was read."""

    originator: PodMade | None = None
    """The first pod that names its task groups."""
    members: list[PodMade] = field(default_factory=list)
    """In a task group and not bound."""
    placeholders: Counter[str] = field(default_factory=Counter)
    """That are in the file, by task group."""


def application_with(applications: dict[tuple[str, str], Application], made: PodMade) -> None:
    """Note the pod with its application, where it has one."""
    if not is_in_task_group(made.meta, made.spec) or not (name := application_of(made.meta)):
        return
    found = applications.setdefault((made.meta.namespace, name), Application())
    group = made.meta.annotations.get(TASK_GROUP, "")
    if is_placeholder(made.meta):
        found.placeholders[group] += not made.pod.is_finished
        return
    if found.originator is None and task_groups(made.meta):
        found.originator = made
    if made.pod.node is None and not made.pod.is_finished:
        found.members.append(made)


def made_for(application: Application) -> Iterator[PodMade]:
    """The placeholders that YuniKorn will make; none where it has made some."""
    if application.originator is None or application.placeholders:
        return
    for group in task_groups(application.originator.meta):
        for _ in range(group.min_member):
            yield _placeholder(application.originator, group)


def in_their_places(application: Application, made: Iterable[PodMade]) -> Iterator[PodMade]:
    """Pods that ask for no room of their own: a placeholder of their task group has it."""
    left = application.placeholders + Counter(one.meta.annotations[TASK_GROUP] for one in made)
    for pod in application.members:
        group = pod.meta.annotations.get(TASK_GROUP, "")
        if left[group]:
            left[group] -= 1
            yield pod


def _placeholder(originator: PodMade, group: TaskGroup) -> PodMade:
    name = application_of(originator.meta)
    meta = Meta(
        name=f"tg-{name}-{group.name}",
        namespace=originator.meta.namespace,
        labels={APPLICATION[0]: name},
        annotations={
            PLACEHOLDER[0]: "true",
            TASK_GROUP: group.name,
            TASK_GROUPS: originator.meta.annotations[TASK_GROUPS],
        },
    )
    spec = PodSpec(
        scheduler_name=YUNIKORN,
        containers=(Container(resources=ResourceNeeds(requests=group.min_resource, limits=group.min_resource)),),
        node_selector=group.node_selector,
        tolerations=group.tolerations,
        affinity=group.affinity,
        topology_spread_constraints=group.topology_spread_constraints,
        priority=originator.spec.priority,
        priority_class_name=originator.spec.priority_class_name,
    )
    return PodMade(pod_from(PodJson(metadata=meta, spec=spec)), spec, meta)
