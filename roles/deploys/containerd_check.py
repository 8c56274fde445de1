"""Whether a containerd configuration, as containerd itself reads it, can run every pod.

A drop-in file for the nvidia runtime alone takes runc away in containerd 1.6: a later file replaces a plugin's whole
table. ``containerd config dump`` shows it and still exits with success, and the node is lost at the next restart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

CRI: Final = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime"}
"""The plugin with the runtimes, by version of the configuration file."""
_RUNC: Final = "io.containerd.runc.v2"


def unsound(dump: Mapping[str, Any], *, nvidia: bool, systemd_cgroup: bool) -> list[str]:
    """What is wrong with it, in words; nothing where it is sound.

    ``nvidia``: GPU containers are to run. ``systemd_cgroup``: the kubelet's cgroup driver is systemd.
    """
    if "cri" in dump.get("disabled_plugins", ()) or CRI[2] in dump.get("disabled_plugins", ()):
        return ["the CRI plugin is disabled: the kubelet finds no runtime"]
    cri = _cri(dump)
    runtimes = cri.get("containerd", {}).get("runtimes") or {}
    default = cri.get("containerd", {}).get("default_runtime_name", "runc")
    wrong = [f"the runtime {name} is not there" for name in _needed(nvidia=nvidia) if name not in runtimes]
    if default not in runtimes:
        wrong.append(f"default_runtime_name is {default}, and there is no such runtime")
    for name, runtime in sorted(runtimes.items()):
        if runtime.get("runtime_type") == _RUNC and bool(_options(runtime).get("SystemdCgroup")) is not systemd_cgroup:
            wrong.append(f"the runtime {name} has SystemdCgroup = {str(not systemd_cgroup).lower()}, the kubelet not")
    if nvidia and "enable_cdi" in cri and not cri["enable_cdi"]:
        wrong.append("enable_cdi is false: devices asked for by name reach no container")
    return wrong


def _cri(dump: Mapping[str, Any]) -> Mapping[str, Any]:
    plugins = dump.get("plugins", {})
    for name in reversed(CRI.values()):
        if isinstance(plugins.get(name), dict):
            return dict(plugins[name])
    return {}


def _needed(*, nvidia: bool) -> tuple[str, ...]:
    return ("runc", "nvidia") if nvidia else ("runc",)


def _options(runtime: Mapping[str, Any]) -> Mapping[str, Any]:
    options = runtime.get("options")
    return options if isinstance(options, dict) else {}
