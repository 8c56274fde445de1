"""Observe, plan, apply, report: on every change, once, or as a dry run.

The loop holds nothing that it could not lose: what was bought is in the groups' desired capacity, for which pods is in
the memory ConfigMap before it is bought, what was closed is marked on the nodes. Stopped or killed at any point, the
next one goes on from there.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

from autoscaler.acting_policy import Policies, as_priced
from autoscaler.cloud import errors
from autoscaler.cloud.autoscaling_groups import Changed
from autoscaler.config.policy import Policy
from autoscaler.executor import FAILURES, Executor, NotYet
from autoscaler.kube.cache import Store
from autoscaler.kube.memory_configmap import MemoryConfigMap
from autoscaler.kube.retry_delay import RetryDelay
from autoscaler.model.actions import (
    Admit,
    BeginStep,
    Cancel,
    EndJob,
    FreeGpus,
    Grow,
    Memory,
    Nominate,
    Plan,
    Recreate,
    Remove,
    Reserve,
    Resize,
    SetCondition,
    Step,
    StopStep,
    Uncordon,
    Unreserve,
)
from autoscaler.model.cluster import Cluster
from autoscaler.model.errors import Unavailable
from autoscaler.model.pod_index import GangKey, gang_key, pod_index_of
from autoscaler.model.step_descriptions import describe
from autoscaler.planner.quarantine import Planner, plan_or_tell
from autoscaler.planner.sanity_check import Counts
from autoscaler.record.decisions import Decision
from autoscaler.reporting.bookkeeper import Bookkeeper
from autoscaler.reporting.messenger import Messenger
from autoscaler.reporting.report import Report
from autoscaler.step_batches import batches

LOOK_AGAIN: Final = 60.0
"""Seconds after which the loop decides anew though nothing seems to have changed."""
_CONFIRM_AGAIN: Final = timedelta(seconds=2)
"""After a look that was doubted."""
_WITHOUT_AWS: Final = (Admit, Nominate, Reserve, Unreserve, Recreate, EndJob, BeginStep, StopStep, SetCondition)
"""Steps that make sense before AWS has answered for the first time: none of a drain, which is neither gone on with nor
taken back."""
_OF_PODS: Final = (*_WITHOUT_AWS, Uncordon, Resize, FreeGpus)
"""Steps after which AWS need not be looked at."""
_SETS_MONEY_FREE: Final = (Cancel, Remove)
DONE: Final = "done"
"""What came of a step that was taken."""


class Leader(Protocol):
    """Says whether we may act: a lease, or always."""

    def is_mine(self) -> bool:
        """Whether we may act now."""


class Records(Protocol):
    """Where decisions are written down: told of each before its steps are taken, then of what came of these."""

    def decided(self, decision: Decision) -> None:
        """Keeps what was decided, before it is carried out."""

    def came_of(self, outcomes: tuple[str, ...]) -> None:
        """Keeps what came of the steps, as far as they were carried out."""


class NoRecord:
    """Decisions are written down nowhere."""

    def decided(self, decision: Decision) -> None:
        """Keeps nothing."""

    def came_of(self, outcomes: tuple[str, ...]) -> None:
        """Keeps nothing."""


@dataclass(slots=True)
class _Held:
    """A step that failed is left alone for a while, longer each time."""

    until: float = 0.0
    delay: RetryDelay = field(default_factory=lambda: RetryDelay(least=0.5))


class Loop:
    """Decides on every change and acts. Runs in the caller's thread."""

    def __init__(
        self,
        *,
        policies: Policies,
        planner: Planner,
        store: Store,
        executor: Executor,
        report: Report,
        leader: Leader,
        memory_map: MemoryConfigMap | None = None,
        messenger: Messenger | None = None,
        set_in_motion: Callable[[], None] = lambda: None,
        dry_run: bool = False,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
        confirm: Callable[[], Counts] | None = None,
        bookkeeper: Bookkeeper | None = None,
        recorder: Records | None = None,
    ) -> None:
        """``set_in_motion`` is called after a step that AWS was asked for.

        ``confirm`` lists nodes and groups anew, past the store; it raises one of ``FAILURES``. ``now`` is the time of
        day, which plans are made for; ``clock`` is monotonic, in seconds, for waiting.
        """
        self._policies = policies
        self._planner = planner
        self._store = store
        self._executor = executor
        self._report = report
        self._leader = leader
        self._memory_map = memory_map
        self._messenger = messenger
        self._set_in_motion = set_in_motion
        self._dry_run = dry_run
        self._now = now
        self._clock = clock
        self._confirm = confirm
        self._bookkeeper = bookkeeper
        self._recorder = recorder or NoRecord()
        self._outcomes: dict[Step, str] = {}
        """Of the steps of the plan at hand."""
        self._trusted: Counts | None = None
        """How much the last look showed that was acted on."""
        self.last: Decision | None = None
        """What was decided last, while we act."""
        self._memory: Memory | None = None
        """Unknown until what the last one wrote is read."""
        self._unanswered: set[str] = set()
        """Groups in which nodes were ordered without an answer of AWS."""
        self._refused = False
        """An order of the plan at hand was refused."""
        self._held: dict[str, _Held] = {}
        self._waited = False
        """Another may have acted since the groups were looked at."""
        self._stopping = threading.Event()

    def run(self) -> None:
        """Decides whenever something changed or is due, until :meth:`stop`."""
        seen, due, decided = 0, 0.0, False
        while not self._stopping.is_set():
            now = self._store.wait(seen, seconds=max(due - self._clock(), 0.0))
            seen = self._settle() if now > seen else now
            self._report.turned()
            mine = self._leader.is_mine() or self._dry_run
            self._report.acting(mine=mine)
            self._policies.refresh(mine=mine)
            if not mine:
                self._forget()
            elif self._waited:
                self._look_anew()
            if self._stopping.is_set() or not mine or not self._store.is_synced() or not self._recalls():
                due = self._clock() + 1.0
                continue
            plan = self.once()
            if not decided:
                decided = True
                _spare_the_collector()
            due = self._clock() + self._seconds_until_due(plan)

    def stop(self) -> None:
        """Finish the step at hand, then end."""
        self._stopping.set()
        self._store.wake()

    def once(self) -> Plan:
        """Looks, decides, acts and tells, once."""
        knows = self._store.knows_groups()
        decision = self._decide()
        plan, cluster = decision.plan, decision.cluster
        self._recorder.decided(decision)
        self.last = decision
        if knows:  # without groups nothing is on its way: that plan has nothing to remember
            self._policies.compare(cluster.groups)
            self._memory = plan.memory
            if self._memory_map is not None:
                self._memory_map.write(plan.memory)
        steps = plan.steps if knows else tuple(step for step in plan.steps if isinstance(step, _WITHOUT_AWS))
        if self._dry_run:
            self._report.would(steps)
        else:
            self._apply(steps)
            self._recorder.came_of(tuple(self._outcomes.get(step, "not tried") for step in plan.steps))
        self._forget_answered()
        if knows:  # before AWS has answered it is not known that a pod is hopeless
            self._tell(plan, cluster)
        return plan

    def _look(self) -> tuple[Policy, Cluster]:
        """The policy that holds now, and the cluster as it is."""
        now, policy = self._now(), self._policies.current()
        holding = policy.at(now)
        self._report.scheduled([one.name for one in policy.schedules if one.holds_at(now)])
        cluster = as_priced(self._store.cluster(now), holding)
        if self._bookkeeper is not None and self._store.knows_groups():
            cluster = replace(cluster, pauses=(*cluster.pauses, *self._bookkeeper.look(cluster, holding)))
        return holding, cluster

    def _forget(self) -> None:
        """Forgets what was planned: another replica may write from now on."""
        self._waited = True
        self._memory = self.last = None
        if self._bookkeeper is not None:
            self._bookkeeper.forget()

    def _look_anew(self) -> None:
        """What the other one bought last is not known here: AWS was looked at rarely while nothing was to be done."""
        self._waited = False
        self._store.forget_groups()
        self._set_in_motion()

    def _decide(self) -> Decision:
        """What to do by a new look: nothing where that is doubted, or where planning breaks on no object alone."""
        policy, cluster = self._look()
        self._report.paused(cluster.pauses)
        memory, began, doubt = self._recall(), self._clock(), self._doubt(cluster)
        if doubt:
            plan = Plan(memory=memory, warnings=(doubt,), wake_at=self._now() + _CONFIRM_AGAIN)
        else:
            plan = plan_or_tell(self._planner, cluster, policy, memory, broken=self._report.broken)
        self._report.decided(plan, cluster, took=self._clock() - began, doubted=bool(doubt))
        return Decision(cluster, policy, memory, plan, doubt)

    def _doubt(self, cluster: Cluster) -> str:
        """Why the look is not to be acted on; empty where it is."""
        now = Counts.of(cluster)
        why = now.why_doubted(self._trusted) if self._trusted is not None else ""
        if why and self._confirm is not None:
            try:
                why = "" if now.is_confirmed_by(self._confirm()) else why
            except FAILURES as error:
                why = f"{why}, and could not be confirmed: {error}"
        if not why and self._store.knows_groups():
            self._trusted = now
        return f"{why}: nothing is done until a second look shows the same" if why else ""

    def _recall(self) -> Memory:
        """What was decided last, by us or by the replica that acted before us. Raises ``Unavailable``."""
        if self._memory is None:
            self._memory = self._memory_map.read() if self._memory_map is not None else Memory()
            self._unanswered = set(self._memory.orders)
        return self._memory

    def _recalls(self) -> bool:
        try:
            self._recall()
        except Unavailable:  # the memory has told it
            return False
        return True

    def _apply(self, steps: tuple[Step, ...]) -> None:
        """Batch after batch. Nothing is bought with money that an earlier step was to set free and did not.

        Nor after an order that AWS refused: the gang that it was for may be better off elsewhere; the next plan says.
        """
        owing = self._refused = False
        self._outcomes = {}
        for batch in batches(steps, gangs_of=self._gangs_of):
            if self._stopping.is_set() or not self._leader.is_mine():
                return
            left = {step: why for step in batch if (why := self._why_not(step, may_buy=not (owing or self._refused)))}
            self._outcomes |= left | self._take([step for step in batch if step not in left])
            owing |= any(self._outcomes[step] != DONE for step in batch if isinstance(step, _SETS_MONEY_FREE))

    def _why_not(self, step: Step, *, may_buy: bool) -> str:
        """Why the step is not tried, if anything."""
        if not may_buy and isinstance(step, Grow):
            return "not tried: an order before it was refused, or money was not set free"
        held = self._held.get(describe(step))
        is_held = held is not None and held.until > self._clock()
        return "left alone for a while after it failed" if is_held else ""

    def _gangs_of(self, step: Grow) -> set[GangKey | str]:
        """What the step buys for, as far as it is known: pods without a gang each by itself."""
        found = {key: self._store.pod(key) for key in step.demand}
        return {key if pod is None or pod.gang is None else gang_key(pod.gang) for key, pod in found.items()}

    def _answered(self, step: Step, *, is_known: bool) -> None:
        if isinstance(step, Grow):
            (self._unanswered.discard if is_known else self._unanswered.add)(step.group)

    def _forget_answered(self) -> None:
        """Orders that AWS has answered, or was not asked for after all, are none that may still be carried out."""
        if self._memory is not None:
            orders = {name: order for name, order in self._memory.orders.items() if name in self._unanswered}
            self._memory = replace(self._memory, orders=orders)

    def _take(self, batch: Sequence[Step]) -> dict[Step, str]:
        """Each fails alone, and is left alone for a while. Gives what came of each."""
        if not batch:
            return {}
        came = self._executor.take(batch)
        if not isinstance(batch[0], _OF_PODS) and not all(isinstance(one, NotYet) for one in came):
            self._set_in_motion()
        return {step: self._outcome(step, failure) for step, failure in zip(batch, came, strict=True)}

    def _outcome(self, step: Step, failure: Exception | None) -> str:
        if isinstance(failure, NotYet):
            self._held.pop(describe(step), None)  # the store will tell when: until then there is nothing to retry
            return "not taken: the cluster has changed since the plan"
        self._answered(step, is_known=not isinstance(failure, errors.NoAnswer))
        if failure is not None:
            self._refused |= isinstance(step, Grow) and isinstance(failure, errors.Refused | Changed)
            held = self._held.setdefault(describe(step), _Held())
            held.until = self._clock() + held.delay.longer()
            self._report.failed(step, failure)
            return f"failed: {failure}"
        self._held.pop(describe(step), None)
        keys = getattr(step, "demand", ())
        self._report.done(step, pods=[pod for pod in map(self._store.pod, keys) if pod is not None])
        return DONE

    def _tell(self, plan: Plan, cluster: Cluster) -> None:
        self._report.waiting(plan.waiting, is_there=lambda key: self._store.pod(key) is not None)
        self._report.idle_gpus(plan.idle_gpus)
        if self._messenger is not None and not self._dry_run:
            self._messenger.idle_gpus(plan.idle_gpus, self._store.pod)
            self._messenger.hopeless(plan.waiting, self._store.pod)
            self._messenger.unread(pod_index_of(cluster.pods).unbound)

    def _settle(self) -> int:
        """Waits a moment for the rest of a job to come after a change, but not for ever."""
        scale_up = self._policies.current().scale_up
        return self._store.settle(
            quiet=scale_up.debounce.total_seconds(), at_most=scale_up.debounce_at_most.total_seconds()
        )

    def _seconds_until_due(self, plan: Plan) -> float:
        """A hold of a planned step may have run out while the rest of the turn took its time: it is due at once."""
        now = self._clock()
        planned = {describe(step) for step in plan.steps} if self._held else set()
        self._held = {key: held for key, held in self._held.items() if key in planned or held.until > now - LOOK_AGAIN}
        dues = [LOOK_AGAIN, *(held.until - now for key, held in self._held.items() if key in planned)]
        turn = self._policies.current().next_turn(self._now())
        dues += [(at - self._now()).total_seconds() for at in (plan.wake_at, turn) if at is not None]
        return max(min(dues), 0.05)


def _spare_the_collector() -> None:
    """What was listed at the start stays for long: to walk through all of it again costs more than many a decision."""
    gc.collect()
    gc.freeze()
