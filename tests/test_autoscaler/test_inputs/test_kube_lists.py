"""Objects from files as kubectl writes them: JSON and YAML say the same, nulls are absent, mistakes have a name."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from autoscaler.inputs.kube_lists import objects_in
from autoscaler.kube.schema.core import PodJson
from autoscaler.model.errors import BadInput

POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z", "labels": None},
    "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}]},
}


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
@pytest.mark.parametrize("form", ["list", "array", "alone"])
def test_json_and_yaml_say_the_same(write: Any, form: str) -> None:
    """In a List, in an array, alone; what is null is absent."""
    whole: Any = {"list": {"kind": "List", "items": [POD, POD]}, "array": [POD, POD], "alone": POD}[form]
    found = [one.read(PodJson) for one in objects_in(write(whole), "f")]
    assert len(found) == (1 if form == "alone" else 2)
    for pod in found:
        assert (pod.metadata.name, pod.metadata.labels) == ("one", {})
        assert pod.spec.containers[0].resources.requests == {"cpu": 2, "memory": "1Gi"}


def test_a_file_that_begins_as_json_does_may_be_yaml() -> None:
    """``true: x`` is a map of YAML."""
    with pytest.raises(BadInput, match="neither kind nor metadata, but True"):
        [one.read(PodJson) for one in objects_in("true:\n  a: b\n", "f")]


@pytest.mark.parametrize("text", ['{"kind": "List", "items": null}', '{"items": []}', "[]", "items:\n"])
def test_a_list_of_nothing_has_nothing(text: str) -> None:
    """However it says so."""
    assert list(objects_in(text, "f")) == []


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump], ids=["json", "yaml"])
def test_a_mistake_is_told_with_the_name_of_the_object(write: Any) -> None:
    """And where it is in it."""
    wrong = {**POD, "spec": {"containers": "none"}}
    (one,) = objects_in(write(wrong), "pods")
    with pytest.raises(BadInput, match=r"pods: Pod one: .*\$\.spec\.containers"):
        one.read(PodJson)


def test_a_number_that_no_field_holds_is_told() -> None:
    """JSON has no limit for them."""
    text = json.dumps({**POD, "spec": {"priority": "?", "containers": []}}).replace('"?"', "1" * 5000)
    for whole in (text, f"[{text}]"):
        (one,) = objects_in(whole, "pods")
        with pytest.raises(BadInput, match=r"pods: Pod one: .*\$\.spec\.priority"):
            one.read(PodJson)


@pytest.mark.parametrize("value", ["2026-13-45", "1" * 5000])
def test_a_time_or_a_number_that_yaml_does_not_take_is_told(value: str) -> None:
    """As a mistake of the file."""
    with pytest.raises(BadInput, match=r"^f: this is neither YAML nor JSON: "):
        list(objects_in(f"kind: Pod\nmetadata: {{name: one, creationTimestamp: {value}}}\n", "f"))


@pytest.mark.parametrize("text", ["5", '{"items": [5]}', "- 5\n"])
def test_what_is_no_object_is_told_as_it_stands(text: str) -> None:
    """Not guessed at."""
    (one,) = objects_in(text, "f")
    assert (one.is_object, one.told()) == (False, "5")


def test_a_file_of_something_else_is_told_by_its_fields() -> None:
    """Not as a pod that lacks its metadata: `kubectl` leaves the kind out in lists, and so it may be absent."""
    (one,) = objects_in("partitions: []\nqueues: []\n", "f")
    with pytest.raises(BadInput, match=r"^f: this is no object of Kubernetes: .+, but partitions, queues$"):
        one.read(PodJson)
    (one,) = objects_in("metadata: {name: 5a}\nspec: {priority: high}\n", "f")
    with pytest.raises(BadInput, match=r"^f: object 5a: "):
        one.read(PodJson)


def test_text_that_is_neither_is_refused_with_its_line() -> None:
    """As YAML has it."""
    with pytest.raises(BadInput, match=r"^f:2: this is neither YAML nor JSON: mapping values are not allowed [^;]*$"):
        list(objects_in("a: 1\n  b: [", "f"))


def test_a_template_that_helm_has_not_rendered_is_called_one() -> None:
    """The parser's own words for its braces, an unhashable key, do not say so."""
    with pytest.raises(BadInput, match=r"^f:1: .+; a template is rendered first: helm template CHART$"):
        list(objects_in("kind: {{ .Values.kind }}\n", "f"))
