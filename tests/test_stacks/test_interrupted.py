"""A program that is interrupted says nothing."""

from __future__ import annotations

import signal
import subprocess
import sys

WAITS = """
import asyncio
from stacks.interrupted import end_without_a_trace
end_without_a_trace()
print("ready", flush=True)
asyncio.new_event_loop().run_forever()
"""


def test_an_interrupted_program_leaves_the_telling_to_the_engine() -> None:
    """No stack trace, and the status by which Pulumi's host adds no line of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        said, complained = program.communicate(timeout=20)
    assert (program.returncode, said, complained) == (32, "", "")
