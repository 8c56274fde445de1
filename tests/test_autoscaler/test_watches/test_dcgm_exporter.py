"""How much GPUs are used, and their errors, as the DCGM exporter's pods say it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.policy import Faults, IdleGpus, Policy
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.model.cluster import GpuHealth, GpuUse
from autoscaler.watches.dcgm_exporter import Answer as Measured
from autoscaler.watches.dcgm_exporter import DcgmExporterWatch, read_metrics
from roles.deploys import health
from tests.builders import NOW, a_policy, later
from tests.fakes.dcgm_exporter import BLANK, Exporter, Gpu, as_text, dcgm_exporter
from tests.test_autoscaler.fake_api import Answer, FakeApi, fake_api

XIDS = Faults().xids


def test_the_busiest_gpu_of_a_pod_counts_and_those_of_none_do_not() -> None:
    """In the exporter's own text; a GPU without a value counts as used."""
    gpus = [
        Gpu(0, 3, "team", "train"),
        Gpu(1, 97, "team", "train"),
        Gpu(2, 0, "team", "notebook"),
        Gpu(3, 0),
        Gpu(4, BLANK, "team", "mig"),
    ]
    found = read_metrics(as_text(gpus), node="lab", xids=XIDS)
    assert found.uses == (
        GpuUse("team/train", "lab", 0.97),
        GpuUse("team/notebook", "lab", 0.0),
        GpuUse("team/mig", "lab", 1.0),
    )
    assert found.errors == ""


def test_each_gpu_is_told_with_the_pod_that_holds_it() -> None:
    """Those that several pods share once for each; in order of their numbers."""
    gpus = [Gpu(3, 3, "team", "train"), Gpu(0, 97), Gpu(3, 0, "team", "also")]
    found = read_metrics(as_text(gpus), node="lab", xids=XIDS).devices
    assert [(one.number, one.pod, one.container, one.use) for one in found] == [
        (0, "", "", 0.97),
        (3, "team/also", "main", 0.0),
        (3, "team/train", "main", 0.03),
    ]
    assert {(one.node, one.uuid[:4], one.idle_since) for one in found} == {("lab", "GPU-", None)}


@pytest.mark.parametrize(
    ("gpus", "errors"),
    [
        ([Gpu(0, 0, xid=79)], "GPU 0: Xid 79"),
        ([Gpu(0, 0, xid=31)], ""),
        ([Gpu(0, 0, xid=BLANK, ecc_errors=BLANK)], ""),
        ([Gpu(10, 0, ecc_errors=1), Gpu(9, 0)], "GPU 10: uncorrectable ECC errors"),
        ([Gpu(3, 0, remap_failed=True)], "GPU 3: a row of its memory could not be remapped"),
        (
            [Gpu(10, 0, "team", "train", xid=48, ecc_errors=2), Gpu(9, 0, xid=95)],
            "GPU 9: Xid 95; GPU 10: Xid 48; GPU 10: uncorrectable ECC errors",
        ),
    ],
)
def test_errors_of_gpus_are_named_and_those_of_programs_are_not(gpus: list[Gpu], errors: str) -> None:
    """In order of the GPUs; what has no value is no error."""
    assert read_metrics(as_text(gpus), node="lab", xids=XIDS).errors == errors


def test_the_health_check_of_machines_takes_the_same_xids_for_faults() -> None:
    """One choice, in two rooms that know nothing of each other."""
    [named] = re.findall(r"Xid\.\*: \(([\d|]+)\)", inspect.getsource(health))
    assert tuple(map(int, named.split("|"))) == XIDS


@pytest.mark.parametrize("text", ["", "<html>", "DCGM_FI_DEV_GPU_UTIL{pod=", 'DCGM_FI_DEV_GPU_UTIL{pod="a"} 3'])
def test_what_is_no_metric_of_a_pod_says_nothing(text: str) -> None:
    """No guess."""
    assert read_metrics(text, node="lab", xids=XIDS) == Measured((), "")


@dataclass
class Bench:
    """A watch between an API server that lists one pod of the exporter and that exporter."""

    watch: DcgmExporterWatch
    store: Store
    exporter: Exporter
    api: FakeApi
    told: dict[str, str]
    later: list[timedelta]
    policy: list[Policy]

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
        policy = [a_policy(idle_gpus=IdleGpus(enabled=True), faults=Faults(dcgm=True))]
        told: dict[str, str] = {}
        later = [timedelta(0)]
        made = Bench(
            DcgmExporterWatch(
                kube,
                store,
                policy=lambda: policy[0],
                acts=lambda: True,
                outage=told.__setitem__,
                now=lambda: NOW + later[0],
            ),
            store,
            exporter,
            api,
            told,
            later,
            policy,
        )
        yield made
        kube.close()


def test_a_gpu_is_idle_since_it_was_first_seen_so(bench: Bench) -> None:
    """Until it does something, or another pod holds it; nothing is known while none is asked."""
    assert bench.watch.devices() is None

    def idle(*gpus: Gpu, minutes: int) -> list[timedelta | None]:
        bench.exporter.gpus, bench.later[0] = gpus, timedelta(minutes=minutes)
        bench.watch.ask()
        found = bench.watch.devices()
        assert found is not None
        return [one.idle_since - NOW if one.idle_since else None for one in found]

    first, second = timedelta(0), timedelta(minutes=1)
    assert idle(Gpu(0, 0), Gpu(1, 5, "team", "a"), minutes=0) == [first, None]
    assert idle(Gpu(0, 0), Gpu(1, 0, "team", "a"), minutes=1) == [first, second]
    assert idle(Gpu(0, 9), Gpu(1, 0, "team", "b"), minutes=2) == [None, timedelta(minutes=2)]


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
    assert "dcgm_exporter of the policy selects none" in bench.told["the DCGM exporter"]
    bench.api.answer = lambda _asked: Answer(body={"message": "no"}, status=403)
    assert bench.seen() == ()
    assert "no" in bench.told["the DCGM exporter"]


def test_errors_count_from_when_they_were_first_told_of_and_their_end_likewise(bench: Bench) -> None:
    """Of a node whose exporter is silent for minutes nothing is known, nor of any before the first round."""
    assert bench.store.cluster(NOW).gpu_health is None
    for minutes, gpu, errors, since in (
        (0, Gpu(0, 12), "", 0),
        (1, Gpu(0, 12, xid=79), "GPU 0: Xid 79", 1),
        (2, Gpu(0, 12, xid=95), "GPU 0: Xid 95", 1),
        (3, Gpu(0, 12), "", 3),
    ):
        bench.exporter.gpus, bench.later[0] = (gpu,), timedelta(minutes=minutes)
        bench.seen()
        assert bench.store.cluster(NOW).gpu_health == (GpuHealth("lab", errors, later(minutes=since)),)
    bench.exporter.status = 503
    bench.later[0] = timedelta(minutes=9)
    bench.seen()
    assert bench.store.cluster(NOW).gpu_health == (GpuHealth("lab", None),)


@pytest.mark.parametrize(("idle", "faults"), [(True, True), (True, False), (False, True)])
def test_only_what_the_policy_wants_to_know_is_told(bench: Bench, *, idle: bool, faults: bool) -> None:
    """So that the loop does not look again because of the rest."""
    bench.exporter.gpus = (Gpu(0, 12, "team", "train"),)
    bench.policy[0] = a_policy(idle_gpus=IdleGpus(enabled=idle), faults=Faults(dcgm=faults))
    assert (bool(bench.seen()), bench.store.cluster(NOW).gpu_health is not None) == (idle, faults)
