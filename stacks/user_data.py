"""What an EC2 node is told at boot: a cloud-config that writes ``/etc/spillway/node.yaml``.

The file says which cluster the machine is of and with which labels and taints it registers. Where a bundle of the roles
is named, the machine fetches it, checks it and prepares itself by it (``python3 -m roles.boot``); else its image does
what is needed. It holds no secret: anything on the instance can read user data. Imports no Pulumi.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import yaml

from autoscaler.cluster import Taint

NODE_FILE: Final = "/etc/spillway/node.yaml"
BOOT_FILE: Final = "/etc/spillway/boot.yaml"
BOOT_SCRIPT: Final = "/etc/spillway/boot.sh"
LIMIT: Final = 16 * 1024
"""Bytes of user data that EC2 takes at most, before base64."""
_HEADER: Final = "#cloud-config\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The roles as one file (``python -m roles.bundle``), and what they are told."""

    url: str
    """Where instances fetch it, over HTTP: a mirror, or an S3 bucket through its endpoint."""
    sha256: str
    token_parameter: str
    """SecureString in SSM Parameter Store with the instance's own token; ``{instance}`` stands for its id."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """As in an inventory: which cluster is joined, where packages come from."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """``metadata`` and ``ssm_endpoint`` where they are not AWS's own."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a new machine must know to become a node."""

    cluster: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    bundle: Bundle | None = None


def render_user_data(spec: NodeSpec) -> str:
    """The cloud-config that carries ``spec``. The same spec gives the same text, byte for byte."""
    node = {
        "cluster": spec.cluster,
        "labels": dict(sorted(spec.labels.items())),
        "taints": [asdict(taint) for taint in spec.taints],
    }
    files = {NODE_FILE: _as_yaml(node)} | (_of_bundle(spec.bundle) if spec.bundle else {})
    config: dict[str, Any] = {
        "write_files": [
            {"path": path, "owner": "root:root", "permissions": "0644", "content": content}
            for path, content in files.items()
        ]
    }
    if spec.bundle:
        config["runcmd"] = [["sh", BOOT_SCRIPT]]
    return _HEADER + _as_yaml(config)


def parse_user_data(text: str) -> NodeSpec:
    """The spec in user data of :func:`render_user_data`. Raises ``ValueError`` saying what is missing."""
    document = _read(text) if text.startswith(_HEADER) else None
    files = document.get("write_files") if isinstance(document, dict) else None
    if files is None:
        raise ValueError("this user data is not a cloud-config with write_files")
    content = next((one.get("content") for one in files if isinstance(one, dict) and one.get("path") == NODE_FILE), "")
    node = _read(str(content))
    if not isinstance(node, dict) or not node.get("cluster"):
        raise ValueError(f"this user data does not write {NODE_FILE} with the cluster's name")
    return NodeSpec(
        cluster=str(node["cluster"]),
        labels={str(key): str(value) for key, value in (node.get("labels") or {}).items()},
        taints=tuple(Taint(**taint) for taint in node.get("taints") or ()),
    )


def _of_bundle(bundle: Bundle) -> dict[str, str]:
    """The files that have a machine prepare itself. apt's downloader is on every Debian, and checks the digest."""
    told = {**bundle.endpoints, "token_parameter": bundle.token_parameter, "settings": dict(bundle.settings)}
    script = f"""#!/bin/sh
# Once, at the first boot. What it says is in /var/log/spillway/boot.log.
set -eu
umask 022
mkdir -p /var/log/spillway /opt/spillway/roles
exec >> /var/log/spillway/boot.log 2>&1
/usr/lib/apt/apt-helper -o Acquire::Retries=5 -o APT::Sandbox::User=root download-file \\
  {shlex.quote(bundle.url)} /opt/spillway/bundle.tar.gz SHA256:{bundle.sha256}
tar -xzf /opt/spillway/bundle.tar.gz -C /opt/spillway/roles
cd /opt/spillway/roles
PYTHONPATH=/opt/spillway/roles exec python3 -m roles.boot
"""
    return {BOOT_FILE: _as_yaml(told), BOOT_SCRIPT: script}


def _read(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"this user data is not YAML: {error}") from None


def _as_yaml(data: object) -> str:
    class LiteralBlocks(yaml.SafeDumper):
        """Text of several lines stays readable."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    LiteralBlocks.add_representer(str, block)
    return yaml.dump(data, Dumper=LiteralBlocks, sort_keys=False, default_flow_style=False, width=1000)
