"""The regression of the founding documents in real pods: kubelet and containerd, the project's own image, CoreDNS.

A researcher's way, on a machine of a lab: a file from a template, made smaller for a machine of two CPUs, is submitted
under the real autoscaler; what the tasks said is read while there are pods and when there are none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
import yaml
from click.testing import CliRunner
from moto.server import ThreadedMotoServer

from autoscaler.model import labels as words
from images.cli import jobs
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.ground.lifecycle import RBAC
from tests.live.hybrid import Autoscaler, autoscaler, stand_in_aws, until, write_policy
from tests.live.lab import Lab, digest_of, lab, spillway
from tests.live.machines import Bench, Host
from tests.training.cluster_dns import cluster_dns
from tests.training.image import IMAGE, image_archive
from tests.training.line import PARAMETER_SERVER, SMALL, fitted, params

pytestmark = [pytest.mark.training, pytest.mark.timeout(2400)]  # the first run builds CoreDNS and the image

DEFAULT: Final = "/api/v1/namespaces/default"
KEPT: Final = "s3://team/logs"


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster of one machine of one's own, with all that a job needs."""

    ground: Lab
    host: Host
    s3: str
    """URL, as pods reach it too."""

    def pods(self) -> list[dict[str, Any]]:
        """Of the job ``line``."""
        items: list[dict[str, Any]] = self.ground.kube.get(f"{DEFAULT}/pods?labelSelector={words.JOB}=line")["items"]
        return items

    def typed(self, *words_: str) -> str:
        """What `spillway jobs WORDS` prints."""
        done = CliRunner().invoke(jobs, [*words_, "--kubeconfig", str(self.ground.kubeconfig)])
        assert done.exit_code == 0, done.output
        return done.output

    def seen(self) -> str:
        """How the pods do, for messages."""
        logs = "tail -n 20 /var/log/pods/default_line-*/*/*.log; journalctl -u kubelet -n 10 -o cat"
        states = [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"]) for pod in self.pods()]
        return f"{states}\n{self.host.run(logs, check=False).stdout}"[-8000:]


@pytest.fixture(scope="module")
def archive(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image as a file, for as long as it takes."""
    file = tmp_path_factory.mktemp("image") / "linear.tar"
    try:
        yield image_archive(file)
    finally:
        file.unlink(missing_ok=True)  # pytest keeps what three runs left


@pytest.fixture(scope="module")
def site(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A bare machine made a node by `nodes apply`, with the image and the DNS of a cluster."""
    with (
        Bench(tmp_path_factory.mktemp("bench")) as bench,
        lab(bench, tmp_path_factory.mktemp("lab")) as ground,
        cluster_dns(ground) as dns,
        s3_for(ground) as s3,
    ):
        (host,) = bench.machines("box")
        join(ground, host, dns=dns, archive=archive)
        yield Site(ground=ground, host=host, s3=s3)


@contextlib.contextmanager
def s3_for(ground: Lab) -> Iterator[str]:
    """A stand-in for S3 with a bucket, and the Secret by which pods reach it; gives its URL."""
    server = ThreadedMotoServer(ip_address=ground.bench.gateway, port=0, verbose=False)
    server.start()
    try:
        url = "http://{}:{}".format(*server.get_host_and_port())
        keys = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
        boto3.client("s3", endpoint_url=url, **keys).create_bucket(Bucket="team")  # type: ignore[call-overload]
        data = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
        data |= {key.upper(): keys[key] for key in ("aws_access_key_id", "aws_secret_access_key")}
        secret = {"metadata": {"name": "spillway-logs"}, "stringData": data}
        ground.kube.send("POST", f"{DEFAULT}/secrets", secret)
        yield url
    finally:
        server.stop()


def join(ground: Lab, host: Host, *, dns: str, archive: Path) -> None:
    """`nodes apply`, with the image brought as an archive, for there is no registry."""
    given = yaml.safe_load(ground.inventory([host]).read_text(encoding="utf-8"))
    given["settings"]["kubelet"]["cluster_dns"] = [dns]
    (ground.directory / "mirror" / archive.name).symlink_to(archive)
    image = {"name": IMAGE, "url": f"{ground.mirror}/{archive.name}", "sha256": digest_of(archive)}
    given["settings"]["container_runtime"]["images"].append(image)
    del given["machines"][0]["taints"]
    inventory = ground.directory / "box.yaml"
    inventory.write_text(yaml.safe_dump(given), encoding="utf-8")
    state = ("--state", str(ground.directory / "state"))
    done = spillway("nodes", "apply", "-i", str(inventory), "--kubeconfig", str(ground.kubeconfig), *state)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def brain(site: Site, tmp_path: Path) -> Iterator[Autoscaler]:
    """The real autoscaler, with the rights that it has in a cluster."""
    apply_manifests(site.ground.kube, RBAC.read_text(encoding="utf-8"))
    account = site.ground.directory / "autoscaler.kubeconfig"
    with stand_in_aws(tmp_path / "aws", kubeconfig=site.ground.kubeconfig) as aws:
        file, policy = write_policy(tmp_path)
        aws.make_groups(policy)
        with autoscaler(policy=file, env=aws.env, kubeconfig=account, log=tmp_path / "autoscaler.log") as running:
            yield running
            assert running.stop() == 0
        assert not aws.asked(), "the machine that is there was enough"


def test_pods_train_find_each_other_by_name_and_what_they_said_outlives_them(
    site: Site, brain: Autoscaler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers and a server wait behind the gang's gate; the server ends with the workers; lines outlive the job."""
    monkeypatch.chdir(tmp_path)
    Path("line.yaml").write_text(f"{PARAMETER_SERVER}logs: {KEPT}\n")
    until(lambda: leads(site), told=brain.texts)
    said = site.typed("submit", "line.yaml", *params("name=line", *SMALL))
    assert "not asked" not in said, "the autoscaler said whether it can ever start"

    until(lambda: has_ended(site), within=240, told=lambda: brain.texts()[-4000:] + site.seen())
    trained = site.pods()
    assert {pod["spec"]["nodeSelector"][words.HOSTNAME] for pod in trained} == {"box"}, (
        "the gate was lifted for a place"
    )
    found = [fitted(site.typed("logs", "line", "--index", index), f"worker {index}") for index in ("0", "1")]

    site.ground.kube.send("DELETE", f"{DEFAULT}/pods?labelSelector={words.JOB}=line")
    until(lambda: not site.pods(), told=site.seen)
    monkeypatch.setenv("AWS_ENDPOINT_URL", site.s3)
    for key, value in (("ACCESS_KEY_ID", "local"), ("SECRET_ACCESS_KEY", "local"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{key}", value)
    assert fitted(site.typed("logs", "line", "--index", "1"), "worker 1") == found[1]
    site.typed("delete", "line")
    assert fitted(site.typed("logs", "line", "--from", KEPT), "worker 0") == found[0]
    server = site.typed("logs", "line", "--role", "ps", "--from", KEPT)
    assert "ps 0 serves at line-ps-0.line.default.svc:2222" in server.splitlines()


def leads(site: Site) -> bool:
    """The autoscaler acts."""
    leases = site.ground.kube.get("/apis/coordination.k8s.io/v1/namespaces/spillway/leases")["items"]
    return any(one["metadata"]["name"] == words.LEASE and one["spec"].get("holderIdentity") for one in leases)


def has_ended(site: Site) -> bool:
    """The workers are done and the server has ended with them; fails the test where a task failed."""
    jobs_of_it = site.ground.kube.get(f"/apis/batch/v1/namespaces/default/jobs?labelSelector={words.JOB}=line")["items"]
    status = {job["metadata"]["labels"][words.ROLE]: job["status"] for job in jobs_of_it}
    assert not any(one.get("failed") for one in status.values()), site.seen()
    return "ps" not in status and status["worker"].get("succeeded") == 2
