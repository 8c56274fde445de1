"""The like tasks of one role of a job: what they run and need, and when they start again.

TensorFlow's roles are those of ``TF_CONFIG``:
https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from autoscaler.config.documents import Document
from autoscaler.config.image_names import ImageName
from autoscaler.config.labels_and_taints import Name
from autoscaler.model import labels as words
from autoscaler.model.resources import Resources
from images.job_values import Bounded, Count, Cpus, Directory, Memory, is_key
from images.launcher import GRACE, VIEWS

ROLES: Final = ("chief", "worker", "ps", "evaluator", "tensorboard")
"""Roles whose meaning is known, in the order in which tasks are numbered; any other name is a role of one's own."""
SERVING: Final = frozenset({"ps", "evaluator", "tensorboard"})
"""Roles that wait for ever: others decide when the job has ended."""
PORT: Final = 2222
"""Where a task listens unless it says otherwise, as in TensorFlow's own examples."""
_LAUNCHERS_OWN: Final = 10
"""Seconds that the launcher has beyond the grace of its task: to end what is left of it, and to write down the exit."""
_VARIABLE: Final = re.compile(r"[ -<>-~]+")
"""Printable ASCII without ``=``, as Kubernetes has it."""


class TolerationEntry(Document):
    """A taint that the tasks may live with, as Kubernetes writes it; the one on GPU machines is seen to already."""

    key: Annotated[str, AfterValidator(is_key)] = Field(description="the taint's key, e.g. spot", min_length=1)
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
        for key in map(is_key, annotations):
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
