"""A stand-in for the kubernetes plugin of Pulumi, for the local stack alone.

``python -m tests.fakes.kubernetes_plugin`` serves the engine. It is not the published plugin, which is a
download that cannot be had everywhere. It brings objects to a real API server by server-side apply, waits for nothing,
and works only with one on this machine. On a real cluster install the real plugin; the programs are the same.
"""

# ruff: noqa: D102, N802 - the methods and their names are the protocol's

from __future__ import annotations

import importlib.metadata
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from autoscaler.model.errors import Unavailable
from stacks.local.ground.control_plane import path_of
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.pulumi_plugins.plugin import (
    LOOPBACK,
    Properties,
    Refused,
    difference,
    projected,
    read,
    run_plugin,
    told,
    written,
)

VERSION: Final = f"{importlib.metadata.version('pulumi_kubernetes')}+stand-in"
_MANAGER: Final = "pulumi-kubernetes"
_APPLY: Final = "application/apply-patch+yaml"
_NOT_FOUND: Final = 404
_UNCHANGEABLE: Final = frozenset({"roleRef", "value"})
"""Of a binding, and of a priority class: the API server takes no change of them."""


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider's side of the protocol."""

    def __init__(self) -> None:
        self._kube: KubeHttp | None = None

    def Handshake(self, request: Any, context: Any) -> Any:
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: Any) -> Any:
        about = "Stand-in for the kubernetes plugin, for the local stack of Spillway alone"
        schema = {"name": "kubernetes", "version": VERSION, "description": about, "resources": {}}
        return provider_pb2.GetSchemaResponse(schema=json.dumps(schema))

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        return difference(read(request.old_inputs), read(request.news), fixed=frozenset())

    def Configure(self, request: Any, context: Any) -> Any:
        with told(context):
            kubeconfig = read(request.args).get("kubeconfig")
            self._kube = _connect(kubeconfig) if kubeconfig else None
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True, acceptResources=False)

    def Check(self, request: Any, context: Any) -> Any:
        wanted = read(request.news)
        missing = [name for name in ("apiVersion", "kind") if not wanted.get(name)]
        if not wanted.get("metadata", {}).get("name"):
            missing.append("metadata")
        failures = [
            provider_pb2.CheckFailure(property=name, reason="the stand-in for Kubernetes needs it") for name in missing
        ]
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        old, new = read(request.old_inputs), read(request.news)
        fixed = _UNCHANGEABLE if _place(old) == _place(new) else frozenset({"metadata", *_UNCHANGEABLE})
        # Where it stays in its place, the old one goes first.
        return difference(old, new, fixed=fixed, named="kind" if _place(old) == _place(new) else "")

    def Create(self, request: Any, context: Any) -> Any:
        with told(context):
            wanted = read(request.properties)
            if request.preview:
                return provider_pb2.CreateResponse(properties=request.properties)
            found = self._apply(wanted)
            return provider_pb2.CreateResponse(id=_place(wanted), properties=written(wanted | _outputs(found)))

    def Read(self, request: Any, context: Any) -> Any:
        with told(context):
            wanted = read(request.inputs) or read(request.properties)
            found = self._get(wanted)
            if found is None:
                return provider_pb2.ReadResponse()
            live = wanted | projected(_without_write_only(wanted), found)
            return provider_pb2.ReadResponse(
                id=request.id, properties=written(live | _outputs(found)), inputs=written(live)
            )

    def Update(self, request: Any, context: Any) -> Any:
        with told(context):
            new = read(request.news)
            if request.preview:
                return provider_pb2.UpdateResponse(properties=request.news)
            return provider_pb2.UpdateResponse(properties=written(new | _outputs(self._apply(new))))

    def Delete(self, request: Any, context: Any) -> Any:
        with told(context):
            state = read(request.properties)
            try:
                self._send("DELETE", f"{_path(state)}?propagationPolicy=Background")
            except KubeRefusedError as refused:
                if refused.status != _NOT_FOUND:
                    raise Refused(str(refused)) from None
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        with told(context):
            raise Refused(f"the stand-in for Kubernetes of the local stack does not serve {request.tok}")

    def Cancel(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def _apply(self, wanted: Properties) -> Properties:
        try:
            applied: Properties = self._send("PATCH", f"{_path(wanted)}?fieldManager={_MANAGER}&force=true", wanted)
        except KubeRefusedError as refused:
            raise Refused(f"the API server refuses {_place(wanted)}: {refused}") from None
        return applied

    def _get(self, wanted: Properties) -> Properties | None:
        try:
            found: Properties = self._send("GET", _path(wanted))
        except KubeRefusedError as refused:
            if refused.status == _NOT_FOUND:
                return None
            raise Refused(str(refused)) from None
        return None if found["metadata"].get("deletionTimestamp") else found

    def _send(self, method: str, path: str, body: Properties | None = None) -> Any:
        if self._kube is None:
            raise Refused("the provider has no kubeconfig", grpc.StatusCode.FAILED_PRECONDITION)
        try:
            return self._kube.send(method, path, body, content=_APPLY)
        except Unavailable as outage:
            raise Refused(str(outage), grpc.StatusCode.UNAVAILABLE) from None


def _connect(kubeconfig: str) -> KubeHttp:
    """KubeHttp reads a file: it is gone again at once."""
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(kubeconfig, encoding="utf-8")
        try:
            kube = KubeHttp(path)
        except (KeyError, TypeError, ValueError, IndexError):
            raise Refused(
                "this kubeconfig holds no token and authority, which is all that the stand-in takes"
            ) from None
    if urlsplit(kube.url).hostname not in LOOPBACK:
        raise Refused(
            f"this is the stand-in for the kubernetes plugin, for the local stack alone; {kube.url} is not on this "
            "machine. For a real cluster take the real plugin: pulumi plugin install resource kubernetes"
        )
    return kube


def _place(manifest: Properties) -> str:
    metadata = manifest.get("metadata", {})
    return "/".join(filter(None, (manifest.get("kind"), metadata.get("namespace"), metadata.get("name"))))


def _path(manifest: Properties) -> str:
    return f"{path_of(manifest)}/{manifest['metadata']['name']}"


def _outputs(found: Properties) -> Properties:
    """What the API server added that programs use."""
    return {"metadata": {key: value for key, value in found["metadata"].items() if key != "managedFields"}}


def _without_write_only(wanted: Properties) -> Properties:
    return {key: value for key, value in wanted.items() if key != "stringData"}


def main() -> int:
    """Serve the engine that started this process."""
    return run_plugin(StandIn())


if __name__ == "__main__":
    sys.exit(main())
