"""What an EC2 node is told at boot: a cloud-config that writes ``/etc/spillway/node.yaml``.

The file says which cluster the machine is of and with which labels and taints it registers. It holds no secret:
anything on the instance can read user data. Imports no Pulumi.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import yaml

from autoscaler.cluster import Taint

NODE_FILE: Final = "/etc/spillway/node.yaml"
LIMIT: Final = 16 * 1024
"""Bytes of user data that EC2 takes at most, before base64."""
_HEADER: Final = "#cloud-config\n"


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """What a new machine must know to become a node."""

    cluster: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()


def render_user_data(spec: NodeSpec) -> str:
    """The cloud-config that carries ``spec``. The same spec gives the same text, byte for byte."""
    node = {
        "cluster": spec.cluster,
        "labels": dict(sorted(spec.labels.items())),
        "taints": [asdict(taint) for taint in spec.taints],
    }
    entry = {"path": NODE_FILE, "owner": "root:root", "permissions": "0644", "content": _as_yaml(node)}
    return _HEADER + _as_yaml({"write_files": [entry]})


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
