"""A function that travels to its tasks, and what comes back: in a folder that they see, or in variables and log lines.

Functions travel by cloudpickle: those of the prompt and of the program that it runs by value, those of modules by name.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import platform
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import cloudpickle

from autoscaler.model.errors import BadInput
from images.experiment import task as task_program
from images.experiment.halving import Report

PACKED_MAX: Final = 96 * 1024
"""Letters of a call in a variable: Linux takes 128 kB."""
_UNPACK: Final = "import base64, os, zlib; exec(zlib.decompress(base64.b64decode(os.environ['EXPERIMENT_TASK'])))"


class RemoteTraceback(Exception):  # noqa: N818 - as in concurrent.futures
    """Where in a task an exception was raised: the cause of the one that ``result`` raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        """Writes the traceback as Python shows one below another."""
        return f'\n"""\n{self.text}"""'


class TaskFailed(Exception):  # noqa: N818 - reads as what it is
    """A task ended without a result, or raised what could not travel: the message says what is known."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one task's call gave."""

    word: Literal["returned", "raised"]
    began: float
    at: float
    """When the function began and ended, in seconds since the epoch, by the task's clock."""
    error: str
    traceback: str
    pickled: bytes

    def get(self) -> Any:
        """The value. Raises what the function raised, with the remote traceback as its cause."""
        if self.word == "returned":
            return pickle.loads(self.pickled)  # noqa: S301 - of the user's own job
        error: Exception = pickle.loads(self.pickled) if self.pickled else TaskFailed(self.error)  # noqa: S301
        raise error from RemoteTraceback(self.traceback)


def pack(
    function: Callable[..., Any], arguments: Iterable[Any], keywords: Mapping[str, Any], *, path: Sequence[str] = ()
) -> bytes:
    """The call, for ``task.py``; ``path``: where the task looks for modules first.

    Raises ``BadInput`` where something of it cannot travel.
    """
    header = {"python": ".".join(platform.python_version_tuple()[:2]), "path": list(path)}
    cloudpickle.register_pickle_by_value(task_program)  # `report` works in images without Spillway
    try:
        pickled: bytes = cloudpickle.dumps((function, tuple(arguments), dict(keywords)))
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        raise BadInput(
            f"{name} cannot travel to its tasks ({type(error).__name__}: {error}): make what it uses inside of it, "
            "such as open files, locks and sessions"
        ) from error
    finally:
        cloudpickle.unregister_pickle_by_value(task_program)
    return json.dumps(header).encode() + b"\n" + pickled


def lay(folder: Path, call: bytes) -> None:
    """Put the call and the program that runs it into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "task.py", Path(task_program.__file__).read_bytes())
    write_whole(folder / "call", call)


def in_variables(call: bytes) -> dict[str, str]:
    """The call and the program as environment variables. Raises ``BadInput`` where they are too big."""
    packed = _packed(call)
    if len(packed) > PACKED_MAX:
        raise BadInput(
            f"the function and its arguments are {len(packed)} bytes, packed, and without a directory that all tasks "
            f"see they may have {PACKED_MAX}: read big data inside the function, or give such a directory"
        )
    return {"EXPERIMENT_TASK": _packed(Path(task_program.__file__).read_bytes()), task_program.CALL: packed}


def entry(python: str, folder: Path | None) -> list[str]:
    """The program of the tasks of a call that lies in a folder; ``None``: that comes in variables."""
    return [python, "-c", _UNPACK] if folder is None else [python, str(folder / "task.py"), str(folder)]


def _packed(content: bytes) -> str:
    return base64.b64encode(zlib.compress(content, 9)).decode()


def read_result(folder: Path, task: str) -> Result | None:
    """What the task gave, once it has."""
    try:
        return parse_result((folder / "results" / task).read_bytes())
    except FileNotFoundError:
        return None


def parse_result(text: bytes) -> Result:
    """Parses a line of JSON and a pickle."""
    header, _, pickled = text.partition(b"\n")
    said = json.loads(header)
    return Result(said["word"], said["began"], said["at"], said.get("error", ""), said.get("traceback", ""), pickled)


def result_in(lines: Iterable[str]) -> bytes | None:
    """The result in a task's log, once all of its parts are there; of several attempts the last."""
    parts: dict[int, str] = {}
    for line in lines:
        words = line.split(" ")
        if len(words) == 3 and words[0] == task_program.RESULT:  # noqa: PLR2004
            number, _, count = words[1].partition("/")
            if number == "1":
                parts = {}
            parts[int(number)] = words[2]
            if len(parts) == int(count):
                whole = "".join(parts[one] for one in sorted(parts))
    return zlib.decompress(base64.b64decode(whole)) if parts and len(parts) == int(count) else None


def reports_in(lines: Iterable[str]) -> str:
    """The reports in a task's log, as its file of reports would have them."""
    start = f"{task_program.REPORT} "
    return "".join(f"{line.removeprefix(start)}\n" for line in lines if line.startswith(start))


def read_reports(folder: Path, task: str, *, number: int) -> list[Report]:
    """What a task has said so far, as that of trial ``number``; of a line that is being written nothing yet."""
    try:
        text = (folder / "reports" / task).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    said = [json.loads(line) for line in text.split("\n")[:-1]]
    return [Report(trial=number, step=one["step"], at=one["at"], values=one["values"]) for one in said]


def write_whole(path: Path, content: bytes) -> None:
    """The whole file or none of it, and on disk."""
    half = path.with_name(f".{path.name}.{os.getpid()}")
    with half.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    half.replace(path)
