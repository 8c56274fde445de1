"""The tokens of machines that join at the same time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from stacks.on_prem_provider.bootstrap_token import issue_token
from stacks.on_prem_provider.kube import Kube
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api
from tests.test_roles.test_membership.test_tokens import Server, entry


class Cluster(Server):
    """The same ledger, and lists of Secrets and bindings, which this provider may read."""

    def __call__(self, asked: Asked) -> Answer:
        """One request."""
        if asked.method == "GET" and asked.path.endswith("/secrets"):
            return Answer({"items": []})
        if "/clusterrolebindings" in asked.path:
            return Answer({})
        return super().__call__(asked)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server of scripted answers."""
    with fake_api() as made:
        yield made


def test_of_two_machines_first_tokens_at_once_both_are_known(api: FakeApi, tmp_path: Path) -> None:
    """Each finds no ledger; the slower one's is refused as there already, and its entry is added to the other's."""
    cluster = Cluster()
    cluster.made_meanwhile = {"other0": json.dumps(entry("dgx-02"))}
    api.answer = cluster
    issue_token(Kube(api.kubeconfig(tmp_path).read_text()), "dgx-01", cluster="lab")
    assert {json.loads(known)["node"] for known in (cluster.data or {}).values()} == {"dgx-01", "dgx-02"}
