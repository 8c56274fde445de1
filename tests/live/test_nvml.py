"""Where a GPU is there: what the roles read of its driver, against what NVIDIA's own library says."""

from __future__ import annotations

import ctypes
import ctypes.util
import subprocess
from pathlib import Path

import pytest

from roles.facts.gpu import DriverState, MigState
from roles.settings.version_matrix import choose, mistakes, read_matrix

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        not Path("/proc/driver/nvidia/version").exists(), reason="no NVIDIA driver runs on this machine"
    ),
]


@pytest.fixture(scope="module")
def nvml() -> ctypes.CDLL:
    """NVIDIA's management library of this machine, started."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    assert library.nvmlInit_v2() == 0
    return library


def shell(command: str) -> list[str]:
    """What a fact's command prints here."""
    return subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_running_driver_is_the_one_that_nvml_speaks_for(nvml: ctypes.CDLL) -> None:
    """Read from the kernel's own file, and asked of the library."""
    text = ctypes.create_string_buffer(80)
    assert nvml.nvmlSystemGetDriverVersion(text, ctypes.c_uint(80)) == 0
    state = DriverState().process(shell(DriverState().command().get_raw_value()))
    assert state.running == text.value.decode()
    assert state.kernel


def test_the_gpus_that_are_listed_are_those_that_nvml_counts(nvml: ctypes.CDLL) -> None:
    """Whether they are divided or not."""
    count = ctypes.c_uint()
    assert nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
    assert len(MigState().process(shell(MigState().command().get_raw_value()))) == count.value


def test_the_matrix_has_a_word_on_the_driver_that_runs() -> None:
    """The rules of driver and kernel hold for a machine on which both work."""
    state = DriverState().process(shell(DriverState().command().get_raw_value()))
    matrix = read_matrix()
    chosen = choose(matrix, {"driver": state.running, "cuda": "12.4"}, machine="here")
    found = mistakes(matrix, chosen, machine="here", brought={"kernel": state.kernel})
    assert [one.text for one in found if one.stops and one.pair == ("driver", "kernel")] == []
