"""A stand-in for Pulumi's aws plugin, for local stacks: ``python -m stacks.local.pulumi_plugins.aws.provider``.

It is not the published plugin, which is a download that cannot be had everywhere. It serves just the resource types
that this project's programs use (``registry.py``), through boto3, and only against AWS on this machine:
with anything else it refuses to work. On a real account install the real plugin; the programs are the same.
"""

# ruff: noqa: D102, N802 - the methods and their names are the protocol's

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from stacks.local.pulumi_plugins.aws.defaults import given_back, left_out
from stacks.local.pulumi_plugins.aws.kinds import BETWEEN_TRIES, PROPAGATION, Cloud, Kind, Properties
from stacks.local.pulumi_plugins.aws.registry import KINDS, LOOKUPS
from stacks.local.pulumi_plugins.plugin import LOOPBACK, Refused, difference, projected, read, run_plugin, told, written

VERSION: Final = f"{importlib.metadata.version('pulumi_aws')}+stand-in"
"""The engine compares it with the version that the program's package was made for."""
_OUTAGES: Final = (BotoCoreError, ClientError)


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider's side of the protocol. What a type of resource is, ``registry.py`` knows."""

    def __init__(self) -> None:
        self._cloud: Cloud | None = None

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return plugin_pb2.PluginInfo(version=VERSION)

    def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        about = "Stand-in for the aws plugin, for the local stack of Spillway alone"
        return provider_pb2.GetSchemaResponse(
            schema=json.dumps({"name": "aws", "version": VERSION, "description": about, "resources": {}})
        )

    def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return difference(read(request.old_inputs), read(request.news), fixed=frozenset({"region"}))

    def Configure(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            self._cloud = _connect(read(request.args))
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True, acceptResources=False)

    def Check(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind = _kind(request.urn)
            wanted = read(request.news)
            if kind.named and not wanted.get(kind.named):
                before = read(request.olds).get(kind.named)
                wanted[kind.named] = before or _unique(request.urn, request.randomSeed)
            unknown = sorted(wanted.keys() - kind.inputs)
            failures = [
                provider_pb2.CheckFailure(
                    property=name,
                    reason=f"the stand-in for AWS of the local stack does not know {name} of {kind.token}",
                )
                for name in unknown
            ]
            return provider_pb2.CheckResponse(inputs=written(wanted), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind, old, new = _kind(request.urn), read(request.old_inputs), read(request.news)
            for name in request.ignoreChanges:
                old.pop(name, None)
                new.pop(name, None)
            if kind.tagged:
                old["tagsAll"] = read(request.olds).get("tagsAll", {})
                new["tagsAll"] = self._tags(new)
            return difference(old, new, fixed=kind.fixed, unordered=kind.unordered, named=kind.named)

    def Create(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind, wanted = _kind(request.urn), read(request.properties)
            if request.preview:  # what AWS would make up is left out, which the program takes as not known yet
                return provider_pb2.CreateResponse(properties=written(wanted))
            key = kind.create(self._ready(), wanted, self._tags(wanted) if kind.tagged else {})
            found, end = kind.read(self._ready(), key, wanted), time.monotonic() + PROPAGATION
            while found is None:
                if time.monotonic() > end:
                    raise Refused(f"{kind.token} {key} was made but cannot be found", grpc.StatusCode.INTERNAL)
                time.sleep(BETWEEN_TRIES)
                found = kind.read(self._ready(), key, wanted)
            return provider_pb2.CreateResponse(id=key, properties=written(wanted | found))

    def Read(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind, state, wanted = _kind(request.urn), read(request.properties), read(request.inputs)
            found = kind.read(self._ready(), request.id, wanted or state)
            if found is None:
                return provider_pb2.ReadResponse()
            live = self._as_inputs(kind, wanted, found)
            return provider_pb2.ReadResponse(
                id=request.id, properties=written(state | found | live | projected(state, found)), inputs=written(live)
            )

    def Update(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind, old, new = _kind(request.urn), read(request.old_inputs), read(request.news)
            if request.preview:
                kept = {key: value for key, value in read(request.olds).items() if key not in kind.moving}
                return provider_pb2.UpdateResponse(properties=written(kept | new))
            kind.update(self._ready(), request.id, old, new | given_back(kind.token, old, new))
            if kind.tagged:
                before = read(request.olds).get("tagsAll", {})
                kind.retag(self._ready(), request.id, before, self._tags(new))
            found = kind.read(self._ready(), request.id, new) or {}
            return provider_pb2.UpdateResponse(properties=written(new | found))

    def Delete(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            kind = _kind(request.urn)
            try:
                kind.delete(self._ready(), request.id, read(request.properties))
            except ClientError as error:
                if not _is_gone(error):
                    raise
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        with told(context, *_OUTAGES):
            lookup = LOOKUPS.get(request.tok)
            if lookup is None:
                raise Refused(f"the stand-in for AWS of the local stack does not serve {request.tok}")
            answer: dict[str, Any] = {"return": written(lookup(self._ready(), read(request.args)))}
            return provider_pb2.InvokeResponse(**answer)

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: ARG002
        return empty_pb2.Empty()

    def _ready(self) -> Cloud:
        if self._cloud is None:
            raise Refused("the provider was not configured", grpc.StatusCode.FAILED_PRECONDITION)
        return self._cloud

    def _tags(self, wanted: Properties) -> dict[str, str]:
        defaults = self._cloud.default_tags if self._cloud else {}
        return {**defaults, **(wanted.get("tags") or {})}

    def _as_inputs(self, kind: Kind, wanted: Properties, found: Properties) -> Properties:
        """What the program would have to say to get what was found."""
        if not wanted:  # an import: everything that can be said
            return {key: value for key, value in found.items() if key in kind.inputs and value not in (None, [], {})}
        # What AWS does not tell of (how to wait, how to delete) stays as it was said.
        live: Properties = {**wanted, **projected(wanted, found), **left_out(kind.token, wanted, found)}
        live = {key: value for key, value in live.items() if value is not None}
        if kind.tagged:
            own = {
                key: value for key, value in found["tagsAll"].items() if self._ready().default_tags.get(key) != value
            }
            if own or "tags" in wanted:
                live["tags"] = own
        return live


def _connect(configuration: Properties) -> Cloud:
    endpoint = os.environ.get("AWS_ENDPOINT_URL", "")
    if urlsplit(endpoint).hostname not in LOOPBACK:
        raise Refused(
            f"this is the stand-in for the aws plugin, for the local stack alone; AWS_ENDPOINT_URL is {endpoint!r}, "
            "which is not on this machine. For a real account take the real plugin: pulumi plugin install resource aws"
        )
    defaults = configuration.get("defaultTags") or {}
    if isinstance(defaults, str):  # the SDK hands a provider's nested settings over as JSON
        defaults = json.loads(defaults)
    return Cloud(
        region=configuration.get("region") or os.environ.get("AWS_REGION", "us-east-1"),
        endpoint=endpoint,
        default_tags=defaults.get("tags") or {},
    )


def _kind(urn: str) -> Kind:
    token = urn.split("::")[2].rpartition("$")[2]
    kind = KINDS.get(token)
    if kind is None:
        raise Refused(
            f"the stand-in for AWS of the local stack does not serve {token}; it serves: {', '.join(sorted(KINDS))}"
        )
    return kind


def _is_gone(error: ClientError) -> bool:
    code = error.response.get("Error", {}).get("Code", "")
    return "NotFound" in code or code in ("NoSuchEntity", "InvalidAllocationID.NotFound")


def _unique(urn: str, seed: bytes) -> str:
    """A name for a resource that the program left unnamed, as the engine would make it."""
    return f"{urn.rpartition('::')[2]}-{seed.hex()[:7] or os.urandom(4).hex()[:7]}"


def main() -> int:
    """Serve the engine that started this process."""
    return run_plugin(StandIn())


if __name__ == "__main__":
    sys.exit(main())
