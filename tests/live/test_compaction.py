"""410 Gone from a real API server: the version that a watch was to go on from is compacted away."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import pytest

from autoscaler.kube.cache import Store
from autoscaler.kube.client import Expired, Kube
from autoscaler.kube.credentials import Account
from autoscaler.kube.watched_kinds import PODS
from autoscaler.kube.watcher import Observer
from stacks.local.ground.control_plane import control_plane, wait_for_namespace
from stacks.local.kubeapi.client import KubeHttp
from stacks.local.process.ports import free_ports
from tests.builders import NOW
from tests.live.hybrid import gpu_pod, kept, make_pod, until

pytestmark = pytest.mark.live


def test_after_the_history_is_gone_everything_is_listed_again(tools: dict[str, Path], tmp_path: Path) -> None:
    """The API server comes back without the past; what went on meanwhile is known nevertheless."""
    ports = free_ports(3)
    plane = control_plane(tmp_path, tools=tools, ports=(ports[0], ports[1], ports[2]))
    by_name = {process.name: process for process in plane.processes}
    store_of_record, api_server = tmp_path / "etcd-keeper", tmp_path / "api-keeper"
    for directory in (store_of_record, api_server):
        directory.mkdir()
    api = dataclasses.replace(by_name["kube-apiserver"], after=())
    with kept([by_name["etcd"]], directory=store_of_record), contextlib.ExitStack() as served:
        served.enter_context(kept([api], directory=api_server))
        kube = KubeHttp(plane.kubeconfig)
        wait_for_namespace(kube)
        make_pod(kube, gpu_pod("before"))
        store = Store()
        observer = Observer(Kube(Account(plane.kubeconfig)), store)
        observer.start()
        until(lambda: [pod.name for pod in store.cluster(NOW).pods] == ["before"])

        served.close()
        served.enter_context(kept([api], directory=api_server))
        kube = KubeHttp(plane.kubeconfig)
        with (
            pytest.raises(Expired),
            Kube(Account(plane.kubeconfig)).watch(PODS.path, "1") as changes,
        ):
            next(changes)
        make_pod(kube, gpu_pod("after"))
        until(lambda: sorted(pod.name for pod in store.cluster(NOW).pods) == ["after", "before"])
        observer.stop()
        assert observer.relists > 0
