"""What a job costs, told before money is spent: by the real planner, from files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prometheus_client import CollectorRegistry

from autoscaler.replica.door import Door
from autoscaler.reporting.metrics import Metrics
from images.cli import jobs
from tests.builders import a_group
from tests.test_autoscaler.fake_api import Answer, FakeApi, fake_api
from tests.test_autoscaler.test_replica.test_door import answering, deciding, lease, serving

JOB = """\
name: mnist
expected: 90m
roles:
  worker: {count: 2, cpus: 4, memory: 8Gi, gpus: 1, image: team/mnist:1}
  ps: {cpus: 1, memory: 2Gi, image: team/mnist:1}
"""
CATALOG = """\
instance_type,allocatable_cpu_milli,allocatable_memory_mib,max_pods,gpu_count,usd_per_hour
g.one,8000,30000,30,1,1.0
c.two,2000,4000,30,0,0.1
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\ndgx,16000,64000,{gpus},T4\n"
POLICY = "cluster: c\ngroups:\n  - {{name: gpu, instance_type: g.one, zones: [us-east-1a], max: {most}}}\n"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's files."""
    monkeypatch.chdir(tmp_path)
    Path("catalog.csv").write_text(CATALOG)


def planned(job: str = JOB, *, gpus: int | None = None, most: int | None = None) -> Result:
    """What the command said with a machine of so many GPUs, and a policy of so many nodes."""
    Path("job.yaml").write_text(job)
    words = ["plan", "job.yaml", "--catalog", "catalog.csv"]
    if gpus is not None:
        Path("nodes.csv").write_text(NODES.format(gpus=gpus))
        words += ["--nodes", "nodes.csv"]
    if most is not None:
        Path("policy.yaml").write_text(POLICY.format(most=most))
        words += ["--policy", "policy.yaml"]
    return CliRunner().invoke(jobs, words, catch_exceptions=False)


def test_prices_of_a_region_are_had_as_autoscale_plan_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From what EC2 said this day; its age is told."""
    from_file = planned().output
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = tmp_path / "spillway" / "catalogs" / "us-east-1.csv"
    kept.parent.mkdir(parents=True)
    kept.write_text(CATALOG)
    done = CliRunner().invoke(jobs, ["plan", "job.yaml", "--catalog", "ec2:us-east-1"], catch_exceptions=False)
    assert done.stdout == from_file
    assert "catalogue of us-east-1: as EC2 had it" in done.stderr


def test_what_fits_on_ones_own_machine_costs_nothing() -> None:
    """The whole job."""
    done = planned(gpus=2)
    assert done.output.splitlines()[1:] == [
        "  3 tasks on dgx, which is there",
        "cost: nothing is bought",
        "verdict: the job starts",
    ]


def test_what_does_not_fit_is_bought_at_a_price_told_for_the_whole_run() -> None:
    """One worker at home beside the server, a node for the other; 90 minutes of it."""
    done = planned(gpus=1)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "mnist: 3 tasks asking for 9 cpu, 18Gi memory, 2 nvidia.com/gpu",
        "  2 tasks on dgx, which is there",
        "  buy 1 x g.one (on-demand) at 1.0000 $/h each",
        "cost: 1.0000 $/h, 1.50 $ while it runs as long as expected",
        "verdict: the job starts",
    ]
    assert "write expected: 2h in the file" in planned(JOB.replace("expected: 90m\n", ""), gpus=1).output


STEPS = """\
name: flow
gang: false
depends_on: {train: [prepare]}
roles:
  prepare: {count: 2, cpus: 1, memory: 2Gi, image: i}
  train: {cpus: 4, memory: 8Gi, gpus: 1, image: i}
"""


def test_steps_are_told_one_by_one() -> None:
    """They do not run at one time: what one has used, the next may use."""
    done = planned(STEPS, gpus=0)
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        "flow, step prepare: 2 tasks asking for 2 cpu, 4Gi memory",
        "  2 tasks on dgx, which is there",
        "cost: nothing is bought",
        "verdict: the step starts",
        "flow, step train: 1 task asking for 4 cpu, 8Gi memory, 1 nvidia.com/gpu",
        "  buy 1 x g.one (on-demand) at 1.0000 $/h each",
        "cost: 1.0000 $/h while it runs",
        "verdict: the step starts",
    ]
    assert planned(STEPS, most=0).exit_code == 1


def test_of_a_gang_that_cannot_be_whole_nothing_is_bought() -> None:
    """One node may be bought where two are needed; without a gang one worker runs."""
    done = planned(most=1)
    assert done.exit_code == 1
    assert "  buy" not in done.output
    assert "cost: nothing is bought\nverdict: 3 tasks would wait, and as a gang none starts without them" in done.output
    alone = planned(f"gang: false\n{JOB}", most=1)
    assert "  buy 1 x g.one" in alone.output
    assert "verdict: 1 task would wait, and the others start" in alone.output
    assert alone.exit_code == 1


def test_a_job_that_no_machine_could_ever_host_is_told_why() -> None:
    """Which request, and what node would help."""
    done = planned(JOB.replace("memory: 8Gi", "memory: 80Gi"), gpus=2)
    assert done.exit_code == 1
    assert "would fit if" in done.output


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeApi]:
    """An API server whose lease names an autoscaler that has decided, and answers at its door.

    It may be given how many nodes are on their way.
    """
    door = Door()
    groups = [a_group(desired=request.param)] if hasattr(request, "param") else []
    metrics = Metrics(CollectorRegistry()).app()
    answers = {f"key/{name}": answer for name, answer in answering(deciding(*groups)).items()}
    door.open(metrics=metrics, why_not_alive=lambda: "", answers=answers)
    with fake_api() as api:
        serving(api, lease(f"http://127.0.0.1:{door.port}/key"))
        yield api


def live(api: FakeApi, folder: Path, command: str, job: str = JOB, *options: str) -> Result:
    """What the command said of a job beside that cluster."""
    Path("job.yaml").write_text(job)
    words = [command, "job.yaml", *options, "--kubeconfig", str(api.kubeconfig(folder))]
    return CliRunner().invoke(jobs, words)


def test_in_a_cluster_its_autoscaler_says_what_would_be_bought(cluster: FakeApi, tmp_path: Path) -> None:
    """Without files, and without rights on AWS."""
    done = live(cluster, tmp_path, "plan")
    assert done.output.splitlines()[-2:] == [
        "cost: 21.9576 $/h, 32.94 $ while it runs as long as expected",
        "verdict: the job starts",
    ]
    assert "  buy 1 x p4d.24xlarge (on-demand) at 21.9576 $/h each" in done.output


@pytest.mark.parametrize("cluster", [4], indirect=True)
def test_tasks_that_go_to_nodes_on_their_way_are_told(cluster: FakeApi, tmp_path: Path) -> None:
    """Three of the four are for a job that came before."""
    done = live(cluster, tmp_path, "plan")
    assert done.output.splitlines()[1:] == [
        "  3 tasks on nodes of local-gpu-a100-us-east-1a that are on their way, or bought for other jobs",
        "cost: nothing is bought",
        "verdict: the job starts",
    ]


def test_a_job_that_nothing_could_ever_host_is_refused_at_submit(cluster: FakeApi, tmp_path: Path) -> None:
    """With the reason and the ways out; nothing is created."""
    done = live(cluster, tmp_path, "submit", JOB.replace("gpus: 1", "gpus: 16"))
    refusal = str(done.exception)
    assert refusal.startswith("job mnist could never start, even if nothing else ran: 2 tasks: ")
    assert "16" in refusal
    assert "submit it with --anyway" in refusal
    assert not [one for one in cluster.asked if one.method == "POST"]


def test_submitted_anyway_it_is_not_asked(cluster: FakeApi, tmp_path: Path) -> None:
    """The API server is told at once."""
    live(cluster, tmp_path, "submit", JOB.replace("gpus: 1", "gpus: 16"), "--anyway")
    assert [one.path for one in cluster.asked if one.method == "POST"]


def test_where_no_autoscaler_acts_a_job_is_submitted_all_the_same(tmp_path: Path) -> None:
    """And that it was not asked is said."""
    with fake_api() as api:
        serving(api, Answer({"message": "no"}, status=404))
        done = live(api, tmp_path, "submit", JOB.replace("gpus: 1", "gpus: 16"))
        assert "not asked whether it can ever start: no autoscaler acts: the lease is not held" in done.output
        assert [one.path for one in api.asked if one.method == "POST"]


def test_files_are_read_with_a_catalogue_alone(cluster: FakeApi, tmp_path: Path) -> None:
    """Half of one picture and half of another would be neither."""
    done = live(cluster, tmp_path, "plan", JOB, "--policy", "policy.yaml")
    assert "read with --catalog" in done.output
