"""A job as a researcher describes it: its roles, what ends it, what becomes of it. All renderers read this."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from autoscaler.config.documents import Document
from autoscaler.config.labels_and_taints import LABEL_VALUE, LABEL_VALUE_IS, Name
from autoscaler.model import labels as words
from autoscaler.model.resources import Resources
from images.job_roles import ROLES, SERVING, Role, TolerationEntry
from images.job_values import BUCKET, Bounded, LogPlace, SpanOrForever, is_key, seconds

_HOST_NAME_MAX: Final = 63
_ENV_MAX: Final = 128 * 1024
"""Bytes that Linux takes in one environment variable (``MAX_ARG_STRLEN``)."""
_CLASS_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUEUE: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")


class Failure(Document):
    """What is done about tasks that fail."""

    restarts: int = Field(
        default=3, ge=0, le=10_000, description="failures of a role's tasks that are mended by starting them again"
    )
    deadline: Bounded | None = Field(default=None, description="the job fails when it has run for so long, e.g. 12h")


class Elastic(Document):
    """What a change of size costs the job, and what its growth may cost."""

    restart: Bounded = Field(
        default=timedelta(0), description="how long its tasks stand still at a change of size: none if independent"
    )
    warm_up: Bounded = Field(
        default=timedelta(seconds=10), description="how long a new task does nothing of use, e.g. 1m"
    )
    usd_per_hour: float | None = Field(
        default=None,
        ge=0,
        allow_inf_nan=False,
        description="what nodes that only tasks above the least need may cost; else: as the policy says",
    )


class Job(Document):
    """One job: its tasks start together, and it ends when its essential roles have."""

    name: Name = Field(description="the job's name, e.g. mnist")
    kind: Literal["batch", "service"] = Field(default="batch", description="service: it runs until it is stopped")
    roles: dict[Name, Role] = Field(description="tasks by role: chief, worker, ps, evaluator, tensorboard, or your own")
    gang: bool = Field(default=True, description="all tasks (of elastic roles: the least) start together or none does")
    success: Literal["all", "first"] = Field(
        default="all", description="all: every essential task ended well; first: task 0 of the first essential role"
    )
    failure: Failure = Failure()
    logs: LogPlace | None = Field(
        default=None, description="directory that all tasks see, or s3://BUCKET/PREFIX: numbered lines, exits"
    )
    retain: SpanOrForever = Field(
        default=timedelta(hours=24), description="how long a finished job can be looked at, e.g. 24h or forever"
    )
    priority: str = Field(default="", description="name of a PriorityClass (Slurm: QOS)")
    queue: str = Field(default="", description="name of a queue (Slurm: partition)")
    owner: str = Field(
        default="", description=f"whose budget it counts for, e.g. ada: the label {words.OWNER} (Slurm: account)"
    )
    data_dir: str = Field(default="", description="where the data are; tasks see it as $(DATA_DIR)")
    train_dir: str = Field(default="", description="where results go; tasks see it as $(TRAIN_DIR)")
    depends_on: dict[Name, tuple[Name, ...]] = Field(
        default_factory=dict, description="role: roles that must have succeeded before it starts"
    )
    network: Literal["own", "host"] = Field(default="own", description="host: tasks use the machine's own network")
    namespace: Name = "default"
    expected: Bounded | None = Field(
        default=None, description="how long it will run, e.g. 2h: others may wait for the machines that it frees"
    )
    patience: SpanOrForever | None = Field(
        default=None,
        description="how long it may wait for machines that we own before EC2 is bought, e.g. 30m; forever: none is",
    )
    elastic: Elastic = Elastic()
    same: Literal["", "zone"] = Field(default="", description="zone: all tasks in one availability zone")
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[TolerationEntry, ...] = ()

    @field_validator("name")
    @classmethod
    def _names_a_service(cls, name: str) -> str:
        if name[0].isdigit():
            raise ValueError("must begin with a letter: it becomes part of host names")
        return name

    @field_validator("priority")
    @classmethod
    def _can_be_a_class(cls, priority: str) -> str:
        if priority and not _CLASS_NAME.fullmatch(priority):
            raise ValueError("is not the name of a PriorityClass: lower-case letters, digits, dashes and dots")
        return priority

    @field_validator("queue")
    @classmethod
    def _can_be_a_queue(cls, queue: str) -> str:
        if queue and not _QUEUE.fullmatch(queue):
            raise ValueError("is not the name of a queue: letters, digits, dashes, dots and underscores")
        return queue

    @field_validator("owner")
    @classmethod
    def _can_be_a_label(cls, owner: str) -> str:
        if not re.fullmatch(LABEL_VALUE, owner):
            raise ValueError(f"must be the value of a label: {LABEL_VALUE_IS}")
        return owner

    @field_validator("data_dir", "train_dir")
    @classmethod
    def _is_one_line(cls, path: str) -> str:
        if not path.isprintable():
            raise ValueError("must be a path or an address on one line")
        return path

    @field_validator("node_selector")
    @classmethod
    def _selects_labels(cls, wanted: dict[str, str]) -> dict[str, str]:
        for key, value in wanted.items():
            if not re.fullmatch(LABEL_VALUE, value):
                raise ValueError(f"wants {is_key(key)} to be {value!r}, which no label is: {LABEL_VALUE_IS}")
            is_key(key)
        return wanted

    @field_validator("roles")
    @classmethod
    def _roles_make_a_job(cls, roles: dict[str, Role]) -> dict[str, Role]:
        for name in ("chief", "evaluator"):
            if name in roles and roles[name].most > 1:
                raise ValueError(f"has {roles[name].most} tasks of role {name}: a job has at most one")
        for name in roles:
            if not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", name):
                raise ValueError(
                    f"has the role {name!r}: a role begins with a letter, as it becomes part of host names"
                )
        known = {name: roles[name] for name in ROLES if name in roles}
        return known | roles

    @model_validator(mode="after")
    def _comes_to_an_end_by_itself(self) -> Job:
        if not self.essential:
            raise ValueError(
                f"roles: none of {', '.join(self.roles) or 'them'} ends by itself: "
                "add a worker or a chief, or write essential: true in one"
            )
        return self

    @model_validator(mode="after")
    def _steps_have_an_order(self) -> Job:
        for role, others in self.depends_on.items():
            for name in (role, *others):
                if name not in self.roles:
                    raise ValueError(f"depends_on: there is no role {name}: the roles are {', '.join(self.roles)}")
        if self.depends_on and self.gang:
            raise ValueError("depends_on: roles that wait for others cannot start together with them: add gang: false")
        done = {role for together in self._by_turn() for role in together}
        if done != self.roles.keys():
            circle = ", ".join(role for role in self.roles if role not in done)
            raise ValueError(f"depends_on: {circle} wait for each other: leave one of them out")
        return self

    @model_validator(mode="after")
    def _has_an_elastic_role(self) -> Job:
        if self.elastic != Elastic() and not (self.leading_role and self.gang):
            raise ValueError("elastic: no role has tasks that come and go: give one count: MIN..MAX, with gang: true")
        return self

    @model_validator(mode="after")
    def _host_names_fit(self) -> Job:
        longest = max((f"{self.task_set(name)}-{role.most - 1}" for name, role in self.roles.items()), key=len)
        if len(longest) > _HOST_NAME_MAX:
            raise ValueError(
                f"the host name {longest!r} would have {len(longest)} letters, {_HOST_NAME_MAX} at most: shorten name"
            )
        size = self.size * (len(longest) + len(self.name) + len(self.namespace) + len('.0-..svc:65535"",'))
        if size > _ENV_MAX - 1024:  # the rest of TF_CONFIG
            raise ValueError(
                f"the addresses of {self.size} tasks are {size // 1024} kB, and TF_CONFIG holds {_ENV_MAX // 1024}: "
                "use fewer and bigger tasks"
            )
        return self

    @property
    def essential(self) -> tuple[str, ...]:
        """The roles whose end is the job's, the main one first."""
        said = tuple(name for name, role in self.roles.items() if role.essential)
        if said:
            return said
        left = [name for name, role in self.roles.items() if role.essential is None]
        leaders = [name for name in ("chief", "worker") if name in left and not self.depends_on]
        return tuple(leaders[:1] or [name for name in left if name not in SERVING])

    @property
    def shared_logs(self) -> str | None:
        """The directory of lines and exits that all tasks see; none where they go to a bucket."""
        return None if self.logs is None or self.logs.startswith(BUCKET) else self.logs

    @property
    def main_role(self) -> str:
        """The role whose object owns the others: of steps one that no other waits for."""
        before = {name for others in self.depends_on.values() for name in others}
        return next((name for name in self.essential if name not in before), self.essential[0])

    def steps_before(self, role: str) -> set[str]:
        """All roles that must have succeeded before this one starts."""
        found: set[str] = set()
        new = {*self.depends_on.get(role, ())}
        while new:
            found |= new
            new = {other for name in new for other in self.depends_on.get(name, ())} - found
        return found

    def by_step(self) -> dict[str, Job]:
        """What runs at one time, by the names of its roles: of a job without steps the job itself, by no name."""
        if not self.depends_on:
            return {"": self}
        return {
            ", ".join(names): self.model_copy(
                update={"roles": {name: self.roles[name] for name in names}, "depends_on": {}, "expected": None}
            )
            for names in self._by_turn()
        }

    def _by_turn(self) -> Iterator[list[str]]:
        """Roles that run at one time, each time after those before; roles that wait for each other are in none."""
        done: set[str] = set()
        while ready := [role for role in self.roles if role not in done and done >= {*self.depends_on.get(role, ())}]:
            yield ready
            done |= {*ready}

    def ends_last(self, role: str) -> bool:
        """Whether the job has ended when this role has; it is so of a job without steps."""
        return not self.depends_on or {*self.essential} <= {role} | self.steps_before(role)

    @property
    def size(self) -> int:
        """How many tasks there are in all, at most."""
        return sum(role.most for role in self.roles.values())

    @property
    def needed(self) -> int:
        """How many tasks must be there before any can do its work."""
        return sum(role.least for role in self.roles.values())

    @property
    def leading_role(self) -> str:
        """The elastic role whose number of tasks is decided on, which the other elastic ones follow; empty: none is."""
        elastic = [name for name, role in self.roles.items() if role.least < role.most]
        return min(elastic, key=lambda name: name in SERVING, default="")

    def tasks(self) -> Iterator[tuple[str, int]]:
        """Role and index of every task, in the order in which they are numbered."""
        return ((name, index) for name, role in self.roles.items() for index in range(role.most))

    def task_set(self, role: str) -> str:
        """Name of the object that makes the tasks of a role."""
        return f"{self.name}-{role}"

    def requests(self) -> Resources:
        """What all tasks together ask for."""
        return Resources.total(role.requests() * role.most for role in self.roles.values())


def as_data(job: Job) -> dict[str, Any]:
    """The job as its file would say it, without what holds anyway; ``Job.model_validate`` reads it back."""
    data = job.model_dump(mode="python", exclude_defaults=True)
    _write_spans(data)
    return data


def _write_spans(data: dict[str, Any]) -> None:
    for key, value in data.items():
        if isinstance(value, timedelta):
            data[key] = seconds(value)
        elif isinstance(value, dict):
            _write_spans(value)
