"""Both ends of a WireGuard tunnel: what is rendered fits, and what does not fit is refused."""

from __future__ import annotations

import configparser
import ipaddress
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from stacks.connectivity.wireguard import check_pair, ends, parse, render, render_gateway
from stacks.on_prem_provider.keys import wireguard_pair

KEYS = (wireguard_pair()["publicKey"], wireguard_pair()["publicKey"])


def pair(**changed: Any) -> tuple[str, str]:
    """The files of an ordinary tunnel."""
    ordinary: dict[str, Any] = {
        "tunnel": "10.255.255.0/30",
        "port": 51820,
        "vpc": ("10.40.0.0/16",),
        "on_prem": ("10.20.0.0/16", "10.21.0.0/16"),
        "keys": KEYS,
        "addresses": ("192.0.2.1", "198.51.100.7"),
    }
    both = ends(**ordinary | changed)
    return render(both[0]), render(both[1])


def read(text: str) -> configparser.ConfigParser:
    """As another program reads such a file."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(text)
    return parser


def test_each_end_sends_to_the_other_what_is_behind_it() -> None:
    """And believes no other address of it."""
    aws, on_prem = map(read, pair())
    assert aws["Peer"]["AllowedIPs"] == "10.255.255.2/32, 10.20.0.0/16, 10.21.0.0/16"
    assert on_prem["Peer"]["AllowedIPs"] == "10.255.255.1/32, 10.40.0.0/16"
    assert (aws["Peer"]["Endpoint"], on_prem["Peer"]["Endpoint"]) == ("198.51.100.7:51820", "192.0.2.1:51820")
    assert (aws["Interface"]["Address"], on_prem["Interface"]["Address"]) == ("10.255.255.1/30", "10.255.255.2/30")
    assert (aws["Peer"]["PublicKey"], on_prem["Peer"]["PublicKey"]) == (KEYS[1], KEYS[0])


def test_no_private_key_is_in_either_file() -> None:
    """Each is read from a file at its place."""
    for text in pair():
        assert "PrivateKey" not in text
        assert "wg set %i private-key /etc/wireguard/%i.key" in text


@given(
    third=st.integers(0, 255),
    port=st.integers(1024, 65535),
    on_prem=st.sets(st.integers(0, 30), min_size=1, max_size=8),
)
def test_what_is_rendered_is_read_back_and_fits(third: int, port: int, on_prem: set[int]) -> None:
    """Whatever the networks are, as long as they are apart."""
    networks = tuple(f"10.{second}.0.0/16" for second in sorted(on_prem))
    made: dict[str, Any] = {
        "tunnel": f"10.255.{third}.0/30",
        "port": port,
        "vpc": ("10.40.0.0/16",),
        "on_prem": networks,
        "keys": KEYS,
        "addresses": ("192.0.2.1", "198.51.100.7"),
    }
    for end in ends(**made):
        assert parse(render(end)) == end
    check_pair(*pair(**made))


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"on_prem": ("10.40.16.0/20",)}, "10.40.16.0/20 (on-prem) and 10.40.0.0/16 (AWS) overlap"),
        ({"on_prem": ("10.20.0.0/16", "10.20.1.0/24")}, "AllowedIPs have 10.20.0.0/16 and 10.20.1.0/24, which overlap"),
        ({"keys": (KEYS[0], KEYS[0])}, "both ends have the same public key"),
        ({"on_prem": ("198.51.100.0/24",)}, "lies in AllowedIPs: the tunnel would be sent through itself"),
    ],
)
def test_ends_that_do_not_fit_are_refused(wrong: dict[str, Any], told: str) -> None:
    """Before a gateway is made that nobody reaches."""
    with pytest.raises(BadInput) as refusal:
        check_pair(*pair(**wrong))
    assert told in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("10.255.255.2/32, ", ""), "leave out the other end, 10.255.255.2"),
        (("10.255.255.1/30", "10.255.254.1/30"), "are not two addresses of one network"),
        (("ListenPort = 51820", "ListenPort = 51821"), "is not the port that the other end listens on, 51821"),
        (("Endpoint = 198.51.100.7", "Endpoint 198.51.100.7"), "is neither a section nor KEY = VALUE"),
        (("AllowedIPs = ", "AllowedIps = "), "cannot be read back"),
    ],
)
def test_a_file_that_was_changed_is_compared_as_well(change: tuple[str, str], told: str) -> None:
    """The check reads the text, not what it was made from."""
    aws, on_prem = pair()
    assert change[0] in aws
    with pytest.raises(BadInput) as refusal:
        check_pair(aws.replace(*change, 1), on_prem)
    assert told in str(refusal.value)


def test_the_gateways_user_data_names_where_its_key_is_and_has_none() -> None:
    """Anything on an instance can read user data."""
    text = render_gateway(pair()[0], parameter="/spillway/lab/wireguard-key", region="us-east-1", own_key=KEYS[0])
    assert text.startswith("#cloud-config\n")
    files = {one["path"]: one for one in yaml.safe_load(text)["write_files"]}
    fetch = files["/usr/local/sbin/spillway-wireguard-key"]
    compile(fetch["content"], "fetch", "exec")
    assert "'/spillway/lab/wireguard-key'" in fetch["content"]
    assert files["/etc/wireguard/wg0.conf"]["permissions"] == "0600"
    assert "PrivateKey" not in text


def test_user_data_that_ec2_would_not_take_is_refused() -> None:
    """Its limit is 16 KiB."""
    many = tuple(str(one) for one in ipaddress.IPv4Network("10.20.0.0/14").subnets(new_prefix=24))
    with pytest.raises(BadInput, match="name fewer networks"):
        render_gateway(pair(on_prem=many)[0], parameter="/p", region="r", own_key=KEYS[0])
