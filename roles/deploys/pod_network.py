"""Role: addresses for pods, where the cluster brings no network of its own."""

from __future__ import annotations

import json
from typing import Any, Final

from pyinfra.api.deploy import deploy

from roles.operations import files, packages
from roles.settings.machine import settings

PLUGINS: Final = tuple(f"/usr/lib/cni/{plugin}" for plugin in ("bridge", "host-local", "loopback", "portmap"))
"""Where Debian's package puts them."""
CONFIG: Final = "/etc/cni/net.d/10-spillway.conflist"


@deploy("Pod network")
def pod_network() -> None:
    """A bridge with NAT and this machine's own subnet; a cluster's own network is left to its DaemonSet."""
    wanted = settings().pod_network
    if wanted.kind == "cluster":
        files.absent(name="no bridge beside the cluster's network", dest=CONFIG)
        return
    packages.usable(paths=PLUGINS, name="plugins of the pod network")
    files.place(
        name=f"pods get addresses of {wanted.pods}",
        dest=CONFIG,
        content=json.dumps(bridge(wanted.pods), indent=2) + "\n",
        meaning="json",
    )
    # containerd and the kubelet take the first file of the folder, whoever wrote it.
    files.first_word(
        name="it is the network that containerd takes", dest=CONFIG, endings=(".conf", ".conflist", ".json")
    )


def bridge(pods: str) -> dict[str, Any]:
    """A CNI configuration: containerd reads it anew by itself when it changes."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": pods}]], "routes": [{"dst": "0.0.0.0/0"}]}
    return {
        "cniVersion": "1.0.0",
        "name": "spillway",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": True,
                "ipMasq": True,
                "hairpinMode": True,
                "ipam": ipam,
            },
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }
