"""Members of a kubeadm control plane: their image by `spillway nodes apply`, and what their user data makes of it.

Real here: kubeadm, kubelet, etcd, the API server and its friends as static pods, containerd, Debian's AWS CLI, the role
that prepares the image, and the script and configuration of the members. Stand-ins: moto for Parameter Store and S3, a
forwarder of connections for the load balancer, a folder for the data volume (a container cannot mount a block device),
a repository for Kubernetes' own packages, and images made of our own builds.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import socketserver
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from moto.server import ThreadedMotoServer

from stacks.control_plane.existing_members import parameters_of
from stacks.control_plane.member_user_data import (
    API_PORT,
    NOT_YET,
    MemberSpec,
    kubeadm_config,
    render_member,
)
from stacks.local.toolchain.tools import ensure_tools
from tests.live.apt_repository import AptRepository, Deb
from tests.live.debian import image_archive, run
from tests.live.hybrid import until
from tests.live.lab import digest_of, serving, spillway
from tests.live.machines import Bench, Host
from tests.live.stacks import client
from tests.test_roles.signing import Signer

pytestmark = [pytest.mark.live, pytest.mark.long]

ENDPOINT = "api.lab.internal"
PARAMETERS = parameters_of("lab")
VERSION = "1.35.4"
ALL = dict.fromkeys(("cp-0", "cp-1", "cp-2"), f"v{VERSION}")
SERVERS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "etcd")
ON_MACHINE = ("kubeadm", "kubelet", "kubectl")
KUBELET = """[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
ExecStart=/usr/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \
  --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml --config-dir=/etc/bench-kubelet \
  $KUBELET_KUBEADM_ARGS
Restart=always
RestartSec=2
[Install]
WantedBy=multi-user.target
"""
HERE: dict[str, Any] = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "failCgroupV1": False,
    "cgroupDriver": "cgroupfs",
    "failSwapOn": False,
}
"""What a kubelet in a container of this machine needs otherwise than one on hardware."""
KEYS = "[Manager]\nDefaultEnvironment=AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"
WRAPPED = """#!/bin/sh
# As HERE: of all that kubeadm looks at before it begins, what a container of another machine cannot answer.
case "$1 $2" in
  "init --config" | "join --config") set -- "$@" --ignore-preflight-errors=SystemVerification,Swap,NumCPU,Mem ;;
esac
exec /usr/bin/kubeadm "$@"
"""
VOLUME = """[Unit]
DefaultDependencies=no
Before=local-fs.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'mkdir -p /srv/volume /var/lib/spillway && mount --bind /srv/volume /var/lib/spillway'
ExecStart=mkdir -p /dev/disk/by-id
ExecStart=ln -sf /srv/volume.img /dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1
[Install]
WantedBy=sysinit.target
"""


@dataclass
class Cloud:
    """What members share: parameters, a bucket, and a load balancer that knows who answers."""

    url: str
    members: list[str] = field(default_factory=list)
    """Addresses behind the load balancer, in the order in which they are tried."""

    def client(self, service: str) -> Any:
        """A client of the stand-in."""
        return client(service, self.url)

    def parameter(self, name: str) -> str:
        """Its value."""
        return str(self.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]["Value"])


@dataclass(frozen=True)
class Plane:
    """Bench, mirror and cloud of this module."""

    bench: Bench
    cloud: Cloud
    folder: Path
    """What the mirror serves."""
    mirror: str
    image: Path
    """The disks of a machine that the roles have prepared."""

    def members(self, *names: str, volume: Path | None = None) -> list[Host]:
        """Machines of the image, with data volumes: new ones, or what is in this archive."""
        hosts = self.bench.machines(*names, image=self.image)
        with ThreadPoolExecutor() as pool:
            list(pool.map(partial(self._furnish, volume=volume), hosts))
        return hosts

    def _furnish(self, host: Host, *, volume: Path | None) -> None:
        """What is of this bench alone."""
        aws = f'#!/bin/sh\nexec /usr/bin/aws --endpoint-url {self.cloud.url} "$@"\n'
        files = {
            "/etc/systemd/system/volume.service": VOLUME,
            "/etc/bench-kubelet/10-here.conf": json.dumps(HERE),
            "/usr/local/bin/kubeadm": WRAPPED,
            "/usr/local/bin/aws": aws,
            "/etc/systemd/system.conf.d/aws.conf": KEYS,
        }
        for path, text in files.items():
            put(host, path, text)
        host.run(f"echo {self.bench.gateway} {ENDPOINT} >> /etc/hosts")
        host.run("chmod 755 /usr/local/bin/*; truncate -s 64M /srv/volume.img")
        if volume:
            host.run(f"curl -sSf {self.mirror}/{volume.name} | tar -x -C /srv")
        host.run("systemctl daemon-reload; systemctl daemon-reexec; systemctl enable --now volume")


def put(host: Host, path: str, text: str) -> None:
    """A file, whole."""
    folder = path.rpartition("/")[0]
    host.run(f"mkdir -p {folder} && cat > {path} <<'END-OF-FILE'\n{text}\nEND-OF-FILE")


def boot(host: Host, spec: MemberSpec) -> None:
    """What cloud-init does with the user data at first boot: files, then commands."""
    said = yaml.safe_load(render_member(spec))
    for file in said["write_files"]:
        put(host, file["path"], file["content"])
        host.run(f"chmod {file['permissions']} {file['path']}")
    for words in said["runcmd"]:
        host.run(" ".join(words))


@pytest.fixture(scope="module")
def plane(bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """All of it."""
    tools = ensure_tools([*SERVERS, *ON_MACHINE], progress=lambda line: print(line, flush=True))
    folder = tmp_path_factory.mktemp("mirror")
    (folder / "kubeadm.yaml").write_text(kubeadm_config(spec_of(first=True)), encoding="utf-8")
    names = run(str(tools["kubeadm"]), "config", "images", "list", "--config", str(folder / "kubeadm.yaml")).split()
    for number, name in enumerate(names):
        program = name.rpartition("/")[2].partition(":")[0]
        forever = ("/bin/busybox", "sleep", "2147483647")
        image_archive(folder / f"{number}.tar", name, command=forever, program=tools.get(program))
    server = ThreadedMotoServer(ip_address=bench.gateway, port=0, verbose=False)
    server.start()
    address, port = server.get_host_and_port()
    cloud = Cloud(f"http://{address}:{port}")
    for name in astuple(PARAMETERS):
        cloud.client("ssm").put_parameter(Name=name, Value=NOT_YET, Type="SecureString")
    cloud.client("s3").create_bucket(Bucket="snapshots")
    try:
        with (
            balancing(cloud, bench.gateway),
            serving(folder, address=bench.gateway) as mirror,
            kubernetes_packages(bench, folder / "packages", tools) as packages,
        ):
            image = baked(bench, folder, settings_of(folder, names, mirror=mirror, packages=packages))
            yield Plane(bench, cloud, folder, mirror, image)
    finally:
        server.stop()
        shutil.rmtree(folder)  # some 500 MB


def baked(bench: Bench, folder: Path, settings: dict[str, Any]) -> Path:
    """The disks of a machine that `spillway nodes apply` has prepared, as the README has it of the members' image."""
    [host] = bench.machines("image")
    known = dict(line.split(" ", 1) for line in bench.known_hosts.read_text(encoding="ascii").splitlines())
    ssh = {"key": str(host.key), "host_key": known[host.address].strip()}
    machine = {"name": host.name, "address": host.address, "ssh": ssh, "cpus": 2, "memory": "2Gi"}
    inventory = folder / "image.yaml"
    inventory.write_text(yaml.safe_dump({"settings": settings, "machines": [machine]}), encoding="utf-8")
    named = ("-i", str(inventory), "--state", str(folder / "state"))
    done = spillway("nodes", "apply", *named, "--no-cluster", "--health-seconds", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    planned = spillway("nodes", "plan", *named)
    assert planned.returncode == 0, f"a second time there is nothing to do:\n{planned.stdout}"
    image = bench.image_of(host)
    for key in (image / "upper/etc/ssh").glob("ssh_host_*"):  # each member has its own, as of this
        key.unlink()
    (image / "upper/etc/machine-id").write_text("", encoding="ascii")
    return image


@contextlib.contextmanager
def kubernetes_packages(bench: Bench, folder: Path, tools: Mapping[str, Path]) -> Iterator[dict[str, Any]]:
    """Packages as Kubernetes' own repository has them, of our builds; gives its entry of an inventory's sources."""
    folder.mkdir()
    version = f"{VERSION}-1.1"
    programs = {name: {f"/usr/bin/{name}": tools[name]} for name in ON_MACHINE}
    unit = {"/usr/lib/systemd/system/kubelet.service": KUBELET}
    signer = Signer("Kubernetes of the bench")
    with AptRepository(folder, signer, listen=bench.gateway) as served:
        key = folder / "key.asc"
        key.write_bytes(signer.public)
        served.add(
            *(
                Deb(name, version, {**files, **(unit if name == "kubelet" else {})}, programs=tuple(files))
                for name, files in programs.items()
            )
        )
        yield {"uri": served.address, "key": str(key), "fingerprints": [signer.fingerprint]}


def settings_of(folder: Path, names: list[str], *, mirror: str, packages: dict[str, Any]) -> dict[str, Any]:
    """As the README has them, and what differs because these machines are containers that reach no registry."""
    images = [
        {"name": name, "url": f"{mirror}/{number}.tar", "sha256": digest_of(folder / f"{number}.tar")}
        for number, name in enumerate(names)
    ]
    return {
        "control_plane": {},
        "time": {"service": "none"},
        "kernel": {"swap": "keep"},
        "versions": {"containerd": "1.6.20", "runc": "1.1.5"},
        "untested": ["kubelet with containerd"],
        "sources": {"repositories": {"kubernetes": packages}},
        "container_runtime": {
            "package": "containerd",
            "cgroup_driver": "cgroupfs",
            "keep_oom_scores": True,
            "sandbox_image": next(name for name in names if "/pause:" in name),
            "images": images,
        },
    }


@contextlib.contextmanager
def balancing(cloud: Cloud, address: str) -> Iterator[None]:
    """Connections to the load balancer's address end at the first member that takes them."""

    class Forward(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            for member in cloud.members:
                with contextlib.suppress(OSError), socket.create_connection((member, API_PORT), timeout=2) as behind:
                    behind.settimeout(None)
                    back = threading.Thread(target=pump, args=(behind, self.request), daemon=True)
                    back.start()
                    pump(self.request, behind)
                    back.join()
                    return

    def pump(source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    class Balancer(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False

    with Balancer((address, API_PORT), Forward) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def spec_of(*, first: bool) -> MemberSpec:
    """A member of this cluster."""
    return MemberSpec(
        cluster="lab",
        region="us-east-1",
        version=VERSION,
        first=first,
        endpoint=ENDPOINT,
        names=(),
        pod_network="10.244.0.0/16",
        service_network="10.96.0.0/12",
        data_volume="vol-1",
        key="alias/aws/ssm",
        parameters=PARAMETERS,
        bucket="snapshots",
        snapshot_every=timedelta(hours=6),
    )


def etcdctl(host: Host, command: str) -> str:
    """What etcd's member on the host answers."""
    keys = "/etc/kubernetes/pki/etcd"
    return host.run(
        f"ETCDCTL_API=3 etcdctl --endpoints https://127.0.0.1:2379 --cacert {keys}/ca.crt --cert {keys}/server.crt"
        f" --key {keys}/server.key {command}"
    ).stdout


def etcd_members(host: Host) -> dict[str, str]:
    """Ids of etcd's members by name."""
    return {line.split(", ")[2]: line.split(", ")[0] for line in etcdctl(host, "member list").splitlines()}


def etcd_leader(host: Host) -> int:
    """Id of the member that leads."""
    leader: int = json.loads(etcdctl(host, "endpoint status -w json"))[0]["Status"]["leader"]
    return leader


def snapshots_under_one_leader(plane: Plane, *hosts: Host) -> list[str]:
    """Keys of the snapshots where each member was told to take one, and the same one led meanwhile."""
    s3 = plane.cloud.client("s3")
    for host in hosts:
        host.run("systemctl stop spillway-snapshot.timer", check=False, timeout=60)
    for _ in range(5):  # on a busy machine etcd elects another one now and then
        for one in s3.list_objects_v2(Bucket="snapshots").get("Contents", ()):
            s3.delete_object(Bucket="snapshots", Key=one["Key"])
        leader = etcd_leader(hosts[0])
        for host in hosts:
            host.run("systemctl start spillway-snapshot", timeout=60)
        if etcd_leader(hosts[0]) == leader:
            return [one["Key"] for one in s3.list_objects_v2(Bucket="snapshots").get("Contents", ())]
    raise AssertionError("etcd elected another leader in each of five tries")


def be_member(host: Host, spec: MemberSpec) -> None:
    """Boot, and wait until the member's own script says that it is one."""
    boot(host, spec)
    until(partial(is_over, host, "spillway-control-plane"), within=300, told=partial(log_of, host))


def is_over(host: Host, unit: str) -> bool:
    """A oneshot service that has ended well. Fails the test where it ended otherwise."""
    shown = host.run(f"systemctl show -p Result -p ExecMainExitTimestampMonotonic {unit}").stdout
    state = dict(line.split("=", 1) for line in shown.split())
    assert state["Result"] == "success", log_of(host)
    return state["ExecMainExitTimestampMonotonic"] != "0"


def log_of(host: Host) -> str:
    """Why it is not a member."""
    units = "journalctl -n 60 -o cat -u spillway-control-plane; journalctl -n 30 -o cat -u kubelet"
    return host.run(f"{units}; ctr -n k8s.io tasks ls", check=False).stdout


def end_but_for_its_volume(plane: Plane, host: Host) -> Path:
    """Its instance is terminated; gives an archive of the volume, which outlives it."""
    host.process.kill()
    host.process.wait()
    archive = plane.folder / f"{host.name}-volume.tar"
    run("tar", "-C", str(host.upper / "srv"), "-cf", str(archive), ".")
    plane.bench.end(host)
    return archive


def nodes(host: Host) -> dict[str, str]:
    """The version of each node's kubelet; none while the API server begins, and does not know yet who may ask."""
    said = host.run("kubectl --kubeconfig /etc/kubernetes/admin.conf get nodes -o json", check=False)
    items = json.loads(said.stdout)["items"] if said.returncode == 0 else []
    return {one["metadata"]["name"]: one["status"]["nodeInfo"]["kubeletVersion"] for one in items}


@pytest.fixture(scope="module")
def members(plane: Plane) -> list[Host]:
    """Three of them, joined: whoever is asked lists all."""
    first, second, last = plane.members(*ALL)
    plane.cloud.members += [first.address, second.address, last.address]
    be_member(first, spec_of(first=True))
    be_member(second, spec_of(first=False))
    be_member(last, spec_of(first=False))
    until(lambda: nodes(first) == ALL)
    assert sorted(etcd_members(second)) == sorted(ALL)
    return [first, second, last]


def test_members_found_join_and_save(plane: Plane, members: list[Host]) -> None:
    """No secret is told, the token is renewed, and the leader alone takes a snapshot."""
    first = members[0]
    assert_no_secret_is_told(plane, *members)
    token = plane.cloud.parameter(PARAMETERS.token)
    first.run("systemctl start spillway-renew-token", timeout=60)
    assert plane.cloud.parameter(PARAMETERS.token) != token

    [kept] = snapshots_under_one_leader(plane, *members)
    plane.cloud.client("s3").download_file("snapshots", kept, str(plane.folder / "snapshot.db"))
    status = json.loads(
        first.run(
            f"curl -sSf -o /tmp/it {plane.mirror}/snapshot.db && ETCDCTL_API=3 etcdctl snapshot status /tmp/it -w json"
        ).stdout
    )
    assert status["totalKey"] > 100


def test_a_member_whose_instance_is_replaced_comes_back_with_its_volume(plane: Plane, members: list[Host]) -> None:
    """As the same member of etcd, at the same address."""
    _, second, last = members
    founded = etcd_members(second)
    volume = end_but_for_its_volume(plane, last)
    [again] = plane.members(last.name, volume=volume)
    assert again.address == last.address, "its network interface outlives the instance too"
    be_member(again, spec_of(first=False))
    assert etcd_members(again) == founded
    until(lambda: nodes(again) == ALL)


def assert_no_secret_is_told(plane: Plane, *hosts: Host) -> None:
    """Neither the key that control planes join with nor a token stands in a log of a member."""
    said = "".join(host.run("journalctl -o cat --no-pager").stdout for host in hosts)
    assert "initialized successfully" in said
    assert plane.cloud.parameter(PARAMETERS.certificate_key) not in said
    assert plane.cloud.parameter(PARAMETERS.token).partition(".")[2] not in said
