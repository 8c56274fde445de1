"""What the demo claims, as functions of what was seen at the API server and at EC2. No I/O.

:func:`claims` says of each claim whether it held and by what evidence; :func:`figures` are the numbers of the report.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Seconds = float


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One pod's morning. Times are seconds of the wall clock, as the watch told them; ``None``: it never happened."""

    name: str
    job: str
    role: str
    gpus: int
    created_at: Seconds
    node: str | None = None
    bound_at: Seconds | None = None
    finished_at: Seconds | None = None
    succeeded: bool = False
    gone: bool = False


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """One node that was there at some time."""

    name: str
    on_prem: bool
    gpus: int
    ready_at: Seconds | None = None
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Purchase:
    """One request that set a group's desired capacity and was granted."""

    group: str
    to: int
    at: Seconds


@dataclass(frozen=True, slots=True)
class InstanceSeen:
    """One EC2 instance, from launch to end (``None``: still there)."""

    id: str
    group: str
    usd_per_hour: float
    launched_at: Seconds
    ended_at: Seconds | None = None


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """One Auto Scaling group as EC2 tells it now."""

    name: str
    minimum: int
    desired: int


@dataclass(frozen=True, slots=True)
class Told:
    """A Kubernetes Event about a pod."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Said:
    """What was said and done that neither the pods nor EC2 show."""

    refused: str
    """What `spillway jobs submit` said of the job that cannot run."""
    explained: str
    """What `spillway autoscale explain` said of it."""
    edited_at: Seconds
    """When the policy file was saved."""
    obeyed_at: Seconds
    """When the autoscaler took over the policy that it obeys in the end."""
    sizes: tuple[int, int, int]
    """Workers of the elastic job alone, beside another job, and alone again."""


@dataclass(frozen=True, slots=True)
class Morning:
    """Everything that was seen."""

    small: str
    spill: str
    impossible: str
    service: str
    elastic: str
    pods: tuple[PodSeen, ...]
    nodes: tuple[NodeSeen, ...]
    purchases: tuple[Purchase, ...]
    instances: tuple[InstanceSeen, ...]
    groups: tuple[GroupSeen, ...]
    told: tuple[Told, ...]
    said: Said
    jobs_left: frozenset[str]
    """Names of the batch/v1 Jobs that are neither complete nor gone."""

    def of(self, job: str) -> tuple[PodSeen, ...]:
        """The pods of a training job."""
        return tuple(pod for pod in self.pods if pod.job == job)


@dataclass(frozen=True, slots=True)
class Claim:
    """One sentence, whether it held, and what was seen."""

    text: str
    held: bool
    evidence: str


def claims(morning: Morning) -> tuple[Claim, ...]:
    """Every claim of the demo."""
    return (
        _small_stays_on_prem(morning),
        _spill_uses_both(morning),
        _spill_goes_as_a_whole(morning),
        _bought_once(morning),
        _impossible_is_told(morning),
        _jobs_finish(morning),
        _edit_is_obeyed(morning),
        _service_is_moved(morning),
        _ec2_drains(morning),
        _elastic_makes_room(morning),
    )


def _small_stays_on_prem(morning: Morning) -> Claim:
    pods = morning.of(morning.small)
    on_prem = {node.name for node in morning.nodes if node.on_prem}
    there = [pod for pod in pods if pod.node in on_prem]
    bought = [
        p for p in morning.purchases if p.at < min((pod.created_at for pod in morning.of(morning.spill)), default=0)
    ]
    return Claim(
        text=f"{morning.small} fits on the machines that we own, and nothing is bought for it",
        held=bool(pods) and len(there) == len(pods) and not bought,
        evidence=f"{len(there)} of {len(pods)} pods bound on-prem, {len(bought)} EC2 requests before the next job",
    )


def _spill_uses_both(morning: Morning) -> Claim:
    nodes = {node.name: node for node in morning.nodes}
    pods = [pod for pod in morning.of(morning.spill) if pod.node in nodes]
    on_prem = sum(pod.gpus for pod in pods if nodes[str(pod.node)].on_prem)
    ec2 = sum(pod.gpus for pod in pods if not nodes[str(pod.node)].on_prem)
    return Claim(
        text=f"{morning.spill} fills what is free on-prem and spills the rest over to EC2",
        held=on_prem > 0 and ec2 > 0,
        evidence=f"{on_prem} of its GPUs on-prem, {ec2} on EC2",
    )


def _spill_goes_as_a_whole(morning: Morning) -> Claim:
    """No pod may be bound before every node that the gang landed on was ready: until then all of it waits."""
    pods = morning.of(morning.spill)
    bound = [pod for pod in pods if pod.bound_at is not None]
    never = float("inf")
    ready = {node.name: never if node.ready_at is None else node.ready_at for node in morning.nodes}
    first = min((pod.bound_at for pod in bound if pod.bound_at is not None), default=None)
    last = max((pod.bound_at for pod in bound if pod.bound_at is not None), default=None)
    last_node = max((ready.get(str(pod.node), never) for pod in bound), default=never)
    whole = bool(pods) and len(bound) == len(pods) and first is not None and first >= last_node
    spread = f", all within {last - first:.1f} s" if first is not None and last is not None else ""
    return Claim(
        text=f"{morning.spill} waits as a whole and starts as a whole",
        held=whole,
        evidence=f"{len(bound)} of {len(pods)} pods bound{spread}, none before the last of their nodes was ready",
    )


def _bought_once(morning: Morning) -> Claim:
    nodes = {node.name for node in morning.nodes if not node.on_prem}
    used = {pod.node for pod in morning.pods if pod.node in nodes}
    return Claim(
        text="every instance was bought once and was used",
        held=bool(morning.instances) and len(morning.instances) == len(used),
        evidence=f"launched {len(morning.instances)}, requests {len(morning.purchases)}, with pods {len(used)}",
    )


def _impossible_is_told(morning: Morning) -> Claim:
    pods = morning.of(morning.impossible)
    names = {pod.name for pod in pods}
    events = [told for told in morning.told if told.pod in names]
    bound = [pod for pod in pods if pod.bound_at is not None]
    return Claim(
        text=f"{morning.impossible} is refused at submit; submitted anyway, it is told why it waits, once per pod",
        held=bool(pods)
        and not bound
        and {e.pod for e in events} == names
        and len(events) == len(names)
        and "could never start" in morning.said.refused
        and bool(morning.said.explained),
        evidence=f"events {len(events)}, pods {len(pods)}; explain: {morning.said.explained or 'nothing'}",
    )


def _jobs_finish(morning: Morning) -> Claim:
    wanted = (morning.small, morning.spill)
    workers = [pod for job in wanted for pod in morning.of(job) if pod.role == "worker"]
    done = [pod for pod in workers if pod.succeeded]
    servers = [pod for job in wanted for pod in morning.of(job) if pod.role == "ps"]
    ended = [pod for pod in servers if pod.gone or pod.finished_at is not None]
    left = sorted(name for name in morning.jobs_left if name.startswith(wanted))
    return Claim(
        text="both jobs finish, and their parameter servers end with them",
        held=bool(workers) and len(done) == len(workers) and bool(servers) and len(ended) == len(servers) and not left,
        evidence=f"{len(done)} of {len(workers)} workers succeeded, {len(ended)} of {len(servers)} ps ended"
        + (f"; still there: {', '.join(left)}" if left else ""),
    )


def _edit_is_obeyed(morning: Morning) -> Claim:
    took = morning.said.obeyed_at - morning.said.edited_at
    return Claim(
        text="an edit of the policy file is obeyed while the autoscaler runs",
        held=took >= 0,
        evidence=f"taken over {took:.1f} s after it was saved" if took >= 0 else "it was not taken over",
    )


def _service_is_moved(morning: Morning) -> Claim:
    """Claims that the service went from a bought node to an own one, after the edit and not before."""
    on_prem = {node.name for node in morning.nodes if node.on_prem}
    pods = sorted(morning.of(morning.service), key=lambda pod: pod.created_at)
    before = [pod for pod in pods if pod.created_at < morning.said.edited_at]
    after = [pod for pod in pods if pod.created_at >= morning.said.edited_at and not pod.gone]
    moved = (
        bool(before)
        and all(pod.gone and pod.node not in on_prem for pod in before)
        and bool(after)
        and all(pod.node in on_prem for pod in after)
    )
    at = f", {after[0].bound_at - morning.said.edited_at:.1f} s after the edit" if after and after[0].bound_at else ""
    homes = " to ".join(str(pods[where].node) for where in (0, -1)) if pods else "nowhere"
    return Claim(
        text=f"the node that only {morning.service} kept is drained, and its pod starts again on a machine that we own",
        held=moved,
        evidence=f"from {homes}{at}",
    )


def _ec2_drains(morning: Morning) -> Claim:
    left = [instance for instance in morning.instances if instance.ended_at is None]
    above = [group for group in morning.groups if group.desired > group.minimum]
    nodes = [node for node in morning.nodes if not node.on_prem and not node.gone]
    return Claim(
        text="EC2 goes back to its minimum",
        held=bool(morning.groups) and not left and not above and not nodes,
        evidence=f"{len(left)} instances, {len(nodes)} EC2 nodes left; {len(above)} groups above their minimum",
    )


def _elastic_makes_room(morning: Morning) -> Claim:
    """It begins with its least, all of it stays on our machines, and nothing is bought meanwhile."""
    alone, beside, again = morning.said.sizes
    workers = [pod for pod in morning.of(morning.elastic) if pod.role == "worker"]
    on_prem = {node.name for node in morning.nodes if node.on_prem}
    first = min((pod.bound_at for pod in workers if pod.bound_at is not None), default=0.0)
    least = sum(pod.created_at <= first for pod in workers)
    there = all(pod.node in on_prem for pod in workers if pod.node is not None)
    bought = [purchase for purchase in morning.purchases if purchase.at >= first]
    return Claim(
        text=f"{morning.elastic} grows into what is free, gives GPUs back for another job, and takes them again",
        held=0 < least < alone == again > beside > 0 and there and not bought,
        evidence=f"{least}, {alone}, {beside}, then {again} workers; {len(bought)} EC2 requests meanwhile",
    )


@dataclass(frozen=True, slots=True)
class Figures:
    """The numbers of the report; seconds and dollars."""

    pending_to_request: Seconds | None
    pending_to_bound: Seconds | None
    peak_usd_per_hour: float
    total_usd: float
    instances: int
    left_behind: int


def figures(morning: Morning, *, now: Seconds) -> Figures:
    """Time from the spilling job's last pod to the EC2 request and to bound; peak and total cost of EC2."""
    pods = morning.of(morning.spill)
    pending = max((pod.created_at for pod in pods), default=None)
    asked = min((p.at for p in morning.purchases if pending is None or p.at >= pending), default=None)
    bound = max((pod.bound_at for pod in pods if pod.bound_at is not None), default=None)
    return Figures(
        pending_to_request=asked - pending if asked is not None and pending is not None else None,
        pending_to_bound=bound - pending if bound is not None and pending is not None else None,
        peak_usd_per_hour=_peak(morning.instances),
        total_usd=sum(
            one.usd_per_hour * ((now if one.ended_at is None else one.ended_at) - one.launched_at) / 3600
            for one in morning.instances
        ),
        instances=len(morning.instances),
        left_behind=sum(one.ended_at is None for one in morning.instances),
    )


def _peak(instances: Iterable[InstanceSeen]) -> float:
    """The highest sum of prices at any one time."""
    changes = [(one.launched_at, one.usd_per_hour) for one in instances]
    changes += [(one.ended_at, -one.usd_per_hour) for one in instances if one.ended_at is not None]
    rate = peak = 0.0
    for _, change in sorted(changes):
        rate += change
        peak = max(peak, rate)
    return round(peak, 6)
