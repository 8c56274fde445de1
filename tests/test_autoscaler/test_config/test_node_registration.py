"""What is written of a machine that joins: its token, and what its inventory declared."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.config.node_registration import Declared, Token, new_token, token_secret, write_ledger
from autoscaler.kube.client import Refused
from autoscaler.model import labels as words

WORDS = st.text(alphabet="abc./-", min_size=1, max_size=12)
PLACES = st.tuples(WORDS, st.sampled_from(["NoSchedule", "NoExecute"]))


def test_a_token_is_for_one_machine_and_ten_minutes() -> None:
    """It proves who joins; it signs nothing."""
    token = Token("abcdef", "0" * 16)
    made = token_secret(token, node="dgx-01", now=datetime(2026, 1, 1, tzinfo=UTC), meant_for="a test")
    assert made["metadata"]["name"] == "bootstrap-token-abcdef"
    assert made["metadata"]["annotations"] == {words.TOKEN_OF: "dgx-01"}
    said = made["stringData"]
    assert said["expiration"] == "2026-01-01T00:10:00Z"
    assert f"{said['token-id']}.{said['token-secret']}" == str(token)
    assert "usage-bootstrap-signing" not in said


def test_no_token_is_made_twice() -> None:
    """Of the form that the API server demands."""
    made = [new_token() for _ in range(50)]
    assert len({str(one) for one in made}) == 50
    assert {(len(one.key), len(one.secret)) for one in made} == {(6, 16)}
    assert all(str(one).replace(".", "").isalnum() and str(one).islower() for one in made)


@given(st.frozensets(WORDS), st.frozensets(PLACES))
def test_what_was_declared_is_read_as_it_was_written(
    labels: frozenset[str], taints: frozenset[tuple[str, str]]
) -> None:
    """Whoever wrote it."""
    declared = Declared(labels, taints)
    assert Declared.on({"metadata": {"annotations": declared.annotation()}}) == declared


@pytest.mark.parametrize(
    "text", ["{not json", "[]", "7", "null", '{"labels": 3}', '{"taints": ["x"]}', '{"taints": [[1, 2, 3]]}']
)
def test_a_garbled_ledger_says_nothing(text: str) -> None:
    """And nothing is taken away for it."""
    assert Declared.on({"metadata": {"annotations": {words.DECLARED: text}}}) == Declared()
    assert Declared.on({"metadata": {"annotations": None}}) == Declared()


def test_a_ledger_that_may_not_be_written_is_told() -> None:
    """Only one that is not there is made, and only one that is there by now is written again."""
    sent: list[str] = []

    def send(method: str, *_: object, **__: object) -> None:
        sent.append(method)
        raise Refused(403 if method == "POST" else 404, "no rights")

    with pytest.raises(Refused, match="no rights"):
        write_ledger(send, {"abcdef": "{}"})
    assert sent == ["PATCH", "POST"]
