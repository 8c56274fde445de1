"""What holds for every test process."""

from __future__ import annotations

import os
import signal

# Started in the background, a shell has this process ignore Ctrl-C, and whatever it starts would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Pulumi brings gRPC, whose handlers run between fork and exec of whatever is started here, on threads that are gone.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"
