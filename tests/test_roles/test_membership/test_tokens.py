"""What is known of bootstrap tokens, at an API server that keeps one ConfigMap."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

import roles
from autoscaler.config.node_registration import Token
from autoscaler.kube.client import Kube, Refused
from roles.membership import tokens
from tests.test_autoscaler.fake_api import Answer, Asked, FakeApi, fake_api

SOON = (datetime.now(UTC) + timedelta(days=1)).isoformat()  # of when tests are collected, which may be an hour before
LONG_AGO = "2020-01-01T00:00:00+00:00"
ROOM = Path(str(roles.__path__[0]))


class Server:
    """The ConfigMap, and the names of the Secrets; it reads no Secret to anything that asks."""

    def __init__(self, **data: dict[str, str]) -> None:
        self.data: dict[str, str] | None = {key: json.dumps(entry) for key, entry in data.items()} or None
        self.secrets = {f"bootstrap-token-{key}" for key in data}
        self.reads_of_secrets = 0
        self.made_meanwhile: dict[str, str] | None = None
        """What another writer's ledger has, made right after this one was told that there is none."""

    def __call__(self, asked: Asked) -> Answer:
        """One request."""
        if "/secrets" in asked.path:
            return self._secret(asked)
        if "/configmaps" not in asked.path:
            return Answer({"gitVersion": "v1.35.0"})
        if asked.method == "POST" and self.data is not None:
            return Answer({"message": "already exists"}, status=409)
        if asked.method == "POST":
            assert asked.body["metadata"] == {"name": tokens.LEDGER, "namespace": "kube-system"}
            self.data = dict(asked.body["data"])
        elif self.data is None:
            self.data = self.made_meanwhile
            return Answer({"message": "not found"}, status=404)
        elif asked.method == "PATCH" and isinstance(asked.body, list):
            return self._operate(asked.body)
        elif asked.method == "PATCH":
            merged = {**self.data, **asked.body["data"]}
            self.data = {key: value for key, value in merged.items() if value is not None}
        return Answer({"data": self.data})

    def _operate(self, operations: list[dict[str, Any]]) -> Answer:
        [test, change] = operations
        key = test["path"].removeprefix("/data/")
        assert self.data is not None
        if self.data.get(key) != test["value"]:
            return Answer({"message": "the test of the patch failed"}, status=422)
        self.data[key] = change["value"]
        return Answer({})

    def _secret(self, asked: Asked) -> Answer:
        if asked.method == "POST":
            self.secrets.add(asked.body["metadata"]["name"])
        elif asked.method == "DELETE":
            name = asked.path.rpartition("/")[2]
            if name not in self.secrets:
                return Answer({"message": "not found"}, status=404)
            self.secrets.remove(name)
        else:
            self.reads_of_secrets += 1
        return Answer({})


def entry(node: str, expires: str = SOON, used_by: str = "") -> dict[str, str]:
    """One of the ledger."""
    return {"node": node, "expires": expires, "usedBy": used_by}


@pytest.fixture
def api() -> Iterator[FakeApi]:
    """A server of scripted answers."""
    with fake_api() as made:
        yield made


def asking(api: FakeApi, folder: Path, server: Server) -> Kube:
    """A client of it."""
    api.answer = server
    return Kube.connect(api.kubeconfig(folder))


def test_a_token_is_known_of_also_where_none_was_kept_before(api: FakeApi, tmp_path: Path) -> None:
    """The ConfigMap is made by the first; the secret half is not in it, and no Secret is read."""
    server = Server()
    kube = asking(api, tmp_path, server)
    tokens.keep(kube, Token(key="abcdef", secret="s" * 16), node="dgx-01", meant_for="a test")
    assert server.secrets == {"bootstrap-token-abcdef"}
    assert "s" * 16 not in json.dumps(server.data)
    found = tokens.token_of(kube, "dgx-01")
    assert found is not None
    assert (found.key, found.node, found.used_by) == ("abcdef", "dgx-01", "")
    assert tokens.token_of(kube, "dgx-02") is None
    assert server.reads_of_secrets == 0


def test_of_two_first_tokens_at_once_both_are_known(api: FakeApi, tmp_path: Path) -> None:
    """Each finds no ledger; the slower one's is refused as there already, and its entry is added to the other's."""
    server = Server()
    server.made_meanwhile = {"other0": json.dumps(entry("dgx-02"))}
    kube = asking(api, tmp_path, server)
    tokens.keep(kube, Token(key="abcdef", secret="s" * 16), node="dgx-01", meant_for="a test")
    assert {one.node for one in tokens.tokens(kube)} == {"dgx-01", "dgx-02"}


def test_a_nodes_tokens_go_with_those_that_ran_out_and_no_other(api: FakeApi, tmp_path: Path) -> None:
    """Also where the cluster has taken the Secret away by itself."""
    server = Server(mine00=entry("dgx-01"), other0=entry("dgx-02"), gone00=entry("dgx-03", expires=LONG_AGO))
    server.secrets.remove("bootstrap-token-gone00")
    tokens.drop(asking(api, tmp_path, server), "dgx-01")
    assert server.secrets == {"bootstrap-token-other0"}
    assert set(server.data or ()) == {"other0"}


def test_of_two_that_use_one_token_at_once_one_is_refused(api: FakeApi, tmp_path: Path) -> None:
    """Both read it unused; the second finds that it is no more what it was."""
    server = Server(mine00=entry("dgx-01"))
    kube = asking(api, tmp_path, server)
    server.data = {"mine00": (read := tokens.tokens(kube)[0]).text()}
    tokens.use(kube, read, request="csr-1")
    with pytest.raises(Refused):
        tokens.use(kube, read, request="csr-2")
    assert tokens.tokens(kube)[0].used_by == "csr-1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"node": "x"}',
        '{"node": "x", "expires": "soon"}',
        '{"node":"x","expires":"2030-01-01T00:00:00"}',
    ],
)
def test_an_entry_that_is_garbled_is_no_token(api: FakeApi, tmp_path: Path, text: str) -> None:
    """And hides no other."""
    server = Server(mine00=entry("dgx-01"))
    server.data = {**(server.data or {}), "aaaaaa": text}
    assert [one.key for one in tokens.tokens(asking(api, tmp_path, server))] == ["mine00"]


def test_both_accounts_are_bound_by_one_policy_and_read_no_secret() -> None:
    """The approver's, and that of the nightly run."""
    files = [ROOM / "rbac.yaml", ROOM / "nightly/cronjob.yaml"]
    read = [[one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one] for file in files]
    policies = [[one for one in found if one["kind"].startswith("ValidatingAdmission")] for found in read]
    assert policies[0] == policies[1]
    assert [one["kind"] for one in policies[0]] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    bound = policies[0][0]["spec"]["matchConditions"][0]["expression"]
    for account, found in zip(("spillway-approver", "spillway-nodes"), read, strict=True):
        assert f'"system:serviceaccount:spillway:{account}"' in bound
        rules = [rule for one in found for rule in one.get("rules", ()) if "secrets" in rule.get("resources", ())]
        assert [rule["verbs"] for rule in rules] == [["create", "delete"]]
