"""Slurm's cloud nodes on a real Slurm: woken, run on and suspended by our program, which buys at the local AWS.

What EC2 launches is a machine of the bench, booted when the instance runs, and cut off when it ends.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

import spillway
from tests.live.debian import why_not
from tests.live.hybrid import Aws, stand_in_aws, until, write_policy
from tests.live.machines import Bench, Host
from tests.live.slurm import SlurmCluster, slurm_cluster, slurm_system

pytestmark = pytest.mark.training
POLICY: Final = """\
cluster: test
groups:
  - {name: cpu, instance_type: c5.xlarge, zones: [us-east-1a], max: 2, usd_per_hour: 0.17}
limits: {usd_per_hour: 0.4}
scale_up: {boot_timeout: 60s, refusal_backoff: 5s}
scale_down: {idle_after: 8s}
"""
TIGHT: Final = POLICY.replace("0.4}", "0.2}")
CLOUD: Final = ("cpu-us-east-1a-1", "cpu-us-east-1a-2")
OWN: Final = "a"
PORT: Final = 4566


@dataclass
class Site:
    """A cluster with a machine of its own, and what EC2 has launched for it."""

    bench: Bench
    cluster: SlurmCluster
    aws: Aws
    policy: Path
    """On the controller; seen from here."""
    home: Path
    machines: dict[str, Host] = field(default_factory=dict)
    boots: bool = True
    """Whether instances become machines; else they run and nothing comes of it."""

    def submit(self, *options: str) -> str:
        """A job that says where its tasks run; returns its id."""
        script = self.home / "job.sh"
        script.write_text("#!/bin/bash\nsrun hostname\n")
        output = f"--output={self.home}/%j.out"
        return self.cluster.typed(shlex.join(["sbatch", "--parsable", output, *options, str(script)])).strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says of it."""
        said = self.cluster.head.run(f"scontrol --oneliner show job {number}").stdout
        return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|\s*$)", said))

    def states(self) -> dict[str, str]:
        """Node -> its state."""
        said = self.cluster.head.run("scontrol --all --oneliner show nodes").stdout
        return dict(re.findall(r"^NodeName=(\S+) .*? State=(\S+)", said, re.MULTILINE))

    def living(self) -> set[str]:
        """Instances that are paid for. What EC2 has launched meanwhile is booted, what it has ended is cut off."""
        with urllib.request.urlopen(f"{self.aws.url}/spillway/instances", timeout=10) as answer:  # noqa: S310 - our own
            instances: list[dict[str, Any]] = json.load(answer)["instances"]
        running = {one["id"] for one in instances if one["ended_at"] is None}
        for instance in self.machines.keys() - running:
            self.bench.end(self.machines.pop(instance))
        for instance in sorted(running - self.machines.keys()) if self.boots else ():
            self.machines[instance] = self.boot(instance)
        return running

    def boot(self, instance: str) -> Host:
        """As an image does whose slurmd is ours: it knows the controller, and which instance it is."""
        [host] = self.bench.machines(instance, system=slurm_system())
        head = self.cluster.head
        host.run(f"printf '{head.address} {head.name}\\n' >> /etc/hosts && mkdir -p /var/lib/cloud/data /etc/slurm")
        host.run(f"echo {instance} > /var/lib/cloud/data/instance-id")
        for name in ("slurm.conf", "spillway.conf", "spillway-slurmd"):
            text = (head.upper / "etc/slurm" / name).read_text()
            host.run(f"printf %s {shlex.quote(text)} > /etc/slurm/{name}")
        host.run(
            "chmod a+x /root /etc/slurm/spillway-slurmd && systemctl start munge"
            " && systemd-run --quiet --unit=cloud-slurmd /etc/slurm/spillway-slurmd"
        )
        return host

    def slept(self) -> bool:
        """All nodes of the cloud are powered down, and nothing is paid for."""
        return not self.living() and all("POWERED_DOWN" in self.states().get(name, "") for name in CLOUD)

    def told(self) -> str:
        """For messages."""
        log = self.cluster.head.run("journalctl --no-pager -t spillway-nodes | tail -40").stdout
        booted = "".join(one.run("journalctl --no-pager -u cloud-slurmd").stdout for one in self.machines.values())
        return f"{self.cluster.queue()}\n{self.states()}\n{log}\n{booted}"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Configured as the command says; all in the cloud sleeps."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    home, repository = tmp_path_factory.mktemp("home"), Path(spillway.__file__).parent
    home.chmod(0o777)
    policy, groups = write_policy(home, POLICY)
    installed = (Path(sys.prefix), Path(sys.base_prefix), repository)
    with (
        stand_in_aws(tmp_path_factory.mktemp("aws")) as aws,
        Bench(tmp_path_factory.mktemp("bench"), shared=(home,), installed=installed) as bench,
    ):
        aws.make_groups(groups)
        made = Site(bench, slurm_cluster(bench, (OWN,)), aws, policy, home)
        head = made.cluster.head
        with tunnel(head, aws.url):
            env = aws.env | {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{PORT}", "PYTHONDONTWRITEBYTECODE": "1"}
            env |= {"PYTHONPATH": str(repository), "PYTHONPYCACHEPREFIX": sys.pycache_prefix or ""}
            text = "".join(f"{key}={value}\n" for key, value in env.items())
            head.run(f"printf %s {shlex.quote(text)} > /etc/slurm/spillway.env && chmod a+r /etc/slurm/spillway.env")
            head.run(
                f"set -a; . /etc/slurm/spillway.env; {sys.executable} -m spillway slurm config"
                f" --policy {policy} --own {OWN} && echo 'include /etc/slurm/spillway.conf' >> /etc/slurm/slurm.conf"
            )
            for node in made.cluster.nodes:
                for name in ("slurm.conf", "spillway.conf"):
                    written = (head.upper / "etc/slurm" / name).read_text()
                    node.run(f"printf %s {shlex.quote(written)} > /etc/slurm/{name}")
                node.run("systemctl restart slurmd")
            head.run("systemctl restart slurmctld")
            until(lambda: made.states().get(OWN) == "IDLE" and made.slept(), told=made.told)
            yield made


@contextlib.contextmanager
def tunnel(host: Host, url: str) -> Iterator[None]:
    """The local AWS, which listens on this machine alone, as a port of the host's own."""
    port = url.rpartition(":")[2]
    options = [f"-oUserKnownHostsFile={host.known_hosts}", "-oBatchMode=yes", "-oExitOnForwardFailure=yes"]
    words = ["ssh", "-N", "-i", str(host.key), *options, "-R", f"{PORT}:127.0.0.1:{port}", f"root@{host.address}"]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def ended(site: Site, number: str) -> bool:
    """Whether the job is over; machines come and go meanwhile."""
    site.living()
    return site.job(number)["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def test_a_job_wakes_what_it_needs_and_what_is_idle_sleeps_again_but_for_the_own_machine(site: Site) -> None:
    """Three nodes, one of them our own: two are bought, once, for it; then they go, and the own one stays."""
    launched = len(site.aws.asked())
    number = site.submit("--nodes=3", "--ntasks=3", "--ntasks-per-node=1")
    until(lambda: ended(site, number), within=300, told=site.told)
    assert site.job(number)["JobState"] == "COMPLETED", site.told()
    assert set((site.home / f"{number}.out").read_text().split()) == {OWN, *site.machines}
    [order] = site.aws.asked()[launched:]
    assert order["parameters"]["RequestedCapacity"] in (2, "2")
    until(site.slept, told=site.told)
    assert site.states()[OWN] == "IDLE"
    assert site.cluster.nodes[0].run("systemctl is-active slurmd").stdout.strip() == "active"


def test_a_job_that_money_does_not_suffice_for_is_told_so_and_runs_when_it_does(site: Site) -> None:
    """Two nodes as a whole or none: not one is bought for half of it. The policy is read anew each time."""
    launched = len(site.aws.asked())
    site.policy.write_text(TIGHT)
    number = site.submit("--nodes=2", "--ntasks=2", f"--nodelist={','.join(CLOUD)}")
    until(lambda: "usd_per_hour" in site.job(number).get("AdminComment", ""), told=site.told)
    assert (site.job(number)["JobState"], site.aws.asked()[launched:], site.living()) == ("PENDING", [], set())
    site.policy.write_text(POLICY)
    until(lambda: ended(site, number), within=300, told=site.told)
    assert site.job(number)["JobState"] == "COMPLETED", site.told()
    until(site.slept, told=site.told)


def test_a_machine_that_does_not_come_up_is_given_back_and_its_job_queued_again(site: Site) -> None:
    """After ResumeTimeout; the node can be wanted again."""
    until(site.slept, within=300, told=site.told)
    site.boots = False
    number = site.submit(f"--nodelist={CLOUD[0]}")
    until(site.living, told=site.told)
    until(site.slept, within=300, told=site.told)
    assert (site.job(number)["JobState"], site.job(number)["Restarts"]) == ("PENDING", "1")
    assert "DOWN+" not in site.states()[CLOUD[0]]
    site.cluster.head.run(f"scancel {number}")
    site.boots = True
