"""Runs the function of an experiment as one task, and writes down what it gave. One file, which travels with the call.

    python3 task.py FOLDER     # call it as FOLDER/call says; write FOLDER/results/ROLE-INDEX
    python3 -c ...             # both in variables, where tasks see no directory; the result in lines of its log

The standard library and cloudpickle alone: the file runs in images that know nothing of Spillway. A call, and a result,
is a line of JSON and then a pickle.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import sys
import time
import traceback
import zlib
from typing import Any

CALL, FOLDER, STEP = "EXPERIMENT_CALL", "EXPERIMENT_FOLDER", "EXPERIMENT_STEP"
"""Variables: the call, packed; where it lies; how many reports there were."""
RESULT, REPORT = "spillway-result", "spillway-report"
"""First words of lines that the prompt reads from the log."""
_CHUNK = 8192
"""Letters of a line: runtimes cut lines at 16 kB."""
RESULT_MAX = 1 << 20
"""Bytes of a result in a log, packed: a kubelet begins another file after 10 MB."""


def report(step: int | None = None, **values: float) -> None:
    """Say how it goes, e.g. ``report(loss=0.3)``: steps are counted from 1. Outside of a task it does nothing."""
    import json  # noqa: PLC0415 - it travels with the functions that call it, without its module
    import os  # noqa: PLC0415
    import time  # noqa: PLC0415

    counted = int(os.environ.get("EXPERIMENT_STEP", "0")) + 1 if step is None else int(step)
    os.environ["EXPERIMENT_STEP"] = str(counted)
    line = json.dumps({"at": time.time(), "step": counted, "values": {key: float(one) for key, one in values.items()}})
    folder = os.environ.get("EXPERIMENT_FOLDER")
    if folder:
        task = "{SPILLWAY_ROLE}-{SPILLWAY_INDEX}".format_map(os.environ)
        os.makedirs(os.path.join(folder, "reports"), exist_ok=True)  # noqa: PTH103, PTH118
        with open(os.path.join(folder, "reports", task), "a", encoding="utf-8") as file:  # noqa: PTH118, PTH123
            file.write(line + "\n")
    elif "EXPERIMENT_CALL" in os.environ:
        print("spillway-report " + line, flush=True)


def main(folder: str | None) -> int:
    """Call the function, and keep what it gave; the exit status is 0 where it returned."""
    began = time.time()
    if folder:
        os.environ[FOLDER] = folder
    try:
        value = _call(folder)
        status, said, pickled = 0, {"word": "returned"}, _pickled(value)
    except Exception as error:  # noqa: BLE001 - whatever it was is the prompt's
        error.__traceback__ = _own(error.__traceback__)
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        sys.stderr.write(text)
        status, said = 1, {"word": "raised", "error": f"{type(error).__name__}: {error}", "traceback": text}
        pickled = _pickled_error(error)
    header = {**said, "began": began, "at": time.time()}
    _keep(json.dumps(header).encode() + b"\n" + pickled, folder)
    return status


def _call(folder: str | None) -> Any:
    if folder:
        with open(os.path.join(folder, "call"), "rb") as file:  # noqa: PTH118, PTH123
            packed = file.read()
    else:
        packed = zlib.decompress(base64.b64decode(os.environ[CALL]))
    header, _, pickled = packed.partition(b"\n")
    said = json.loads(header)
    here = ".".join(map(str, sys.version_info[:2]))
    if said["python"] != here:
        raise RuntimeError(
            f"the function comes from Python {said['python']} and this task runs {here}: functions travel between "
            "equal versions alone; choose an image, or a `python`, with the same"
        )
    sys.path[:] = [*said["path"], *(place for place in sys.path if place not in said["path"])]
    function, arguments, keywords = pickle.loads(pickled)  # noqa: S301 - the user's own function
    return function(*arguments, **keywords)


def _own(trace: Any) -> Any:
    """Returns the trace from the first frame of the user's own code."""
    while trace is not None and trace.tb_frame.f_code.co_filename == _call.__code__.co_filename:
        trace = trace.tb_next
    return trace


def _pickled(value: Any) -> bytes:
    import cloudpickle  # noqa: PLC0415 - where it is missing, that is told

    pickled: bytes = cloudpickle.dumps(value)
    return pickled


def _pickled_error(error: Exception) -> bytes:
    """Pickles the error; nothing where it cannot travel: its text does."""
    try:
        pickled = _pickled(error.with_traceback(None))
        pickle.loads(pickled)  # noqa: S301 - some do not come back
    except Exception:  # noqa: BLE001
        return b""
    return pickled


def _keep(result: bytes, folder: str | None) -> None:
    if not folder:
        _print(result)
        return
    place = os.path.join(folder, "results")  # noqa: PTH118
    task = "{SPILLWAY_ROLE}-{SPILLWAY_INDEX}".format_map(os.environ)
    os.makedirs(place, exist_ok=True)  # noqa: PTH103
    half = os.path.join(place, f".{task}.{os.getpid()}")  # noqa: PTH118
    with open(half, "wb") as file:  # noqa: PTH123
        file.write(result)
        file.flush()
        os.fsync(file.fileno())
    os.replace(half, os.path.join(place, task))  # noqa: PTH105, PTH118


def _print(result: bytes) -> None:
    text = base64.b64encode(zlib.compress(result)).decode()
    if len(text) > RESULT_MAX:
        told = f"the result has {len(text)} bytes, packed, and a log takes {RESULT_MAX}: give a directory that all see"
        header = {"word": "raised", "error": told, "traceback": told, "began": time.time(), "at": time.time()}
        text = base64.b64encode(zlib.compress(json.dumps(header).encode() + b"\n")).decode()
    parts = [text[start : start + _CHUNK] for start in range(0, len(text), _CHUNK)]
    for number, part in enumerate(parts, start=1):
        print(RESULT, f"{number}/{len(parts)}", part, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else None))
