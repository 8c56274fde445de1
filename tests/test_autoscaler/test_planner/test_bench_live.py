"""The bench of the live plan: any pods file and catalogue, one look, one JSON object."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.live import main

CATALOG = """instance_type,arch,allocatable_cpu_milli,allocatable_memory_mib,gpu_count,gpu_model,usd_per_hour
small.one,amd64,4000,16000,0,,0.2
BIG metal,amd64,64000,256000,8,A100,20.0
t4.one,amd64,8000,30000,1,T4,0.5
arm.one,arm64,4000,16000,0,,0.1
"""
PODS = """name,cpu_milli,memory_mib,num_gpu,gpu_spec,gang
a,1000,1000,0,,
b,1000,1000,1,T4,
c,1000,1000,1,A100,train
d,1000,1000,1,A100,train
e,900000,1000,0,,
"""


def said(tmp_path: Path, *more: str, pods: str = PODS, catalog: str = CATALOG) -> tuple[int, list[str]]:
    """The command's files and arguments, and its exit status."""
    (tmp_path / "pods.csv").write_text(pods)
    (tmp_path / "catalog.csv").write_text(catalog)
    files = ["--pods", str(tmp_path / "pods.csv"), "--catalog", str(tmp_path / "catalog.csv")]
    return main([*files, *more]), files


def test_one_object_tells_what_the_live_plan_made_of_the_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A pod goes where its GPU model is; the one that no type holds is counted."""
    status, _ = said(tmp_path, "--json")
    assert status == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [
        *("pods", "types", "usd_per_hour", "lower_bound_usd_per_hour", "nodes", "unplaced", "cpu_seconds")
    ]
    assert (found["pods"], found["types"], found["unplaced"]) == (5, 3, 1)
    assert found["usd_per_hour"] == pytest.approx(20.5)
    assert found["nodes"] == 2


def test_only_the_first_pods_are_planned_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As many as are asked for."""
    said(tmp_path, "--json", "--first", "1")
    found = json.loads(capsys.readouterr().out)
    assert (found["pods"], found["usd_per_hour"], found["unplaced"]) == (1, 0.2, 0)


def test_a_column_that_means_nothing_to_the_plan_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On standard error: the object stays alone on the other."""
    said(tmp_path, "--json", pods="name,cpu_milli,memory_mib,colour\na,1,1,red\n")
    told = capsys.readouterr()
    assert "colour" in told.err
    assert json.loads(told.out)["pods"] == 1


@pytest.mark.parametrize(
    ("pods", "catalog", "wanted"),
    [
        ("name,cpu_milli\na,1\n", CATALOG, "column memory_mib is missing"),
        ("name,cpu_milli,memory_mib\na,many,1\n", CATALOG, "column cpu_milli = 'many'"),
        ("name,cpu_milli,memory_mib\n", CATALOG, "holds no pod"),
        (PODS, "instance_type,usd_per_hour\n", "column allocatable_cpu_milli is missing"),
    ],
)
def test_a_bad_file_is_refused_with_its_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pods: str, catalog: str, wanted: str
) -> None:
    """And with the status of bad input."""
    status, _ = said(tmp_path, "--json", pods=pods, catalog=catalog)
    assert status == 2
    assert wanted in capsys.readouterr().err
