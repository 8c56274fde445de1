"""The policy in the cluster: the ConfigMap that is edited, and the one with the last good policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autoscaler.config.policy_file import Edition
from autoscaler.kube.cache import Store
from autoscaler.kube.client import Kube
from autoscaler.kube.policy_configmap import About, PolicyConfigMap, PolicyRecord, Record, Refusal
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from tests.builders import NOW
from tests.test_autoscaler.fake_api import Answer, Asked, fake_api

WHERE = "configmap:spillway/spillway-autoscaler-policy"
ABOUT = About(since=NOW, origin=WHERE, by="one", refused=Refusal(NOW, "line 7"), pending=("groups[a]",))


class Shelf:
    """ConfigMaps by name, as an API server keeps them."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def answer(self, asked: Asked) -> Answer:
        """GET, PUT of what is there, POST of what is not."""
        name = asked.path.rpartition("/")[2]
        if asked.method == "POST":
            self.kept[asked.body["metadata"]["name"]] = asked.body
            return Answer(asked.body, 201)
        if asked.path == "/version":
            return Answer({})
        if name not in self.kept:
            return Answer({"message": "not found"}, 404)
        if asked.method == "PUT":
            self.kept[name] = asked.body
        return Answer(self.kept[name])


def test_the_last_good_policy_is_read_as_it_was_written(tmp_path: Path) -> None:
    """By another autoscaler too; it is written only where it says something new."""
    shelf = Shelf()
    with fake_api() as api:
        api.answer = shelf.answer
        kube = Kube.connect(api.kubeconfig(tmp_path))
        record = PolicyRecord(kube, "spillway")
        assert record.read() is None
        for text in ("a: 1", "a: 1", "b: 2"):
            record.write(Record(text, ABOUT))
        assert PolicyRecord(kube, "spillway").read() == Record("b: 2", ABOUT)
        assert [one.method for one in api.asked if one.method != "GET"] == ["PUT", "POST", "PUT"]
        shelf.kept[words.ACTING_POLICY]["data"]["about.json"] = "{"
        assert record.read() is None, "what cannot be read counts as nothing"


def test_a_record_that_cannot_be_written_is_told_and_tried_again(tmp_path: Path) -> None:
    """In words, until it is written."""
    told: list[tuple[str, str]] = []
    shelf = Shelf()
    with fake_api() as api:
        api.answer = lambda asked: Answer({"message": "no"}, 403) if asked.method == "PUT" else shelf.answer(asked)
        record = PolicyRecord(Kube.connect(api.kubeconfig(tmp_path)), "spillway", tell=lambda *one: told.append(one))
        record.write(Record("a: 1", ABOUT))
        api.answer = shelf.answer
        record.write(Record("a: 1", ABOUT))
    assert [bool(why) for _, why in told] == [True, False]
    assert shelf.kept


def test_a_dry_run_writes_no_record(tmp_path: Path) -> None:
    """It changes nothing in the cluster."""
    with fake_api() as api:
        api.answer = Shelf().answer
        record = PolicyRecord(Kube.connect(api.kubeconfig(tmp_path)), "spillway", read_only=True)
        record.write(Record("a: 1", ABOUT))
        assert {one.method for one in api.asked} == {"GET"}


def test_the_edited_configmap_is_what_is_there_and_then_what_the_watch_tells(tmp_path: Path) -> None:
    """One that is missing, or lacks the key, is told with what would be right."""
    shelf, store = Shelf(), Store()
    with fake_api() as api:
        api.answer = shelf.answer
        source = PolicyConfigMap(Kube.connect(api.kubeconfig(tmp_path)), store, WHERE)
        assert source.newest() == Edition(WHERE, problem=f"{WHERE}: there is no such ConfigMap")
        shelf.kept[words.POLICY] = {"data": {"policy.yaml": "a: 1"}}
        assert source.newest() == Edition(WHERE, "a: 1")
        key = ("spillway", words.POLICY)
        store.replace(source.kind, {key: (1, {"policy.yaml": "b: 2"})})
        assert source.newest() == Edition(WHERE, "b: 2")
        store.put(source.kind, key, 2, {"other": "x"})
        assert source.newest().problem == f"{WHERE}: has no key policy.yaml, but other: write the policy under that key"
        store.drop(source.kind, key)
        assert source.newest().problem == f"{WHERE}: there is no such ConfigMap"


@pytest.mark.parametrize("where", ["configmap:policy", "configmap:a/", "configmap:a/b/c"])
def test_a_name_without_a_namespace_is_refused(tmp_path: Path, where: str) -> None:
    """With how it is written."""
    with fake_api() as api:
        api.answer = Shelf().answer
        with pytest.raises(BadInput, match="write configmap:NAMESPACE/NAME"):
            PolicyConfigMap(Kube.connect(api.kubeconfig(tmp_path)), Store(), where)
