"""What a job costs, told before money is spent: by the real planner, from files."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from images.cli import jobs

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
