"""What the store hands out: objects that say the same stay the same objects, so that a look knows them again."""

from __future__ import annotations

import time
from dataclasses import replace

from autoscaler.kube.cache import Store
from autoscaler.kube.watched_kinds import NODES
from tests.builders import NOW, a_group, an_on_prem_node


def test_a_node_that_says_the_same_in_a_newer_version_is_the_same_object() -> None:
    """As it is at each heartbeat; the looks share their nodes then. What has changed is taken over."""
    store, node = Store(), an_on_prem_node()
    store.put(NODES, ("", node.name), 1, node)
    before = store.cluster(NOW).nodes
    store.put(NODES, ("", node.name), 2, replace(node))
    assert store.cluster(NOW).nodes is before
    assert store.node(node.name) is node
    store.put(NODES, ("", node.name), 1, replace(node, ready=False))
    assert store.cluster(NOW).nodes == before
    store.put(NODES, ("", node.name), 3, replace(node, ready=False))
    assert [one.ready for one in store.cluster(NOW).nodes] == [False]
    store.drop(NODES, ("", node.name))
    assert store.cluster(NOW).nodes == ()


def test_a_group_that_aws_says_the_same_of_is_the_same_object() -> None:
    """Though another group has changed."""
    store, cpu, gpu = Store(), a_group("cpu"), a_group("gpu")
    store.saw_groups([cpu, gpu], asked_at=time.monotonic())
    store.saw_groups([replace(cpu), replace(gpu, desired=2)], asked_at=time.monotonic())
    now = {group.entry: group for group in store.cluster(NOW).groups}
    assert now["cpu"] is cpu
    assert now["gpu"].desired == 2
