"""The health gate: what a machine must show after a change before the rollout goes on.

One script gathers it; :func:`why_unhealthy` judges what it said. A part that a machine does not have (no containerd, no
kubelet yet) is not asked for.
"""

from __future__ import annotations

import tomllib
from typing import Any, Final

import yaml

from roles.deploys.containerd_check import unsound

_MARK: Final = "==spillway=="
SCRIPT: Final = f"""\
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
part() {{ echo "{_MARK} $1"; shift; "$@" 2>/dev/null; }}
if command -v containerd >/dev/null; then
  part containerd containerd config dump
  part units systemctl is-active containerd
fi
for file in /etc/kubernetes/kubelet.json /var/lib/kubelet/config.yaml; do
  [ ! -f $file ] || part kubelet cat $file
done
[ ! -f /etc/systemd/system/kubelet.service ] || part kubelet-unit systemctl is-active kubelet
if [ -e /proc/driver/nvidia/version ] && command -v nvidia-smi >/dev/null; then part nvidia timeout 20 nvidia-smi -L; fi
"""
"""What was put into /usr/local/bin does not answer in a program's place.

A module may outlive its packages, where these were taken back: it is not asked for GPUs then.
"""


def why_unhealthy(said: str) -> str:
    """What is wrong, in words, given what :data:`SCRIPT` said; empty where nothing is."""
    parts = _parts(said)
    config = _read_kubelet(parts.get("kubelet", ""))
    wrong = [
        f"{unit} is {parts[part] or 'silent'}"
        for part, unit in (("units", "containerd"), ("kubelet-unit", "the kubelet"))
        if part in parts and parts[part] != "active"
    ]
    if "containerd" in parts:
        wrong += _containerd(parts["containerd"], config)
    if "nvidia" in parts and "GPU " not in parts["nvidia"]:
        wrong.append("nvidia-smi lists no GPU, though the driver is loaded")
    return "; ".join(wrong)


def _containerd(dump: str, kubelet: dict[str, Any]) -> list[str]:
    try:
        config = tomllib.loads(dump)
    except tomllib.TOMLDecodeError as error:
        return [f"containerd's configuration does not parse: {error}"]
    if not config:
        return ["containerd cannot read its configuration"]
    if not kubelet:
        return []  # it joins no cluster: CRI may well be off
    return unsound(config, nvidia=False, systemd_cgroup=kubelet.get("cgroupDriver", "cgroupfs") == "systemd")


def _read_kubelet(text: str) -> dict[str, Any]:
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError:
        return {}
    return config if isinstance(config, dict) else {}


def _parts(said: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in said.split(f"{_MARK} ")[1:]:
        name, _, body = piece.partition("\n")
        found[name.strip()] = body.strip()
    return found
