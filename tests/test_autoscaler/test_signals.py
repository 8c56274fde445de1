"""A signal that comes at any moment ends what it is to end."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import random, signal, threading
from autoscaler.signals import on_first_of

for _ in range(1000):
    over = threading.Event()
    on_first_of([signal.SIGALRM], over.set)
    signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00002, 0.0004))
    while not over.wait(0.00005):
        pass
"""


def test_a_signal_is_not_lost_wherever_it_interrupts() -> None:
    """In the middle of a wait, too, which holds a lock: set in the handler itself, the event would never be seen."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, timeout=40, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_one_that_comes_again_does_nothing_more() -> None:
    """Nor does it end the process."""
    program = (
        "import os, signal, time; from autoscaler.signals import on_first_of;"
        "on_first_of([signal.SIGTERM, signal.SIGINT], lambda: print('once', flush=True));"
        f"[(os.kill(os.getpid(), {signal.SIGTERM:d}), time.sleep(0.05)) for _ in range(3)]; time.sleep(0.1)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, timeout=20, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "once\n")
