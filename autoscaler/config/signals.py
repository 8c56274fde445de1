"""What is done when a signal comes, outside of its handler.

A handler interrupts the main thread anywhere, also where it holds a lock: ``threading.Event.set`` in a handler waits
for ever where it interrupts that event's ``wait``. ``queue.SimpleQueue.put`` may be called there
(https://docs.python.org/3/library/queue.html#queue.SimpleQueue.put), so a thread waits for it and does the rest.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue


def on_first_of(numbers: Iterable[signal.Signals], act: Callable[[], object]) -> None:
    """Call ``act`` in a thread of its own when the first of these signals comes; later ones do nothing."""
    came: SimpleQueue[int] = SimpleQueue()

    def wait() -> None:
        came.get()
        act()

    threading.Thread(target=wait, name="signals", daemon=True).start()
    for number in numbers:
        signal.signal(number, lambda got, _frame: came.put(got))
