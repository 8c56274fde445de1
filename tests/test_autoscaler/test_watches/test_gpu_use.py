"""How much GPUs are used, as the DCGM exporter's pods say it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.policy import IdleGpus
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.model.cluster import GpuUse
from autoscaler.watches.gpu_use import GpuUseWatch, uses_in
from tests.builders import NOW, a_policy
from tests.fakes.dcgm_exporter import BLANK, Exporter, Gpu, as_text, dcgm_exporter
from tests.test_autoscaler.fake_api import Answer, FakeApi, fake_api


def test_the_busiest_gpu_of_a_pod_counts_and_those_of_none_do_not() -> None:
    """In the exporter's own text; a GPU without a value counts as used."""
    gpus = [
        Gpu(0, 3, "team", "train"),
        Gpu(1, 97, "team", "train"),
        Gpu(2, 0, "team", "notebook"),
        Gpu(3, 0),
        Gpu(4, BLANK, "team", "mig"),
    ]
    found = list(uses_in(as_text(gpus), node="lab"))
    assert found == [
        GpuUse("team/train", "lab", 0.97),
        GpuUse("team/notebook", "lab", 0.0),
        GpuUse("team/mig", "lab", 1.0),
    ]


@pytest.mark.parametrize("text", ["", "<html>", "DCGM_FI_DEV_GPU_UTIL{pod=", 'DCGM_FI_DEV_GPU_UTIL{pod="a"} 3'])
def test_what_is_no_metric_of_a_pod_says_nothing(text: str) -> None:
    """No guess."""
    assert list(uses_in(text, node="lab")) == []


@dataclass
class Bench:
    """A watch between an API server that lists one pod of the exporter and that exporter."""

    watch: GpuUseWatch
    store: Store
    exporter: Exporter
    api: FakeApi
    told: dict[str, str]
    later: list[timedelta]

    def seen(self) -> tuple[GpuUse, ...]:
        """What the store knows after one more round."""
        self.watch.ask()
        return self.store.cluster(NOW).gpu_use


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """The exporter's port is the one that its pod names."""
    with dcgm_exporter() as exporter, fake_api() as api:
        pod: dict[str, Any] = {
            "metadata": {"name": "dcgm", "namespace": "kube-system"},
            "spec": {
                "nodeName": "lab",
                "containers": [{"ports": [{"name": "metrics", "containerPort": exporter.port}]}],
            },
            "status": {"phase": "Running", "podIP": "127.0.0.1"},
        }
        api.answer = lambda _asked: Answer(body={"metadata": {}, "items": [pod]})
        kube, store = Kube.connect(api.kubeconfig(tmp_path)), Store()
        policy = a_policy(idle_gpus=IdleGpus(enabled=True))
        told: dict[str, str] = {}
        later = [timedelta(0)]
        made = Bench(
            GpuUseWatch(
                kube,
                store,
                policy=lambda: policy,
                acts=lambda: True,
                outage=told.__setitem__,
                now=lambda: NOW + later[0],
            ),
            store,
            exporter,
            api,
            told,
            later,
        )
        yield made
        kube.close()


def test_the_exporter_of_each_node_is_asked_by_the_policys_selector(bench: Bench) -> None:
    """Only what changed makes the loop look again."""
    bench.exporter.gpus = (Gpu(0, 12, "team", "train"),)
    assert bench.seen() == (GpuUse("team/train", "lab", 0.12),)
    assert bench.api.asked[-1].query["labelSelector"] == "app.kubernetes.io/name=dcgm-exporter"
    turns = bench.store.wait(0, seconds=0)
    bench.watch.ask()
    assert bench.store.wait(0, seconds=0) == turns
    assert bench.told == {"the DCGM exporter": ""}


def test_one_that_does_not_answer_is_told_and_counts_as_it_was_for_some_minutes(bench: Bench) -> None:
    """Then nothing is known of its node."""
    bench.exporter.gpus = (Gpu(0, 12, "team", "train"),)
    known = bench.seen()
    bench.exporter.status = 503
    bench.later[0] = timedelta(minutes=4)
    assert bench.seen() == known
    assert bench.told["the DCGM exporter"] == "1 of 1 do not answer: lab (it answers 503)"
    bench.later[0] = timedelta(minutes=6)
    assert bench.seen() == ()


def test_no_exporter_and_no_answer_of_the_api_server_are_told(bench: Bench) -> None:
    """In the policy's words."""
    bench.api.answer = lambda _asked: Answer(body={"metadata": {}, "items": []})
    assert bench.seen() == ()
    assert "idle_gpus.exporter of the policy selects none" in bench.told["the DCGM exporter"]
    bench.api.answer = lambda _asked: Answer(body={"message": "no"}, status=403)
    assert bench.seen() == ()
    assert "no" in bench.told["the DCGM exporter"]
