"""When the groups are described again."""

from __future__ import annotations

import pytest

from autoscaler.kube.cache import Store
from autoscaler.model.cluster import Group, Instance
from autoscaler.model.errors import Unavailable
from autoscaler.watches.auto_scaling_groups import GroupWatch, something_is_on_its_way
from tests.builders import a_cluster, a_group, nodes_of
from tests.test_autoscaler.test_kube.test_watcher import until
from tests.test_autoscaler.test_loop import Fakes


@pytest.mark.parametrize(
    ("group", "moving"),
    [
        (a_group(), False),
        (a_group(desired=1), True),
        (a_group(joined=1), False),
        (a_group(joined=1, instances=(Instance("i-x", "us-east-1a"),)), True),
        (a_group(joined=1, instances=(Instance("i-x", "us-east-1a", state="terminating"),)), True),
    ],
)
def test_aws_is_asked_often_only_while_something_moves(group: Group, moving: bool) -> None:  # noqa: FBT001 - a table
    """Bought and not there, there and not joined, or on its way out."""
    nodes = nodes_of(a_group(joined=1))
    assert something_is_on_its_way(a_cluster(groups=[group], nodes=nodes)) is moving


def test_groups_are_looked_at_again_when_something_is_set_in_motion() -> None:
    """And an outage of AWS is told, and its end."""
    fakes, store = Fakes(), Store()
    told: list[tuple[str, str]] = []
    fakes.failures["groups"] = Unavailable("AWS does not answer")
    watch = GroupWatch(ec2=fakes, store=store, outage=lambda party, why: told.append((party, why)))  # type: ignore[arg-type]
    watch.start()
    until(lambda: told)
    fakes.failures.clear()
    until(store.knows_groups)
    looks = len(fakes.asked)
    watch.soon()
    until(lambda: len(fakes.asked) > looks)
    watch.stop()
    assert ("AWS", "AWS does not answer") in told
    assert ("AWS", "") in told
