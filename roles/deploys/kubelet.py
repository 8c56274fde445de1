"""Role: the kubelet, from nothing to a Ready node with a signed serving certificate, its labels and its taints."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any, Final

from pyinfra.api.deploy import deploy
from pyinfra.context import host

from autoscaler.model import labels as words
from roles.engine.batched_facts import PATH
from roles.facts.nodes import AUTHORITY, PKI, NameServers
from roles.operations import downloads, files, nodes, packages, services, trust
from roles.operations.nodes import BOOTSTRAP, KUBECONFIG
from roles.operations.services import DAEMON_RELOAD, restarts
from roles.settings.cluster import Download, Kubelet
from roles.settings.machine import MachineSettings, settings
from roles.settings.version_matrix import choose, read_matrix

CONFIG: Final = "/etc/kubernetes/kubelet.json"
UNIT: Final = "/etc/systemd/system/kubelet.service"
DOWNLOADED: Final = "/usr/local/bin/kubelet"
PACKAGED: Final = "/usr/bin/kubelet"
_JOINING: Final = {"key": words.JOINING, "effect": "NoSchedule"}
_SELF_GIVEN: Final = {words.HOSTNAME, words.ARCH, words.OS}
"""Labels that a kubelet gives its node without being told."""


@deploy("Kubelet")
def kubelet() -> None:
    """Sets up the kubelet; nothing where the machine joins no cluster; in an image for nodes its binary alone."""
    machine = settings()
    if machine.node_image:
        _binary(machine, machine.node_image.download)
    wanted = machine.kubelet
    if wanted is None:
        return
    _binary(machine, wanted.download)
    with restarts("kubelet"):
        files.place(name="the cluster's authority", dest=AUTHORITY, content=wanted.authority)
        files.place(
            name="kubelet's configuration",
            dest=CONFIG,
            content=json.dumps(kubelet_config(machine, wanted, names_at=host.get_fact(NameServers)), indent=2) + "\n",
            meaning="json",
        )
        trust.kubeconfig_ours(
            path=KUBECONFIG, server=wanted.server, authority=wanted.authority, name="kubelet believes the cluster alone"
        )
    with restarts(DAEMON_RELOAD), restarts("kubelet"):
        files.place(name="kubelet's unit", dest=UNIT, content=kubelet_unit(machine, wanted), meaning="ini")
        services.only_drop_ins(unit="kubelet", name="kubelet has no overrides")
    files.guarded(dest=PKI, mode="700", name="the kubelet's keys are root's alone")
    services.daemon_reload(name="systemd knows kubelet's unit")
    _join(machine, wanted)


def _binary(machine: MachineSettings, download: Download | None) -> None:
    if download:
        with restarts("kubelet"):
            downloads.fetched(
                url=download.url,
                dest=DOWNLOADED,
                sha256=download.sha256,
                name="kubelet, as a checked download",
            )
        return
    version = choose(read_matrix(), machine.versions, machine=machine.name).kubelet
    with restarts("kubelet"):
        packages.pinned(pins_of="kubelet", wanted={"kubelet": f"{version}-*"}, name="kubelet's version is pinned")
        packages.installed(wanted={"kubelet": f"{version}-*"}, name=f"kubelet {version}")


def _join(machine: MachineSettings, wanted: Kubelet) -> None:
    by_controller = wanted.join == "controller"
    if by_controller:
        with restarts("kubelet"):  # one that runs already still holds a token that has ended
            nodes.token_brought(
                name="a token for this node's first certificate",
                node=machine.name,
                server=wanted.server,
                authority=wanted.authority,
                kubeconfig=machine.kubeconfig,
            )
    services.running(unit="kubelet", name="kubelet runs")
    if by_controller:
        nodes.admitted(
            node=machine.name,
            address=machine.address,
            kubeconfig=machine.kubeconfig,
            name="the node is admitted, with signed certificates",
        )
        nodes.marked(
            node=machine.name,
            server=wanted.server,
            labels={key: value for key, value in machine.labels.items() if key not in _SELF_GIVEN},
            taints=taints_of(machine),
            kubeconfig=machine.kubeconfig,
            name="the node's labels and taints",
        )


def kubelet_config(machine: MachineSettings, wanted: Kubelet, *, names_at: str = "") -> dict[str, Any]:
    """A KubeletConfiguration; ``names_at``: in place of /etc/resolv.conf, whose name server pods do not reach.

    A node whose labels the controller writes comes in with one taint of ours, which keeps pods away until they are
    there. A node that joins by itself brings labels and taints along.
    """
    config = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": AUTHORITY},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": machine.container_runtime.cgroup_driver,
        "clusterDNS": list(wanted.cluster_dns),
        "clusterDomain": wanted.cluster_domain,
        "containerLogMaxFiles": machine.logs.container_files,
        "containerLogMaxSize": machine.logs.container_size,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "failSwapOn": machine.kernel.swap == "off",
        "maxPods": wanted.max_pods,
        "registerWithTaints": [_JOINING] if wanted.join == "controller" else taints_of(machine),
        "rotateCertificates": True,
        "serverTLSBootstrap": True,
        "systemReserved": dict(wanted.reserved),
    }
    if machine.provider_id:
        config["providerID"] = machine.provider_id
    if names_at:
        config["resolvConf"] = names_at
    return {**config, **wanted.config}


def kubelet_unit(machine: MachineSettings, wanted: Kubelet) -> str:
    """A unit of our own, whichever way the binary came."""
    flags = [
        f"--config={CONFIG}",
        f"--kubeconfig={KUBECONFIG}",
        f"--bootstrap-kubeconfig={BOOTSTRAP}",
        f"--hostname-override={machine.name}",
        f"--node-ip={machine.address}",
    ]
    if wanted.join == "machine":
        labels = self_labels(machine.labels)
        flags += [f"--node-labels={','.join(f'{key}={value}' for key, value in sorted(labels.items()))}"]
    command = " \\\n  ".join([DOWNLOADED if wanted.download else PACKAGED, *map(shlex.quote, flags)])
    return (
        "[Unit]\nDescription=kubelet, the node agent of Kubernetes\nAfter=containerd.service network-online.target\n"
        "Wants=containerd.service network-online.target\nStartLimitIntervalSec=0\n\n"
        f"[Service]\nEnvironment=PATH={PATH}\nExecStartPre=/usr/bin/install -d -m 700 {PKI}\nExecStart={command}\n"
        "Restart=always\nRestartSec=5\nKillMode=process\n\n"
        "[Install]\nWantedBy=multi-user.target\n"
    )


def self_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Those that a kubelet may give its own node: none of Kubernetes' own names but a few."""
    return {key: value for key, value in labels.items() if key not in _SELF_GIVEN and words.may_kubelet_give(key)}


def taints_of(machine: MachineSettings) -> list[dict[str, str]]:
    """Returns the taints as the API writes them."""
    taints = [taint.as_taint() for taint in machine.taints]
    return [
        {"key": one.key, "effect": str(one.effect), **({"value": one.value} if one.value else {})} for one in taints
    ]
