"""``launch``: one function as a job, from a live prompt."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Unpack

from autoscaler.model.errors import BadInput
from images.experiment import calls
from images.experiment.environment import Environment, job_of, name_for
from images.experiment.futures import Call, Future
from images.experiment.places import Local, Place


def launch(
    function: Callable[..., Any],
    *,
    args: Iterable[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    roles: Mapping[str, object] | None = None,
    name: str | None = None,
    place: Place | None = None,
    **environment: Unpack[Environment],
) -> Future:
    """Run the function in every task of a job, and return what it will give at once.

    ``roles``: how many tasks of each, which start together; as a rule ``{"worker": 1}``. ``TF_CONFIG`` and its like say
    which one a task is. Parameter servers end with the workers. ``place``: processes of this machine, or a ``Cluster``.
    The job holds its GPUs until the function has returned, whatever the prompt does. Raises ``BadInput`` where it
    cannot run, and then nothing of it stays.
    """
    place = place or Local()
    packed = calls.pack(function, args, kwargs or {}, path=place.path)
    call = prepared(packed, name or unique(function), place, roles, environment)
    if call.folder.exists():
        raise BadInput(f"{call.folder} is there already: choose another name")
    place.check(call.job)
    lay(call, packed)
    try:
        call.begin()
    except BaseException:
        shutil.rmtree(call.folder)
        raise
    return Future(call)


def unique(function: object) -> str:
    """A name that nothing has yet."""
    return f"{name_for(function)}-{uuid.uuid4().hex[:6]}"


def prepared(
    packed: bytes,
    name: str,
    place: Place,
    roles: Mapping[str, object] | None,
    environment: Environment,
    *,
    folder: Path | None = None,
) -> Call:
    """The call as a job of the name, of which nothing is there yet; ``folder``: where it lies, else below the root."""
    folder = folder or place.root / name
    job = job_of(
        name,
        roles,
        environment,
        program=lambda python: calls.entry(place.python(python), folder if place.is_seen else None),
        env={} if place.is_seen else calls.in_variables(packed),
        logs=str(folder) if place.is_seen else None,
    )
    return Call(place=place, job=job, folder=folder)


def lay(call: Call, packed: bytes) -> None:
    """Makes the call's folder."""
    call.folder.mkdir(parents=True)
    if call.place.is_seen:
        calls.lay(call.folder, packed)
