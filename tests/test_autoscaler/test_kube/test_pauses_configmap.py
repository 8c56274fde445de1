"""Pauses in the cluster: written bound to what was read, read also where they were written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.kube.pauses_configmap import change_pauses, pauses_kind, read_pauses
from autoscaler.model import labels as words
from autoscaler.model.pauses import ALL, BUYING, Pause
from tests.builders import NOW, later
from tests.test_autoscaler.fake_api import Answer, Asked, fake_api

PAUSE = Pause(BUYING, "review", "ada", NOW, later(hours=1))


class Contested:
    """One ConfigMap, of which another writes a version each time before the first PUT."""

    def __init__(self) -> None:
        self.data: dict[str, str] | None = None
        self.version = 0
        self.rivals = 0

    def answer(self, asked: Asked) -> Answer:
        """As the API server does: 409 for what is not bound to the newest version."""
        if asked.path == "/version":
            return Answer({})
        if asked.method == "GET":
            found = {"metadata": {"resourceVersion": str(self.version)}, "data": self.data}
            return Answer({"message": "nothing"}, 404) if self.data is None else Answer(found)
        if self.rivals:
            self.rivals -= 1
            self.data, self.version = {**(self.data or {}), "all": "by hand"}, self.version + 1
        if asked.method == "POST" and self.data is not None:
            return Answer({"message": "it is there"}, 409)
        if asked.method == "PUT" and asked.body["metadata"]["resourceVersion"] != str(self.version):
            return Answer({"message": "it changed"}, 409)
        self.data, self.version = asked.body["data"], self.version + 1
        return Answer(asked.body)


def test_two_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """What was written in between is read again and kept."""
    shelf = Contested()
    shelf.rivals = 2
    with fake_api() as api:
        api.answer = shelf.answer
        kube = Kube.connect(api.kubeconfig(tmp_path))
        assert read_pauses(kube, namespace="spillway") == ()
        change_pauses(kube, lambda found: (*found, PAUSE), namespace="spillway")
        assert read_pauses(kube, namespace="spillway") == (Pause(ALL, "by hand"), PAUSE)


def test_the_store_tells_those_whose_time_is_not_over() -> None:
    """As part of the look that is planned on."""
    kind = pauses_kind("spillway")
    raw: dict[str, Any] = {
        "metadata": {"name": words.PAUSES, "namespace": "spillway"},
        "data": {"buying": '{"because":"r","until":"2026-11-21T10:00:00Z"}', "group.gpu": "no JSON, written by hand"},
    }
    meta, pauses = kind.decode(msgspec.Raw(msgspec.json.encode(raw)))
    store = Store()
    store.put(kind, (meta.namespace, meta.name), 1, pauses)
    by_hand = Pause("group.gpu", "no JSON, written by hand")
    assert store.cluster(NOW).pauses == (Pause(BUYING, "r", until=later(hours=1)), by_hand)
    assert store.cluster(later(hours=1)).pauses == (by_hand,)
