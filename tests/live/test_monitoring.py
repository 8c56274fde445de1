"""The alert rules, tried by Prometheus itself: Debian's package, unpacked into the cache."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from autoscaler.reporting.metrics import PAGE
from stacks.local.process.ports import free_ports
from tests.live.conftest import Plane
from tests.live.hybrid import autoscaler, gpu_pod, make_pod, stand_in_aws, until, write_policy
from tests.live.prometheus import asked, programs, prometheus

pytestmark = pytest.mark.live
RULES = PAGE.parent / "alerts.yaml"
UNIT_TESTS = f"""
rule_files: [{RULES}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'spillway_acting{{pod="a"}}', values: '1x10 0x10'}}
      - {{series: 'spillway_acting{{pod="b"}}', values: '0x20'}}
      - {{series: 'spillway_pods_hopeless{{pod="a"}}', values: '2x40'}}
      - {{series: 'spillway_record_written_timestamp_seconds{{pod="a"}}', values: '60x40'}}
      - {{series: 'spillway_refusals_total{{group="g", code="Sold"}}', values: '0x5 4x20'}}
    alert_rule_test:
      - {{eval_time: 5m, alertname: SpillwayNobodyActs, exp_alerts: []}}
      - eval_time: 14m
        alertname: SpillwayNobodyActs
        exp_alerts: [{{exp_labels: {{severity: critical}}, exp_annotations: {{
          summary: 'No autoscaler acts: nothing is bought, started or terminated.',
          runbook: autoscaler/monitoring/README.md#spillwaynobodyacts}}}}]
      - {{eval_time: 10m, alertname: SpillwayPodsHopeless, exp_alerts: []}}
      - eval_time: 16m
        alertname: SpillwayPodsHopeless
        exp_alerts: [{{exp_labels: {{severity: warning}}, exp_annotations: {{
          summary: '2 pods ask for what no machine and no group of the policy has.',
          runbook: autoscaler/monitoring/README.md#spillwaypodshopeless}}}}]
      - eval_time: 8m
        alertname: SpillwayEc2Refuses
        exp_alerts: [{{exp_labels: {{severity: warning, group: g, code: Sold}}, exp_annotations: {{
          summary: 'EC2 refuses nodes of g (Sold).',
          runbook: autoscaler/monitoring/README.md#spillwayec2refuses}}}}]
"""


@pytest.fixture(scope="module", name="programs")
def the_programs() -> Path:
    """The folder with prometheus and promtool."""
    return programs()


def test_promtool_finds_no_fault_with_the_rules(programs: Path) -> None:
    """As Prometheus would, when it loads them."""
    checked = subprocess.run(
        [programs / "promtool", "check", "rules", RULES], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_the_rules_fire_when_they_are_to(programs: Path, tmp_path: Path) -> None:
    """Not before their time, and with words that name what it is about."""
    tests = tmp_path / "tests.yaml"
    tests.write_text(UNIT_TESTS)
    done = subprocess.run([programs / "promtool", "test", "rules", tests], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def static(port: int) -> dict[str, Any]:
    """What Prometheus is told to scrape a port of this machine."""
    return {"job_name": "spillway", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}


def firing(url: str) -> set[str]:
    """Names of the alerts that fire."""
    try:
        with urllib.request.urlopen(f"{url}/api/v1/alerts", timeout=10) as answer:  # noqa: S310 - our own
            found = json.load(answer)["data"]["alerts"]
    except OSError:
        return set()
    return {one["labels"]["alertname"] for one in found if one["state"] == "firing"}


def test_a_real_prometheus_scrapes_a_live_autoscaler_and_its_alerts_fire(
    plane: Plane, programs: Path, tmp_path: Path
) -> None:
    """For a pod that nothing could hold, and when nothing acts any more; refusals of a pool are counted."""
    file, policy = write_policy(tmp_path)
    (port,) = free_ports(1)
    with (
        stand_in_aws(tmp_path / "aws", kubeconfig=plane.kubeconfig) as aws,
        prometheus(programs, tmp_path, [static(port)], rules=RULES) as url,
    ):
        aws.make_groups(policy)
        aws.put_faults({"kind": "insufficient-capacity"})
        brain = autoscaler(
            *("--metrics-port", str(port)),
            policy=file,
            env=aws.env,
            kubeconfig=plane.autoscaler_kubeconfig,
            log=tmp_path / "autoscaler.log",
        )
        with brain as running:
            make_pod(plane.kube, gpu_pod("big", gpus=16))
            until(lambda: "SpillwayPodsHopeless" in firing(url), told=running.texts)
            assert "SpillwayNobodyActs" not in firing(url)
            [sample] = asked(url, 'spillway_pods_waiting{cause="impossible"}')
            assert sample["value"][1] == "1"
            make_pod(plane.kube, gpu_pod("p"))
            [refused] = until(lambda: asked(url, "spillway_refusals_total"), told=running.texts)
            assert refused["metric"]["code"] == "InsufficientInstanceCapacity"
        until(lambda: "SpillwayNobodyActs" in firing(url), told=lambda: firing(url))
