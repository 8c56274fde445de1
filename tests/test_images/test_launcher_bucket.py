"""The launcher and a bucket: how it signs, what it puts there, and what is read back when all else is gone."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from images import launcher
from images.cli import jobs
from images.job_files import parse_job
from images.jobs import Job
from images.renderers import RENDERERS, local
from tests.test_autoscaler.fake_api import Answer, Asked, fake_api
from tests.test_images.test_backends.test_kubernetes import listed
from tests.test_images.test_backends.test_stages import pod

KEYS = {"AccessKeyId": "AKIDEXAMPLE", "SecretAccessKey": "wJalrXUtnFEMI", "Token": ""}
AGAIN = "spillway: here worker 0 was started again"
AT = datetime(2026, 11, 23, 17, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize("token", ["", "a+/token=="])
@pytest.mark.parametrize("path", ["/b/k", "/team/logs/mnist/20261123T170000Z/logs/worker-0.1/00000001", "/b/a~b_c.d"])
def test_it_signs_as_aws_own_library_does(monkeypatch: pytest.MonkeyPatch, path: str, token: str) -> None:
    """The signature of the same request at the same moment is the same."""
    url = f"https://s3.eu-central-1.amazonaws.com{path}"
    mine = launcher.signed("PUT", url, b"lines\n", keys=KEYS | {"Token": token}, region="eu-central-1", at=AT)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda: AT.replace(tzinfo=None))
    theirs = AWSRequest(method="PUT", url=url, data=b"lines\n")
    credentials = Credentials(KEYS["AccessKeyId"], KEYS["SecretAccessKey"], token or None)
    S3SigV4Auth(credentials, "s3", "eu-central-1").add_auth(theirs)
    assert mine["Authorization"] == theirs.headers["Authorization"]


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where lines stand until they are shipped."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp" / f"spillway-lines-{os.getuid()}"


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A stand-in for S3 with a bucket; it looks at no signature. Everything here is told where it is."""
    server = ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host.replace('0.0.0.0', '127.0.0.1')}:{port}"  # noqa: S104
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    for key, value in (("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{key}", value)
    urllib.request.urlopen(urllib.request.Request(f"{url}/moto-api/reset", method="POST")).close()  # noqa: S310
    client = boto3.client("s3")
    client.create_bucket(Bucket="team")
    yield client
    server.stop()


def run(program: str, *, run: str = "1", **settings: str) -> subprocess.CompletedProcess[str]:
    """Task worker 0 of mnist, to its end."""
    told = {"SPILLWAY_ROLE": "worker", "SPILLWAY_INDEX": "0", "SPILLWAY_LOGS": f"s3://team/logs/mnist/{run}"}
    return subprocess.run(
        [sys.executable, launcher.__file__, sys.executable, "-uc", program],
        env=os.environ | told | settings,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def read(*words: str) -> str:
    """What `spillway jobs logs mnist --from` prints."""
    done = CliRunner().invoke(jobs, ["logs", "mnist", "--from", "s3://team/logs", *words], catch_exceptions=False)
    return done.output


def test_every_line_of_every_attempt_is_in_the_bucket_when_the_task_has_ended(s3: Any) -> None:
    """Numbered, in order, with its exit; of the job that was submitted last alone."""
    assert run("print('old')", run="0").returncode == 0
    assert run("print('first'); raise SystemExit(3)").returncode == 3
    assert run("for n in range(2000): print('line', n)").returncode == 0
    assert read().splitlines() == ["first", AGAIN, *(f"line {n}" for n in range(2000))]
    keys = [one["Key"] for one in s3.list_objects_v2(Bucket="team", Prefix="logs/mnist/1/logs/")["Contents"]]
    numbers = [
        int(line.split(b" ")[0])
        for key in keys
        for line in s3.get_object(Bucket="team", Key=key)["Body"].read().splitlines()
    ]
    assert numbers == [1, *range(1, 2001)]
    said = json.loads(s3.get_object(Bucket="team", Key="logs/mnist/1/exits/worker-0")["Body"].read())
    assert said["status"] == 0


def test_lines_come_while_the_task_runs_and_what_s3_refuses_comes_later(
    s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part that was not taken is put again, with what was written meanwhile: nothing twice, nothing left out."""
    tries: list[str] = []
    taken = threading.Event()
    real = launcher.put

    def put(place: str, body: bytes, environment: Any) -> None:
        tries.append(place)
        if len(tries) <= 2:
            raise OSError("SlowDown")
        if not taken.is_set():
            shipper.keep(b"2 t meanwhile\n")
        real(place, body, environment)
        taken.set()

    monkeypatch.setattr(launcher, "put", put)
    shipper = launcher._Shipper("s3://team/logs/mnist/1/logs/worker-0", after=0.01)
    shipper.keep(b"1 t one\n")
    assert taken.wait(60)
    for number in range(3, 50):
        shipper.keep(b"%d t more\n" % number)
    shipper.close()
    assert read().splitlines() == ["one", "meanwhile", *["more"] * 47]
    assert s3.list_objects_v2(Bucket="team")["KeyCount"] == len({*tries})


def test_a_line_waits_for_no_full_part_which_is_put_anew_until_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a lost machine takes along is a second's, and who reads a long log asks for few objects."""
    puts: queue.Queue[tuple[str, bytes]] = queue.Queue()
    monkeypatch.setattr(launcher, "put", lambda place, body, _: puts.put((place[-8:], body)))
    monkeypatch.setattr(launcher, "_PART_BYTES", 12)
    shipper = launcher._Shipper("s3://team/x", after=0.01)
    said = []
    for line in (b"1 t one\n", b"2 t two\n", b"3 t three\n"):
        shipper.keep(line)
        said.append(puts.get(timeout=60))
    shipper.close()
    assert said == [("00000000", b"1 t one\n"), ("00000000", b"1 t one\n2 t two\n"), ("00000001", b"3 t three\n")]
    assert puts.empty()


def test_more_than_can_be_held_is_lost_and_counted(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Where S3 is away for too long; the program goes on."""

    def refuse(*_: object) -> None:
        raise OSError("away")

    monkeypatch.setattr(launcher, "put", refuse)
    monkeypatch.setattr(launcher, "_HELD_BYTES", 20)
    shipper = launcher._Shipper("s3://team/x", after=60, patience=0)
    for number in range(5):
        shipper.keep(b"%d t text\n" % number)
    shipper.close()
    said = capsys.readouterr().err
    assert "does not take lines now: away" in said
    assert "5 lines are not in s3://team/x." in said


def test_a_bucket_that_refuses_is_told_in_its_words_and_the_exit_status_stays(s3: Any) -> None:
    """The program's own."""
    s3.delete_bucket(Bucket="team")
    done = run("raise SystemExit(4)")
    assert done.returncode == 4
    assert (
        "its exit is not written down: S3 answers 404 (NoSuchBucket: The specified bucket does not exist)"
        in done.stderr
    )


def test_lines_that_a_bucket_takes_in_no_grace_are_counted(s3: Any) -> None:
    """What keeps them is not cut short by the wait for a program's end, which is as long."""
    s3.delete_bucket(Bucket="team")
    done = run("print('one'); print('two')", SPILLWAY_GRACE="0.5")
    assert "2 lines are not in s3://team/logs/mnist/1/logs/worker-0." in done.stderr


@pytest.mark.parametrize(("status", "starts"), [(0, True), (1, False), (None, False)])
def test_a_task_that_starts_again_does_not_wait_for_peers_that_have_ended_well(
    s3: Any, monkeypatch: pytest.MonkeyPatch, status: int | None, *, starts: bool
) -> None:
    """Their pods are gone, and with them their names; those that have failed come again."""
    monkeypatch.setattr(launcher, "_REPORT_EVERY", 0.2)
    if status is not None:
        launcher.put("s3://team/logs/mnist/1/exits/worker-1", b'{"status": %d}' % status, os.environ)
    told = {"SPILLWAY_ROLE": "worker", "SPILLWAY_INDEX": "0", "SPILLWAY_LOGS": "s3://team/logs/mnist/1"}
    told |= {
        "SPILLWAY_CLUSTER": '{"worker": ["localhost:2222", "gone.invalid:2222"]}',
        "SPILLWAY_NEEDS": '{"worker": 2}',
    }
    settings = launcher.Settings.read(told | {"SPILLWAY_PEERS_WITHIN": "30" if starts else "1"})
    assert launcher._peers_came(settings, {}, launcher._Stop()) is starts


KILLS: Final = """
import os, pathlib, signal, time
print("one"); print("two")
me, launcher = os.getpid(), os.getppid()
lines = pathlib.Path(os.environ["TMPDIR"], f"spillway-lines-{os.getuid()}")
def are_kept():
    try:
        return any(one.read_text().endswith("two\\n") for one in lines.iterdir())
    except FileNotFoundError:  # not there yet, or named anew meanwhile
        return False
while not are_kept():
    time.sleep(0.01)
for child in open(f"/proc/{launcher}/task/{launcher}/children").read().split():
    if int(child) != me:
        os.kill(int(child), signal.SIGKILL)
os.kill(launcher, signal.SIGKILL)
"""


@pytest.mark.parametrize("by", ["--ship", "the next task"])
def test_what_a_keeper_that_was_killed_has_left_on_the_machine_is_shipped_later(s3: Any, disk: Path, by: str) -> None:
    """As where Slurm kills all of a step whose task is gone: lines that were not a second old, or that S3 refused."""
    s3.delete_bucket(Bucket="team")
    assert run(KILLS, run="7").returncode == -9
    assert len(list(disk.iterdir())) == 1
    s3.create_bucket(Bucket="team")
    elsewhere = subprocess.run(
        [sys.executable, launcher.__file__, "--ship"], env=os.environ | {"AWS_ENDPOINT_URL": "http://x"}, check=False
    )
    assert elsewhere.returncode == 1, "they are for this S3"
    if by == "--ship":
        subprocess.run([sys.executable, launcher.__file__, by], check=True)
    else:
        assert run("print('three')", run="1").returncode == 0
    assert read().splitlines()[:2] == ["one", "two"]
    assert list(disk.iterdir()) == []


def test_what_is_being_written_is_left_to_what_writes_it(s3: Any, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Full parts leave the disk when they are in the bucket, the last one at the end."""
    puts: queue.Queue[bytes] = queue.Queue()
    real = launcher.put
    monkeypatch.setattr(launcher, "put", lambda *given: (real(*given), puts.put(given[1])))
    monkeypatch.setattr(launcher, "_PART_BYTES", 12)
    shipper = launcher._Shipper("s3://team/logs/mnist/1/logs/worker-0", after=0.01)
    shipper.keep(b"1 t one\n")
    puts.get(timeout=60)
    assert [path.read_text().partition("\n")[2] for path in disk.iterdir()] == ["1 t one\n"]
    assert launcher.ship_left(os.environ) == 1
    for line in (b"2 t two\n", b"3 t three\n"):
        shipper.keep(line)
        puts.get(timeout=60)
    shipper.close()
    assert list(disk.iterdir()) == []
    assert read().splitlines() == ["one", "two", "three"]


@pytest.mark.parametrize("obstacle", ["a link", "open to others", "no folder"])
def test_lines_are_shipped_without_a_folder_that_is_the_users_alone(s3: Any, disk: Path, obstacle: str) -> None:
    """Nothing is written through a link that another account has laid."""
    target = disk.parent / "elsewhere"
    target.mkdir()
    if obstacle == "a link":
        disk.symlink_to(target)
    elif obstacle == "open to others":
        disk.mkdir()
        disk.chmod(0o777)
    else:
        disk.touch()
    assert run("print('one')").returncode == 0
    assert read().splitlines() == ["one"]
    assert list(target.iterdir()) == []


def test_a_disk_that_is_full_keeps_no_half_of_a_part(s3: Any, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be put over the whole one."""
    spool = launcher._Spool("s3://team/x")
    spool.write(0, b"1 t one\n")

    class Full:
        def write(self, _line: bytes) -> None:
            raise OSError("no space left")

        def close(self) -> None:
            pass

    monkeypatch.setattr(spool, "_file", Full())
    spool.write(0, b"2 t two\n")
    spool.write(0, b"3 t three\n")
    assert list(disk.iterdir()) == []


def test_without_keys_the_instances_role_signs() -> None:
    """By the metadata service, version 2: a token first."""
    role = {"AccessKeyId": "A", "SecretAccessKey": "S", "Token": "T"}

    def say(asked: Asked) -> Answer:
        headers = {name.lower(): value for name, value in asked.headers.items()}
        if asked.path == "/latest/api/token":
            return Answer(body="tok", status=200 if asked.method == "PUT" else 405)
        if headers.get("x-aws-ec2-metadata-token") != '"tok"':
            return Answer(body="", status=401)
        return Answer(body=role if not asked.path.endswith("credentials/") else 7)

    with fake_api() as api:
        api.answer = say
        assert launcher._credentials({"AWS_EC2_METADATA_SERVICE_ENDPOINT": api.url}) == role
        assert api.asked[-1].path == "/latest/meta-data/iam/security-credentials/7"


def test_where_nothing_has_credentials_that_is_told() -> None:
    """With what to set."""
    with pytest.raises(ValueError, match="no credentials: set AWS_ACCESS_KEY_ID, or give the instance a role"):
        launcher._credentials({"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"})


METADATA = {
    "name": "mnist-worker-0-abcde",
    "namespace": "default",
    "annotations": {"batch.kubernetes.io/job-completion-index": "0"},
    "creationTimestamp": "2026-11-21T09:00:00Z",
}
JOB = """\
name: mnist
logs: s3://team/logs
roles: {worker: {image: team/mnist:1, cpus: 1, memory: 1Gi, entry: [python3, train.py]}}
"""


@pytest.mark.usefixtures("s3")
@pytest.mark.parametrize("status", [None, 404, 502])
def test_the_lines_are_read_when_pods_or_machines_are_gone(tmp_path: Path, status: int | None) -> None:
    """The job's own objects say where they are."""
    run("print('step 1')")
    rendered = RENDERERS["kubernetes"](parse_job(JOB, source="job.yaml"), run="1").documents[0]

    def say(asked: Asked) -> Answer:
        if asked.path.endswith("/log"):
            return Answer(status=status or 200, body={"kind": "Status", "message": "dial tcp: no route to host"})
        if asked.path.endswith("/jobs"):
            return listed(rendered)
        return listed() if status is None else listed(pod(0, "Running", "gone") | {"metadata": METADATA})

    with fake_api() as api:
        api.answer = say
        words = ["logs", "mnist", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        assert CliRunner().invoke(jobs, words, catch_exceptions=False).output == "step 1\n"


@pytest.mark.usefixtures("s3")
def test_lines_of_a_pod_that_is_gone_come_before_those_of_the_next_one(tmp_path: Path) -> None:
    """Of the bucket, those of attempts that began before the oldest pod that is there: what runs is read once."""
    run("print('step 0')")
    made = datetime.now(UTC).isoformat(timespec="microseconds")
    run("print('step 1')")
    rendered = RENDERERS["kubernetes"](parse_job(JOB, source="job.yaml"), run="1").documents[0]
    again = pod(0, "Running", "there") | {"metadata": METADATA | {"creationTimestamp": made}}

    def say(asked: Asked) -> Answer:
        if asked.path.endswith("/log"):
            return Answer(body="step 1")
        return listed(rendered) if asked.path.endswith("/jobs") else listed(again)

    with fake_api() as api:
        api.answer = say
        words = ["logs", "mnist", "--kubeconfig", str(api.kubeconfig(tmp_path))]
        said = CliRunner().invoke(jobs, words, catch_exceptions=False).output
    assert said.splitlines() == ["step 0", AGAIN, '"step 1"']


def test_containers_get_keys_for_the_bucket_from_a_secret() -> None:
    """Pods do not reach the role of their node. Where lines stay in the cluster, there is none."""
    job = parse_job(JOB, source="job.yaml")

    def container(job: Job) -> dict[str, Any]:
        found: dict[str, Any] = RENDERERS["kubernetes"](job).documents[0]["spec"]["template"]["spec"]["containers"][0]
        return found

    told = {one["name"]: one.get("value") for one in container(job)["env"]}
    assert told["SPILLWAY_LOGS"] == "s3://team/logs/mnist/0"
    assert "SPILLWAY_STATE" not in told
    assert container(job)["envFrom"] == [{"secretRef": {"name": "spillway-logs", "optional": True}}]
    assert "envFrom" not in container(job.model_copy(update={"logs": None}))


def test_on_one_machine_lines_go_to_the_jobs_own_folder_and_to_the_bucket() -> None:
    """`jobs logs --to local` reads the one, and the other outlives the machine."""
    plan = RENDERERS["local"](parse_job(JOB, source="job.yaml"), run="1").documents[0]
    assert plan["tasks"][0]["environment"]["SPILLWAY_LOGS"] == "s3://team/logs/mnist/1"
    kept = local.render(parse_job(JOB, source="job.yaml"), run="1", state="/home/me/state").documents[0]
    assert kept["state"] == "/home/me/state/mnist/1"
    assert kept["tasks"][0]["environment"]["SPILLWAY_STATE"] == "/home/me/state/mnist/1"
    assert kept["tasks"][0]["environment"]["SPILLWAY_LOGS"] == "s3://team/logs/mnist/1"


@pytest.mark.usefixtures("s3")
def test_what_is_not_kept_is_told() -> None:
    """The task, or the job."""
    run("print('x')")
    with pytest.raises(Exception, match=r"s3://team/logs has no lines of worker 7 of job 'mnist'; it has worker-0"):
        read("--index", "7")
    with pytest.raises(Exception, match="s3://team/else has no run of a job 'mnist'"):
        CliRunner().invoke(jobs, ["logs", "mnist", "--from", "s3://team/else"], catch_exceptions=False)


def test_a_directory_is_read_alike(tmp_path: Path) -> None:
    """Attempts in their order, 2 before 10, of all runs of a job that Slurm put into its queue again."""
    for name, text in (
        ("8.9/logs/worker-0.2", "b"),
        ("8.9/logs/worker-0.10", "c"),
        ("8.0/logs/worker-0.0", "a"),
        ("8.10/logs/worker-0.0", "d"),
        ("8.11/logs/worker-1.0", "of another task"),
        ("7.12/logs/worker-0.0", "of another job"),
    ):
        file = tmp_path / "mnist" / f"{name}.log"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"1 t {text}\n2 t half")
    done = CliRunner().invoke(jobs, ["logs", "mnist", "--from", str(tmp_path)], catch_exceptions=False)
    assert done.output.splitlines() == ["a", AGAIN, "b", AGAIN, "c", AGAIN, "d"]
