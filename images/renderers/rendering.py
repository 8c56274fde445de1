"""What a renderer gives: documents for its target, and by name what of the job they do not say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import yaml

from autoscaler.model.errors import BadInput
from autoscaler.model.resources import parse_quantity
from images.job_roles import Role
from images.jobs import Job

Manifest = dict[str, Any]
INDEX: Final = "$(TASK_INDEX)"


@dataclass(frozen=True, slots=True)
class Rendering:
    """A job in the words of one target."""

    documents: tuple[Manifest, ...] = ()
    script: str = ""
    """Where the target reads no documents but a program."""
    losses: tuple[str, ...] = ()
    """``KEY: why``: what the target cannot say."""
    form: Literal["yaml", "json"] = "yaml"

    @property
    def text(self) -> str:
        """Returns the text of the target's file."""
        if self.script:
            return self.script
        if self.form == "json":
            return json.dumps(self.documents[0], indent=2) + "\n"
        return yaml.dump_all(self.documents, Dumper=_Plain, sort_keys=False, width=120, allow_unicode=True)


class _Plain(yaml.SafeDumper):
    """A dumper without anchors: what stands twice is written twice."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's
        """Writes every value in full, never as an alias."""
        return True


def losses(job: Job, cannot: Mapping[str, str]) -> tuple[str, ...]:
    """``KEY: why`` of each key in ``cannot`` that the job says something with; ``roles.KEY`` is one of every role."""
    said = []
    for key, why in cannot.items():
        scope, _, inner = key.partition(".")
        if scope == "roles":
            said += [f"roles.{name}.{inner}: {why}" for name, role in job.roles.items() if _is_said(role, inner)]
        elif _is_said(getattr(job, scope), inner) if inner else _is_said(job, scope):
            said.append(f"{key}: {why}")
    return tuple(said)


def _is_said(document: Any, key: str) -> bool:
    field = type(document).model_fields[key]
    return bool(getattr(document, key) != field.get_default(call_default_factory=True))


def refuse(job: Job, backend: str, cannot: Mapping[str, str]) -> None:
    """Raises ``BadInput`` where the job says what the target could only get wrong."""
    for loss in losses(job, cannot):
        raise BadInput(f"job {job.name!r} cannot be rendered to {backend}: {loss}")


def image_of(role: str, task: Role, *, backend: str) -> str:
    """The role's image. Raises ``BadInput`` where it has none."""
    if task.image is None:
        raise BadInput(f"roles.{role}.image is missing: {backend} runs containers; give one such as team/mnist:1")
    return task.image


def whole_cpus(task: Role) -> int:
    """CPUs of one task, rounded up."""
    return math.ceil(parse_quantity(task.cpus))


def mebibytes(task: Role) -> int:
    """Memory of one task in MiB, rounded up."""
    return math.ceil(parse_quantity(task.memory) / 2**20)


def elastic_losses(job: Job, why: str) -> tuple[str, ...]:
    """Names what each elastic role loses on targets that start one number of tasks."""
    roles = tuple(f"roles.{name}.count: {why}" for name, role in job.roles.items() if role.least < role.most)
    return (*roles, *losses(job, {"elastic": why}))


def serving_losses(job: Job) -> tuple[str, ...]:
    """Names the roles that end with others, for targets that do not know such an end and run no launcher that would."""
    left = [name for name in job.roles if name not in job.essential]
    return tuple(
        f"roles.{name}.essential: it goes on when {', '.join(job.essential)} ended: stop the whole" for name in left
    )
