"""A signal that comes at any moment ends what it is to end."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import random, signal, threading
from autoscaler.config.signals import on_first_of

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


AGAIN = """
import os, signal, threading
from autoscaler.config.signals import on_first_of

came, seen = [], threading.Event()
on_first_of([signal.SIGTERM, signal.SIGINT], lambda: (came.append(1), seen.set()))
for _ in range(3):
    os.kill(os.getpid(), signal.SIGTERM)
    seen.wait(10)
print(len(came))
"""


def test_one_that_comes_again_does_nothing_more() -> None:
    """Nor does it end the process."""
    done = subprocess.run([sys.executable, "-c", AGAIN], check=False, timeout=40, stdout=subprocess.PIPE, text=True)
    assert (done.returncode, done.stdout) == (0, "1\n")
