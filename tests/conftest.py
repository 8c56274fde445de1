"""What holds for every test process."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from tests import NIGHTLY, ROOT, examples
from tests.aws_descriptions import read_once

# Started in the background, a shell has this process ignore Ctrl-C, and whatever it starts would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Pulumi brings gRPC, whose handlers run between fork and exec of whatever is started here, on threads that are gone.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# A user's path on Debian has no sbin, nor has root's after a plain `su`; what makes machines and networks is there.
os.environ["PATH"] = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))

# A red run says something of the change, not of the dice or of what else runs on the machine. `make nightly` looks
# further: it draws new examples, many, and begins with what failed before. What it finds becomes an @example.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("the same each time", patient, derandomize=True)
examples_that_failed = DirectoryBasedExampleDatabase(ROOT / ".hypothesis" / "examples")
settings.register_profile(  # where CI is set, hypothesis would draw the same ones each time, and keep none
    NIGHTLY,
    patient,
    max_examples=examples(100),
    print_blob=True,
    derandomize=False,
    database=examples_that_failed,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "the same each time"))


def pytest_configure() -> None:
    """Garbage is collected less often, in programs in Go that tests start too: it took a tenth of all CPU."""
    os.environ.setdefault("GOGC", "400")
    gc.set_threshold(20_000, 50, 50)
    read_once()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take minutes come first, the others as they were."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
