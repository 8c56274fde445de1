"""The first member of a kubeadm control plane, as far as others see it: what it has handed on when its gate opens.

No machine boots here. What a member would write into Parameter Store, and `pulumi up` reads once the gate is open, is
written in its place: without it the stand-in's gate would open on a member that has not done its part.
"""

from __future__ import annotations

import base64
import json
import secrets
import shlex
from typing import Any, Final

import yaml
from moto.ssm.models import ssm_backends

from stacks.control_plane.member_user_data import KUBEADM_FILE, MEMBER_FILE, NOT_YET
from stacks.local.fake_aws.instances import decoded

_NO_PEM: Final = base64.b64encode(b"no authority: nothing runs behind the stand-in for EC2").decode()


def hand_on(account: str, region: str, instance: Any) -> None:
    """Write what a first member writes, where ``instance`` is one and nobody has yet."""
    files = _files(decoded(instance.user_data))
    told = dict(part.split("=", 1) for part in shlex.split(files.get(MEMBER_FILE, "")))
    if told.get("FIRST") != "yes":
        return
    written = {
        told["KUBECONFIG_PARAMETER"]: _kubeconfig(told["CLUSTER"], told["ENDPOINT"]),
        told["TOKEN_PARAMETER"]: f"{secrets.token_hex(3)}.{secrets.token_hex(8)}",
        told["CERTIFICATE_KEY_PARAMETER"]: secrets.token_hex(32),
        told["VERSION_PARAMETER"]: yaml.safe_load(files[KUBEADM_FILE])["kubernetesVersion"].removeprefix("v"),
    }
    store = ssm_backends[account][region]
    for name, value in written.items():
        kept = store.get_parameter(name)
        if kept is not None and kept.decrypt(kept.value) == NOT_YET:
            kept.value = kept.encrypt(value)


def _files(user_data: str) -> dict[str, str]:
    """What a machine is told to write; empty for whoever is no member."""
    config = yaml.safe_load(user_data) if user_data.startswith("#cloud-config") else {}
    return {one["path"]: one["content"] for one in (config or {}).get("write_files", ())}


def _kubeconfig(cluster: str, endpoint: str) -> str:
    server = {"server": f"https://{endpoint}", "certificate-authority-data": _NO_PEM}
    user = {"client-key-data": base64.b64encode(secrets.token_bytes(32)).decode()}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": cluster,
            "clusters": [{"name": cluster, "cluster": server}],
            "users": [{"name": "admin", "user": user}],
            "contexts": [{"name": cluster, "context": {"cluster": cluster, "user": "admin"}}],
        }
    )
