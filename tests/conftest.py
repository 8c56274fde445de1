"""What holds for every test process."""

from __future__ import annotations

import signal

# Started in the background, a shell has this process ignore Ctrl-C, and whatever it starts would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)
