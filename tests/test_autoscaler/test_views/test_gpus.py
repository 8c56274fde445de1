"""Which GPUs exist, who holds them, how long they have idled."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from autoscaler.kube.client import Kube
from autoscaler.kube.schema.core import NodeJson
from autoscaler.model import labels as words
from autoscaler.planner.explanation.overview import NodeLine, Use
from autoscaler.views.gpus import GpuNode, GpuPod, Holder, as_json, gpus_of, read_gpus, show, span, with_states
from tests.builders import NOW, later
from tests.test_autoscaler.fake_api import Answer, fake_api

CREATED = later(hours=-2)


def node(name: str = "dgx-01", *, gpus: int = 8, labels: dict[str, str] | None = None, **spec: Any) -> NodeJson:
    """A ready machine."""
    raw = {
        "metadata": {
            "name": name,
            "creationTimestamp": CREATED.isoformat(),
            "labels": {words.GPU_PRODUCT: "NVIDIA-A100-SXM4-80GB"} | (labels or {}),
            "annotations": {words.CORDONED_BY: words.AUTOSCALER} if spec.pop("ours", False) else {},
        },
        "spec": spec,
        "status": {
            "allocatable": {words.GPU: str(gpus)} if gpus else {"cpu": "8"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=NodeJson)


def pod(
    name: str = "w-0", *, gpus: int = 2, on: str = "dgx-01", phase: str = "Running", ended: str = "", **labels: str
) -> GpuPod:
    """A pod of the job ``train`` in the namespace ``vision``."""
    state = {"terminated": {"finishedAt": ended}} if ended else {"running": {}}
    raw = {
        "metadata": {"name": name, "namespace": "vision", "labels": {words.JOB: "train"} | labels},
        "spec": {"nodeName": on, "containers": [{"resources": {"limits": {words.GPU: str(gpus)}}}]},
        "status": {"phase": phase, "containerStatuses": [{"state": state}]},
    }
    return msgspec.json.decode(msgspec.json.encode(raw), type=GpuPod)


def test_a_machine_in_use_names_who_holds_it() -> None:
    """By namespace and job, the largest holder first."""
    pods = [pod("a", gpus=1, **{words.JOB: "memory_map"}), pod("b"), pod("c"), pod("other", on="dgx-02")]
    (found,) = gpus_of([node()], pods)
    assert (found.total, found.used, found.free) == (8, 5, 3)
    assert found.holders == (Holder("vision/train", 4), Holder("vision/memory_map", 1))
    assert found.idle_since is None


def test_a_machine_idles_since_the_last_gpu_pod_ended() -> None:
    """As long as that pod is on record; else since the machine came."""
    ended = [
        pod("a", phase="Succeeded", ended="2026-11-21T08:30:00Z"),
        pod("b", phase="Failed", ended="2026-11-21T08:10:00Z"),
    ]
    (found,) = gpus_of([node()], ended)
    assert found.used == 0
    assert found.idle_since == later(minutes=-30)
    (fresh,) = gpus_of([node()], [])
    assert fresh.idle_since == CREATED


@pytest.mark.parametrize(
    ("spec", "marks"),
    [
        ({}, ()),
        ({"unschedulable": True}, ("cordoned",)),
        ({"unschedulable": True, "ours": True}, ("cordoned by Spillway",)),
        ({"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}, ("not ready",)),
    ],
)
def test_what_keeps_pods_away_is_marked(spec: dict[str, Any], marks: tuple[str, ...]) -> None:
    """And whether it is Spillway's doing."""
    assert gpus_of([node(**spec)], [])[0].marks == marks


def test_on_prem_comes_first_and_machines_without_gpus_are_left_out() -> None:
    """Then by name."""
    nodes = [node("a", labels={words.ORIGIN: words.EC2}), node("z"), node("b"), node("cpu", gpus=0)]
    assert [one.name for one in gpus_of(nodes, [])] == ["b", "z", "a"]


def test_a_pod_without_a_job_is_its_own_holder() -> None:
    """A Job's pod is its Job's, whoever made it."""
    alone = msgspec.convert({"metadata": {"name": "p", "namespace": "n"}}, GpuPod)
    assert alone.holder() == "n/p"
    owned = {"name": "p", "namespace": "n", "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}]}
    assert msgspec.convert({"metadata": owned}, GpuPod).holder() == "n/j"


def a_gpu_node(**given: Any) -> GpuNode:
    """A record."""
    ordinary: dict[str, Any] = {
        "name": "dgx-01",
        "origin": words.ON_PREM,
        "product": "NVIDIA-A10G",
        "total": 8,
        "used": 0,
        "holders": (),
        "idle_since": later(minutes=-5),
        "marks": (),
    }
    return GpuNode(**ordinary | given)


def test_the_view_fits_a_terminal_and_ends_with_totals() -> None:
    """Owned and bought apart."""
    out = io.StringIO()
    held = a_gpu_node(
        name="ip-10-0-0-7", origin=words.EC2, total=4, used=4, idle_since=None, holders=(Holder("v/t", 4),)
    )
    show([a_gpu_node(), held], console=Console(file=out, width=80), now=NOW)
    assert "idle 5m" in out.getvalue()
    assert "v/t (4)" in out.getvalue()
    assert "on-prem: 0 of 8 GPUs held on 1 machine; EC2: 4 of 4 GPUs held on 1 machine" in out.getvalue()


def a_line(name: str = "dgx-01", state: str = "idle", **given: Any) -> NodeLine:
    """What the autoscaler says of a node."""
    ordinary: dict[str, Any] = {
        "name": name,
        "group": "lab-gpu",
        "state": state,
        "why": "no pod is on it, and none is to come",
        "gpus": Use(0, 8),
        "cpu": Use(),
        "memory": Use(),
        "pods": 0,
        "usd_per_hour": 21.96,
    }
    return NodeLine(**ordinary | given)


def test_state_price_and_what_is_on_its_way_are_the_autoscalers() -> None:
    """One vocabulary with `top`, `explain` and the metrics; without the words that another column says."""
    bought = a_gpu_node(name="ip-1", origin=words.EC2, used=2, holders=(Holder("v/t", 2),), idle_since=None)
    lines = [
        a_line("ip-1", "busy", why="1 pod is on it"),
        a_line("i-2", "joining", why="launched, and not a node yet"),
        a_line("+2", "joining", why="asked for", gpus=Use(0, 16), many=2),
        a_line("cpu-1", "joining", gpus=Use()),
    ]
    found = with_states([a_gpu_node(), bought], lines)
    assert [(one.name, one.state) for one in found] == [
        *(("dgx-01", ""), ("ip-1", "busy"), ("i-2", "joining"), ("+2 lab-gpu", "joining"))
    ]
    out = io.StringIO()
    show(found, console=Console(file=out, width=120), now=NOW)
    text = out.getvalue()
    assert "joining: launched, and not a node yet" in text
    assert "1 pod is on it" not in text
    assert "21.96" in text
    assert "EC2: 2 of 8 GPUs held on 1 machine, 24 on their way" in text


def test_an_idle_node_says_for_how_long_and_until_when_it_stays() -> None:
    """Once."""
    out = io.StringIO()
    (found,) = with_states([a_gpu_node()], [a_line(why="it has stood idle since 08:55, and goes at 09:05")])
    show([found], console=Console(file=out, width=160), now=NOW)
    assert "idle 5m: it has stood idle since 08:55, and goes at 09:05" in out.getvalue()
    assert "idle, idle" not in out.getvalue()


@pytest.mark.parametrize(
    ("status", "said"),
    [(404, "no autoscaler acts: the lease is not held"), (403, "the API server refuses: no")],
    ids=["none acts", "the lease may not be read"],
)
def test_where_no_autoscaler_answers_that_is_said(tmp_path: Path, status: int, said: str) -> None:
    """The states are those that the API server shows."""
    listed = {"/api/v1/nodes": [msgspec.json.encode(node())], "/api/v1/pods": []}
    with fake_api() as api:
        api.answer = lambda asked: (
            Answer({"items": [msgspec.json.decode(raw) for raw in listed[asked.path]], "metadata": {}})
            if asked.path in listed
            else Answer({"message": "no"}, status=status)
            if asked.path != "/version"
            else Answer({})
        )
        found, unsaid = read_gpus(Kube.connect(api.kubeconfig(tmp_path)))
    assert [one.name for one in found] == ["dgx-01"]
    assert unsaid == f"{said}; states are as the API server shows them"


def test_a_cluster_without_gpus_says_so() -> None:
    """An empty table would be a riddle."""
    out = io.StringIO()
    show([], console=Console(file=out))
    assert "no node of this cluster offers GPUs" in out.getvalue()


def test_programs_get_everything() -> None:
    """With what people see worked out."""
    (record,) = json.loads(as_json([a_gpu_node(used=2)], now=NOW))
    assert record["free"] == 6
    assert record["idle_seconds"] == 300


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (59, "59s"), (310, "5m 10s"), (3600, "1h"), (90061, "1d 1h")])
def test_spans_are_two_units_at_most(seconds: int, text: str) -> None:
    """Nobody wants the seconds of a day."""
    assert span(timedelta(seconds=seconds)) == text
