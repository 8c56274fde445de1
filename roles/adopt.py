"""`spillway nodes adopt`: the inventory of machines that are configured already, so that their plan is empty.

What a machine is (name, host key, sizes, GPUs) becomes its entry; where its software differs from this project's
defaults in something that settings can say, they say so. What settings cannot say is left alone, by name: whoever takes
such a line away hands that resource to the roles.
"""

from __future__ import annotations

import secrets
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml
from pyinfra.api.host import Host

from autoscaler.config.documents import parse_data
from autoscaler.model.errors import BadInput
from roles.checks.versions import machine_mistakes
from roles.commands import role_at
from roles.deploys.kubelet import DOWNLOADED
from roles.deploys.pod_network import CONFIG as NETWORK
from roles.engine.fleet import Fleet, connected, looking
from roles.engine.host_plan import UNREACHABLE, HostPlan, exit_status, state
from roles.facts.as_account import as_account
from roles.inventory.hosts import read_machines
from roles.inventory.reachability import refuse_nowhere
from roles.settings.controller_files import local_path
from roles.settings.machine import OF_THE_SYSTEM, MachineSettings, merged
from roles.settings.own_files import write_whole

_MARK: Final = "==spillway-adopt=="
_KEYS: Final = 'k=$HOME/.ssh/authorized_keys; [ ! -f "$k" ] || head -c 65536 -- "$k"; echo'
_PROBES: Final = {
    "name": "hostname",
    "cpus": "nproc",
    "memory": "awk '/^MemTotal/ { print int($2 / 1024) }' /proc/meminfo",
    "disk": "df -Pm / | awk 'NR == 2 { print $2 }'",
    "gpus": "timeout 20 nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits",
    "swap": "tail -n +2 /proc/swaps",
    "chrony": "systemctl is-active chrony chronyd | grep -x active | head -n 1",
    "packages": "dpkg-query -W -f='${Package} ${Version} ${db:Status-Abbrev}\\n' containerd containerd.io runc kubelet",
    "containerd": "containerd config dump",
    "kubelet": "cat /etc/kubernetes/kubelet.json || cat /var/lib/kubelet/config.yaml",
    "kubeconfig": "cat /var/lib/kubelet/kubeconfig || cat /etc/kubernetes/kubelet.conf",
    "kubelet_file": f"{DOWNLOADED} --version && sha256sum {DOWNLOADED} && dpkg --print-architecture",
    "authority": "cat /etc/kubernetes/pki/ca.crt",
    "network": f"cat {NETWORK}",
    "passwords": "sshd -T | grep -x 'passwordauthentication no'",
    "users": (
        "getent passwd | awk -F: '$3 >= 1000 && $3 < 60000 { print $1, $7 }' | while read -r user shell; do"
        f" export user; {as_account('$user', _KEYS, seconds=5, most=2**17)} </dev/null"
        ' | sed "/^#/d;/^$/d;/^status /d;s|^|$user $shell |"; done'
    ),
}
_ROUNDS: Final = 5
_RELEASES: Final = "https://dl.k8s.io/release"
_PRODUCT_OF: Final = str.maketrans(" ", "-")


class _Readable(yaml.SafeDumper):
    """Text of several lines, such as a certificate, stands as it is."""


_Readable.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def adopt(*, hosts: tuple[str, ...], user: str, key: Path | None, port: int, role: str, output: Path | None) -> int:
    """Write an inventory whose plan is empty."""
    for host in hosts:
        account, at, address = host.rpartition("@")
        if at:
            raise BadInput(f"{host}: name the account apart: spillway nodes adopt --user {account} {address}")
    refuse_nowhere(hosts)
    if key and not local_path(str(key)).is_file():
        raise BadInput(f"--key: {key}: this controller has no such file")
    data = {"ssh_user": user, "ssh_port": port} | ({"ssh_key": str(key)} if key else {})
    machines = [(host, data | {"ssh_hostname": host} | ({} if user == "root" else {"_sudo": True})) for host in hosts]
    with connected(machines, lambda: None) as fleet:
        if fleet.unreachable:
            for host, reason in fleet.unreachable.items():
                print(f"{host}: {reason}", file=sys.stderr)
            return UNREACHABLE
        ssh = {"user": user, "port": port} | ({"key": str(key)} if key else {})
        entries = [_entry(fleet, host, ssh) for host in hosts]
    refuse_one_name(entries)
    for entry in entries:
        _answer_for_versions(entry)
    plans = _settle(entries, role)
    text = yaml.dump({"machines": entries}, Dumper=_Readable, sort_keys=False, allow_unicode=True)
    if output:
        write_whole(output, text)
    else:
        print(text)
    for plan in plans.values():
        print(f"# {plan.host}: {state(plan)} {plan.unreachable or plan.failed}".rstrip(), file=sys.stderr)
    return exit_status(plans.values())


def refuse_one_name(entries: list[dict[str, Any]]) -> None:
    """Machines that were installed from one image, or one machine with two addresses."""
    known: dict[str, str] = {}
    for entry in entries:
        name, address = entry["name"], entry["address"]
        if name in known:
            raise BadInput(
                f"{address}: calls itself {name}, and so does {known[name]}: give each machine a host name of its own"
                " (hostnamectl set-hostname), or leave one out if they are one machine"
            )
        known[name] = address


def entry_of(said: Mapping[str, str], *, address: str, ssh: Mapping[str, Any]) -> dict[str, Any]:
    """A machine's entry, given what the probes said."""
    entry: dict[str, Any] = {
        "name": said["name"].partition(".")[0].lower(),  # as a kubelet calls its node
        "address": address,
        "ssh": dict(ssh),
        "cpus": int(said["cpus"]),
        "memory": f"{said['memory']}Mi",
        "disk": f"{said['disk']}Mi",
    }
    gpus = [line.rpartition(", ") for line in said["gpus"].splitlines() if ", " in line]
    if gpus:
        product, _, memory = gpus[0]
        entry["gpus"] = {"product": product.translate(_PRODUCT_OF), "count": len(gpus), "memory": f"{memory.strip()}Mi"}
    return entry | {"settings": _settings(said)}


def _entry(fleet: Fleet, host: str, ssh: Mapping[str, Any]) -> dict[str, Any]:
    mark = f"{_MARK}{secrets.token_hex(8)}"  # an account may write into its file of keys what it likes
    parts = [f"echo; echo {mark} {name}; {{ {shell}; }} 2>/dev/null" for name, shell in _PROBES.items()]
    done, text = fleet.shell(host, "\n".join([*parts, "true"]))
    said = dict.fromkeys(_PROBES, "")
    for piece in text.split(f"{mark} ")[1:]:
        name, _, body = piece.partition("\n")
        said[name.strip()] = body.strip()
    if not done or not said["name"]:
        raise BadInput(f"{host}: its state could not be read: {text[-200:]}")
    key = _host_key(fleet.inventory.get_host(host))
    return entry_of(said, address=host, ssh=dict(ssh) | ({"host_key": key} if key else {}))


def _settings(said: Mapping[str, str]) -> dict[str, Any]:
    """Returns only the settings that are not the default."""
    versions, package = _packages(said["packages"])
    runtime: dict[str, Any] = {"package": package} if package == "containerd" else {}
    sandbox = _sandbox(said["containerd"])
    runtime |= {"sandbox_image": sandbox} if sandbox else {}
    runtime |= {"cgroup_driver": "cgroupfs"} if _yaml(said["kubelet"]).get("cgroupDriver") == "cgroupfs" else {}
    found: dict[str, Any] = {
        "time": {} if said["chrony"] else {"service": "none"},
        "kernel": {"swap": "keep"} if said["swap"] else {},
        "container_runtime": runtime,
        "pod_network": _network(said["network"]),
        "versions": versions,
        "ssh_passwords": "refused" if said["passwords"] else "",
        "users": _users(said["users"]),
    }
    clusters = _yaml(said["kubeconfig"]).get("clusters") or [{}]
    server = clusters[0].get("cluster", {}).get("server", "")
    if server and said["authority"]:
        found["kubelet"] = {"server": server, "authority": said["authority"] + "\n", **_download(said["kubelet_file"])}
    return {key: value for key, value in found.items() if value}


def _download(text: str) -> dict[str, Any]:
    """A kubelet that is no package: where Kubernetes offers that release, known by the digest of what is there."""
    lines = text.splitlines()
    if len(lines) != 3:  # noqa: PLR2004 - version, digest, architecture
        return {}
    version, digest, architecture = lines[0].split()[-1], lines[1].split()[0], lines[2]
    return {"download": {"url": f"{_RELEASES}/{version}/bin/linux/{architecture}/kubelet", "sha256": digest}}


def _packages(text: str) -> tuple[dict[str, str], str]:
    """Upstream versions, as the matrix writes them, and whose containerd it is."""
    rows = [line.split() for line in text.splitlines()]
    found = {row[0]: row[1] for row in rows if len(row) == 3 and row[2].startswith(("ii", "hi"))}  # noqa: PLR2004
    package = "containerd" if "containerd" in found else "containerd.io"
    parts = {"containerd": found.get(package), "runc": found.get("runc"), "kubelet": found.get("kubelet")}
    versions = {part: _upstream(version) for part, version in parts.items() if version}
    return versions, package


def _upstream(version: str) -> str:
    """Returns the version without epoch, revision, and what a distribution put behind."""
    bare = version.rpartition(":")[2]
    for end in "-+~":
        bare = bare.partition(end)[0]
    return bare


def _sandbox(dump: str) -> str:
    """The pause image, of either format of containerd's configuration."""
    try:
        plugins = tomllib.loads(dump).get("plugins", {})
    except tomllib.TOMLDecodeError:
        return ""
    pinned = plugins.get("io.containerd.cri.v1.images", {}).get("pinned_images", {})
    return str(pinned.get("sandbox") or plugins.get("io.containerd.grpc.v1.cri", {}).get("sandbox_image") or "")


def _network(text: str) -> dict[str, str]:
    """A bridge of ours, with its subnet."""
    for plugin in _yaml(text).get("plugins") or ():
        for ranges in plugin.get("ipam", {}).get("ranges") or ():
            return {"kind": "bridge", "pods": str(ranges[0].get("subnet", ""))}
    return {}


def _yaml(text: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return found if isinstance(found, dict) else {}


def _users(text: str) -> list[dict[str, Any]]:
    keys: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        shell, _, key = rest.partition(" ")
        if name in OF_THE_SYSTEM:
            continue  # whoever lets it in keeps its keys as well
        keys.setdefault((name, shell), []).append(key.strip())
    return [{"name": name, "shell": shell, "keys": found} for (name, shell), found in sorted(keys.items())]


def _host_key(host: Host) -> str:
    client = getattr(looking(host).behind, "client", None)
    if client is None:
        return ""
    key = client.get_transport().get_remote_server_key()
    return f"{key.get_name()} {key.get_base64()}"


def _answer_for_versions(entry: dict[str, Any]) -> None:
    """What runs together already is written down as untested where the matrix would refuse it."""
    gpus = entry.get("gpus", {})
    own = {"name": entry["name"], "address": entry["address"]}
    own |= {"gpu_product": gpus["product"], "gpu_count": gpus["count"]} if gpus else {}
    machine = parse_data(merged(entry["settings"], own), MachineSettings, source=f"what was found on {entry['name']}")
    refused = [mistake for mistake in machine_mistakes(machine) if mistake.stops]
    for mistake in refused:
        print(f"# {mistake.text}", file=sys.stderr)
    if refused:
        entry["settings"]["untested"] = sorted({" with ".join(mistake.pair) for mistake in refused})


def _settle(entries: list[dict[str, Any]], role: str) -> dict[str, HostPlan]:
    """Plan with the entries; what settings cannot say is written into them as left alone, until nothing would change.

    What was held back by a change that is now left alone may come up after it: hence more than once.
    """
    plans: dict[str, HostPlan] = {}
    for _ in range(_ROUNDS):
        plans = _planned(entries, role)
        wanted = {
            name: [change.resource for change in plan.changes] + [refusal.resource for refusal in plan.refused]
            for name, plan in plans.items()
        }
        if not any(wanted.values()):
            break
        for entry in entries:
            spared = entry["settings"].setdefault("left_alone", [])
            for resource in wanted.get(entry["name"], ()):
                print(f"# {entry['name']}: left alone: {resource}", file=sys.stderr)
                spared.append(resource)
    return plans


def _planned(entries: list[dict[str, Any]], role: str) -> dict[str, HostPlan]:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "inventory.yaml"
        file.write_text(yaml.safe_dump({"machines": entries}), encoding="utf-8")
        try:
            machines = read_machines(file)
        except BadInput as mistake:
            raise BadInput(str(mistake).replace(str(file), "what was found")) from None
        with connected(machines, role_at(role)) as fleet:
            return fleet.plan()
