"""Each kind of control plane by the real engine, against the local AWS: up, up again, changed, destroyed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from autoscaler.failures import Unavailable
from stacks.local.engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from stacks.local.ground import ENGINE_BINARIES
from stacks.local.tools import ensure_tools
from tests.live.test_engine import client, everything_in, settings_for

pytestmark = pytest.mark.live

ADMIN = "arn:aws:iam::123456789012:role/platform"
ZONES = ["us-east-1a", "us-east-1b"]
GROUPS = [{"name": "cpu", "instance_type": "m5.4xlarge", "zones": ZONES, "max": 2}]


@pytest.fixture(scope="module")
def aws_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A stand-in for AWS, of this module's own."""
    command = [sys.executable, "-m", "stacks.local.aws", "--port", "0", "--boot-delay", "0s"]
    log = tmp_path_factory.mktemp("aws") / "aws.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdout
        try:
            yield server.stdout.readline().split()[4].rstrip(",")
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def engine() -> dict[str, Path]:
    """The engine's binaries; a first run builds them."""
    return dict(ensure_tools(ENGINE_BINARIES, progress=print))


def stack(
    folder: Path, *, aws_url: str, engine: dict[str, Path], cluster: str, zones: list[str] = ZONES, **control_plane: Any
) -> EngineSettings:
    """A stack of one cheap group and a control plane."""
    groups = [{**GROUPS[0], "zones": zones}]
    made = settings_for(folder, aws_url=aws_url, tools=engine, cluster=cluster, groups=groups)
    return replace(made, overrides={"spillway:control_plane": control_plane})


def all_that_stands(url: str) -> dict[str, list[str]]:
    """As `everything_in`, with what control planes are made of."""
    keys = client("kms", url)
    return everything_in(url) | {
        "clusters": client("eks", url).list_clusters()["clusters"],
        "issuers": [
            one["Arn"] for one in client("iam", url).list_open_id_connect_providers()["OpenIDConnectProviderList"]
        ],
        "activations": [one["ActivationId"] for one in client("ssm", url).describe_activations()["ActivationList"]],
        "logs": [one["logGroupName"] for one in client("logs", url).describe_log_groups()["logGroups"]],
        "keys": [
            one["KeyId"]
            for one in keys.list_keys()["Keys"]
            if keys.describe_key(KeyId=one["KeyId"])["KeyMetadata"]["KeyState"] == "Enabled"
        ],
        "parameters": [one["Name"] for one in client("ssm", url).describe_parameters()["Parameters"]],
    }


def state_of(settings: EngineSettings) -> str:
    """The engine's state, as it lies on disk."""
    return "".join(
        file.read_text(encoding="utf-8") for file in (settings.directory / "state").rglob("*.json") if file.is_file()
    )


def test_eks_through_its_life(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """With hybrid nodes: up, nothing to do, a new version and a wider endpoint in place, and all of it away again."""
    before = all_that_stands(aws_url)
    expires = (datetime.now(UTC) + timedelta(days=7)).strftime("%Y-%m-%dT%H:%M:%SZ")
    wanted: dict[str, Any] = {
        "kind": "eks",
        "version": "1.34",
        "admins": [ADMIN],
        "remote_node_networks": ["10.80.0.0/16"],
        "remote_pod_networks": ["10.85.0.0/16"],
        "hybrid": {"machines": 4, "expires": expires},
    }
    settings = stack(tmp_path, aws_url=aws_url, engine=engine, cluster="eks", **wanted)
    outputs = pulumi_up(settings)
    eks = client("eks", aws_url)
    cluster = eks.describe_cluster(name="eks")["cluster"]
    assert outputs.control_plane
    assert outputs.control_plane.endpoint == cluster["endpoint"]
    assert outputs.control_plane.oidc_issuer == cluster["identity"]["oidc"]["issuer"]
    assert outputs.kubeconfig == outputs.hybrid_activation_code == "[secret]"
    assert '"activationCode":"' not in state_of(settings).replace(" ", ""), "its plain text is not in the state"
    assert {
        eks.describe_access_entry(clusterName="eks", principalArn=arn)["accessEntry"]["type"]
        for arn in (ADMIN, outputs.node_role_arn, outputs.control_plane.hybrid_role_arn)
    } == {"STANDARD", "EC2_LINUX", "HYBRID_LINUX"}
    assert pulumi_preview(settings), "a second up changes nothing"

    wider = wanted | {"version": "1.35", "endpoint": "both", "public_networks": ["203.0.113.7/32"], "logs": ["audit"]}
    settings = replace(settings, overrides={"spillway:control_plane": wider})
    pulumi_up(settings)
    changed = eks.describe_cluster(name="eks")["cluster"]
    assert changed["arn"] == cluster["arn"]
    assert changed["createdAt"] == cluster["createdAt"], "updated, not replaced"
    assert changed["version"] == "1.35"
    assert changed["resourcesVpcConfig"]["publicAccessCidrs"] == ["203.0.113.7/32"]

    eks.disassociate_access_policy(
        clusterName="eks",
        principalArn=ADMIN,
        policyArn="arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy",
    )
    assert not pulumi_preview(settings), "an administrator whose rights were taken is found"
    pulumi_destroy(settings)
    assert all_that_stands(aws_url) == before


def test_what_eks_refuses_is_told(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> None:
    """An update that skips a version; what had been made is taken away."""
    before = all_that_stands(aws_url)
    settings = stack(
        tmp_path, aws_url=aws_url, engine=engine, cluster="old", kind="eks", version="1.12", admins=[ADMIN]
    )
    with pytest.raises(Unavailable, match=r"unsupported Kubernetes version 1\.12"):
        pulumi_up(settings)
    pulumi_destroy(settings)
    assert all_that_stands(aws_url) == before
