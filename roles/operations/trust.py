"""What a machine believes: the API server that it reports to, and the registries that its images come from."""

from __future__ import annotations

import base64
from typing import Any

import yaml
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.facts.containerd import UnverifiedRegistries
from roles.facts.files import FileText
from roles.facts.nodes import PKI
from roles.operations import files
from roles.operations.files import Commands


@operation()
def registries_verified(folder: str) -> Commands:
    """Have containerd verify every registry. Where one is exempt, a person knows why: refused."""
    lines: list[str] = host.get_fact(UnverifiedRegistries, folder=folder)
    if lines:
        path, _, line = lines[0].partition(":")
        raise OperationError(
            f"{path} says {line.strip()!r}: whoever answers in that registry's place decides what runs here. Give its"
            " authority there (ca = ...), or leave this alone where that is meant (left_alone)"
        )
    host.noop("all are verified")
    yield from ()


@operation()
def kubeconfig_ours(path: str, *, server: str, authority: str) -> Commands:
    """Have the kubelet's own kubeconfig, once it has written it, name this API server, with this authority alone.

    Every key of its cluster and of its user counts; what is written in other words stays as it is.
    """
    text: str | None = host.get_fact(FileText, path=path)
    if text is None or _believes(text, server=server, authority=authority):
        host.noop("not there yet" if text is None else "it believes the cluster's authority")
        return
    wanted = yaml.safe_dump(kubeconfig(server=server, authority=authority), sort_keys=True)
    yield from files.place._inner(path, wanted, mode="600")  # noqa: SLF001 - pyinfra's way to nest operations


def kubeconfig(*, server: str, authority: str) -> dict[str, Any]:
    """Returns the kubeconfig that a kubelet writes once it has its certificate."""
    pem = f"{PKI}/kubelet-client-current.pem"
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authority.encode()).decode()}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "users": [{"name": "default-auth", "user": {"client-certificate": pem, "client-key": pem}}],
        "contexts": [{"name": "default-context", "context": {"cluster": "default-cluster", "user": "default-auth"}}],
        "current-context": "default-context",
    }


def _believes(text: str, *, server: str, authority: str) -> bool:
    try:
        found = yaml.safe_load(text)
        clusters = [entry["cluster"] for entry in found["clusters"]]
        users = [entry["user"] for entry in found["users"]]
        wanted = kubeconfig(server=server, authority=authority)
        (cluster,), (user,) = ([entry[kind] for entry in wanted[f"{kind}s"]] for kind in ("cluster", "user"))
        ours = [{key: value for key, value in one.items() if value} for one in clusters]
        return (
            all(_same(one, cluster) for one in ours) and all(one == user for one in users) and bool(clusters and users)
        )
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError):
        return False


def _same(cluster: dict[str, Any], wanted: dict[str, Any]) -> bool:
    """Every key counts: one skips the check, one is a proxy, one another name. In PEM white space says nothing."""
    if cluster.keys() != wanted.keys() or cluster["server"] != wanted["server"]:
        return False
    key = "certificate-authority-data"
    return bool(base64.b64decode(cluster[key]).split() == base64.b64decode(wanted[key]).split())
