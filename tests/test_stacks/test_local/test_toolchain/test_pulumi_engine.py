"""The engine's project on the local ground, and how its failures are told. No engine runs here."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pytest
import yaml

from autoscaler.model.errors import BadInput, Unavailable
from stacks.local.pulumi_plugins.aws.provider import Refused, _connect
from stacks.local.toolchain.pulumi_engine import AWS_PLUGIN, PROJECT, EngineSettings, _failure, prepare
from tests import ROOT

NOISE = """Updating (local):
 +  pulumi:pulumi:Stack spillway-local creating (0s)
Diagnostics:
{diagnostics}
Resources:
    + 3 created

Duration: 10s
"""


def failed(diagnostics: str) -> BadInput | Unavailable:
    """What is raised for an `up` with these diagnostics."""
    return _failure(CompletedProcess(["pulumi", "up"], 255, stdout=NOISE.format(diagnostics=diagnostics)))


def test_the_grounds_project_is_the_repositorys_own() -> None:
    """Name and runtime are part of every resource's identity."""
    own = yaml.safe_load((ROOT / "Pulumi.yaml").read_text(encoding="utf-8"))
    assert (own["name"], own["runtime"]) == (PROJECT["name"], PROJECT["runtime"])


def test_a_mistake_of_the_user_is_bad_input_in_its_own_words() -> None:
    """All its lines, and nothing of the engine's."""
    error = failed(
        "  pulumi:pulumi:Stack (spillway-local):\n"
        "    warning: using pulumi-resource-aws from $PATH\n"
        "    error: bad input: policy.yaml:3: groups[0] (gpu).max = -1: too small\n"
        "    policy.yaml:4: groups[1] (cpu).disk = '1Gi': must be at least 8Gi\n\n"
    )
    assert isinstance(error, BadInput)
    assert str(error).splitlines() == [
        "policy.yaml:3: groups[0] (gpu).max = -1: too small",
        "policy.yaml:4: groups[1] (cpu).disk = '1Gi': must be at least 8Gi",
    ]


def test_an_error_is_told_with_its_resource_and_without_a_trace() -> None:
    """Warnings and the engine's summary are left out."""
    error = failed(
        "  aws:autoscaling:Group (gpu-us-east-1a):\n"
        "    error: An error occurred (LimitExceeded)\n\n"
        "  pulumi:pulumi:Stack (spillway-local):\n"
        "    warning: something\n"
        "    error: update failed\n"
        "    error: Program failed with an unhandled exception:\n"
        "    Traceback (most recent call last):\n"
        '      File "x.py", line 1, in <module>\n'
        "    KeyError: 'gone'\n"
    )
    assert isinstance(error, Unavailable)
    assert str(error).splitlines() == [
        "`pulumi up` of the stack local failed:",
        "    aws:autoscaling:Group (gpu-us-east-1a): An error occurred (LimitExceeded)",
        "    pulumi:pulumi:Stack (spillway-local): KeyError: 'gone'",
    ]


def test_many_errors_of_one_kind_are_cut_short() -> None:
    """AWS gone: every resource fails with the same words."""
    error = failed("".join(f"  aws:ec2:Vpc (v{n}):\n    error: no answer\n\n" for n in range(40)))
    assert len(str(error).splitlines()) == 10
    assert str(error).endswith("... and 32 more")


@pytest.mark.parametrize("url", ["", "https://ec2.us-east-1.amazonaws.com", "http://10.0.0.1:5000"])
def test_the_stand_in_for_the_plugin_refuses_any_aws_but_this_machines(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It must never be taken for the real one."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    with pytest.raises(Refused, match=r"for the local stack alone.*take the real plugin"):
        _connect({})


@pytest.mark.parametrize(
    ("published", "runs"),
    [
        ("", '.pulumi_plugins.aws.provider "$@"'),
        ("/opt/pulumi/my plugins/pulumi-resource-aws", "exec '/opt/pulumi/my plugins/pulumi-resource-aws' \"$@\""),
    ],
)
def test_the_published_plugin_is_run_where_it_is_named(
    published: str, runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In place of its stand-in."""
    monkeypatch.setenv(AWS_PLUGIN, published)
    settings = EngineSettings(
        directory=tmp_path,
        tools={},
        policy=tmp_path / "policy.yaml",
        inventory=None,
        env={},
        aws_url="http://127.0.0.1:1",
        cluster="lab",
        region="us-east-1",
    )
    prepare(settings)
    script = (settings.directory / "bin" / "pulumi-resource-aws").read_text(encoding="utf-8")
    assert script.splitlines()[1].endswith(runs)
