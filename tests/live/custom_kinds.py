"""Kinds of objects that others bring, served by a real API server without what acts on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, Final

from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from tests.live.hybrid import until

_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@contextlib.contextmanager
def served(kube: KubeHttp, *, group: str, version: str, kind: str) -> Iterator[str]:
    """The API server serves that kind, with any fields; gives the path of its objects in ``default``."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kube.send(
        "POST",
        _CRDS,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [
                    {
                        "name": version,
                        "served": True,
                        "storage": True,
                        "schema": {"openAPIV3Schema": schema},
                        "subresources": {"status": {}},
                    }
                ],
            },
        },
    )
    path = f"/apis/{group}/{version}/namespaces/default/{plural}"
    try:
        until(partial(_is_served, kube, path))
        yield path
    finally:
        kube.send("DELETE", f"{_CRDS}/{plural}.{group}")


def _is_served(kube: KubeHttp, path: str) -> bool:
    try:
        kube.get(path)
    except KubeRefusedError:
        return False
    return True


def provisioning_request(
    name: str, *, template: str, count: int, kind: str = "best-effort-atomic-scale-up"
) -> dict[str, Any]:
    """One for so many pods of a PodTemplate."""
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1",
        "kind": "ProvisioningRequest",
        "metadata": {"name": name},
        "spec": {
            "provisioningClassName": f"{kind}.autoscaling.x-k8s.io",
            "podSets": [{"podTemplateRef": {"name": template}, "count": count}],
        },
    }
