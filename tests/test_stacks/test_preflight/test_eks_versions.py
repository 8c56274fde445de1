"""What EKS offers, asked of its stand-in, and what of a stack file it would refuse halfway."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pulumi.runtime
import pulumi_aws as aws
import pytest

from autoscaler.model.errors import BadInput, Unavailable
from stacks.aws.trust import trust_of
from stacks.local.fake_aws.instances import World
from stacks.local.fake_aws.server import serving
from stacks.local.pulumi_plugins.aws.kinds import Cloud
from stacks.local.pulumi_plugins.aws.registry import LOOKUPS
from stacks.preflight.eks_versions import Offered, check_offered, look_up_offered
from stacks.programs import build
from stacks.settings.control_plane import EksSettings
from tests.test_stacks.declared import Recorder, plans
from tests.test_stacks.graph import graph

VERSIONS = {"1.31": "2026-11-26", "1.32": "", "1.33": "", "1.34": "", "1.35": ""}
CNI = ("v1.21.1-eksbuild.1", "v1.20.4-eksbuild.2")


def settings(**given: Any) -> EksSettings:
    """Of a stack file."""
    return EksSettings.model_validate({"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/a"], **given})


@pytest.mark.parametrize("running", [None, "1.34", "1.35"])
def test_what_eks_offers_is_let_through(running: str | None) -> None:
    """A new cluster, one that goes a version up, one that stays; a version of an add-on that is written down."""
    offered = Offered(versions=VERSIONS, running=running, add_ons_for="1.35", add_ons={"vpc-cni": CNI})
    check_offered(settings(version="1.35", addons={"vpc-cni": ""}), offered)
    check_offered(settings(version="1.35", addons={"vpc-cni": CNI[1]}), offered)


def test_what_stands_stays_whatever_eks_has_ended_with() -> None:
    """EKS is asked for nothing then."""
    standing = Offered(versions={}, running="1.31", add_ons_for="1.31")
    check_offered(settings(version="1.31", addons={"vpc-cni": "v1.2.3-eksbuild.1"}), standing)


@pytest.mark.parametrize(
    ("wanted", "running", "says"),
    [
        ("1.99", None, 'version = \'1.99\': EKS does not offer it: take one of "1.32", "1.33", "1.34", "1.35"'),
        ("1.31", None, "version = '1.31': EKS's support of it has ended on 2026-11-26: take one of \"1.32\""),
        ("1.33", "1.34", 'and the cluster runs 1.34: EKS does not go back: write version: "1.34"'),
        ("1.35", "1.33", "and the cluster runs 1.33: EKS goes up one minor version at a time: 1.34 is next"),
        ("1.99", "1.33", "1.34 is next"),
        ("1.36", "1.35", 'EKS does not offer it: write version: "1.35"'),
        ("1.035", "1.35", 'EKS does not offer it: write version: "1.35"'),
    ],
)
def test_a_version_that_cannot_be_is_refused(wanted: str, running: str | None, says: str) -> None:
    """With what would be right."""
    offered = Offered(versions=VERSIONS, running=running, add_ons_for=running or "1.35")
    with pytest.raises(BadInput) as refused:
        check_offered(settings(version=wanted), offered)
    assert str(refused.value).startswith("spillway:control_plane.version")
    assert says in str(refused.value)


def test_every_mistake_is_told_at_once() -> None:
    """Names also where the version is wrong, versions of add-ons for the version that is wanted alone."""
    add_ons = {"vpc-cni": CNI, "vpc-cmi": ()}
    wanted = {"vpc-cni": "v0.1.0-eksbuild.1", "vpc-cmi": ""}
    with pytest.raises(BadInput) as refused:
        check_offered(
            settings(version="1.35", addons=wanted), Offered(versions=VERSIONS, add_ons_for="1.35", add_ons=add_ons)
        )
    name, version = str(refused.value).splitlines()
    assert "addons names 'vpc-cmi', and EKS has no such add-on for Kubernetes 1.35: `aws eks describe-addon" in name
    assert "addons.vpc-cni = 'v0.1.0-eksbuild.1': EKS does not offer it for Kubernetes 1.35: leave it empty" in version
    assert version.endswith(", e.g. v1.21.1-eksbuild.1, v1.20.4-eksbuild.2")
    with pytest.raises(BadInput) as refused:
        check_offered(
            settings(version="1.99", addons=wanted), Offered(versions=VERSIONS, add_ons_for="1.35", add_ons=add_ons)
        )
    assert len(str(refused.value).splitlines()) == 2
    assert "version = '1.99'" in str(refused.value)
    assert "'vpc-cmi'" in str(refused.value)


class Asking(Recorder):
    """Look-ups of EKS go to its stand-in."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._cloud = Cloud(region="us-east-1", endpoint=url, default_tags={})
        self.asked: list[str] = []

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        """As the stand-in for the aws plugin has it."""
        if args.token not in LOOKUPS:
            return super().call(args)
        self.asked.append(args.token.rpartition(":")[2])
        return LOOKUPS[args.token](self._cloud, dict(args.args)), []


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The local AWS, in threads of this process, and the environment by which it is found."""
    with serving(World()) as address:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local")
        yield address


def make_cluster(url: str, *, version: str, **add_ons: str) -> None:
    """One named lab."""
    cloud = Cloud(region="us-east-1", endpoint=url, default_tags={})
    role = cloud.client("iam").create_role(
        RoleName="eks", AssumeRolePolicyDocument=json.dumps(trust_of("eks.amazonaws.com"))
    )
    subnets = [one["SubnetId"] for one in cloud.ec2.describe_subnets()["Subnets"]][:2]
    network = {"subnetIds": subnets}
    eks = cloud.client("eks")
    eks.create_cluster(name="lab", version=version, roleArn=role["Role"]["Arn"], resourcesVpcConfig=network)
    for name, pinned in add_ons.items():
        eks.create_addon(clusterName="lab", addonName=name.replace("_", "-"), addonVersion=pinned)


def looked_up(url: str, **given: Any) -> tuple[Offered, list[str]]:
    """What EKS offers, and what it was asked."""
    mocks, found = Asking(url), []

    def program() -> None:
        provider = aws.Provider("aws", region="us-east-1")
        found.append(look_up_offered(settings(**given), "lab", region="us-east-1", provider=provider))

    graph(program, mocks=mocks, preview=True)
    return found[0], mocks.asked


def test_a_new_cluster_is_held_against_all_that_there_is(url: str) -> None:
    """Every version that is asked for, of an add-on that is written down all of them, none of one that there is not."""
    pinned = {"vpc-cni": "v1.20.4-eksbuild.2", "kube-proxy": "", "vpc-cmi": ""}
    offered, _ = looked_up(url, version="1.34", addons=pinned)
    assert offered == Offered(
        versions=VERSIONS,
        running=None,
        add_ons_for="1.34",
        add_ons={"vpc-cni": CNI, "kube-proxy": ("v1.34.1-eksbuild.2",), "vpc-cmi": ()},
    )


@pytest.mark.parametrize(("running", "add_ons_for"), [(None, "1.35"), ("1.33", "1.33"), ("1.34", "1.34")])
def test_add_ons_are_asked_for_also_where_the_version_is_wrong(url: str, running: str | None, add_ons_for: str) -> None:
    """For what the cluster runs, or the newest."""
    if running:
        make_cluster(url, version=running)
    wanted = "1.33" if running == "1.34" else "1.99"
    offered, _ = looked_up(url, version=wanted, addons={"vpc-cmi": "", "vpc-cni": "v0.1.0-eksbuild.1"})
    assert (offered.running, offered.add_ons_for) == (running, add_ons_for)
    assert offered.add_ons == {"vpc-cmi": (), "vpc-cni": CNI[:1]}


def test_of_what_stands_as_it_is_wanted_nothing_more_is_asked(url: str) -> None:
    """An add-on that the cluster lacks, or has of another version, is."""
    make_cluster(url, version="1.34", vpc_cni="v1.20.4-eksbuild.2", coredns="v1.12.4-eksbuild.1")
    standing, asked = looked_up(url, version="1.34", addons={"vpc-cni": "v1.20.4-eksbuild.2", "coredns": ""})
    zones = ("us-east-1a", "us-east-1b")
    assert standing == Offered(versions={}, running="1.34", zones=zones, add_ons_for="1.34")
    assert asked == ["getClusters", "getCluster", "getSubnet", "getSubnet", "getAddon", "getAddon"]
    another, _ = looked_up(url, version="1.34", addons={"vpc-cni": "v1.21.1-eksbuild.1", "kube-proxy": ""})
    assert another.add_ons == {"vpc-cni": ("v1.21.1-eksbuild.1",), "kube-proxy": ("v1.34.1-eksbuild.2",)}


def test_eks_that_does_not_answer_is_told(tmp_path: Path) -> None:
    """As what it is, not as a mistake in the file."""

    class Silent(Recorder):
        def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
            if "getClusterVersions" in args.token:
                raise RuntimeError("AccessDeniedException: no")
            return super().call(args)

    wanted = plans(tmp_path, control_plane={"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/a"]})
    with pytest.raises(Unavailable, match=r"EKS does not tell what it offers for the cluster lab: .*AccessDenied"):
        graph(lambda: build(wanted), mocks=Silent(), preview=True)
