"""An inventory file, a stack's outputs, or both become pyinfra hosts with checked settings; mistakes are told."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.errors import BadInput, Unavailable
from roles import commands
from roles.adopt import adopt
from roles.inventory import hosts as inventory
from roles.inventory.hosts import read_machines
from roles.inventory.instance_settings import NOBODY
from roles.settings.machine import MachineSettings, merged

MACHINE = {"name": "dgx-01", "address": "10.20.0.11", "cpus": 8, "memory": "64Gi", "rack": "r1"}
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ8Pp0Iwu2Q2j0z0l2s9v0m6v3Yk1d2c3b4a5Z6y7X8w"
OUTPUTS: dict[str, Any] = {
    "cluster": "lab",
    "region": "us-east-1",
    "machines": [{"name": "dgx-01", "address": "10.20.0.11"}, {"name": "dgx-02", "address": "10.20.0.12"}],
    "controlPlane": {
        "kind": "kubeadm",
        "endpoint": "https://10.0.0.5:6443",
        "certificateAuthority": base64.b64encode(NOBODY.encode()).decode(),
    },
}


def write(tmp_path: Path, *machines: dict[str, Any], **settings: Any) -> Path:
    """An inventory file."""
    path = tmp_path / "inventory.yaml"
    path.write_text(yaml.safe_dump({"machines": list(machines), "settings": settings}), encoding="utf-8")
    return path


def outputs(tmp_path: Path, **changed: Any) -> Path:
    """A stack's outputs."""
    path = tmp_path / "outputs.json"
    path.write_text(json.dumps(OUTPUTS | changed), encoding="utf-8")
    return path


def settings_of(hosts: inventory.Hosts, name: str) -> MachineSettings:
    """Of one host."""
    found = dict(hosts)[name]["settings"]
    assert isinstance(found, MachineSettings)
    return found


def test_a_mig_layout_names_only_gpus_that_the_machine_has(tmp_path: Path) -> None:
    """Refused when the file is read; the fleet's layout is none of a machine's concern that has no GPUs."""
    gpus = {"product": "NVIDIA-A100-SXM4-40GB", "count": 2, "memory": "40Gi"}
    layout = {"mig": {0: ["3g.20gb", "3g.20gb"], 2: ["1g.5gb"], 10: []}}
    with pytest.raises(BadInput, match=r"gpu\.mig names GPU 2, 10, and the machine has GPUs 0 to 1") as refused:
        read_machines(write(tmp_path, MACHINE | {"gpus": gpus}, gpu=layout))
    assert "machine dgx-01" in str(refused.value)
    read_machines(write(tmp_path, MACHINE, gpu=layout))


def test_a_machine_has_its_own_settings_over_the_fleets(tmp_path: Path) -> None:
    """Key by key; what it does not say is the fleet's."""
    own = MACHINE | {"settings": {"logs": {"keep": "3day"}, "kernel": {"sysctl": {"vm.swappiness": 1}}}}
    file = write(tmp_path, own, logs={"keep": "7day", "journal_size": "4G"}, time={"servers": ["ntp.lab"]})
    wanted = settings_of(read_machines(file), "dgx-01")
    assert (wanted.logs.keep, wanted.logs.journal_size) == ("3day", "4G")
    assert wanted.time.servers == ("ntp.lab",)
    assert wanted.kernel.sysctl == {"vm.swappiness": "1"}
    assert wanted.labels["spillway.dev/rack"] == "r1"


def test_the_machine_is_known_by_its_host_key(tmp_path: Path) -> None:
    """Nobody else is taken for it; an account that is not root goes through sudo."""
    ssh = {"user": "ops", "port": 2222, "host_key": KEY}
    data = dict(read_machines(write(tmp_path, MACHINE | {"ssh": ssh})))["dgx-01"]
    assert (data["ssh_user"], data["ssh_port"], data["_sudo"]) == ("ops", 2222, True)
    assert data["ssh_strict_host_key_checking"] == "yes"
    assert Path(data["ssh_known_hosts_file"]).read_text(encoding="ascii") == f"[10.20.0.11]:2222 {KEY}\n"


def test_a_machine_without_a_host_key_is_not_whichever_answers(tmp_path: Path) -> None:
    """It is known by ~/.ssh/known_hosts, or not at all, unless it is said on the command line to believe it."""
    known = MACHINE | {"name": "dgx-02", "address": "10.20.0.12", "ssh": {"host_key": KEY}}
    file = write(tmp_path, MACHINE, known)
    assert {data["ssh_strict_host_key_checking"] for _, data in read_machines(file)} == {"yes"}
    given = {"inventory": file, "outputs": None, "limit": "", "role": "roles.node:prepare"}
    for accept, how in ((False, "yes"), (True, "accept-new")):
        machines = dict(commands._machines(given | {"accept_new_host_keys": accept}))
        assert machines["dgx-01"]["ssh_strict_host_key_checking"] == how
        assert machines["dgx-02"]["ssh_strict_host_key_checking"] == "yes"  # the inventory's own key counts


READS = (
    "import sys, pathlib, roles.inventory.hosts as i; i.read_machines(pathlib.Path(sys.argv[1])); print('', flush=True)"
)


def test_host_keys_of_a_run_that_was_killed_go_with_the_next(tmp_path: Path) -> None:
    """Those of a run that is under way stay, and each run takes its own with it when it ends."""
    file = write(tmp_path, MACHINE | {"ssh": {"host_key": KEY}})
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    command, environment = [sys.executable, "-c", READS], os.environ | {"TMPDIR": str(scratch)}
    killed, under_way = (
        subprocess.Popen(
            [*command[:2], f"{READS}; sys.stdin.read()", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        for _ in range(2)
    )
    try:
        for process in (killed, under_way):
            assert process.stdout
            process.stdout.readline()
        assert len(list(scratch.iterdir())) == 2
        killed.kill()
        killed.wait()
        subprocess.run([*command, str(file)], env=environment, check=True, capture_output=True)
        assert [len(list(left.iterdir())) for left in scratch.iterdir()] == [1], "that of the one under way"
        under_way.communicate()
        assert list(scratch.iterdir()) == []
    finally:
        for process in (killed, under_way):
            process.kill()
            process.communicate()


def test_a_machine_that_only_the_stack_tells_of_is_all_that_it_tells(tmp_path: Path) -> None:
    """Its labels, taints and GPUs, and how it is reached: else the roles would take off what the stack put on."""
    told = {
        "name": "dgx-03",
        "address": "10.20.0.13",
        "sshUser": "admin",
        "sshPort": 2222,
        "labels": {"example.com/tier": "gold"},
        "taints": [{"key": "nvidia.com/gpu", "value": "", "effect": "NoSchedule"}],
        "gpuProduct": "NVIDIA-A100-SXM4-80GB",
        "gpus": 8,
    }
    [(name, data)] = read_machines(None, outputs=outputs(tmp_path, machines=[told]))
    machine = data["settings"]
    assert (name, data["ssh_user"], data["ssh_port"]) == ("dgx-03", "admin", 2222)
    assert machine.labels["example.com/tier"] == "gold"
    assert [taint.key for taint in machine.taints] == ["nvidia.com/gpu"]
    assert (machine.gpu_product, machine.gpu_count) == ("NVIDIA-A100-SXM4-80GB", 8)


def test_the_stack_adds_machines_and_the_cluster_that_they_join(tmp_path: Path) -> None:
    """A machine of both is one; its cluster is the stack's unless the file names another."""
    hosts = read_machines(write(tmp_path, MACHINE), outputs=outputs(tmp_path))
    assert [name for name, _ in hosts] == ["dgx-01", "dgx-02"]
    for name in ("dgx-01", "dgx-02"):
        kubelet = settings_of(hosts, name).kubelet
        assert kubelet
        assert kubelet.server == "https://10.0.0.5:6443"
    alone = read_machines(None, outputs=outputs(tmp_path))
    assert [name for name, _ in alone] == ["dgx-01", "dgx-02"]


def test_plain_pyinfra_finds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By two variables of the environment."""
    monkeypatch.setenv(inventory.FILE, str(write(tmp_path, MACHINE)))
    monkeypatch.setenv(inventory.OUTPUTS, str(outputs(tmp_path)))
    assert [name for name, _ in inventory.machines()["machines"]] == ["dgx-01", "dgx-02"]


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"kernel": {"swop": "off"}}, r"dgx-01: settings: kernel.swop is not a key here; did you mean swap\?"),
        ({"logs": {"ship_to": "logs.lab"}}, r"logs.ship_to = 'logs.lab': must be HOST:PORT"),
        ({"users": [{"name": "ada", "keys": ["AAAA"]}]}, r"users\[0\] \(ada\).keys.*is no public key"),
        ({"users": [{"name": "ada"}, {"name": "ada"}]}, r"users.*has ada twice"),
        ({"pod_network": {"kind": "bridge"}}, r"pod_network.*must be this machine's own subnet"),
        ({"kubelet": {"server": "http://x", "authority": NOBODY}}, r"kubelet.server.*https://"),
        ({"kubelet": {"server": "https://x:1", "authority": "/nowhere/ca"}}, r"kubelet.authority.*cannot be read"),
        ({"container_runtime": {"images": [{"name": "a", "url": "http://x", "sha256": "1"}]}}, r"64 hex digits"),
        ({"labels": {"a": "b"}}, r"settings.labels: stands in the machine's own entry"),
        ({"address": "10.0.0.1"}, r"settings.address: stands in the machine's own entry"),
    ],
)
def test_a_mistake_is_told_with_machine_and_key(tmp_path: Path, settings: dict[str, Any], told: str) -> None:
    """And what would be right."""
    with pytest.raises(BadInput, match=told):
        read_machines(write(tmp_path, MACHINE | {"settings": settings}))


def test_file_and_stack_that_mean_two_machines_are_told(tmp_path: Path) -> None:
    """One name, two addresses."""
    path = outputs(tmp_path, machines=[{"name": "dgx-01", "address": "10.20.0.99"}])
    with pytest.raises(BadInput, match=r"machine dgx-01: address = '10.20.0.11', but .*outputs.json says '10.20.0.99'"):
        read_machines(write(tmp_path, MACHINE), outputs=path)


def test_no_machines_at_all_is_told() -> None:
    """Neither file nor stack."""
    with pytest.raises(BadInput, match="give an inventory file"):
        read_machines(None)


def test_lists_are_replaced_and_mappings_merged() -> None:
    """A machine's list of time servers is its own, not an addition."""
    assert merged({"a": {"b": [1], "c": 2}}, {"a": {"b": [3]}}) == {"a": {"b": [3], "c": 2}}


A100 = {"product": "NVIDIA-A100-SXM4-80GB", "count": 8, "memory": "80Gi"}
JOINS = {"server": "https://10.0.0.1:6443", "authority": NOBODY}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (
            {"kernel": {"sysctl": {"vm.swappiness": "1\nkernel.panic = 0"}}},
            r"sysctl: sets vm\.swappiness to '1",
        ),
        (
            {"kernel": {"sysctl": {"vm swappiness": 1}}},
            r"names 'vm swappiness'.*e\.g\. vm\.max_map_count",
        ),
        ({"kernel": {"sysctl": {"vm.swappiness": [1]}}}, r"sets vm\.swappiness to \[1\]: write a number"),
        ({"kernel": {"modules": ["x; reboot"]}}, r"kernel\.modules\[0\] = 'x; reboot'.*e\.g\. \[ib_umad\]"),
        (
            {"time": {"servers": ["ntp1 iburst"]}},
            r"time\.servers\[0\] = 'ntp1 iburst': must be an IP address or a DNS name",
        ),
        ({"users": [{"name": "ada", "groups": ["a b"]}]}, r"users\[0\] \(ada\)\.groups\[0\] = 'a b'.*e\.g\. \[video\]"),
        ({"users": [{"name": "ada", "shell": "zsh"}]}, r"users\[0\] \(ada\)\.shell = 'zsh'.*e\.g\. /bin/zsh"),
        ({"logs": {"ship_to": "logs.lab:99999"}}, r"logs\.ship_to = 'logs\.lab:99999': must be HOST:PORT"),
        ({"logs": {"container_size": "huge"}}, r"logs\.container_size = 'huge'.*such as 500m"),
        ({"health": {"every": "0s"}}, r"health\.every = '0s'.*e\.g\. 1min"),
        ({"container_runtime": {"sandbox_image": 'a"\nb'}}, r"container_runtime\.sandbox_image = "),
        (
            {"kubelet": JOINS | {"authority": "/etc/hostname"}},
            r"kubelet\.authority = '/etc/hostname': holds no",
        ),
        (
            {"kubelet": JOINS | {"authority": NOBODY[:200]}},
            r"kubelet\.authority.*the text is no certificate that can",
        ),
        (
            {"kubelet": JOINS | {"authority": NOBODY + NOBODY.replace("MII", "MIJ")}},
            r"authority.*copy the cluster's ca\.crt whole",
        ),
        (
            {"kubelet": JOINS | {"join": "machine"}},
            r":\d+: machine dgx-01: settings: kubelet\.join: machine is for EC2.* leave",
        ),
        ({"users": [{"name": "daemon", "keys": []}]}, r"users\[0\] \(daemon\): is an account of the system"),
        (
            {"users": [{"name": "root", "keys": [KEY], "sudo": True}]},
            r"users\[0\] \(root\): may have keys.*leave out sudo",
        ),
        ({"users": [{"name": "root", "gone": True}]}, r"users\[0\] \(root\): may have keys.*leave out gone"),
        (
            {"kernel": {"sysctl": {"net.ipv4.conf.*.rp_filter": 1}}},
            r"sysctl: names 'net\.ipv4\.conf\.\*.*write the key",
        ),
        ({"kernel": {"sysctl": {"-vm.swappiness": 1}}}, r"sysctl: names '-vm\.swappiness'"),
        ({"kubelet": JOINS | {"reserved": {"gpu": "1"}}}, r"kubelet\.reserved: names 'gpu'.*cpu, memory"),
        ({"kubelet": JOINS | {"reserved": {"cpu": "lots"}}}, r"kubelet\.reserved: 'lots' is not a quantity"),
        ({"kubelet": JOINS | {"cluster_dns": ["dns"]}}, r"kubelet\.cluster_dns: holds 'dns': write IP addresses"),
        (
            {"pod_network": {"kind": "bridge", "pods": "10.0.0.0/40"}},
            r"pods = '10\.0\.0\.0/40' must be this machine",
        ),
        ({"pod_network": {"kind": "bridge", "pods": "10.20.0.0/16"}}, r"own address 10\.20\.0\.11 lies in it"),
        (
            {"gpu": {"driver": True}, "versions": {"driver": "580"}},
            r"driver = '580': must be a whole version",
        ),
        (
            {"gpu": {"driver": True}, "versions": {"driver": "new"}},
            r"versions: driver = 'new': must be a version",
        ),
        ({"versions": {"drivr": "580.1.1"}}, r"versions\.drivr is not a part here; the parts are: driver"),
        (
            {"untested": ["kubelt with runc"]},
            r"untested: 'kubelt with runc' is no pair of the matrix; there are",
        ),
        ({"gpu": {"mig": {0: ["3g.40gb"] * 3}}}, r"gpu\.mig\.0 takes 9 slices \(3g\.40gb.*a GPU has 7"),
        ({"gpu": {"mig": {0: "3g.40gb"}}}, r"gpu\.mig\.0 = '3g\.40gb': must be a list"),
        ({"gpu": {"mig": {0: ["3g.20gb"]}}}, r"gpu\.mig\.0 has 3g\.20gb, which NVIDIA-A100-SXM4-80GB does not know"),
        ({"gpu": {"mig": {0: ["1g.20gb"] * 5}}}, r"gpu\.mig\.0 takes 10 eighths of the memory"),
        ({"versions": {"containerd": "2"}}, r"versions: containerd = '2': must be a whole version"),
        ({"versions": {"kubelet": "1"}}, r"versions: kubelet = '1': must be a whole version"),
        ({"gpu": {"cuda": True}, "versions": {"cuda": "open"}}, r"cuda = 'open': must be a version"),
        ({"versions": {"driver_modules": "opne"}}, r"driver_modules = 'opne': must be open or proprietary"),
        ({"kubelet": JOINS | {"max_pods": True}}, r"kubelet\.max_pods = True: must be a whole number"),
        ({"kubelet": JOINS | {"server": "https://10.0.0.1:99999"}}, r"kubelet\.server.*must be https://HOST:PORT"),
        (
            {"kubelet": JOINS | {"config": {"evictionHrad": {}}}},
            r"config: has evictionHrad, which is no key.*did you mean evictionHard\?",
        ),
        (
            {"kubelet": JOINS | {"config": {"cgroupDriver": "cgroupfs"}}},
            r"config: has cgroupDriver, which the roles write.*container_runtime\.cgroup_driver",
        ),
        ({"kubelet": JOINS | {"config": {"podPidsLimit": "many"}}}, r"podPidsLimit = 'many': must be a number"),
        ({"kubelet": JOINS | {"config": {"failCgroupV1": "no"}}}, r"failCgroupV1 = 'no': must be true or false"),
        ({"kubelet": JOINS | {"config": {"shutdownGracePeriod": 30}}}, r"= 30: must be a span of time, e\.g\. 5m0s"),
        (
            {"kubelet": JOINS | {"config": {"evictionHard": {"memory.availble": "1Gi"}}}},
            r"evictionHard of 'memory\.availble', which is no signal",
        ),
        ({"pod_network": {"kind": "bridge", "pods": "10.244.7.0/32"}}, r"holds 1 addresses.*e\.g\. 10\.244\.7\.0/24"),
        ({"pod_network": {"pods": "10.244.7.0/24"}}, r"is for a bridge: write kind: bridge"),
        ({"time": {"service": "none", "servers": ["ntp"]}}, r"time: servers are asked by chrony alone"),
        ({"kernel": {"sysctl": {"net.ipv4.ip_forward": 0}}}, r"sets net\.ipv4\.ip_forward to 0: pods of a node need"),
        ({"kernel": {"modules": ["nouveau"]}}, r"kernel\.modules: names nouveau, which takes the GPUs"),
        ({"kernel": {"swap": True}}, r"kernel\.swap = True: input should be 'off' or 'keep'"),
        ({"users": [{"name": "root", "keys": []}]}, r"users: root has no keys, and is the account by which"),
        ({"users": [{"name": "ada", "keys": ["ssh-ed25519 AAAA ada"]}]}, r"holds 'ssh-ed25519 AAAA ada', which is no"),
        ({"logs": {"container_size": "0"}}, r"container_size = '0': must be more than nothing"),
        (
            {"container_runtime": {"images": [{"name": "a", "url": "http://x", "sha256": "a" * 64}] * 2}},
            r"images: has a twice",
        ),
        ({"sources": {"repositories": {"docker": {"fingerprints": 5}}}}, r"fingerprints = 5: must be a list"),
        ({"sources": {"mirror": "mirror.lab"}}, r"sources: mirror = 'mirror\.lab': must be an address such as http://"),
        ({"sources": {"mirorr": "http://m"}}, r"sources: mirorr is not a key here; did you mean mirror\?"),
        ({"sources": {"repositories": []}}, r"sources: repositories: must be a mapping"),
        ({"sources": {"repositories": {"nvidia-cuda": "x"}}}, r"repositories\.nvidia-cuda = 'x': must be a mapping"),
        ({"sources": {"repositories": {"docker": {"key": "/no"}}}}, r"docker\.key = '/no': there is no such file"),
        ({"sources": {"repositories": {"docker": {"key": "~nobody-here/key"}}}}, r"there is no such file"),
        ({"sources": {"repositories": {"docker": {"key": "ftp://x/key"}}}}, r"docker\.key = 'ftp:.*must be a path on"),
        ({"sources": {"mirror": "http://:8081"}}, r"sources: mirror = 'http://:8081': must be an address"),
        (
            {"sources": {"mirror": "http://mirror.lab:99999"}},
            r"mirror = 'http://mirror\.lab:99999': must be an address",
        ),
        ({"sources": {"mirror": "http://10.20.0.300"}}, r"mirror = 'http://10\.20\.0\.300': must be an address"),
        (
            {"sources": {"repositories": {"docker": {"uri": "docker.lab"}}}},
            r"docker\.uri = 'docker\.lab': must be an add",
        ),
        (
            {"sources": {"repositories": {"docker": {"uri": "http://x/{codname}"}}}},
            r"docker\.uri = .*has braces around what stands for nothing; there are \{distribution\}, .*\{codename\}",
        ),
        ({"sources": {"repositories": {"docker": {"uri": "http://x/{"}}}}, r"uri = 'http://x/\{': has braces around"),
        ({"sources": {"repositories": {"docker": {"uri": "http://x\nTrusted: yes"}}}}, r"must be an address such as"),
        ({"sources": {"repositories": {"docker": {"suites": []}}}}, r"docker\.suites: must name one at least"),
        ({"sources": {"repositories": {"docker": {"suites": ["{0}"]}}}}, r"docker\.suites: has braces around"),
        ({"sources": {"repositories": {"docker": {"components": ["a b"]}}}}, r"components: holds 'a b': must be words"),
        (
            {"sources": {"repositories": {"docker": {"only": ["Debian"]}}}},
            r"docker\.only: names 'Debian': the roles know debian and ubuntu",
        ),
        (
            {"gpu": {"driver": True}, "versions": {"driver": "580.126.9"}},
            r"driver = '580\.126\.9'.*such as 580\.126\.09",
        ),
        ({"gpu": {"driver": True}, "versions": {"driver": "580.126.09.1"}}, r"driver = .*such as 580\.126\.09"),
        ({"versions": {"driver": "٥٨٠.126.09"}}, r"must be a version such as 580\.126\.09"),
        (
            {"versions": {"kubelet": "1.35.4-1.1"}},
            r"kubelet = '1\.35\.4-1\.1': must be the version without.*1\.35\.4: th",
        ),
        ({"versions": {"containerd": "1.7.28-1"}}, r"containerd = '1\.7\.28-1': must be.*revision, 1\.7\.28: that"),
        ({"versions": {"containerd": "1.6.20~ds1-1+deb12u1"}}, r"without its package's revision, 1\.6\.20: that"),
        ({"versions": {"runc": "1.1.5+ds1"}}, r"runc = '1\.1\.5\+ds1': must be.*1\.1\.5: that follows by itself"),
        ({"versions": {"cuda": "13.0.2"}}, r"cuda = '13\.0\.2': must be a release such as 13\.0: its newest update"),
        ({"kubelet": JOINS | {"authority": "~nobody-here/ca"}}, r"authority = '~nobody-here/ca': cannot be read"),
        (
            {"kubelet": JOINS | {"download": {"url": "http:// mirror.lab/k", "sha256": "a" * 64}}},
            r"download\.url = .*must be the address of a file, e\.g\.",
        ),
        ({"kubelet": JOINS | {"download": {"url": "http://", "sha256": "a" * 64}}}, r"must be the address of a file"),
        ({"logs": {"journal_size": "0G"}}, r"journal_size = '0G'.*e\.g\. 2G"),
        ({"logs": {"keep": "0day"}}, r"logs\.keep = '0day'.*e\.g\. 14day"),
        ({"logs": {"keep": "99999999999month"}}, r"logs\.keep = .*e\.g\. 14day"),
        (
            {"logs": {"container_size": "50"}},
            r"container_size = '50': is in bytes, and few: write its unit, e\.g\. 50Mi",
        ),
        ({"health": {"every": "9999999h"}}, r"health\.every = .*e\.g\. 1min"),
        (
            {"kernel": {"sysctl": {"vm/swappiness": 1, "vm.swappiness": 2}}},
            r"sysctl: sets vm\.swappiness twice, as vm\.swappiness and as vm/swappiness",
        ),
        ({"kernel": {"sysctl": {"net/ipv4/ip_forward": 0}}}, r"sets net/ipv4/ip_forward to 0: pods of a node need"),
        ({"kernel": {"sysctl": {"-net.ipv4.ip_forward": 0}}}, r"names '-net\.ipv4\.ip_forward'.*write the key"),
        ({"gpu": {"mig": {"00": ["1g.10gb"]}}}, r"gpu\.mig: names GPU '00': write its index, 0 for the first"),
        ({"gpu": {"mig": {"²": ["1g.10gb"]}}}, r"gpu\.mig: names GPU '²': write its index"),
        (
            {"container_runtime": {"sandbox_image": "https://registry.k8s.io/pause:3.10"}},
            r"sandbox_image = 'https:.*is not the name of an image: write one",
        ),
        (
            {"container_runtime": {"sandbox_image": "registry.k8s.io/Pause:3"}},
            r"sandbox_image = .*is not the name of an image: write one",
        ),
        (
            {"container_runtime": {"images": [{"name": "a b", "url": "http://x/a", "sha256": "a" * 64}]}},
            r"images\[0\] \(a b\)\.name = 'a b'.*is not the name of an image: write one",
        ),
    ],
)
def test_a_setting_that_cannot_be_is_refused_when_the_file_is_read(
    tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    """In one line for each mistake, with file, machine, key and value; no machine was asked anything."""
    file = write(tmp_path, MACHINE | {"gpus": A100}, **settings)
    with pytest.raises(BadInput, match=told) as refused:
        read_machines(file)
    told_at = re.compile(rf"{re.escape(str(file))}:\d+: machine dgx-01: ")
    assert all(told_at.match(line) for line in str(refused.value).splitlines())


def test_a_private_key_that_is_not_there_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    """As a mistake of the file, not as a machine that is away; whoever only reads the file needs no key."""
    file = write(tmp_path, MACHINE | {"ssh": {"key": "/nowhere/id"}})
    assert dict(read_machines(file))["dgx-01"]["ssh_key"] == "/nowhere/id"
    of_nobody = write(tmp_path, MACHINE | {"ssh": {"key": "~nobody-here/id"}})
    assert dict(read_machines(of_nobody))["dgx-01"]["ssh_key"] == "~nobody-here/id"
    file = write(tmp_path, MACHINE | {"ssh": {"key": "/nowhere/id"}})
    given: dict[str, Any] = {"inventory": file, "outputs": None, "limit": "", "role": "roles.node:prepare"}
    with pytest.raises(BadInput, match=r"machine dgx-01: ssh\.key = '/nowhere/id': this controller has no such file"):
        commands.plan(as_json=False, html=None, state=None, **given)


def test_an_inventory_of_no_machines_is_nothing_to_look_at(tmp_path: Path) -> None:
    """A run that would say that all is well; what is made of its settings alone, a bundle, needs none."""
    file = write(tmp_path)
    given: dict[str, Any] = {"inventory": file, "outputs": None, "limit": "", "role": "roles.node:prepare"}
    with pytest.raises(BadInput, match=rf"{re.escape(str(file))}: machines is empty: there is nothing to look at"):
        commands.plan(as_json=False, html=None, state=None, **given)
    given["outputs"] = outputs(tmp_path, machines=[])
    with pytest.raises(BadInput, match=r"inventory\.yaml and .*outputs\.json: machines is empty"):
        commands.plan(as_json=False, html=None, state=None, **given)


def test_the_cluster_is_the_one_that_the_settings_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without --kubeconfig; of two clusters, neither."""
    asked: list[Path | None] = []

    def connect(kubeconfig: Path | None) -> None:
        asked.append(kubeconfig)
        raise Unavailable("no server")

    monkeypatch.setattr(commands.Kube, "connect", connect)
    other = {"name": "dgx-02", "address": "10.20.0.12", "cpus": 8, "memory": "64Gi"}
    machines = [machine | {"settings": {"kubeconfig": f"/{machine['name']}"}} for machine in (MACHINE, other)]
    given: dict[str, Any] = {"outputs": None, "role": "roles.node:prepare", "ignore": (), "allow": "reload"}
    given |= {"batch": "1", "max_down": 1, "drain": False, "tolerate": 0, "no_cluster": False, "kubeconfig": None}
    given |= {"as_json": False, "html": None, "state": tmp_path, "limit": "", "inventory": write(tmp_path, *machines)}
    with pytest.raises(BadInput, match=r"settings\.kubeconfig: /dgx-01 and /dgx-02 are two clusters"):
        commands.apply(**given)
    with pytest.raises(Unavailable):
        commands.apply(**given | {"limit": "dgx-02"})
    assert asked == [Path("/dgx-02")]


def test_an_account_before_an_address_is_no_address() -> None:
    """As ssh takes it: told how it is written here."""
    with pytest.raises(BadInput, match=r"spillway nodes adopt --user ops 192\.0\.2\.1"):
        adopt(hosts=("ops@192.0.2.1",), user="root", key=None, port=22, role="roles.node:prepare", output=None)


def test_a_gpu_that_cannot_be_divided_is_not(tmp_path: Path) -> None:
    """As far as its name tells: nvidia-smi would refuse it on the machine, after the driver was changed there."""
    for product in ("Tesla-T4", "NVIDIA-L40S", "NVIDIA-A10G", "NVIDIA-RTX-6000-Ada-Generation"):
        machine = MACHINE | {"gpus": {"product": product, "count": 1, "memory": "16Gi"}}
        with pytest.raises(BadInput, match=f"gpu.mig divides GPU 0, but {product} knows no MIG"):
            read_machines(write(tmp_path, machine, gpu={"mig": {0: ["1g.5gb"]}}))
    for product, profile in (
        ("NVIDIA-A30", "1g.6gb"),
        ("NVIDIA-H200", "1g.18gb+me"),
        ("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "1g.24gb+me.all"),
        ("Something-New", "1g.6gb"),
    ):
        machine = MACHINE | {"gpus": {"product": product, "count": 1, "memory": "24Gi"}}
        read_machines(write(tmp_path, machine, gpu={"mig": {0: [profile]}}))


def test_a_mistake_is_told_with_the_line_where_it_was_written(tmp_path: Path) -> None:
    """Of the fleet's settings, of a machine's own over them, of the entry where neither says anything."""
    file = tmp_path / "inventory.yaml"
    text = """\
settings:
  logs: {keep: 7day}
  time:
    servers: [ntp.lab]
machines:
  - name: dgx-01
    address: 10.20.0.11
    cpus: 8
    memory: 64Gi
    settings:
      logs:
        keep: KEEP
"""
    file.write_text(text.replace("KEEP", "3days"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"inventory\.yaml:12: machine dgx-01: settings: logs\.keep = '3days'"):
        read_machines(file)
    file.write_text(text.replace("KEEP", "3day").replace("servers", "server"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"inventory\.yaml:4: machine dgx-01: settings: time\.server is not a key"):
        read_machines(file)
    file.write_text(text.replace("KEEP", "3day") + "ec2_settings:\n  lgos: {}\n", encoding="utf-8")
    with pytest.raises(BadInput, match=r"inventory\.yaml:14: ec2_settings over settings: lgos.*did you mean logs"):
        read_machines(file)


def test_off_is_a_word_also_where_yaml_reads_it_as_false(tmp_path: Path) -> None:
    """`swap: off`, as the documentation writes it."""
    file = write(tmp_path, MACHINE)
    file.write_text(
        file.read_text(encoding="utf-8").replace("settings: {}", "settings: {kernel: {swap: off}}"), "utf-8"
    )
    assert settings_of(read_machines(file), "dgx-01").kernel.swap == "off"


def test_nobody_is_locked_out_of_the_account_that_the_controller_comes_in_by(tmp_path: Path) -> None:
    """Where the public half lies beside the private key; options before a key are the key's own matter."""
    key, other = tmp_path / "id", "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGPKSUTyz1HwHReFVvD5obVsALAgJRNarH4TRpNePnAS"
    machine = MACHINE | {"ssh": {"key": str(key)}}
    file = write(tmp_path, machine, users=[{"name": "root", "keys": [f'from="10.0.0.0/8" {other} them']}])
    read_machines(file)
    key.with_name("id.pub").write_text(f"{KEY} ours\n", encoding="ascii")
    with pytest.raises(BadInput, match=r"the keys of root, which is the account.*have not that of ssh\.key"):
        read_machines(file)
    key.with_name("id.pub").write_text(f"{other} ours\n", encoding="ascii")
    read_machines(file)


def test_machines_do_not_share_addresses_of_pods(tmp_path: Path) -> None:
    """Two of one subnet, or of one in the other, are told by name."""
    other = {"name": "dgx-02", "address": "10.20.0.12", "cpus": 8, "memory": "64Gi"}
    own = [{"settings": {"pod_network": {"pods": pods}}} for pods in ("10.244.0.0/16", "10.244.7.0/24")]
    file = write(tmp_path, MACHINE | own[0], other | own[1], pod_network={"kind": "bridge"})
    with pytest.raises(BadInput, match=r"dgx-02: .*pods = '10\.244\.7\.0/24': machine dgx-01 has 10\.244\.0\.0/16"):
        read_machines(file)
