"""The executor: carries out steps of a plan through the two doors, and tells the store what came of them.

A step is taken as planned or not at all: whatever changed in between (``Changed``, ``Refused``) or does not answer
(``Unavailable``) is what it failed with, and the next plan starts from what is true then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from autoscaler.cloud import autoscaling_groups as ec2
from autoscaler.cloud import errors
from autoscaler.cloud.purchases import Bought, in_words
from autoscaler.kube import client as kube
from autoscaler.kube.cache import Store
from autoscaler.kube.schema.core import NodeJson, PodJson
from autoscaler.kube.writes import Writes
from autoscaler.model import labels as words
from autoscaler.model.actions import (
    Admit,
    BeginStep,
    Cancel,
    Cordon,
    DeleteNode,
    EndJob,
    Evict,
    FreeGpus,
    Grow,
    Nominate,
    Order,
    Recreate,
    Release,
    Remove,
    Reserve,
    Resize,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
)
from autoscaler.model.cluster import Group, Pod
from autoscaler.model.errors import Unavailable
from autoscaler.model.resources import Resources

FAILURES = (Unavailable, kube.Refused, kube.Expired, errors.Refused, ec2.Changed)
"""What a step may fail with: it fails alone."""
_CONFLICT = 409
"""What the API server calls a write to something that has changed: what we find changed is refused as that."""
_GONE = (404,)
"""What it was about has vanished: nothing is left to be done."""
_CHANGED = (*_GONE, _CONFLICT, 422)
"""A pod that is gone, or was changed, or bound, which the API server calls invalid."""


class NotYet(Exception):  # noqa: N818 - reads as what it is at the raise site
    """The plan did not know of something: the next one, made as soon as the store knows it, takes the step or not."""


class Executor:
    """Takes steps: one alone, or several of one kind beside each other."""

    def __init__(
        self, *, kube: Writes, ec2: ec2.Ec2, store: Store, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._now = now
        self._kube = kube
        self._ec2 = ec2
        self._store = store
        self._nominated: dict[str, tuple[int, str]] = {}
        """Pod key -> its version since it was nominated last, and the node: the watch tells of it a moment later."""

    def take(self, batch: Sequence[Step]) -> list[Exception | None]:
        """Carries steps of one kind out, each as if it were alone. Gives what each failed with.

        That is one of ``FAILURES``, or ``NotYet``. Several are orders of nodes, each in another group, or admissions.
        """
        orders = [one for one in batch if isinstance(one, Grow)]
        admissions = [one for one in batch if isinstance(one, Admit)]
        if orders:
            return self._grow(orders)
        if admissions:
            return self._admit(admissions)
        return [self._failure(step) for step in batch]

    def _failure(self, step: Step) -> Exception | None:
        try:
            self._take(step)
        except (NotYet, *FAILURES) as failure:
            return failure
        return None

    def _take(self, step: Step) -> None:  # noqa: C901, PLR0912 - one line for each kind of step
        match step:
            case Nominate():
                self._nominate(step)
            case Reserve():
                self._reserve(step)
            case Unreserve():
                self._unreserve(step)
            case Recreate(pod=key):
                self._recreate(key)
            case Uncordon(node=node):
                self._store.saw_node(self._kube.uncordon(node))
            case Cancel():
                self._cancel(step)
            case Cordon(node=node):
                self._store.saw_node(self._kube.cordon(node, at=self._now()))
            case Evict():
                self._evict(step)
            case FreeGpus(pods=pods):
                self._evict_whole(pod for pod in map(self._store.pod, pods) if pod is not None)
            case Remove():
                self._remove(step)
            case DeleteNode():
                self._delete_ghost(step)
            case Release():
                self._release(step)
            case EndJob(namespace=namespace, name=name):
                self._kube.end_job(namespace, name)
            case BeginStep(namespace=namespace, name=name):
                self._store.saw_job(self._kube.begin_step(namespace, name, at=self._now()))
            case StopStep(namespace=namespace, name=name, because=because):
                self._store.saw_job(self._kube.stop_step(namespace, name, because=because))
            case Resize():
                self._resize(step)
            case SetCondition(namespace=namespace, name=name, condition=condition, status=status, because=because):
                self._kube.set_condition(namespace, name, condition, status=status, because=because, at=self._now())

    def _admit(self, steps: Sequence[Admit]) -> list[Exception | None]:
        """A pod that vanished is no failure; one that cannot be pinned is tried again by the next plan.

        After one more look that their nodes have room for them: a pinned pod cannot go elsewhere.
        """
        self._drop_what_was_told()
        taken: dict[str, list[Resources]] = defaultdict(list)
        checked = [self._hosts_of(step, taken) for step in steps]
        whole = [hosts for hosts in checked if not isinstance(hosts, Exception)]
        written = self._kube.admit({pod: host for hosts in whole for pod, host in hosts.items()}) if whole else {}
        return [hosts if isinstance(hosts, Exception) else self._not_admitted(hosts, written) for hosts in checked]

    def _hosts_of(
        self, step: Admit, taken: dict[str, list[Resources]]
    ) -> dict[tuple[str, str, str], str] | NotYet | kube.Refused:
        """Pod (namespace, name, uid) -> host name; or why the gang is not admitted.

        ``taken``: node -> what pods that are admitted before ask for; the gang's are added.
        """
        hosts: dict[tuple[str, str, str], str] = {}
        asked: dict[str, list[Resources]] = defaultdict(list)
        for key, node in step.placements:
            pod, home = self._store.pod(key), self._store.node(node)
            if pod is not None and home is not None and words.GATE in pod.gates:
                hosts[pod.namespace, pod.name, pod.uid] = home.labels.get(words.HOSTNAME, node)
                asked[node].append(pod.requests)
        if asked.keys() & {node for _, node in self._nominated.values()}:
            return NotYet()  # room is kept of which the plan did not know
        for node, requests in asked.items():
            if not Resources.total([*taken.get(node, ()), *requests]).fits_in(self._store.room_on(node)):
                return kube.Refused(_CONFLICT, f"node {node} has no room for them any more")
        for node, requests in asked.items():
            taken[node] += requests
        return hosts

    def _not_admitted(
        self, hosts: Collection[tuple[str, str, str]], written: Mapping[tuple[str, str, str], PodJson | Exception]
    ) -> kube.Refused | None:
        failures = self._saw({f"{pod[0]}/{pod[1]}": written[pod] for pod in hosts})
        if not failures:
            return None
        return kube.Refused(_CONFLICT, f"{len(failures)} of {len(hosts)} pods were not admitted ({failures[0]})")

    def _nominate(self, step: Nominate) -> None:
        """Nominates pods for their nodes, except those that have changed since: they may be bound by now.

        The store learns of it by the watch alone: once it has, it knows of every pod that was bound before.
        """
        self._drop_what_was_told()
        seen = {
            key: (found, node)
            for key, node in step.placements
            if key not in self._nominated and (found := self._store.pod_as_seen(key)) is not None
        }
        failures = []
        for key, came in self._kube.nominate(seen.values()).items():
            (_, version), node = seen[key]
            if isinstance(came, PodJson):
                self._nominated[key] = (came.metadata.version(), node)
            elif isinstance(came, kube.Refused) and came.status in _CHANGED:
                self._nominated[key] = (version + 1, "")
            else:
                failures.append(f"{key}: {came}")
            if isinstance(came, kube.Refused) and came.status == 403:  # noqa: PLR2004 - it goes on without
                self._store.may_not_nominate()
        if failures:
            raise kube.Refused(_CONFLICT, f"{len(failures)} of {len(seen)} pods were not nominated ({failures[0]})")

    def _reserve(self, step: Reserve) -> None:
        """The nodes first, each with its instance's id; pods that are gone or bound by now need not be let in."""
        found = map(self._store.node, sorted({node for _, node in step.placements}))
        whose = {node.name: node.instance_id for node in found if node is not None and node.instance_id}
        failures = self._saw(self._kube.reserve(whose))
        pods = [
            (pod, whose[name])
            for key, name in step.placements
            if name in whose and (pod := self._store.pod(key)) is not None and pod.node is None
        ]
        failures += self._saw(self._kube.let_in(pods), fine=_CHANGED)
        if failures:
            raise kube.Refused(_CONFLICT, f"not all of {len(pods)} pods were let onto their nodes ({failures[0]})")

    def _unreserve(self, step: Unreserve) -> None:
        failures = self._saw(self._kube.unreserve(step.nodes))
        if failures:
            raise kube.Refused(_CONFLICT, f"{len(failures)} of {len(step.nodes)} nodes were not opened ({failures[0]})")

    def _saw(
        self,
        written: Mapping[str, PodJson | Exception] | Mapping[str, NodeJson | Exception],
        *,
        fine: Collection[int] = _GONE,
    ) -> list[str]:
        """Let the store know what we wrote. Gives what failed, in words, with a status that is not ``fine``."""
        failures = []
        for name, came in written.items():
            if isinstance(came, PodJson):
                self._store.saw_pod(came)
            elif isinstance(came, NodeJson):
                self._store.saw_node(came)
            elif not (isinstance(came, kube.Refused) and came.status in fine):
                failures.append(f"{name}: {came}")
        return failures

    def _drop_what_was_told(self) -> None:
        """Forgets nominations that the watch has told of, and pods that are gone: the plan knows of them."""
        for key, (version, _) in tuple(self._nominated.items()):
            found = self._store.pod_as_seen(key)
            if found is None or found[1] >= version:
                del self._nominated[key]

    def _resize(self, step: Resize) -> None:
        """The next plan knows of the new size at once, of the pods when the Job's controller has acted."""
        job = self._kube.resize_job(step.namespace, step.name, was=step.was, to=step.to, at=self._now())
        self._store.saw_job(job)

    def _recreate(self, key: str) -> None:
        """A pod that vanished meanwhile is what was wanted."""
        pod = self._store.pod(key)
        if pod is not None and pod.node is None:
            self._kube.delete_unbound(pod.namespace, pod.name, uid=pod.uid)

    def _grow(self, steps: Sequence[Grow]) -> list[Exception | None]:
        """Grows groups, but for pods that were bound since the plan: steps before this one take time.

        What EC2 refuses at once is known to the next plan at once: it is what the step fails with, as ``Refused``.
        """
        due = {step.group: Order(step.was, step.to, step.at) for step in steps if not self._is_overtaken(step)}
        groups = {name: self._store.group(name) for name in due}
        coming = {name: group.launching for name, group in groups.items() if group is not None}
        came = self._ec2.grow(due, coming=coming) if due else {}
        return [
            self._not_grown(step, groups[step.group], came[step.group]) if step.group in due else NotYet()
            for step in steps
        ]

    def _is_overtaken(self, step: Grow) -> bool:
        return any(pod.node is not None for pod in map(self._store.pod, step.demand) if pod is not None)

    def _not_grown(self, step: Grow, group: Group | None, came: Bought | Exception) -> Exception | None:
        """What it failed with; the store learns how the group is now."""
        if isinstance(came, ec2.Changed):
            self._learn(came)
        if isinstance(came, Exception):
            return came
        if group is not None:
            self._store.wrote_group(came.of(group))
        return errors.Refused(came.refusals[0].code, in_words(came, asked=step.by)) if came.refusals else None

    def _cancel(self, step: Cancel) -> None:
        """Raises ``Changed`` where more than the plan knew of is there or on its way all the same: it is paid for."""
        before = self._store.group(step.group)
        try:
            now = self._ec2.cancel(step.group, was=step.was, to=step.to)
        except ec2.Changed as changed:
            self._learn(changed)
            raise
        self._store.wrote_group(now)
        if before is not None and _here(now) > _here(before):
            raise ec2.Changed(f"{step.group} is launching a node after all", now)

    def _learn(self, changed: ec2.Changed) -> None:
        """What a group turned out to be is known to the next plan, a moment later."""
        if changed.group is not None:
            self._store.wrote_group(changed.group)

    def _remove(self, step: Remove) -> None:
        """Terminates a node after one more look: it is still closed by us and empty, or not ready, or it never came."""
        if step.node is None:
            uid = self._never_came(step.instance)
        elif step.is_taken_back:
            uid = self._still_ours(step.node)
        else:
            uid = self._still_dead(step.node) if step.is_dead else self._still_idle(step.node)
        self._ec2.terminate(step.instance, group=step.group, is_dead=step.is_dead or step.is_taken_back)
        group = self._store.group(step.group)
        if group is not None:
            left = tuple(
                replace(one, state="terminating") if one.id == step.instance else one for one in group.instances
            )
            self._store.wrote_group(replace(group, desired=max(group.desired - 1, group.minimum), instances=left))
        if step.node:
            self._kube.delete_node(step.node, uid=uid)

    def _delete_ghost(self, step: DeleteNode) -> None:
        """Deletes a Node after one more look at both: it does not answer, and EC2 has ended its instance."""
        now = self._kube.node(step.node)
        if _is_ready(now):
            raise kube.Refused(_CONFLICT, f"node {step.node} is ready by now")
        if not self._ec2.has_ended(step.instance):
            raise kube.Refused(_CONFLICT, f"EC2 has not ended instance {step.instance}: it is in none of our groups")
        self._kube.delete_node(step.node, uid=now.metadata.uid)

    def _evict(self, step: Evict) -> None:
        """Evicts pods after one more look that the node is still closed by us: nothing new comes to it meanwhile."""
        self._still_ours(step.node)
        found = (self._store.pod(key) for key in step.pods)
        self._evict_all(pod for pod in found if pod is not None and pod.node == step.node)

    def _evict_whole(self, found: Iterable[Pod]) -> None:
        """All of a gang, or, where budgets do not let all of its pods go, none."""
        pods = list(found)
        if len(pods) > 1:
            self._evict_all(pods, dry_run=True)
            self._check_budgets(pods)
        self._evict_all(pods)

    def _check_budgets(self, pods: Collection[Pod]) -> None:
        """Raises ``Refused`` where a budget lets some go and not all: in a dry run each is asked about by itself."""
        for namespace in sorted({pod.namespace for pod in pods}):
            for budget in self._kube.budgets(namespace):
                of_it = [pod for pod in pods if pod.namespace == namespace and budget.is_of(pod.labels)]
                allowed = budget.status.disruptions_allowed
                if len(of_it) > allowed:
                    name = f"PodDisruptionBudget {namespace}/{budget.metadata.name}"
                    raise kube.Refused(_CONFLICT, f"{name} lets {allowed} of {len(of_it)} pods go")

    def _evict_all(self, found: Iterable[Pod], *, dry_run: bool = False) -> None:
        pods = list(found)
        came_of = self._kube.evict(pods, dry_run=dry_run)
        failures = [f"{key}: {came}" for key, came in came_of.items() if came is not None]
        if failures:
            raise kube.Refused(_CONFLICT, f"{len(failures)} of {len(pods)} pods were not evicted ({failures[0]})")

    def _still_ours(self, node: str) -> str:
        """The uid of the node. Raises ``Refused`` where it is not closed by us any more."""
        now = self._kube.node(node)
        if now.metadata.annotations.get(words.CORDONED_BY) != words.AUTOSCALER or not now.spec.unschedulable:
            raise kube.Refused(_CONFLICT, f"node {node} is not closed by Spillway any more")
        return now.metadata.uid

    def _still_dead(self, node: str) -> str:
        """The uid of the node. Raises ``Refused`` where it answers, or is not closed by us, any more."""
        now = self._kube.node(node)
        if _is_ready(now):
            raise kube.Refused(_CONFLICT, f"node {node} is ready again")
        if now.metadata.annotations.get(words.CORDONED_BY) != words.AUTOSCALER:
            raise kube.Refused(_CONFLICT, f"node {node} is not closed by Spillway any more")
        return now.metadata.uid

    def _release(self, step: Release) -> None:
        """Whatever closed the node: its instance is being ended already, and only jobs could still want it."""
        uid = self._still_empty(step.node) if step.node else ""
        self._ec2.release(step.group, step.instance)
        group = self._store.group(step.group)
        if group is not None:
            left = tuple(
                replace(one, held=False, is_down=True) if one.id == step.instance else one for one in group.instances
            )
            self._store.wrote_group(replace(group, instances=left))
        if step.node:
            self._kube.delete_node(step.node, uid=uid)

    def _still_idle(self, node: str) -> str:
        """The uid of the node. Raises ``Refused`` where it is not idle any more."""
        marks = self._kube.node(node).metadata.annotations
        if marks.get(words.CORDONED_BY) != words.AUTOSCALER:
            raise kube.Refused(_CONFLICT, f"node {node} is not closed by Spillway any more")
        return self._still_empty(node)

    def _still_empty(self, node: str) -> str:
        """The uid of the node. Raises ``Refused`` where it is open to pods, or holds one."""
        now = self._kube.node(node)
        if not now.spec.unschedulable:
            raise kube.Refused(_CONFLICT, f"node {node} is not closed by Spillway any more")
        busy = [pod.metadata for pod in self._kube.pods_on(node) if _holds(pod)]
        if busy:
            raise kube.Refused(_CONFLICT, f"node {node} holds {busy[0].namespace}/{busy[0].name} by now")
        return now.metadata.uid

    def _never_came(self, instance: str) -> str:
        joined = [node.name for node in self._store.cluster(self._now()).nodes if node.instance_id == instance]
        if joined:
            raise kube.Refused(_CONFLICT, f"instance {instance} has joined as node {joined[0]} by now")
        return ""


def _is_ready(node: NodeJson) -> bool:
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def _here(group: Group) -> int:
    """What is there or may come of launches that are being tried."""
    return group.launching + sum(one.state != "terminating" for one in group.instances)


def _holds(pod: PodJson) -> bool:
    owner = pod.metadata.owner()
    is_daemon = owner is not None and owner.kind in ("DaemonSet", "Node")
    return not is_daemon and pod.status.phase not in ("Succeeded", "Failed")
