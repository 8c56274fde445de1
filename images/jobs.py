"""A training job as a researcher writes it: a job file becomes a frozen ``TrainingJob``, or ``BadInput``.

A job is a set of tasks by role; each role has some number of like tasks. TensorFlow's roles are those of ``TF_CONFIG``:
https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from autoscaler.config.documents import Document, Span, parse_document, read_document
from autoscaler.config.image_names import ImageName
from autoscaler.config.labels_and_taints import LABEL_KEY, LABEL_VALUE, LABEL_VALUE_IS, Name
from autoscaler.model import labels as words
from autoscaler.model.resources import Resources, parse_quantity

Role = Literal["chief", "worker", "ps", "evaluator"]
ROLES: Final[tuple[Role, ...]] = ("chief", "worker", "ps", "evaluator")
PORT: Final = 2222
"""Where every task's gRPC server listens, as in TensorFlow's own examples."""
RESERVED_ENV: Final = frozenset({"TF_CONFIG", "TASK_INDEX"})
_HOST_NAME_MAX: Final = 63
_ENV_MAX: Final = 128 * 1024
"""Bytes that Linux takes in one environment variable (``MAX_ARG_STRLEN``)."""
_CPUS_MAX: Final = 10_000
_MEMORY_MIN: Final = 2**20

_MEMORY_MAX: Final = 2**50
_LONGEST: Final = timedelta(days=3650)
_PORT_NAME: Final = re.compile(r"(?=.{1,15}$)(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*")
_VARIABLE: Final = re.compile(r"[ -<>-~]+")
"""Printable ASCII without ``=``, as Kubernetes has it."""
_CLASS_NAME: Final = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")

PortNumber = Annotated[int, Field(ge=1, le=65_535)]


def _is_key(key: str) -> str:
    if not re.fullmatch(LABEL_KEY, key):
        raise ValueError(f"{key!r} is not the key of a label or taint: write one such as example.com/tier")
    return key


class TolerationEntry(Document):
    """A taint that the tasks may live with, as Kubernetes writes it; the one on GPU machines is seen to already."""

    key: Annotated[str, AfterValidator(_is_key)] = Field(description="the taint's key, e.g. spot", min_length=1)
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""

    @model_validator(mode="after")
    def _value_is_compared(self) -> TolerationEntry:
        if self.value and self.operator == "Exists":
            message = f"gives the value {self.value!r}, which only counts with operator: Equal"
            raise ValueError(message)
        return self


class Task(Document):
    """The like tasks of one role."""

    count: int = Field(default=1, ge=1, le=10_000, description="how many tasks of this role")
    cpu: str = Field(description="CPUs of one task, e.g. 8 or 500m")
    memory: str = Field(description="memory of one task, e.g. 32Gi")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs of one task")
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    ports: dict[Name, PortNumber] = Field(default_factory=dict, description="further ports, e.g. {tensorboard: 6006}")
    annotations: dict[str, str] = Field(default_factory=dict)

    @field_validator("cpu", mode="before")
    @classmethod
    def _counts_cpus(cls, amount: object) -> str:
        cpus = parse_quantity(str(amount))
        if not 0 < cpus <= _CPUS_MAX:
            message = "must be CPUs of one task, e.g. 8 or 500m"
            raise ValueError(message)
        return str(amount)

    @field_validator("memory", mode="before")
    @classmethod
    def _is_enough_memory(cls, amount: object) -> str:
        size = parse_quantity(str(amount))
        if size < _MEMORY_MIN:
            message = "must be memory of one task with its unit, e.g. 32Gi; without a unit these are bytes"
            raise ValueError(message)
        if size > _MEMORY_MAX:
            raise ValueError("must be memory of one task, e.g. 32Gi: no machine has more than 1024Ti")
        return str(amount)

    @field_validator("env")
    @classmethod
    def _leaves_our_variables_alone(cls, env: dict[str, str]) -> dict[str, str]:
        ours = RESERVED_ENV & env.keys()
        if ours:
            message = f"sets {min(ours)}, which Spillway writes itself: leave it out"
            raise ValueError(message)
        for name in env:
            if not _VARIABLE.fullmatch(name):
                raise ValueError(f"sets {name!r}, which is not the name of a variable: write one such as EPOCHS")
        return env

    @field_validator("ports")
    @classmethod
    def _leaves_our_port_alone(cls, ports: dict[str, int]) -> dict[str, int]:
        if "grpc" in ports or PORT in ports.values():
            message = f"has the name grpc or the number {PORT}, which every task's gRPC server uses: choose another"
            raise ValueError(message)
        for name in ports:
            if not _PORT_NAME.fullmatch(name):
                raise ValueError(
                    f"has the name {name!r}: write at most 15 lower-case letters, digits and single dashes, "
                    "a letter among them"
                )
        return ports

    @field_validator("annotations")
    @classmethod
    def _leaves_our_annotations_alone(cls, annotations: dict[str, str]) -> dict[str, str]:
        for key in map(_is_key, annotations):
            if key.startswith(f"{words.PREFIX}/") and key != words.DO_NOT_DISRUPT:
                message = f"sets {key}, which Spillway writes itself: leave it out"
                raise ValueError(message)
        return annotations

    def requests(self) -> Resources:
        """What one task asks for, in the units of ``Resources``."""
        return Resources.parse({"cpu": self.cpu, "memory": self.memory, words.GPU: self.gpus})


class TrainingJob(Document):
    """One training job: its tasks start together, and it ends when its chief (without one: its workers) has."""

    name: Name = Field(description="the job's name, e.g. mnist")
    namespace: Name = "default"
    framework: Literal["tensorflow"] = "tensorflow"
    image: ImageName = Field(description="container image of every task")
    tasks: dict[Role, Task] = Field(description="tasks by role: chief, worker, ps, evaluator")
    priority: str = Field(default="", description="name of a PriorityClass")
    restarts: int = Field(
        default=3, ge=0, le=10_000, description="failures of a role's tasks that are mended by starting them again"
    )
    keep_for: Span = Field(default=timedelta(hours=24), description="how long a finished job can be looked at")
    expected: Span | None = Field(
        default=None, description="how long it will run, e.g. 2h: others may wait for the machines that it frees"
    )
    patience: Span | None = Field(
        default=None, description="how long it may wait for machines that we own before EC2 is bought, e.g. 30m"
    )
    same: Literal["", "zone"] = Field(default="", description="zone: all tasks in one availability zone")
    node_selector: dict[str, str] = Field(default_factory=dict)
    tolerations: tuple[TolerationEntry, ...] = ()

    @field_validator("name")
    @classmethod
    def _names_a_service(cls, name: str) -> str:
        if name[0].isdigit():
            message = "must begin with a letter: it becomes part of host names"
            raise ValueError(message)
        return name

    @field_validator("priority")
    @classmethod
    def _can_be_a_class(cls, priority: str) -> str:
        if priority and not _CLASS_NAME.fullmatch(priority):
            raise ValueError("is not the name of a PriorityClass: lower-case letters, digits, dashes and dots")
        return priority

    @field_validator("keep_for", "expected", "patience")
    @classmethod
    def _comes_to_an_end(cls, span: timedelta | None) -> timedelta | None:
        if span is not None and span > _LONGEST:
            raise ValueError("must be at most 3650d")
        return span

    @field_validator("node_selector")
    @classmethod
    def _selects_labels(cls, wanted: dict[str, str]) -> dict[str, str]:
        for key, value in wanted.items():
            if not re.fullmatch(LABEL_VALUE, value):
                raise ValueError(f"wants {_is_key(key)} to be {value!r}, which no label is: {LABEL_VALUE_IS}")
            _is_key(key)
        return wanted

    @field_validator("tasks")
    @classmethod
    def _tasks_make_a_job(cls, tasks: dict[Role, Task]) -> dict[Role, Task]:
        if not {"chief", "worker"} & tasks.keys():
            message = "has neither a chief nor a worker: somebody must do the training"
            raise ValueError(message)
        for role in ("chief", "evaluator"):
            task = tasks.get(role)
            if task is not None and task.count > 1:
                message = f"has {task.count} tasks of role {role}: a job has at most one"
                raise ValueError(message)
        return {role: tasks[role] for role in ROLES if role in tasks}

    @model_validator(mode="after")
    def _host_names_fit(self) -> TrainingJob:
        longest = max((f"{self.task_set(role)}-{task.count - 1}" for role, task in self.tasks.items()), key=len)
        if len(longest) > _HOST_NAME_MAX:
            message = (
                f"the host name {longest!r} would have {len(longest)} letters, {_HOST_NAME_MAX} at most: shorten name"
            )
            raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _addresses_fit(self) -> TrainingJob:
        size = sum(len(f'"{address}",') for addresses in self.addresses().values() for address in addresses)
        if size > _ENV_MAX - 1024:  # the rest of TF_CONFIG
            message = (
                f"the addresses of {self.size} tasks are {size // 1024} kB, and TF_CONFIG holds {_ENV_MAX // 1024}: "
                "use fewer and bigger tasks"
            )
            raise ValueError(message)
        return self

    @property
    def main_role(self) -> Role:
        """The role whose success is the job's: the chief, or the workers."""
        return "chief" if "chief" in self.tasks else "worker"

    @property
    def size(self) -> int:
        """How many tasks there are in all."""
        return sum(task.count for task in self.tasks.values())

    def task_set(self, role: Role) -> str:
        """Name of the object that makes the tasks of a role."""
        return f"{self.name}-{role}"

    def addresses(self) -> dict[Role, list[str]]:
        """``HOST:PORT`` of every task by the stable name that the headless service gives it.

        The evaluator is not among them: it is no part of the training cluster.
        """
        where = f"{self.name}.{self.namespace}.svc:{PORT}"
        return {
            role: [f"{self.task_set(role)}-{index}.{where}" for index in range(task.count)]
            for role, task in self.tasks.items()
            if role != "evaluator"
        }

    def requests(self) -> Resources:
        """What all tasks together ask for."""
        return Resources.total(task.requests() * task.count for task in self.tasks.values())


def read_job(path: Path) -> TrainingJob:
    """Read and check a job file. Raises ``BadInput``."""
    return read_document(path, TrainingJob, what="job")


def parse_job(text: str, *, source: str) -> TrainingJob:
    """As :func:`read_job`, from text."""
    return parse_document(text, TrainingJob, what="job", source=source)
