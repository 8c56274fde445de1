"""Real pods of the project's own images: kubelet and containerd, CoreDNS.

A researcher's way, on a machine of a lab: a file from a template, made smaller for a machine of two CPUs, is submitted
under the real autoscaler; what the tasks said is read while there are pods and when there are none. And an operator's:
the autoscaler's own release in that cluster, from `autoscale manifests`.
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import boto3
import pytest
import tomli_w
import yaml
from click.testing import CliRunner, Result

from autoscaler.model import labels as words
from images import experiment
from images.cli import jobs
from images.renderers.kubernetes import LOGS_SECRET
from roles.deploys.container_runtime import CONFIG
from roles.deploys.containerd_check import CRI
from stacks.local.ground.control_plane import apply_manifests
from stacks.local.ground.lifecycle import RBAC
from stacks.local.kubeapi.client import KubeRefusedError
from tests.live.bucket import KEPT, bucket
from tests.live.container_engines import container_engines
from tests.live.hybrid import Autoscaler, autoscaler, bound, gpu_pod, make_pod, stand_in_aws, until, write_policy
from tests.live.lab import Lab, digest_of, lab, spillway
from tests.live.machines import Bench, Host
from tests.live.prometheus import asked, programs, prometheus
from tests.training.cluster_dns import cluster_dns
from tests.training.device_plugin import device_plugin
from tests.training.image import AUTOSCALER, IMAGE, autoscaler_archive, image_archive
from tests.training.line import PARAMETER_SERVER, SMALL, fitted, params
from tests.training.release import Released, released

# The first run builds CoreDNS and the image.
pytestmark = [pytest.mark.training, pytest.mark.long, pytest.mark.timeout(2400)]

DEFAULT: Final = "/api/v1/namespaces/default"
GPUS: Final = 4
KEYS: Final = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster of one machine of one's own, with all that a job needs."""

    ground: Lab
    host: Host
    s3: str
    """URL, as pods reach it too."""

    def pods(self, job: str = "line") -> list[dict[str, Any]]:
        """Of a job."""
        items: list[dict[str, Any]] = self.ground.kube.get(f"{DEFAULT}/pods?labelSelector={words.JOB}={job}")["items"]
        return items

    def typed(self, *words_: str) -> str:
        """What `spillway jobs WORDS` prints."""
        done = self._done(*words_)
        assert done.exit_code == 0, (done.output, done.exception)
        return done.output

    def accepts(self, *words_: str) -> bool:
        """Whether it does so by now: the autoscaler hears of a machine's GPUs a moment after the API server."""
        return self._done(*words_).exit_code == 0

    def _done(self, *words_: str) -> Result:
        return CliRunner().invoke(jobs, [*words_, "--kubeconfig", str(self.ground.kubeconfig)])

    def seen(self, job: str = "line") -> str:
        """How its pods do, for messages."""
        logs = f"tail -n 20 /var/log/pods/default_{job}-*/*/*.log; journalctl -u kubelet -n 10 -o cat"
        states = [(pod["metadata"]["name"], pod["spec"].get("nodeName"), pod["status"]) for pod in self.pods(job)]
        return f"{states}\n{self.host.run(logs, check=False).stdout}"[-8000:]


@pytest.fixture(scope="module")
def archives(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The images as files by their names, for as long as it takes."""
    folder = tmp_path_factory.mktemp("images")
    try:
        yield {
            IMAGE: image_archive(folder / "linear.tar"),
            AUTOSCALER: autoscaler_archive(folder / "autoscaler.tar"),
        }
    finally:
        shutil.rmtree(folder)  # pytest keeps what three runs left


@pytest.fixture(scope="module")
def site(archives: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A bare machine made a node by `nodes apply`, with the images and the DNS of a cluster."""
    with (
        Bench(tmp_path_factory.mktemp("bench")) as bench,
        lab(bench, tmp_path_factory.mktemp("lab"), in_pods=True) as ground,
        cluster_dns(ground) as dns,
        s3_for(ground) as s3,
    ):
        (host,) = bench.machines("box")
        join(ground, host, dns=dns, archives=archives)
        yield Site(ground=ground, host=host, s3=s3)


@contextlib.contextmanager
def s3_for(ground: Lab) -> Iterator[str]:
    """A stand-in for S3 with a bucket, and the Secret by which pods reach it; gives its URL."""
    with bucket(ground.bench.gateway) as made:
        secret = {"metadata": {"name": LOGS_SECRET}, "stringData": made.environment}
        ground.kube.send("POST", f"{DEFAULT}/secrets", secret)
        yield made.url


def join(ground: Lab, host: Host, *, dns: str, archives: dict[str, Path]) -> None:
    """`nodes apply`, with the images brought as archives, for there is no registry."""
    given = yaml.safe_load(ground.inventory([host]).read_text(encoding="utf-8"))
    given["settings"]["kubelet"]["cluster_dns"] = [dns]
    for name, archive in archives.items():
        (ground.directory / "mirror" / archive.name).symlink_to(archive)
        image = {"name": name, "url": f"{ground.mirror}/{archive.name}", "sha256": digest_of(archive)}
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


def test_a_function_of_a_prompt_runs_in_pods_that_the_autoscaler_lets_in(
    site: Site, brain: Autoscaler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No shared directory: the call comes in a variable, the result in lines; two tasks that find each other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def meet(number: int) -> tuple[int, int, int]:
        import json  # noqa: PLC0415 - in the pod
        import os  # noqa: PLC0415
        import socket  # noqa: PLC0415

        told = json.loads(os.environ["TF_CONFIG"])
        peers = {socket.gethostbyname(address.rpartition(":")[0]) for address in told["cluster"]["worker"]}
        return number + told["task"]["index"], len(peers), os.getuid()

    until(lambda: leads(site), told=brain.texts)
    future = experiment.launch(
        meet, args=(40,), name="meeting", roles={"worker": 2}, image=IMAGE, cpus="0.2", memory="256Mi",
        place=experiment.Cluster(kubeconfig=site.ground.kubeconfig),
    )  # fmt: skip
    until(future.done, within=240, told=lambda: brain.texts()[-4000:] + site.seen("meeting"))
    assert future.results() == {"worker-0": (40, 2, 10001), "worker-1": (41, 2, 10001)}
    ended = site.pods("meeting")
    assert [pod["status"]["phase"] for pod in ended] == ["Succeeded"] * 2, "what they held is free"
    assert {pod["spec"]["nodeSelector"][words.HOSTNAME] for pod in ended} == {"box"}, "the gate was lifted for a place"


@pytest.fixture(scope="module")
def with_cdi(site: Site) -> None:
    """The machine's containerd is of the next Debian, 1.7: its own, 1.6, does not know CDI. Its file says so too."""
    engines, mirror = container_engines("trixie"), site.ground.directory / "mirror"
    fetched = []
    for program in ("containerd", "containerd-shim-runc-v2"):
        (mirror / program).symlink_to(engines / program)
        fetched.append(f"curl -sSf -o /usr/bin/{program}.new {site.ground.mirror}/{program}")
        fetched.append(f"chmod 755 /usr/bin/{program}.new && mv /usr/bin/{program}.new /usr/bin/{program}")
    config = tomllib.loads(site.host.run(f"cat {CONFIG}").stdout)
    config["plugins"][CRI[config["version"]]]["enable_cdi"] = True  # as the role has it for this version
    written = f"printf %s {shlex.quote(tomli_w.dumps(config))} > {CONFIG}"
    site.host.run("; ".join(["set -e", *fetched, written, "systemctl restart containerd"]))


@pytest.fixture
def gpus(site: Site, with_cdi: None) -> Iterator[list[list[str]]]:
    """GPUs that the machine's kubelet gives out: device nodes, by a stand-in for NVIDIA's plugin; which it gave out."""

    def offered() -> int:
        return int(site.ground.kube.get("/api/v1/nodes/box")["status"]["allocatable"].get(words.GPU, "0"))

    with device_plugin(site.host, resource=words.GPU, gpus=GPUS) as handed_out:
        until(lambda: offered() == GPUS)
        yield handed_out
    until(lambda: not offered())


ONE_GPU: Final = f"""\
name: ${{name}}
params: {{name: {{default: one}}, gpus: {{type: int, default: 1}}}}
roles:
  worker:
    cpus: 0.1
    memory: 64Mi
    gpus: ${{gpus}}
    image: {IMAGE}
    restart: never
    entry: [sh, -c, "cd /dev; echo $(ls -d nvidia*); sleep 600"]
"""


def test_jobs_beside_each_other_on_one_machine_have_gpus_of_their_own(
    site: Site, brain: Autoscaler, gpus: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By count, never whole machines: each container has the devices, by CDI, that it was given, and no other."""
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text(ONE_GPU)
    until(lambda: leads(site), told=brain.texts)
    names = {"one": 1, "another": 1, "two": 2}
    for name, count in names.items():
        submit = ("submit", "one.yaml", "-p", f"name={name}", "-p", f"gpus={count}")
        until(lambda submit=submit: site.accepts(*submit), told=brain.texts)

    def said(name: str) -> str:
        pods = site.pods(name)
        lines = site.typed("logs", name).splitlines() if pods and pods[0]["status"]["phase"] == "Running" else []
        return next((line for line in lines if line.startswith("nvidia")), "")

    try:
        seen = {
            name: until(
                lambda name=name: said(name), within=120, told=lambda name=name: brain.texts() + site.seen(name)
            )
            for name in names
        }
    finally:
        for name in names:
            site.typed("delete", name)
    found = {name: line.split() for name, line in seen.items()}
    assert {name: len(nodes) for name, nodes in found.items()} == names
    assert sorted(found.values()) == sorted(gpus)
    assert sorted(node for nodes in found.values() for node in nodes) == [f"nvidia{number}" for number in range(GPUS)]
    until(lambda: not any(map(site.pods, names)), within=120)


@pytest.mark.usefixtures("gpus")
def test_a_search_takes_more_slots_mid_run_and_each_gpu_is_free_when_its_function_has_returned(
    site: Site,
    brain: Autoscaler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of six trials one runs, then four, the first in the pod that it had; two begin on GPUs that are given back."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def trial(url: str, number: int) -> tuple[int, float]:
        import time  # noqa: PLC0415 - in the pod
        import urllib.error  # noqa: PLC0415
        import urllib.request  # noqa: PLC0415

        while True:
            try:
                urllib.request.urlopen(f"{url}/team/go")  # noqa: S310 - the stand-in for S3
            except urllib.error.HTTPError:
                time.sleep(0.2)
            else:
                return number, time.time()

    def running() -> dict[str, str]:
        pods = site.ground.kube.get(f"{DEFAULT}/pods?labelSelector={words.JOB}")["items"]
        mine = [pod for pod in pods if pod["metadata"]["name"].startswith("grid-")]
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in mine if pod["status"]["phase"] == "Running"}

    until(lambda: leads(site), told=brain.texts)
    search = experiment.map(
        trial, {"url": [site.s3], "number": range(6)}, slots=1, name="grid", image=IMAGE, gpus=1, cpus="0.1",
        memory="128Mi", place=experiment.Cluster(kubeconfig=site.ground.kubeconfig),
    )  # fmt: skip
    first = until(running, within=120, told=lambda: brain.texts()[-4000:])
    assert len(first) == 1
    search.slots = "1..8"
    four = until(lambda: len(found := running()) == GPUS and found, within=120, told=lambda: brain.texts()[-4000:])
    assert first.items() <= four.items(), "what ran goes on"
    s3 = boto3.client("s3", endpoint_url=site.s3, **KEYS)  # type: ignore[call-overload]
    s3.put_object(Bucket="team", Key="go", Body=b"", ACL="public-read")
    until(search.done, within=120, told=lambda: f"{search}{brain.texts()[-4000:]}")
    assert sorted(number for number, _ in search.results().values()) == [*range(6)]
    freed = [one.freed_after for one in search]
    assert None not in freed, freed


FLOW: Final = """\
name: ${name}
params: {name: {default: flow}, code: {type: int, default: 0}}
gang: false
depends_on: {train: [prepare], serve: [train]}
data_dir: /shared
roles:
  prepare:
    count: 2
    {cpus}
    entry: [sh, -c, "sleep 1; echo $(TASK_INDEX) > $(DATA_DIR)/${name}-part-$(TASK_INDEX)"]
  train:
    {cpus}
    entry: [sh, -c, "cat $(DATA_DIR)/${name}-part-* > $(DATA_DIR)/${name}-model; exit ${code}"]
  serve:
    {cpus}
    entry: [sed, "s/^/serves /", "$(DATA_DIR)/${name}-model"]
""".replace(
    "{cpus}",
    f"cpus: 0.1\n    memory: 64Mi\n    image: {IMAGE}\n    restart: never\n"
    "    volumes: [{mount: /shared, claim: shared}]",
)
"""Data preparation, training and serving that hand over by the shared directory."""


@pytest.fixture
def shared(site: Site) -> None:
    """A directory of the machine as a claim, where every account may write."""
    site.host.run("install -d -m 777 /var/lib/shared")
    size = {"storage": "1Gi"}
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    volume = {"accessModes": ["ReadWriteMany"], "capacity": size, "hostPath": {"path": "/var/lib/shared"}}
    site.ground.kube.send("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "shared"}, "spec": volume})
    site.ground.kube.send(
        "POST",
        f"{DEFAULT}/persistentvolumeclaims",
        {"metadata": {"name": "shared"}, "spec": {**claim, "volumeName": "shared", "resources": {"requests": size}}},
    )


@pytest.mark.usefixtures("shared")
def test_the_steps_of_a_workflow_run_one_after_the_other_and_none_after_one_that_failed(
    site: Site, brain: Autoscaler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each begins when the tasks before it have ended, and reads what they wrote."""
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(FLOW)
    until(lambda: leads(site), told=brain.texts)

    site.typed("submit", "flow.yaml")
    until(lambda: ended(site, "flow", "serve"), within=120, told=lambda: brain.texts()[-4000:] + site.seen("flow"))
    served = site.typed("logs", "flow", "--role", "serve").splitlines()
    assert [line for line in served if line.startswith("serves")] == ["serves 0", "serves 1"]
    spans = spans_of(site.pods("flow"))
    assert spans["prepare"][1] <= spans["train"][0] <= spans["train"][1] <= spans["serve"][0], spans

    site.typed("submit", "flow.yaml", "-p", "name=broken", "-p", "code=3")
    until(lambda: ended(site, "broken", "serve"), within=120, told=lambda: brain.texts()[-4000:] + site.seen("broken"))
    assert {pod["metadata"]["labels"][words.ROLE] for pod in site.pods("broken")} == {"prepare", "train"}


def ended(site: Site, name: str, role: str) -> bool:
    """Whether the Job of the role has succeeded or failed."""
    path = f"/apis/batch/v1/namespaces/default/jobs?labelSelector={words.JOB}={name},{words.ROLE}={role}"
    (found,) = site.ground.kube.get(path)["items"]
    return any(
        one["status"] == "True" and one["type"] in ("Complete", "Failed")
        for one in found["status"].get("conditions", ())
    )


def spans_of(pods: list[dict[str, Any]]) -> dict[str, tuple[str, str]]:
    """Role -> when the first of its containers started, and the last one ended."""
    found: dict[str, tuple[str, str]] = {}
    for pod in pods:
        state = pod["status"]["containerStatuses"][0]["state"]["terminated"]
        role = pod["metadata"]["labels"][words.ROLE]
        first, last = found.get(role, (state["startedAt"], state["finishedAt"]))
        found[role] = min(first, state["startedAt"]), max(last, state["finishedAt"])
    return found


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


@pytest.fixture
def release(site: Site, tmp_path: Path) -> Iterator[Released]:
    """The autoscaler's own, in this cluster."""
    with released(site.ground, site.host, tmp_path) as running:
        until(running.ready, told=running.texts)
        yield running


def test_the_release_runs_in_pods_of_its_own_image_buys_and_gives_back(
    site: Site, release: Released, tmp_path: Path
) -> None:
    """From `autoscale manifests` to a node and back, with the rights of its ServiceAccount alone, and no others.

    One of its two pods is evicted meanwhile, the other one takes over, and may not be evicted, too.
    """
    kube = release.kube
    make_pod(kube, gpu_pod("p"))
    node = until(lambda: bound(kube, "p"), told=release.texts)
    leader = release.leader()
    [other] = {one["metadata"]["name"] for one in release.pods()} - {leader}

    release.evict(leader)
    with pytest.raises(KubeRefusedError, match="disruption budget"):
        release.evict(other)
    until(lambda: release.leader() not in ("", leader), told=release.texts)  # what is evicted acts until it is told
    make_pod(kube, gpu_pod("q"))
    until(lambda: bound(kube, "q"), told=release.texts)
    until(release.ready, told=release.texts)
    assert {one["spec"]["nodeName"] for one in release.pods()} == {"box"}, "none is on a node that was bought"

    until(lambda: len(release.scraped()) == 2, told=release.scraped)
    inside = ("nsenter", f"--net=/proc/{site.host.process.pid}/ns/net")  # pods' addresses are that machine's own
    scrape = {"job_name": "pods", "static_configs": [{"targets": release.scraped()}]}
    with prometheus(programs(), tmp_path, [scrape], before=inside, address=site.host.address) as url:
        until(lambda: len(asked(url, "spillway_acting")) == 2, told=(tmp_path / "log").read_text)
        assert [one["value"][1] for one in asked(url, "sum(spillway_acting)")] == ["1"]

    kube.send("DELETE", f"{DEFAULT}/pods?fieldSelector=spec.nodeName={node}&gracePeriodSeconds=0")
    kube.send("DELETE", f"{DEFAULT}/pods/q?gracePeriodSeconds=0")
    until(
        lambda: [one["metadata"]["name"] for one in kube.get("/api/v1/nodes")["items"]] == ["box"], told=release.texts
    )
    assert len(release.aws.asked()) == len(release.aws.asked("TerminateInstanceInAutoScalingGroup")) == 2
    assert "is not allowed" not in release.texts()
    assert "forbidden" not in release.texts()
    for denied in (
        ("create", "pods"),
        ("get", "secrets"),
        ("create", "nodes"),
        ("update", "deployments", "apps"),
        ("create", "clusterrolebindings", "rbac.authorization.k8s.io"),
        ("get", "configmaps"),
    ):
        assert not release.may(*denied[:2], group="".join(denied[2:])), denied
    assert not release.may("get", "configmaps", name=words.POLICY, namespace="default")
    assert release.may("get", "configmaps", name=words.POLICY)
