"""Each GPU: which pod holds it, as which of its own, and what it costs."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from autoscaler.kube.client import Kube
from autoscaler.kube.schema.core import Meta
from autoscaler.model import labels as words
from autoscaler.model.errors import Unavailable
from autoscaler.model.gpu_devices import GpuDevice
from autoscaler.views import gpu_devices, gpus
from autoscaler.views.gpu_devices import as_json, devices_of, read_devices, show_devices
from tests.builders import NOW, later
from tests.test_autoscaler.fake_api import Answer, fake_api

TASK = {words.JOB: "mnist", words.ROLE: "worker", words.COMPLETION_INDEX: "1"}
PODS: Mapping[str, Meta] = {
    "team/mnist-worker-1-x": Meta(namespace="team", name="mnist-worker-1-x", labels=TASK),
    "team/plain": Meta(namespace="team", name="plain"),
}


def device(number: int, pod: str = "", use: float = 0.5, node: str = "lab", container: str = "main") -> GpuDevice:
    """A GPU of that number; one that does nothing has done nothing for 5 minutes."""
    return GpuDevice(node, number, f"GPU-{number}", pod, container, use, None if use else later(minutes=-5))


DEVICES = (
    device(0, "team/plain"),
    device(1, "team/mnist-worker-1-x", use=0.97),
    device(2, use=0.0, container=""),
    device(3, "team/mnist-worker-1-x", use=0.0),
    device(3, "team/mnist-worker-1-x", node="other"),
    device(4, "team/gone"),
)


def test_the_numbers_of_a_container_begin_at_0_on_each_machine() -> None:
    """In the order of the machine's own; one that no pod holds has none."""
    found = devices_of(reversed(DEVICES), PODS, {"lab": 2.5})
    assert [(one.node, one.number, one.in_container, one.holder, one.task) for one in found] == [
        ("lab", 0, 0, "team/plain", "plain"),
        ("lab", 1, 0, "team/mnist", "worker 1"),
        ("lab", 2, None, "", ""),
        ("lab", 3, 1, "team/mnist", "worker 1"),
        ("lab", 4, 0, "team/gone", ""),
        ("other", 3, 0, "team/mnist", "worker 1"),
    ]
    assert [one.usd_per_hour for one in found] == [2.5] * 5 + [None]


def test_two_containers_of_a_pod_count_each_for_itself() -> None:
    """Each sees its own alone."""
    both = (device(4, "team/plain"), device(6, "team/plain", container="second"), device(7, "team/plain"))
    assert [one.in_container for one in devices_of(both, PODS, {})] == [0, 0, 1]


def test_a_line_each_fits_a_narrow_terminal() -> None:
    """And programs get the same."""
    found = devices_of(DEVICES, PODS, {"lab": 2.5})
    told = io.StringIO()
    show_devices(found, console=Console(file=told, width=80), now=NOW)
    lines = [line.split() for line in told.getvalue().splitlines()]
    assert lines[0] == ["NODE", "GPU", "IN", "POD", "HELD", "BY", "TASK", "USE", "IDLE", "$/H"]
    assert lines[2] == ["lab", "1", "0", "team/mnist", "worker", "1", "97%", "-", "2.50"]
    assert lines[3] == ["lab", "2", "-", "-", "0%", "5m", "2.50"]
    assert lines[4] == ["lab", "3", "1", "team/mnist", "worker", "1", "0%", "5m", "2.50"]
    assert max(map(len, told.getvalue().splitlines())) <= 80
    assert [one["uuid"] for one in json.loads(as_json(found))] == [f"GPU-{n}" for n in (0, 1, 2, 3, 4, 3)]
    empty = io.StringIO()
    show_devices((), console=Console(file=empty))
    assert empty.getvalue() == "no DCGM exporter has told of a GPU so far\n"


def test_what_the_acting_replica_knows_is_joined_with_the_pods(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it asks no exporter, the policy's keys that have it ask are named."""
    node = {"name": "lab", "group": "on-prem", "state": "busy", "why": "", "pods": 1, "usd_per_hour": 10.0}
    node |= {"gpus": {"total": 4}, "cpu": {}, "memory": {}}
    lists: dict[str, Any] = {key: [] for key in ("groups", "waiting", "pauses", "warnings", "next_steps")}
    said: dict[str, Any] = {
        "gpus": msgspec.to_builtins(DEVICES[:2]),
        "top": {"decided": NOW.isoformat(), "usd_per_hour": 10.0, "nodes": [node], **lists},
    }
    for view in (gpu_devices, gpus):
        monkeypatch.setattr(view, "ask_acting", lambda _kube, what, **_where: said[what])
    items = [{"metadata": {"namespace": "team", "name": "mnist-worker-1-x", "labels": TASK}}]
    with fake_api() as api:
        api.answer = lambda _asked: Answer(body={"metadata": {}, "items": items})
        kube = Kube.connect(api.kubeconfig(tmp_path))
        found = read_devices(kube)
        assert [(one.holder, one.usd_per_hour) for one in found] == [("team/plain", 2.5), ("team/mnist", 2.5)]
        said["gpus"] = None
        with pytest.raises(Unavailable, match=r"set idle_gpus\.enabled or faults\.dcgm in the policy"):
            read_devices(kube)
        kube.close()
