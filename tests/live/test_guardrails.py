"""The guardrails in the real engine: ``--policy-pack``, in previews and in updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.model.errors import BadInput
from stacks.local.toolchain.pulumi_engine import EngineSettings, pulumi_preview, pulumi_up
from tests.live.stacks import GROUPS, calls_so_far, everything_in, settings_for
from tests.test_stacks.test_nodes.test_bundle import bundle

pytestmark = pytest.mark.live

PRICED = [{**GROUPS[0], "usd_per_hour": 5.0}, {**GROUPS[1], "usd_per_hour": 1.0}]
"""4 and 2 nodes: 22 $/h at most."""


@pytest.fixture
def ordinary(aws_url: str, engine: dict[str, Path], tmp_path: Path) -> EngineSettings:
    """The project's own program."""
    return settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="guarded", groups=PRICED)


def test_a_program_that_breaks_them_is_refused_before_anything_is_made(ordinary: EngineSettings) -> None:
    """Each rule by its name, with the resource that breaks it; also when the preview is left out."""
    before, calls = everything_in(ordinary.aws_url), calls_so_far(ordinary.aws_url)
    broken = replace(ordinary, programs=Path(__file__).parent / "broken", guardrails={})
    with pytest.raises(BadInput) as refused:
        pulumi_preview(broken, refresh=False)
    said = str(refused.value).splitlines()
    for rule, resource, what in (
        ("no-world-open-port", "open-to-the-world", "port 22 is open to 0.0.0.0/0"),
        ("metadata-by-token", "without-token-and-in-clear", "it must be 'required' (IMDSv2)"),
        ("encrypted-volumes", "without-token-and-in-clear", "blockDeviceMappings[0].ebs.encrypted"),
        ("required-tags", "without-tags", "has no tag spillway.dev/cluster, spillway.dev/made-by"),
        ("private-encrypted-buckets", "bare-bucket", "no BucketServerSideEncryptionConfiguration"),
        ("private-encrypted-buckets", "bare-bucket", "no BucketPublicAccessBlock"),
        ("ceiling-of-group-maxima", "spillway-local", "cost 567.20 $/h (gpu 100 x 5.672), over the ceiling of 500"),
    ):
        assert any(line.strip().startswith(f"{rule}: {resource}: ") and what in line for line in said), (rule, said)
    assert {tuple(line.strip().split(": ")[:2]) for line in said[1:]} == {
        ("no-world-open-port", "open-to-the-world"),
        ("metadata-by-token", "without-token-and-in-clear"),
        ("encrypted-volumes", "without-token-and-in-clear"),
        ("required-tags", "without-tags"),
        ("private-encrypted-buckets", "bare-bucket"),
        ("ceiling-of-group-maxima", "spillway-local"),
    }, "each for what it breaks, and for nothing else"
    assert everything_in(ordinary.aws_url) == before
    assert calls_so_far(ordinary.aws_url) == calls


def test_the_projects_own_program_keeps_to_them_up_to_the_ceiling(ordinary: EngineSettings) -> None:
    """Every resource of it is looked at, also those of options; the ceiling is the platform owner's."""
    wanted = {
        "spillway:network": {"nat": "none", "flow_logs": {"to": "s3"}},
        "spillway:control_plane": {"kind": "kubeadm", "ami": "ami-12c6146b"},
        "spillway:nodes": {"ami": "ami-12c6146b", "roles": "bundle", "bundle": str(bundle(ordinary.directory.parent))},
    }
    guarded = replace(ordinary, guardrails={}, overrides=wanted)
    assert not pulumi_preview(guarded, refresh=False), "nothing is refused, there is all to do"
    lower = {"ceiling-of-group-maxima": {"usdPerHour": 21.99}}
    calls = calls_so_far(ordinary.aws_url)
    with pytest.raises(BadInput, match=r"ceiling-of-group-maxima: .*cost 22.00 \$/h .*over the ceiling of 21.99"):
        pulumi_preview(replace(guarded, guardrails=lower), refresh=False)
    assert calls_so_far(ordinary.aws_url) == calls


def test_an_update_is_held_to_them_too(ordinary: EngineSettings) -> None:
    """A resource that breaks a rule is not made, whatever the preview said."""
    broken = replace(ordinary, programs=Path(__file__).parent / "broken", guardrails={})
    with pytest.raises(BadInput, match="the guardrails refuse this"):
        pulumi_up(broken)
    made = everything_in(ordinary.aws_url)
    assert not made["templates"]
    assert not made["groups"]
