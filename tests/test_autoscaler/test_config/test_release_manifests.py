"""`spillway autoscale manifests`: the objects of the release, as text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

import spillway
from autoscaler.config.release_manifests import METRICS_PORT, ReleaseSpec, manifests
from autoscaler.model import labels as words
from tests import ROOT

POLICY = ROOT / "autoscaler" / "policies" / "lab.yaml"


def printed(*more: str, policy: Path = POLICY) -> Result:
    """What it prints."""
    line = ["autoscale", "manifests", "--policy", str(policy), "--image", "registry/autoscaler:1", *more]
    return CliRunner().invoke(spillway.cli, line)


def read(done: Result) -> list[dict[str, Any]]:
    """As kubectl reads it."""
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def test_what_is_printed_is_what_the_release_makes() -> None:
    """Object by object, from the same code; the policy is readable as it stands in its file."""
    spec = ReleaseSpec(
        image="registry/autoscaler:1", region="us-east-1", policy=POLICY.read_text(encoding="utf-8"), aws_access="irsa"
    )
    done = printed()
    assert read(done) == manifests(spec)
    assert f"  {words.POLICY_KEY}: |\n" in done.output
    assert "&id" not in done.output


def test_a_role_a_key_and_a_pull_secret_find_their_places() -> None:
    """Each where Kubernetes looks for it."""
    [account] = [one for one in read(printed("--role-arn", "arn:aws:iam::1:role/r")) if one["kind"] == "ServiceAccount"]
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}
    made = read(printed("--aws-access", "access-key", "--pull-secret", "pull"))
    [pod] = [one["spec"]["template"]["spec"] for one in made if one["kind"] == "Deployment"]
    assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "spillway-autoscaler-aws"}}]
    assert pod["imagePullSecrets"] == [{"name": "pull"}]


def test_a_service_monitor_asks_the_pods_at_their_port() -> None:
    """By a Service that selects them."""
    *_, service, monitor = read(printed("--service-monitor"))
    [pod] = [one["spec"]["template"] for one in read(printed()) if one["kind"] == "Deployment"]
    assert (service["kind"], monitor["kind"]) == ("Service", "ServiceMonitor")
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    [port] = service["spec"]["ports"]
    assert (port["name"], port["port"]) == (monitor["spec"]["endpoints"][0]["port"], METRICS_PORT)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    """A policy with a mistake, and a role for a key."""
    assert "--role-arn" in printed("--aws-access", "access-key", "--role-arn", "arn").output
    wrong = tmp_path / "policy.yaml"
    wrong.write_text("cluster: x\ngroups: 3\n")
    assert "groups" in str(printed(policy=wrong).exception)
