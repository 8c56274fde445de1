"""The batch script: that bash takes it, and what it does where srun is a stand-in."""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autoscaler.model.errors import BadInput
from images.renderers.slurm import render
from tests.test_images.test_jobs import GOOD, job
from tests.test_images.test_renderers.test_all import JOB, OTHERWISE, TASK, said

TEXT = f"""\
name: line
queue: gpu
priority: high
failure: {{deadline: 90m}}
roles:
  worker:
    count: 2
    cpus: 1500m
    memory: 3Gi
    gpus: 1
    entry: [{sys.executable}, -c]
    args:
      - import os, sys; print(os.environ['TF_CONFIG']); print(sys.argv[1:], os.environ['NOTE'])
      - it's $HOME $(TASK_INDEX)
    env: {{NOTE: "$(no) `no` $HOME 'x'"}}
  ps:
    cpus: 1
    memory: 1Gi
    entry: [{sys.executable}, -c, "import signal; print('serves', flush=True); signal.pause()"]
"""
STAND_IN = """\
#!/bin/bash
# A stand-in for srun: the tasks of a step as processes of this machine, each with its rank; SIGTERM goes to them.
for word in "$@"; do
  case $word in
    --ntasks=*) tasks=${word#*=}; shift ;;
    --*) shift ;;
    *) break ;;
  esac
done
children=()
for ((rank = 0; rank < tasks; rank++)); do
  SLURM_PROCID=$rank "$@" &
  children+=($!)
done
trap 'kill "${children[@]}"' TERM
status=0
for child in "${children[@]}"; do wait "$child" || status=$?; done
exit $status
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The batch script in a file."""
    path = tmp_path / "job.sh"
    path.write_text(render(job(TEXT)).text)
    return path


def test_each_role_is_a_component_with_amounts_of_one_task(script: Path) -> None:
    """CPUs are whole there, and memory is counted by them."""
    head = [line for line in script.read_text().splitlines() if line.startswith("#SBATCH")]
    assert head == [
        "#SBATCH --job-name=line",
        "#SBATCH --requeue",
        "#SBATCH --time=90",
        "#SBATCH --partition=gpu",
        "#SBATCH --qos=high",
        "#SBATCH --ntasks=2",
        "#SBATCH --cpus-per-task=2",
        "#SBATCH --mem-per-cpu=1536M",
        "#SBATCH --gpus-per-task=1",
        "#SBATCH hetjob",
        "#SBATCH --ntasks=1",
        "#SBATCH --cpus-per-task=1",
        "#SBATCH --mem-per-cpu=1024M",
    ]


@pytest.mark.parametrize("change", [{}, *({key: value} for key, value in OTHERWISE.items())])
def test_bash_takes_the_script_of_any_job(change: dict[str, object]) -> None:
    """With each key set."""
    needs = {"depends_on": {"gang": False}, "elastic": {"roles": {"worker": TASK | {"count": "2..3"}}}}
    made = said("slurm", JOB | change | next((more for key, more in needs.items() if key in change), {}))
    if not isinstance(made, str):
        subprocess.run(["bash", "-n"], input=made.text, text=True, check=True)


def test_the_script_runs_all_tasks_and_ends_the_server_with_the_workers(script: Path, tmp_path: Path) -> None:
    """What a user wrote comes through as it is, the hosts are filled in, and the status is the workers'."""
    done = subprocess.run(["bash", script], env=commands(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    host = os.uname().nodename
    configs = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"cluster"')]
    assert {config["task"]["index"] for config in configs} == {0, 1}
    assert configs[0]["cluster"] == {"worker": [f"{host}:2222", f"{host}:2223"], "ps": [f"{host}:2224"]}
    for index in (0, 1):
        assert f"""["it's $HOME {index}"] $(no) `no` $HOME 'x'""" in done.stdout


def test_a_worker_that_fails_fails_the_job(tmp_path: Path) -> None:
    """Its server ends all the same."""
    text = TEXT.replace("import os, sys; ", "raise SystemExit(3); ")
    done = subprocess.run(
        ["bash"], input=render(job(text)).text, env=commands(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr


@pytest.mark.parametrize(("logs", "ships"), [("logs: s3://team/logs\n", True), ("logs: /logs\n", False), ("", False)])
def test_a_step_at_the_end_ships_what_keepers_have_left(tmp_path: Path, logs: str, *, ships: bool) -> None:
    """On the machines of each role, where lines go to a bucket; the exit status stays that of the workers."""
    text = TEXT.replace("import os, sys; ", "raise SystemExit(3); ")
    made = render(job(f"{logs}{text}")).text.replace("/logs/line", f"{tmp_path}/logs/line")
    assert made.count("--ship'") == (2 if ships else 0)
    left = tmp_path / f"spillway-lines-{os.getuid()}"
    left.mkdir(mode=0o700)
    asked = []

    class S3(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            asked.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), S3) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        (left / "part").write_text(f"{url} s3://team/x/00000000\n1 t one\n")
        keys = {
            "AWS_ENDPOINT_URL": url,
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "TMPDIR": str(tmp_path),
        }
        done = subprocess.run(
            ["bash"], input=made, env=commands(tmp_path) | keys, capture_output=True, text=True, check=False
        )
        server.shutdown()
    assert done.returncode == 3, done.stderr
    assert (("/team/x/00000000", b"1 t one\n") in asked) is ships
    assert (left / "part").exists() is not ships


def commands(folder: Path, **others: str) -> dict[str, str]:
    """An environment with stand-ins of Slurm's commands, by what they do."""
    for name, text in {"srun": STAND_IN, **others}.items():
        (folder / name).write_text(text if text.startswith("#!") else f"#!/bin/bash\n{text}\n")
        (folder / name).chmod(0o755)
    return os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_what_the_run_before_has_left_is_killed_first(script: Path, tmp_path: Path) -> None:
    """Slurm 22.05 puts back the first component alone where its node is lost, and the server went on in the other."""
    queue = """[[ "$*" == *--jobs=5* ]] && echo 5.batch || printf '6.batch\\n6.3\\n'"""
    environment = commands(tmp_path, squeue=queue, scancel=f'echo "$*" >> {tmp_path}/cancelled; exit 1')
    environment |= {"SLURM_RESTART_COUNT": "1", "SLURM_JOB_ID_HET_GROUP_0": "5", "SLURM_JOB_ID_HET_GROUP_1": "6"}
    done = subprocess.run(["bash", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cancelled").read_text().splitlines()[0] == "--signal=KILL 6.3"


def test_a_script_whose_job_was_put_back_does_not_end(script: Path, tmp_path: Path) -> None:
    """Its node has no slurmd any more. Its end would be that of the next run's components, which waits for ever."""
    said_by_slurm = 'echo "JobId=5 HetJobId=5 JobState=PENDING Restarts=1 BatchFlag=1"'
    asleep = tmp_path / "asleep"
    environment = commands(tmp_path, scontrol=said_by_slurm, sleep=f"touch {asleep}; exec /bin/sleep 1000")
    with subprocess.Popen(
        ["bash", script], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            while not asleep.exists():
                assert process.poll() is None, "it has ended"
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_role_without_a_program_is_refused() -> None:
    """Slurm runs no images."""
    with pytest.raises(BadInput, match=r"cannot be rendered to slurm: roles.worker.entry is missing: say what runs"):
        render(job(GOOD))
