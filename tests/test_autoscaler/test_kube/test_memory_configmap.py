"""What plans remember is written down, and read by whoever acts next."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autoscaler.kube.client import Kube
from autoscaler.kube.credentials import Account
from autoscaler.kube.memory_configmap import MemoryConfigMap, as_memory, as_text
from autoscaler.model import labels as words
from autoscaler.model.actions import Assignment, Backoff, Grow, Memory, Order
from autoscaler.model.errors import Unavailable
from autoscaler.planner.plan import plan
from tests.builders import a_cluster, a_gang, a_group, a_policy, an_entry, later
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api

MEMORY = Memory(
    backoffs={"test-gpu-us-east-1a": Backoff(later(minutes=5), 2, later(), "VcpuLimitExceeded")},
    leftovers=frozenset({"i-2", "i-1"}),
    orders={"test-gpu-us-east-1b": Order(0, 2, later())},
    assignments={"team/a-0": Assignment("g+1", "g"), "team/a-1": Assignment("g+1", "g"), "team/b": Assignment("dgx-1")},
)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server that each test gives its answers."""
    with fake_api() as server:
        yield server


@pytest.fixture
def told() -> list[tuple[str, str]]:
    """What was told."""
    return []


@pytest.fixture
def memory_map(api: FakeApi, tmp_path: Path, told: list[tuple[str, str]]) -> MemoryConfigMap:
    """The memory in it."""
    kube = Kube(Account(api.kubeconfig(tmp_path)))
    return MemoryConfigMap(kube, namespace="spillway", tell=lambda party, why: told.append((party, why)))


def keeps(api: FakeApi) -> dict[str, Any]:
    """A server that keeps ConfigMaps, by path."""
    kept: dict[str, Any] = {}

    def answer(asked: Asked) -> Answer:
        if asked.method == "POST":
            kept[f"{asked.path}/{asked.body['metadata']['name']}"] = asked.body
            return Answer(asked.body, status=201)
        if asked.path not in kept:
            return Answer({"message": "not found"}, status=404)
        if asked.method == "PUT":
            kept[asked.path] = asked.body
        return Answer(kept[asked.path])

    api.answer = answer
    return kept


def test_what_is_written_is_read_again() -> None:
    """Whole."""
    assert as_memory(as_text(MEMORY)) == MEMORY
    assert as_memory(as_text(Memory())) == Memory()


def test_it_is_made_when_first_written_and_replaced_then(api: FakeApi, memory_map: MemoryConfigMap) -> None:
    """In one ConfigMap, and nothing is written that says nothing new."""
    kept = keeps(api)
    assert memory_map.read() == Memory()
    memory_map.write(MEMORY)
    memory_map.write(Memory())
    assert memory_map.read() == Memory()
    memory_map.write(MEMORY)
    asked = len(api.asked)
    memory_map.write(MEMORY)
    assert len(api.asked) == asked
    assert memory_map.read() == MEMORY
    assert list(kept) == [f"/api/v1/namespaces/spillway/configmaps/{words.MEMORY}"]


def test_a_server_that_does_not_answer_is_asked_again(
    api: FakeApi, memory_map: MemoryConfigMap, told: list[tuple[str, str]]
) -> None:
    """Without what was bought for whom nothing is decided."""
    api.answer = lambda _asked: Answer({"message": "busy"}, status=503)
    with pytest.raises(Unavailable):
        memory_map.read()
    assert "busy" in told[-1][1]


def test_missing_rights_are_told_and_the_work_goes_on(
    api: FakeApi, memory_map: MemoryConfigMap, told: list[tuple[str, str]]
) -> None:
    """As with an older autoscaler/rbac.yaml."""
    message = 'configmaps is forbidden: User "u" cannot get resource'
    api.answer = lambda _asked: Answer({"message": message}, status=403)
    assert memory_map.read() == Memory()
    memory_map.write(MEMORY)
    assert [why for _, why in told] == [f"{message}: apply autoscaler/rbac.yaml"] * 2
    keeps(api)
    memory_map.write(MEMORY)
    assert told[-1] == (f"the memory (ConfigMap spillway/{words.MEMORY})", "")


@pytest.mark.parametrize("text", ["{", '{"assignments": 3}', '{"assignments": {"g": {"n": [1]}}}'])
def test_what_somebody_else_wrote_into_it_is_told(
    api: FakeApi, memory_map: MemoryConfigMap, told: list[tuple[str, str]], text: str
) -> None:
    """And written over by the next plan."""
    kept = keeps(api)
    kept[f"/api/v1/namespaces/spillway/configmaps/{words.MEMORY}"] = {"data": {"memory.json": text}}
    assert memory_map.read() == Memory()
    assert "cannot be read and is written anew" in told[-1][1]
    memory_map.write(MEMORY)
    assert memory_map.read() == MEMORY


def test_a_dry_run_reads_it_and_writes_nothing(api: FakeApi, tmp_path: Path) -> None:
    """It belongs to the one that acts."""
    keeps(api)
    MemoryConfigMap(Kube(Account(api.kubeconfig(tmp_path))), namespace="spillway", read_only=True).write(MEMORY)
    assert api.asked == []


def test_a_node_on_its_way_stays_for_the_pods_that_it_was_bought_for_after_a_restart() -> None:
    """An elastic gang's further pods have none by right: forgotten, its node would go to the next gang in line."""
    elastic = a_gang("a", 2, gpus=8, cpu=4, minimum=1)
    other = a_gang("b", 2, gpus=8, cpu=4, priority=-1)
    policy = a_policy(an_entry(max=3))
    group = a_group(maximum=3)
    first = plan(a_cluster(pods=(*elastic, *other), groups=(group,)), policy, Memory())
    (grow,) = [step for step in first.steps if isinstance(step, Grow)]
    bought = a_cluster(pods=(*elastic, *other), groups=(a_group(maximum=3, desired=grow.to),))
    again = plan(bought, policy, as_memory(as_text(first.memory)))
    assert not [step for step in again.steps if isinstance(step, Grow)]
    assert [step for step in plan(bought, policy, Memory()).steps if isinstance(step, Grow)]
