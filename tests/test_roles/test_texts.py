"""What roles write: configurations of containerd and kubelet, labels, marks, and the scripts of facts and checks."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from pydantic import ValidationError

import roles
from roles.checks.versions import machine_mistakes
from roles.deploys.apt_sources import needed
from roles.deploys.container_runtime import containerd_config
from roles.deploys.docker import VALIDATE
from roles.deploys.health import health_script
from roles.deploys.kubelet import kubelet_config, kubelet_unit, self_labels
from roles.deploys.logs import rotation
from roles.deploys.reboot import why_the_kernel
from roles.facts.containers import ImageMarks
from roles.facts.gpu import Driver
from roles.facts.kernel import SYSCTL, ClockOffset, ForbiddenModules, RebootAsked, SysctlFiles, SysctlValue
from roles.facts.nodes import AUTHORITY, PKI, Identity
from roles.facts.packages import Pin, PinFiles
from roles.facts.users import Accounts
from roles.inventory.instance_settings import NOBODY
from roles.membership import bootstrap
from roles.operations.kernel import finds_itself
from roles.operations.packages import speaks_of
from roles.settings.cluster import ContainerRuntime, Kubelet
from roles.settings.machine import MachineSettings

KUBELET = Kubelet(server="https://10.0.0.1:6443", authority=NOBODY)
MACHINE = MachineSettings(
    name="dgx-01", address="10.20.0.11", gpu_count=8, kubelet=KUBELET, labels={"spillway.dev/rack": "r1"}
)


@pytest.mark.parametrize(
    ("version", "format_", "plugin"),
    [
        ("1.6.20", 2, "io.containerd.grpc.v1.cri"),
        ("1.7.28", 2, "io.containerd.grpc.v1.cri"),
        ("2.1.4", 3, "io.containerd.cri.v1.runtime"),
    ],
)
def test_containerd_is_configured_in_its_own_format(version: str, format_: int, plugin: str) -> None:
    """With runc beside nvidia, runc the default, and one cgroup driver for both."""
    config = containerd_config(ContainerRuntime(sandbox_image="lab/pause:1"), version=version, gpus=True)
    assert config["version"] == format_
    runtime = config["plugins"][plugin]
    assert runtime["containerd"]["default_runtime_name"] == "runc"
    runtimes = runtime["containerd"]["runtimes"]
    assert sorted(runtimes) == ["nvidia", "runc"]
    assert {one["options"]["SystemdCgroup"] for one in runtimes.values()} == {True}
    assert tomllib.loads(tomli_w.dumps(config)) == config
    assert runtime.get("enable_cdi") == (True if version != "1.6.20" else None)


def test_the_kubelet_and_containerd_have_one_cgroup_driver() -> None:
    """Whichever it is: a pod whose two parents differ is killed within seconds."""
    machine = MACHINE.model_copy(update={"container_runtime": ContainerRuntime(cgroup_driver="cgroupfs")})
    assert kubelet_config(machine, KUBELET)["cgroupDriver"] == "cgroupfs"
    runtimes = containerd_config(machine.container_runtime, version="2.1.4")["plugins"]
    options = runtimes["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["runc"]["options"]
    assert options["SystemdCgroup"] is False


def test_a_node_of_the_controller_comes_in_with_one_taint_and_no_labels() -> None:
    """So that a label that changes restarts no kubelet."""
    assert [one["key"] for one in kubelet_config(MACHINE, KUBELET)["registerWithTaints"]] == ["spillway.dev/joining"]
    assert "--node-labels" not in kubelet_unit(MACHINE, KUBELET)
    itself = KUBELET.model_copy(update={"join": "machine"})
    assert "--node-labels=spillway.dev/rack=r1" in kubelet_unit(MACHINE, itself)
    assert kubelet_config(MACHINE, itself)["registerWithTaints"] == []


def test_a_kubelets_keys_are_roots_alone_from_its_first_start_on() -> None:
    """It makes their folder itself, for all to look into, where there is none."""
    assert f"\nExecStartPre=/usr/bin/install -d -m 700 {PKI}\nExecStart=" in kubelet_unit(MACHINE, KUBELET)


def test_pods_are_told_of_name_servers_that_they_reach() -> None:
    """Not of the machine's own resolver; an operator's word comes before ours."""
    assert "resolvConf" not in kubelet_config(MACHINE, KUBELET)
    assert kubelet_config(MACHINE, KUBELET, names_at="/run/r")["resolvConf"] == "/run/r"
    own = KUBELET.model_copy(update={"config": {"resolvConf": "/etc/mine"}})
    assert kubelet_config(MACHINE, own, names_at="/run/r")["resolvConf"] == "/etc/mine"


def test_a_kubelet_gives_itself_no_label_that_it_may_not() -> None:
    """Else the API server refuses the whole node."""
    labels = {
        "kubernetes.io/hostname": "x",
        "topology.kubernetes.io/zone": "a",
        "node-role.kubernetes.io/worker": "",
        "node-restriction.kubernetes.io/team": "v",
        "node.kubernetes.io/exclude-from-external-load-balancers": "",
        "nvidia.com/gpu.count": "8",
        "plain": "1",
    }
    assert sorted(self_labels(labels)) == [
        "node.kubernetes.io/exclude-from-external-load-balancers",
        "nvidia.com/gpu.count",
        "plain",
        "topology.kubernetes.io/zone",
    ]


def node(**spec: Any) -> dict[str, Any]:
    """As the API has it."""
    metadata = {"labels": {"spillway.dev/rack": "r1", "other": "x"}, "annotations": {}}
    return {"metadata": metadata, "spec": {"taints": [{"key": "theirs", "effect": "NoExecute"}], **spec}}


def test_marks_are_written_over_ours_only() -> None:
    """What an earlier inventory declared goes; what others wrote stays; the joining taint goes."""
    first = bootstrap.marks(
        node(), labels={"spillway.dev/rack": "r2"}, taints=[{"key": "ours", "effect": "NoSchedule"}]
    )
    assert [one["key"] for one in first["spec"]["taints"]] == ["theirs", "ours"]
    later = node(taints=[*first["spec"]["taints"], {"key": "spillway.dev/joining", "effect": "NoSchedule"}])
    later["metadata"]["annotations"] = first["metadata"]["annotations"]
    second = bootstrap.marks(later, labels={"tier": "a"}, taints=[])
    assert second["metadata"]["labels"] == {"spillway.dev/rack": None, "tier": "a"}
    assert [one["key"] for one in second["spec"]["taints"]] == ["theirs"]


def test_marks_survive_an_annotation_that_somebody_garbled() -> None:
    """Nothing is known of what was declared before: nothing of it goes."""
    garbled = node()
    garbled["metadata"]["annotations"]["spillway.dev/declared"] = "{not json"
    assert bootstrap.marks(garbled, labels={}, taints=[])["metadata"]["labels"] == {}


def test_sysctl_values_are_those_in_force() -> None:
    """Also of keys with several numbers, and of keys that this kernel lacks."""
    keys = ["kernel.ostype", "net.ipv4.ip_local_port_range", "kernel.no_such_thing"]
    said = subprocess.run(["sh", "-c", SYSCTL.shell(keys)], capture_output=True, text=True, check=True).stdout
    split = SYSCTL.split(said.splitlines(), keys)
    found = {key: SysctlValue().process(split[key]) for key in keys}
    assert found["kernel.ostype"] == "Linux"
    assert len(str(found["net.ipv4.ip_local_port_range"]).split()) == 2
    assert found["kernel.no_such_thing"] is None


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("10.0.0.1 dgx-01\n", True),
        ("127.0.1.1 dgx-01.lab dgx-01 # as Debian writes it\n", True),
        ("10.0.0.1 dgx-010\n", False),
        ("# 10.0.0.1 dgx-01\n", False),
        ("192.0.2.9 dgx-01\n10.0.0.1 dgx-01\n", False),
        ("", False),
        ("10.0.0.1\tdgx-01\r\n", True),
        ("10.0.0.1\u00a0dgx-01\n", False),  # one word
        ("# x\x8510.0.0.1 dgx-01\n", False),  # one line
    ],
)
def test_a_machine_finds_itself_by_the_first_line_that_has_its_name(table: str, found: bool) -> None:  # noqa: FBT001
    """At its own address, or at home."""
    assert finds_itself(table, "dgx-01", address="10.0.0.1") is found
    assert finds_itself("10.0.0.1 dgx-01\n", "dgx-01", address="dgx-01.lab"), "a DNS name may be any address"


def test_a_module_is_forbidden_by_name_or_by_a_command_that_does_nothing() -> None:
    """Another command in its place loads it in its own way; a dash is an underscore to the kernel."""
    lines = [
        "/etc/modprobe.d/a.conf:blacklist nvidia-uvm",
        "/etc/modprobe.d/b.conf:  install br_netfilter /bin/false",
        "/etc/modprobe.d/c.conf:install overlay /usr/bin/true",
        "/etc/modprobe.d/d.conf:install nvidia /sbin/modprobe --ignore-install nvidia",
        "/etc/modprobe.d/e.conf:install",
        "/etc/modprobe.d/f.conf:alias ib_core off",
        "/etc/modprobe.d/g.conf:alias eth0 virtio_net",
    ]
    assert ForbiddenModules().process(lines) == {
        "nvidia_uvm": "/etc/modprobe.d/a.conf",
        "br_netfilter": "/etc/modprobe.d/b.conf",
        "overlay": "/etc/modprobe.d/c.conf",
        "ib_core": "/etc/modprobe.d/f.conf",
    }


def test_assignments_count_in_the_order_in_which_they_are_read() -> None:
    """By the name of the file, whatever its folder; lines of one file as they stand."""
    lines = ["/usr/lib/sysctl.d/50-a.conf:x=1", "/run/sysctl.d/60-b.conf:x=2", "/etc/sysctl.d/50-b.conf:x=3"]
    assert [value for _, _, value in SysctlFiles().process([*lines, "/etc/sysctl.d/50-b.conf:x=0"])] == [*"1302"]


def test_assignments_are_read_in_whatever_way_they_are_written() -> None:
    """With and without spaces, with slashes, with a leading dash."""
    lines = ["/a:x.y = 1", "/b:-x/z=2  3", "/c:nonsense"]
    assert SysctlFiles().process(lines) == [("/a", "x/y", "1"), ("/b", "x/z", "2 3")]
    names = ("net.ipv4.conf.eth0/100.rp_filter", "net/ipv4/conf/eth0.100/rp_filter")
    vlan = "net/ipv4/conf/eth0.100/rp_filter"
    assert [key for _, key, _ in SysctlFiles().process([f"/a:{name}=2" for name in names])] == [vlan, vlan]
    assert f"/proc/sys/{vlan} " in SYSCTL.shell([*names])


def test_no_password_hash_leaves_the_machine(tmp_path: Path) -> None:
    """Of the shadow file only whether an account can be logged into by password, and whether it has expired."""
    lines = ["u:ada:x:1000:1000::/home/ada:/bin/bash", "g:ada:x:1000:", "g:sudo:x:27:ada", "s:ada:locked:expired:old"]
    ada = Accounts().process(lines)["ada"]
    assert (ada.locked, ada.expired, ada.groups, ada.group) == (True, True, frozenset({"sudo"}), "ada")
    assert ada.must_change
    assert ada.number == "1000"
    shadow = "ada:$6$salt$secret:19000:0:99999:7:::\nold:!$6$secret:1:0:9:7::1:\nnew::19000:0:99999:7:::\n"
    for name, text in (("passwd", "ada:x:1:1::/h:/b\n"), ("group", "ada:x:1:\n"), ("shadow", shadow)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    shell = Accounts().command().get_raw_value().replace("/etc/", f"{tmp_path}/")
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert "secret" not in said
    shown = ["u:ada:x:1:1::/h:/b", "g:ada:x:1:", "s:ada:open::", "s:old:locked:expired:old", "s:new:empty::"]
    assert said.splitlines() == shown
    (tmp_path / "shadow").unlink()  # whoever is not root cannot read it
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == shown[:2]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("19000:0:99999:7:::", "::"),
        ("0:0:99999:7:::", "::old"),  # chage -d 0
        ("19000:0:90:7:::", "::old"),  # hardening: chage -M 90
        (":0:90:7:::", "::"),
        ("19000:0::7::18262:", ":expired:"),
        ("19000:0::7::99999:", "::"),
    ],
)
def test_an_account_that_nothing_lets_in_any_more_is_told_by_its_days(tmp_path: Path, fields: str, said: str) -> None:
    """Whatever day it was to end, and where a password that nobody has would have to be changed."""
    for name, text in (("passwd", "a:x:1:1::/h:/b\n"), ("group", ""), ("shadow", f"a:!:{fields}:\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    shell = Accounts().command().get_raw_value().replace("/etc/", f"{tmp_path}/")
    lines = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[-1] == f"s:a:locked{said}"
    found = Accounts().process(lines)["a"]
    assert (found.expired, found.must_change) == ("expired" in said, "old" in said)


def test_pins_are_read_with_their_priorities(tmp_path: Path) -> None:
    """In whatever order an entry has its lines; of what is no file nothing is read."""
    folder = tmp_path / "preferences.d"
    folder.mkdir()
    text = "Explanation: x\nPin-Priority: 1100\nPin: release o=Debian\nPackage: *\n\n\nPackage: a b-*\nPin: version 1\n"
    (folder / "own").write_text(f"{text}Pin-Priority: -1\n", encoding="ascii")
    (folder / "broken").write_text("Package: c\nPin: version 1\nPin-Priority: high", encoding="ascii")
    os.mkfifo(folder / "pipe")
    shell = PinFiles().command().get_raw_value().replace("/etc/apt/", f"{tmp_path}/")
    said = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, check=True, timeout=10).stdout
    own, broken = str(folder / "own"), str(folder / "broken")
    read = [Pin(broken, 0, ("c",)), Pin(own, 1100, ("*",)), Pin(own, -1, ("a", "b-*"))]
    assert PinFiles().process(said.splitlines()) == read


@pytest.mark.parametrize(
    ("word", "means"),
    [("nvidia-persistenced", True), ("nvidia-*", True), ("/^nvidia/", True), ("*", False), ("libnvidia-*", False)],
)
def test_a_pin_speaks_of_a_package_by_name_or_pattern(word: str, means: bool) -> None:  # noqa: FBT001
    """All packages are the general form, which a pin by name outdoes."""
    assert speaks_of(word, "nvidia-persistenced") is means


def test_the_health_check_is_shell_that_parses() -> None:
    """For a machine with everything."""
    script = health_script(MACHINE)
    subprocess.run(["sh", "-n"], input=script, text=True, check=True)
    assert "nvidia-smi" in script
    assert "nvidia-smi" not in health_script(MACHINE.model_copy(update={"gpu_count": 0}))


@pytest.mark.parametrize(("keep", "days"), [("14day", 14), ("2week", 14), ("1month", 30)])
def test_logs_are_kept_as_long_as_asked(keep: str, days: int) -> None:
    """In days, as logrotate counts."""
    assert f"rotate {days}\n" in rotation(keep)


def test_the_clocks_offset_is_read_as_chrony_tells_it() -> None:
    """Behind is positive; who measures nothing is right."""
    assert ClockOffset().process(["7.500000000 seconds slow of NTP time"]) == 7.5
    assert ClockOffset().process(["0.250000000 seconds fast of NTP time"]) == -0.25
    assert ClockOffset().process([]) == 0.0


def test_who_asks_for_a_reboot_is_named() -> None:
    """By package, or by the file alone; and a kernel that waits to be booted."""
    assert RebootAsked().process([]) == []
    assert RebootAsked().process(["linux-image-amd64", "dbus"]) == ["asked for by linux-image-amd64, dbus"]
    found = why_the_kernel(Driver(kernel="6.1.0-40-amd64", newest_kernel="6.1.0-41-amd64"))
    assert found == ("6.1.0-40-amd64 runs, and 6.1.0-41-amd64 is installed",)
    for other in ("6.1.0-40-amd64", "6.1.0-41-cloud-amd64", ""):
        assert why_the_kernel(Driver(kernel="6.1.0-40-amd64", newest_kernel=other)) == ()


@pytest.mark.parametrize(
    ("says", "verdict", "passes"),
    [("  --validate  try a file", 0, True), ("  --validate  try a file", 1, False), ("  --version", 1, True)],
)
def test_docker_tries_its_configuration_where_it_can(
    tmp_path: Path,
    says: str,
    verdict: int,
    passes: bool,  # noqa: FBT001 - a table
) -> None:
    """Debian 12's Docker has no such option, and ends with an error at it."""
    program = tmp_path / "dockerd"
    program.write_text(f'#!/bin/sh\ncase $1 in --help) echo "{says}" ;; *) exit {verdict} ;; esac\n', encoding="utf-8")
    program.chmod(0o755)
    words = ["sh", "-c", VALIDATE.format(path="/etc/docker/daemon.json")]
    done = subprocess.run(words, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=False)
    assert (done.returncode == 0) is passes


def test_what_is_to_be_an_image_of_members_joins_nothing_itself() -> None:
    """Kubeadm makes a member's kubelet; Kubernetes' repository is asked all the same."""
    said = {"name": "image", "address": "10.0.0.1", "control_plane": {}}
    machine = MachineSettings.model_validate(said)
    assert "kubernetes" in needed(machine, mirrored=False)
    assert "kubernetes" not in needed(MachineSettings.model_validate({**said, "control_plane": None}), mirrored=False)
    kubelet = {"server": "https://api", "authority": NOBODY}
    with pytest.raises(ValidationError, match="has both control_plane and kubelet"):
        MachineSettings.model_validate({**said, "kubelet": kubelet})


def test_an_image_of_the_next_version_of_a_control_plane_brings_its_own_api_server() -> None:
    """A node of that version waits for the API servers, and says by which key it is told that they run it."""
    said = {"name": "image", "address": "10.0.0.1", "versions": {"kubelet": "1.36.3", "containerd": "2.1.4"}}
    assert machine_mistakes(MachineSettings.model_validate({**said, "control_plane": {}})) == []
    node = MachineSettings.model_validate({**said, "node_image": {}})
    [mistake] = [one for one in machine_mistakes(node) if one.stops]
    assert mistake.pair == ("api_server", "kubelet")
    assert "its API server, which versions.api_server names, and never newer" in mistake.text


def test_what_is_to_be_an_image_of_nodes_has_their_kubelet_and_no_cluster() -> None:
    """By Kubernetes' package, which the matrix judges as on any node, or as a file from elsewhere."""
    said: dict[str, Any] = {"name": "image", "address": "10.0.0.1", "node_image": {}}
    machine = MachineSettings.model_validate(said)
    assert "kubernetes" in needed(machine, mirrored=False)
    old = MachineSettings.model_validate(said | {"versions": {"containerd": "1.6.20", "runc": "1.1.5"}})
    assert [one.pair for one in machine_mistakes(old) if one.stops] == [("kubelet", "containerd")]
    elsewhere = {"download": {"url": "http://mirror.lab/kubelet", "sha256": "0" * 64}}
    assert "kubernetes" not in needed(MachineSettings.model_validate(said | {"node_image": elsewhere}), mirrored=False)
    kubelet = {"server": "https://api", "authority": NOBODY}
    for beside in ({"kubelet": kubelet}, {"control_plane": {}}):
        with pytest.raises(ValidationError, match=f"has both node_image and {next(iter(beside))}: an image for nodes"):
            MachineSettings.model_validate(said | beside)


_SIGN = """
set -e; key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
openssl req -x509 $key -keyout ca.key -out ca.crt -subj /CN=lab -days 30
sign() {
  openssl req $key -keyout "$1.key" -out "$1.csr" -subj "/O=system:nodes/CN=system:node:n1"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days "$2" -out "kubelet-$1-current.pem"
}
sign client 30; sign server 3
"""


@pytest.mark.skipif(not shutil.which("openssl"), reason="needs openssl to sign certificates")
def test_a_nodes_certificates_are_its_own_signed_and_good_for_a_week(tmp_path: Path) -> None:
    """Not those of a node whose name only begins so; not one that is about to end; not one of another authority."""
    subprocess.run(["sh", "-c", _SIGN], cwd=tmp_path, check=True, capture_output=True)

    def identity(node: str) -> frozenset[str]:
        shell = Identity().command(node).get_raw_value().replace(AUTHORITY, f"{tmp_path}/ca.crt")
        said = subprocess.run(
            ["sh", "-c", shell.replace(PKI, str(tmp_path))], capture_output=True, text=True, check=True
        )
        return Identity().process(said.stdout.splitlines())

    assert {name: identity(name) for name in ("n1", "n", "n10")} == {"n1": {"client"}, "n": set(), "n10": set()}
    other = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout k -out ca.crt -subj /CN=lab"
    subprocess.run(["sh", "-c", other], cwd=tmp_path, check=True, capture_output=True)
    assert identity("n1") == set()


def test_an_imported_image_counts_while_containerd_has_it(tmp_path: Path) -> None:
    """By its whole name; where nothing was imported, containerd is not even asked."""
    (tmp_path / "ctr").write_text("#!/bin/sh\ntouch asked\necho lab/a:1\necho lab/b:10\n", encoding="utf-8")
    (tmp_path / "ctr").chmod(0o755)
    (tmp_path / "marks").mkdir()
    shell = ImageMarks().command(str(tmp_path / "marks")).get_raw_value()

    def marks() -> frozenset[tuple[str, str]]:
        environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
        said = subprocess.run(
            ["sh", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return ImageMarks().process(said.stdout.splitlines())

    assert marks() == set()
    assert not (tmp_path / "asked").exists()
    for number, name in enumerate(("lab/a:1", "lab/b:1", "lab/c:1")):
        (tmp_path / "marks" / f"{number}.imported").write_text(f"{name} digest{number}\n", encoding="ascii")
    assert marks() == {("lab/a:1", "digest0")}


def test_a_restart_that_is_owed_is_paid_under_the_name_under_which_it_is_owed() -> None:
    """Else the service goes on with what it read before, and nobody is told."""
    sources = "".join(file.read_text(encoding="utf-8") for file in Path(roles.__file__).parent.rglob("*.py"))
    owed = set(re.findall(r"""\brestarts\("([^"]+)"\)""", sources))
    paid = set(re.findall(r"""\b(?:running\([^)]*\bunit=|_runs\()"([^"]+)\"""", sources))
    assert len(owed) > 5
    assert owed - paid == set()
