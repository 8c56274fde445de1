"""Which certificates a kubelet gets: its own, once, and nobody else's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roles.membership.csr_policy import CLIENT, SERVING, Expected, Request, why_not

NODE = Expected(name="dgx-01", addresses=frozenset({"10.20.0.11"}), token="abcdef")  # noqa: S106 - an id
FIRST = Request(
    name="csr-1",
    signer=CLIENT,
    user="system:bootstrap:abcdef",
    groups=frozenset({"system:bootstrappers:spillway"}),
    usages=frozenset({"client auth", "digital signature"}),
    common_name="system:node:dgx-01",
    organizations=("system:nodes",),
    dns_names=frozenset(),
    addresses=frozenset(),
    others=0,
)
SERVES = replace(
    FIRST,
    signer=SERVING,
    user="system:node:dgx-01",
    groups=frozenset({"system:nodes"}),
    usages=frozenset({"server auth", "digital signature"}),
    dns_names=frozenset({"dgx-01"}),
    addresses=frozenset({"10.20.0.11"}),
)


@pytest.mark.parametrize(
    "request_",
    [FIRST, SERVES, replace(FIRST, user="system:node:dgx-01", groups=frozenset({"system:nodes"}))],
    ids=["the first", "to serve", "a renewal"],
)
def test_what_a_kubelet_may_have(request_: Request) -> None:
    """Its first certificate by its token, its renewals by itself, and one to serve with."""
    assert why_not(request_, NODE) == ""


@pytest.mark.parametrize(
    ("request_", "because"),
    [
        (replace(FIRST, signer="kubernetes.io/kube-apiserver-client"), "none of a kubelet's"),
        (replace(FIRST, common_name="system:node:dgx-02"), "is expected"),
        (replace(FIRST, common_name="admin"), "is expected"),
        (replace(FIRST, organizations=("system:nodes", "system:masters")), "organization system:nodes"),
        (replace(FIRST, organizations=("system:masters",)), "organization system:nodes"),
        (replace(FIRST, others=1), "and nothing else"),
        (replace(FIRST, usages=frozenset({"server auth"})), "usages must be client auth"),
        (replace(FIRST, usages=FIRST.usages | {"cert sign"}), "usages must be client auth"),
        (replace(FIRST, user="system:bootstrap:zzzzzz"), "whose token is abcdef"),
        (replace(FIRST, user="system:node:dgx-02"), "whose token is abcdef"),
        (replace(FIRST, user="system:node:dgx-01"), "whose token is abcdef"),
        (replace(FIRST, dns_names=frozenset({"dgx-01"})), "no alternative names"),
        (replace(SERVES, addresses=frozenset({"10.20.0.12"})), "names 10.20.0.12"),
        (replace(SERVES, dns_names=frozenset({"kubernetes"})), "names kubernetes"),
        (replace(SERVES, dns_names=frozenset(), addresses=frozenset()), "needs a name"),
        (replace(SERVES, user="system:bootstrap:abcdef"), "asks for the serving certificate"),
        (replace(SERVES, groups=frozenset()), "asks for the serving certificate"),
    ],
)
def test_what_it_may_not(request_: Request, because: str) -> None:
    """Another node's, more than a node's, or one whose names are not in the inventory."""
    assert because in why_not(request_, NODE)


def test_a_token_is_good_for_one_certificate() -> None:
    """The request that it was used for may be looked at again; a second one is refused."""
    used = replace(NODE, used_by="csr-1")
    assert why_not(FIRST, used) == ""
    assert "good for one certificate" in why_not(replace(FIRST, name="csr-2"), used)


def test_a_token_that_has_ended_lets_nobody_in() -> None:
    """Also not with the name of a node that is known."""
    assert why_not(FIRST, replace(NODE, token="")) == "no token is valid for dgx-01"
    assert "is expected" in why_not(FIRST, None)
