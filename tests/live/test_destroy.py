"""`pulumi destroy` through the real engine: what others hung on the stack's roles, and one that failed half-way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
import urllib3

from autoscaler.model.errors import Unavailable
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_destroy, pulumi_preview, pulumi_up
from tests.live.engine_deaths import run
from tests.live.stacks import GROUPS, client, settings_for
from tests.live.test_control_planes import all_that_stands

pytestmark = pytest.mark.live

FOREIGN = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}],
}

CLUSTERS = count()


@pytest.fixture
def settings(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> EngineSettings:
    """A stack with roles of several of its parts."""
    made = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster=f"down-{next(CLUSTERS)}", groups=GROUPS)
    wanted = {
        "spillway:network": {"flow_logs": {}},
        "spillway:control_plane": {"kind": "eks", "admins": ["arn:aws:iam::123456789012:role/platform"]},
    }
    return replace(made, overrides=wanted)


@pytest.fixture
def failing(aws_url: str) -> Iterator[None]:
    """A stand-in that deletes no role, until it is told otherwise."""
    faults = f"{aws_url}/spillway/faults"
    script = "faults:\n  - {kind: throttle, actions: [DeleteRole], code: DeleteConflict}\n"
    assert urllib3.request("PUT", faults, body=script.encode()).status == 200
    yield
    urllib3.request("DELETE", faults)


def test_what_others_gave_a_role_does_not_stop_a_destroy(settings: EngineSettings) -> None:
    """A policy that is written into it, and one that is attached: as remediations do to the roles of instances."""
    before = all_that_stands(settings.aws_url)
    pulumi_up(settings)
    iam = client("iam", settings.aws_url)
    ours = [one["RoleName"] for one in iam.list_roles()["Roles"] if one["RoleName"].startswith(settings.cluster)]
    assert len(ours) == 4, "of nodes, control plane, its add-on, and flow logs"
    for role in ours:
        iam.put_role_policy(RoleName=role, PolicyName="foreign", PolicyDocument=json.dumps(FOREIGN))
        iam.attach_role_policy(RoleName=role, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore")
    pulumi_destroy(settings)
    assert all_that_stands(settings.aws_url) == before


@pytest.mark.parametrize("then_up", [True, False], ids=["up", "destroy"])
def test_after_a_destroy_that_failed_half_way_it_goes_on(
    settings: EngineSettings, request: pytest.FixtureRequest, *, then_up: bool
) -> None:
    """Either way: `up` makes anew what is gone, whatever the state still tells of it, and `destroy` ends it."""
    settings = replace(settings, overrides={"spillway:network": {"flow_logs": {}}})
    before = all_that_stands(settings.aws_url)
    pulumi_up(settings)
    request.getfixturevalue("failing")
    with pytest.raises(Unavailable, match="DeleteConflict"):
        pulumi_destroy(settings)
    # It ends at the first failure. With this flag it takes away all else, so that no more than roles stand.
    done = run(settings, "destroy", "--stack", "local", "--yes", "--skip-preview", "--continue-on-error")
    assert "DeleteConflict" in done.stdout + done.stderr
    left = {kind for kind, ids in all_that_stands(settings.aws_url).items() if ids != before[kind]}
    assert left == {"roles"}
    assert urllib3.request("DELETE", f"{settings.aws_url}/spillway/faults").status == 200
    if then_up:
        outputs = pulumi_up(settings)
        assert outputs.vpc_id in [one["VpcId"] for one in client("ec2", settings.aws_url).describe_vpcs()["Vpcs"]]
        assert pulumi_preview(settings), "it has converged"
    pulumi_destroy(settings)
    assert all_that_stands(settings.aws_url) == before
