"""A training job as a researcher writes it: a job file becomes a frozen ``TrainingJob``, or ``BadInput``.

A job is a set of tasks by role; each role has some number of like tasks. TensorFlow's roles are those of ``TF_CONFIG``:
https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from autoscaler import labels as words
from autoscaler.cluster import Resources, parse_quantity
from autoscaler.documents import Document, Span, parse_document, read_document
from autoscaler.policy import Name

Role = Literal["chief", "worker", "ps", "evaluator"]
ROLES: Final[tuple[Role, ...]] = ("chief", "worker", "ps", "evaluator")
PORT: Final = 2222
"""Where every task's gRPC server listens, as in TensorFlow's own examples."""
_HOST_NAME_MAX = 63


class Task(Document):
    """The like tasks of one role."""

    count: int = Field(default=1, ge=1, le=10_000, description="how many tasks of this role")
    cpu: str = Field(description="CPUs of one task, e.g. 8 or 500m")
    memory: str = Field(description="memory of one task, e.g. 32Gi")
    gpus: int = Field(default=0, ge=0, le=64, description="GPUs of one task")
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)

    @field_validator("cpu", "memory", mode="before")
    @classmethod
    def _is_an_amount(cls, amount: object) -> str:
        if parse_quantity(str(amount)) <= 0:
            message = "must be more than nothing"
            raise ValueError(message)
        return str(amount)

    @field_validator("env")
    @classmethod
    def _leaves_ours_alone(cls, env: dict[str, str]) -> dict[str, str]:
        ours = {"TF_CONFIG", "TASK_INDEX"} & env.keys()
        if ours:
            message = f"sets {min(ours)}, which Spillway writes itself: leave it out"
            raise ValueError(message)
        return env

    def requests(self) -> Resources:
        """What one task asks for, in the units of ``Resources``."""
        return Resources.parse({"cpu": self.cpu, "memory": self.memory, words.GPU: self.gpus})


class TrainingJob(Document):
    """One training job: all of its tasks start together, and it ends when its workers (or its chief) have."""

    name: Name = Field(description="the job's name, e.g. mnist")
    namespace: Name = "default"
    framework: Literal["tensorflow"] = "tensorflow"
    image: str = Field(description="container image of every task", min_length=1)
    tasks: dict[Role, Task] = Field(description="tasks by role: chief, worker, ps, evaluator")
    priority: str = Field(default="", description="name of a PriorityClass")
    restarts: int = Field(
        default=3, ge=0, description="failures of a role's tasks that are mended by starting them again"
    )
    keep_for: Span = Field(default=timedelta(hours=24), description="how long a finished job can be looked at")
    same: Literal["", "zone"] = Field(default="", description="zone: all tasks in one availability zone")
    node_selector: dict[str, str] = Field(default_factory=dict)

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

    def address(self, role: Role, index: int) -> str:
        """``HOST:PORT`` of one task, by the stable name that the headless service gives it."""
        return f"{self.task_set(role)}-{index}.{self.name}.{self.namespace}.svc:{PORT}"

    def requests(self) -> Resources:
        """What all tasks together ask for."""
        return Resources.total(task.requests() * task.count for task in self.tasks.values())


def read_job(path: Path) -> TrainingJob:
    """Read and check a job file. Raises ``BadInput``."""
    return read_document(path, TrainingJob, what="job")


def parse_job(text: str, *, source: str) -> TrainingJob:
    """As :func:`read_job`, from text."""
    return parse_document(text, TrainingJob, what="job", source=source)
