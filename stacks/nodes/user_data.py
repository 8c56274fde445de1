"""What an EC2 node is told at boot: a cloud-config that writes ``/etc/spillway/node.yaml``.

The file says which cluster the machine is of and with which labels and taints it registers. Where the project's own
roles make a node of it (``Join``), the machine fetches them, or has them on its image, and runs ``python3 -m
roles.first_boot.boot`` until that has succeeded once; else its image does what is needed. It holds no secret: anything
on the instance can read user data. Imports no Pulumi.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.model.constraints import Taint
from stacks import ROOT

NODE_FILE: Final = "/etc/spillway/node.yaml"
BOOT_FILE: Final = "/etc/spillway/boot.yaml"
BOOT_SCRIPT: Final = "/usr/local/sbin/spillway-boot"
BOOT_UNIT: Final = "/etc/systemd/system/spillway-boot.service"
FETCH_SCRIPT: Final = "/usr/local/sbin/spillway-fetch-bundle"
ROLES: Final = "/opt/spillway/roles"
"""Where a bundle is unpacked; an image that was baked has it there."""
LIMIT: Final = 16 * 1024
"""Bytes of user data that EC2 takes at most, before base64."""
_FETCH: Final = ROOT / "stacks" / "boot" / "fetch_bundle.py"
_HEADER: Final = "#cloud-config\n"


@dataclass(frozen=True, slots=True)
class Bundle:
    """The roles and their settings as one file (``spillway nodes bundle``)."""

    url: str
    """Where it lies in S3."""
    sha256: str


@dataclass(frozen=True, slots=True)
class Join:
    """How a machine becomes a node by the project's own roles: the same that on-prem machines have."""

    server: str
    """URL of the API server."""
    authority: str
    """PEM that its certificate is signed by."""
    token_parameter: str
    """SecureString in SSM Parameter Store with the instance's own token; ``{instance}`` stands for its id."""
    cluster_dns: tuple[str, ...] = ()
    """Name servers of the pods; none: as the bundle's settings say."""
    bundle: Bundle | None = None
    """None: its image has the roles already."""


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a new machine must know to become a node."""

    cluster: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    join: Join | None = None


def render_user_data(spec: NodeSpec) -> str:
    """The cloud-config that carries ``spec``. The same spec gives the same text, byte for byte."""
    node = {
        "cluster": spec.cluster,
        "labels": dict(sorted(spec.labels.items())),
        "taints": [asdict(taint) for taint in spec.taints],
    }
    files = {NODE_FILE: (_as_yaml(node), "0644")} | (_of_join(spec.join) if spec.join else {})
    config: dict[str, Any] = {
        "write_files": [
            {"path": path, "owner": "root:root", "permissions": mode, "content": content}
            for path, (content, mode) in files.items()
        ]
    }
    if spec.join:
        start = ["systemctl", "enable", "--now", "--no-block", Path(BOOT_UNIT).name]
        config["runcmd"] = [["systemctl", "daemon-reload"], start]
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


def _of_join(join: Join) -> dict[str, tuple[str, str]]:
    """The files that have a machine prepare itself, each with its mode."""
    kubelet: dict[str, Any] = {"server": join.server, "authority": join.authority}
    if join.cluster_dns:
        kubelet["cluster_dns"] = list(join.cluster_dns)
    told = {"token_parameter": join.token_parameter, "settings": {"kubelet": kubelet}}
    files = {
        BOOT_FILE: (_as_yaml(told), "0644"),
        BOOT_SCRIPT: (_SCRIPT.format(roles=ROLES, fetch=_fetching(join.bundle)), "0755"),
        BOOT_UNIT: (_UNIT.format(script=BOOT_SCRIPT), "0644"),
    }
    return files | ({FETCH_SCRIPT: (_FETCH.read_text(encoding="utf-8"), "0755")} if join.bundle else {})


def _fetching(bundle: Bundle | None) -> str:
    if bundle is None:
        return ""
    return f"""python3 {FETCH_SCRIPT} {shlex.quote(bundle.url)} {bundle.sha256} /opt/spillway/bundle.tar.gz
rm -rf {ROLES} && mkdir {ROLES}
tar -xzf /opt/spillway/bundle.tar.gz -C {ROLES}
"""


_SCRIPT: Final = """#!/bin/sh
# Makes a node of this machine. What it says is in /var/log/spillway/boot.log.
set -eu
umask 022
mkdir -p /var/log/spillway /var/lib/spillway /opt/spillway
exec >> /var/log/spillway/boot.log 2>&1
date
{fetch}cd {roles}
python=python$(cut -d' ' -f1 PYTHON)
command -v "$python" || {{
  echo "spillway: the roles are bundled for $python, which is not on this image: bundle them with its own Python"
  exit 2
}}
PYTHONPATH={roles} "$python" -m roles.first_boot.boot
touch /var/lib/spillway/booted
"""
_UNIT: Final = """[Unit]
Description=Make a node of this machine
Wants=network-online.target
After=network-online.target
ConditionPathExists=!/var/lib/spillway/booted

[Service]
Type=oneshot
Environment=HOME=/root LC_ALL=C.UTF-8
ExecStart={script}
Restart=on-failure
RestartPreventExitStatus=2
RestartSec=20

[Install]
WantedBy=multi-user.target
"""


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
