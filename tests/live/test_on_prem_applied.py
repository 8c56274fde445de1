"""A machine that the stack's provider registered and `spillway nodes apply` then prepares: neither undoes the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from autoscaler.model import labels as words
from stacks.local.kubeapi.client import KubeHttp
from stacks.on_prem_provider import machine
from stacks.on_prem_provider.kube import Kube
from stacks.settings.inventory import read_inventory
from tests.live.lab import Lab, spillway

pytestmark = pytest.mark.live

LABELS = {"example.com/tier": "gold", words.RACK: "r1", words.OWNER: "vision", words.ORIGIN: words.ON_PREM}
TAINT = {"key": "lab.example/shared", "value": "yes", "effect": "NoSchedule"}


def wanted(file: Any, *, labels: dict[str, str]) -> dict[str, Any]:
    """The machine's properties, as the program declares them, without a probe: it has no GPUs to be counted."""
    [entry] = read_inventory(file).machines
    plain = entry.model_dump(mode="json", include={"name", "address", "cpus", "memory", "rack", "owner", "taints"})
    return {**plain, "cluster": "lab", "probe": "none", "labels": labels}


def test_provider_and_roles_mind_one_node(ground: Lab) -> None:
    """Registered, applied, refreshed, changed by each in turn: nothing that either declared is undone by the other."""
    hosts = ground.bench.machines("dgx-01")
    file = ground.inventory(hosts)
    provider = Kube(ground.kubeconfig.read_text(encoding="utf-8"))
    state = machine.create(provider, wanted(file, labels={"example.com/tier": "gold"}))
    key = state["joinToken"].partition(".")[0]
    tier(file, "gold")
    done = apply(ground, file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert_stands(ground.kube, LABELS)
    secrets = ground.kube.get("/api/v1/namespaces/kube-system/secrets")["items"]
    assert not [one for one in secrets if key in one["metadata"]["name"]], "the roles have made one of their own"

    now = machine.read(provider, state)
    assert machine.difference(now, wanted(file, labels={"example.com/tier": "gold"})) == ([], []), "no drift"
    again = apply(ground, file)
    assert again.returncode == 0
    assert "the node's labels and taints" not in again.stdout, "nor anything to do for the roles"

    tier(file, "")
    assert apply(ground, file).returncode == 0
    without = {name: value for name, value in LABELS.items() if name != "example.com/tier"}
    assert_stands(ground.kube, without)
    assert "example.com/tier" not in labels_of(ground.kube), "what the provider had declared the roles take away"
    machine.update(provider, now, wanted(file, labels={"example.com/row": "7"}))
    assert_stands(ground.kube, without | {"example.com/row": "7"})
    tier(file, "", row="7")
    last = apply(ground, file)
    assert last.returncode == 0
    assert "the node's labels and taints" not in last.stdout
    assert_stands(ground.kube, without | {"example.com/row": "7"})


def tier(file: Any, value: str, *, row: str = "") -> None:
    """The machine's labels in the inventory."""
    inventory = yaml.safe_load(file.read_text(encoding="utf-8"))
    labels = {"example.com/tier": value, "example.com/row": row}
    inventory["machines"][0]["labels"] = {name: text for name, text in labels.items() if text}
    file.write_text(yaml.safe_dump(inventory), encoding="utf-8")


def apply(ground: Lab, file: Any) -> Any:
    """As an owner does."""
    state = ground.directory / "state"
    return spillway("nodes", "apply", "-i", str(file), "--state", str(state), "--kubeconfig", str(ground.kubeconfig))


def assert_stands(kube: KubeHttp, labels: dict[str, str]) -> None:
    """The node is ready, with these labels, its taint, and no other of ours."""
    node = kube.get("/api/v1/nodes/dgx-01")
    assert {name: node["metadata"]["labels"].get(name) for name in labels} == labels
    ours = [one for one in node["spec"].get("taints", ()) if not one["key"].startswith("node.kubernetes.io/")]
    assert ours == [TAINT]
    declared = json.loads(node["metadata"]["annotations"][words.DECLARED])
    assert labels.keys() <= set(declared["labels"])
    assert any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"]["conditions"])


def labels_of(kube: KubeHttp) -> dict[str, str]:
    """Of the node."""
    return dict(kube.get("/api/v1/nodes/dgx-01")["metadata"]["labels"])
