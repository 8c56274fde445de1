"""A job as a researcher describes it: roles of like tasks, what ends it, what becomes of it.

The one description that every renderer reads. TensorFlow's roles are those of ``TF_CONFIG``:
https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from autoscaler.config.documents import Document, Span, parse_span
from autoscaler.config.image_names import ImageName
from autoscaler.config.labels_and_taints import LABEL_KEY, LABEL_VALUE, LABEL_VALUE_IS, Name
from autoscaler.model import labels as words
from autoscaler.model.cluster import FOREVER
from autoscaler.model.resources import Resources, parse_quantity
from images.launcher import GRACE, VIEWS

ROLES: Final = ("chief", "worker", "ps", "evaluator", "tensorboard")
"""Roles whose meaning is known, in the order in which tasks are numbered; any other name is a role of one's own."""
SERVING: Final = frozenset({"ps", "evaluator", "tensorboard"})
"""Roles that wait for ever: others decide when the job has ended."""
PORT: Final = 2222
"""Where a task listens unless it says otherwise, as in TensorFlow's own examples."""
_LAUNCHERS_OWN: Final = 10
"""Seconds that the launcher has beyond the grace of its task: to end what is left of it, and to write down the exit."""
_HOST_NAME_MAX: Final = 63
_ENV_MAX: Final = 128 * 1024
"""Bytes that Linux takes in one environment variable (``MAX_ARG_STRLEN``)."""
_CPUS_MAX: Final = 10_000
_MEMORY_MIN, _MEMORY_MAX = 2**20, 2**50
_COUNT_MAX: Final = 10_000
_LONGEST: Final = timedelta(days=3650)
_VARIABLE: Final = re.compile(r"[ -<>-~]+")
"""Printable ASCII without ``=``, as Kubernetes has it."""
_CLASS_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
BUCKET: Final = "s3://"
_IN_BUCKET: Final = re.compile(r"s3://[a-z0-9][-a-z0-9.]{1,61}[a-z0-9](/[-\w.]+)*", re.ASCII)
_QUEUE: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_.]{0,62}")


def _is_key(key: str) -> str:
    if not re.fullmatch(LABEL_KEY, key):
        raise ValueError(f"{key!r} is not the key of a label or taint: write one such as example.com/tier")
    return key


def _count(given: object) -> str:
    least, _, most = str(given).partition("..")
    try:
        numbers = int(least), int(most or least)
    except ValueError:
        numbers = (0, 0)
    if not 1 <= numbers[0] <= numbers[1] <= _COUNT_MAX:
        raise ValueError(f"must be a number of tasks from 1 to {_COUNT_MAX}, or a range of them such as 2..8")
    return str(given)


def _cpus(amount: object) -> str:
    if not 0 < parse_quantity(str(amount)) <= _CPUS_MAX:
        raise ValueError("must be CPUs of one task, e.g. 8 or 500m")
    return str(amount)


def _memory(amount: object) -> str:
    size = parse_quantity(str(amount))
    if size < _MEMORY_MIN:
        raise ValueError("must be memory of one task with its unit, e.g. 32Gi; without a unit these are bytes")
    if size > _MEMORY_MAX:
        raise ValueError("must be memory of one task, e.g. 32Gi: no machine has more than 1024Ti")
    return str(amount)


def _span_or_forever(given: object) -> timedelta:
    span = FOREVER if given == "forever" else parse_span(given)
    if span > _LONGEST and span != FOREVER:
        raise ValueError("must be at most 3650d, or forever")
    return span


def _comes_to_an_end(span: timedelta) -> timedelta:
    if span > _LONGEST:
        raise ValueError("must be at most 3650d")
    return span


def _is_absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or "\n" in path:
        raise ValueError("must be the absolute path of a directory, e.g. /data")
    return path


def _keeps_lines(place: str) -> str:
    if not place.startswith(BUCKET):
        return _is_absolute(place)
    if not _IN_BUCKET.fullmatch(place):
        raise ValueError("must be s3://BUCKET or s3://BUCKET/PREFIX, without a slash at its end, e.g. s3://team/logs")
    return place


_NUMBER_OR_TEXT: Final = WithJsonSchema({"type": ["number", "string"]})
_SPAN_SCHEMA: Final = WithJsonSchema({"type": "string", "examples": ["90s", "2h"]})
Count = Annotated[str, BeforeValidator(_count), _NUMBER_OR_TEXT]
Cpus = Annotated[str, BeforeValidator(_cpus), _NUMBER_OR_TEXT]
Memory = Annotated[str, BeforeValidator(_memory), WithJsonSchema({"type": "string", "examples": ["32Gi"]})]
SpanOrForever = Annotated[timedelta, BeforeValidator(_span_or_forever), _SPAN_SCHEMA]
Bounded = Annotated[Span, AfterValidator(_comes_to_an_end), _SPAN_SCHEMA]
Directory = Annotated[str, AfterValidator(_is_absolute)]
LogPlace = Annotated[str, AfterValidator(_keeps_lines)]


class TolerationEntry(Document):
    """A taint that the tasks may live with, as Kubernetes writes it; the one on GPU machines is seen to already."""

    key: Annotated[str, AfterValidator(_is_key)] = Field(description="the taint's key, e.g. spot", min_length=1)
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    @model_validator(mode="after")
    def _value_is_compared(self) -> TolerationEntry:
        if self.value and self.operator == "Exists":
            raise ValueError(f"gives the value {self.value!r}, which only counts with operator: Equal")
        return self


class Volume(Document):
    """A directory of a machine, or a PersistentVolumeClaim, that tasks see."""

    mount: Directory = Field(description="where tasks see it, e.g. /data")
    host: Directory | None = Field(default=None, description="directory of the machine, e.g. /srv/data")
    claim: Name | None = Field(default=None, description="name of a PersistentVolumeClaim")
    read_only: bool = False

    @model_validator(mode="after")
    def _has_one_source(self) -> Volume:
        if (self.host is None) == (self.claim is None):
            raise ValueError("needs one source: host (a directory of the machine) or claim (a PersistentVolumeClaim)")
        return self


class Idle(Document):
    """When an idle task ends: one with a Jupyter server, as a rule. Its files stay."""

    after: Bounded = Field(description="it ends after so long without use, e.g. 1h")
    warning: Bounded = Field(default=timedelta(minutes=10), description="so long before that it says so, e.g. 10m")
    by: Literal["kernels", "gpus"] = Field(
        default="kernels",
        description="kernels: Jupyter kernels and terminals that work are use, as are GPUs; gpus: GPUs alone",
    )

    @model_validator(mode="after")
    def _is_said_before(self) -> Idle:
        if not timedelta(0) < self.warning < self.after:
            raise ValueError("warning must be shorter than after, and not nothing: it is said beforehand")
        return self


class Role(Document):
    """The like tasks of one role."""

    count: Count = Field(default="1", description="how many tasks: a number, or MIN..MAX for an elastic role")
    cpus: Cpus = Field(description="CPUs of one task, e.g. 8 or 500m")
    memory: Memory = Field(description="memory of one task, e.g. 32Gi")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs of one task")
    image: ImageName | None = Field(default=None, description="container image, e.g. team/mnist:1")
    python: Directory | None = Field(
        default=None, description="a virtual environment whose programs come first, where no containers are"
    )
    entry: tuple[str, ...] = Field(default=(), description="the program, e.g. [python, train.py]; else the image's own")
    args: tuple[str, ...] = Field(default=(), description="its arguments; $(TASK_INDEX) and the like are filled in")
    env: dict[str, str] = Field(default_factory=dict)
    port: int = Field(default=PORT, ge=1, le=65_535, description="where each task listens")
    restart: Literal["never", "node-failure", "on-failure", "always"] = Field(
        default="on-failure", description="when a task starts again; on-failure includes node-failure"
    )
    essential: bool | None = Field(
        default=None, description="whether its end is the job's; else: chief, or workers, or all that do not serve"
    )
    volumes: tuple[Volume, ...] = ()
    checkpoint: tuple[str, ...] = Field(default=(), description="a program run before a task is ended from outside")
    grace: Bounded = Field(
        default=timedelta(seconds=GRACE),
        description="from SIGTERM to SIGKILL when a task is ended from outside; half of it is for checkpoint, e.g. 5m",
    )
    idle: Idle | None = Field(default=None, description="ends a task that is idle, and says so beforehand")
    annotations: dict[str, str] = Field(default_factory=dict, description="for Kubernetes")

    @property
    def ends_within(self) -> int:
        """Seconds in which a task is gone that is told to end: of those beyond its grace the launcher has use."""
        return math.ceil(self.grace.total_seconds()) + (_LAUNCHERS_OWN if self.entry else 0)

    @property
    def has_usual_grace(self) -> bool:
        """What a target gives a task anyhow that runs without the launcher."""
        return self.grace == timedelta(seconds=GRACE)

    @property
    def least(self) -> int:
        """How many tasks it needs to run."""
        return int(self.count.partition("..")[0])

    @property
    def most(self) -> int:
        """How many tasks it can use."""
        return int(self.count.rpartition("..")[2])

    @field_validator("env")
    @classmethod
    def _leaves_our_variables_alone(cls, env: dict[str, str]) -> dict[str, str]:
        for name in env:
            if name in VIEWS or name.startswith("SPILLWAY_"):
                raise ValueError(f"sets {name}, which Spillway writes itself: leave it out")
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"sets {name!r}, which is not the name of a variable: write one such as EPOCHS")
        return env

    @field_validator("annotations")
    @classmethod
    def _leaves_our_annotations_alone(cls, annotations: dict[str, str]) -> dict[str, str]:
        for key in map(_is_key, annotations):
            if key.startswith(f"{words.PREFIX}/") and key != words.DO_NOT_DISRUPT:
                raise ValueError(f"sets {key}, which Spillway writes itself: leave it out")
        return annotations

    @model_validator(mode="after")
    def _can_be_started(self) -> Role:
        if self.image is None and not self.entry:
            raise ValueError("has neither image nor entry: give a container image, or the program to run, or both")
        return self

    def requests(self) -> Resources:
        """What one task asks for, in the units of ``Resources``."""
        return Resources.parse({"cpu": self.cpus, "memory": self.memory, words.GPU: self.gpus})


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
                raise ValueError(f"wants {_is_key(key)} to be {value!r}, which no label is: {LABEL_VALUE_IS}")
            _is_key(key)
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
        done: set[str] = set()
        while ready := [role for role in self.roles if role not in done and done >= {*self.depends_on.get(role, ())}]:
            done |= {*ready}
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
        """The role whose object owns the others."""
        return self.essential[0]

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


def seconds(span: timedelta) -> str:
    """``90s``, ``0.25s``, ``forever``: exact, as files and annotations have it."""
    return "forever" if span == FOREVER else f"{span.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"
