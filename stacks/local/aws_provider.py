"""A stand-in for the aws plugin of Pulumi, for the local stack alone: ``python -m stacks.local.aws_provider``.

It is not the published plugin, which is a download that cannot be had everywhere. It serves just the resource types
that this project's programs use (``aws_resources.py``), through boto3, and only against AWS on this machine:
with anything else it refuses to work. On a real account install the real plugin; the programs are the same.

The engine talks to it over gRPC: https://github.com/pulumi/pulumi/blob/master/proto/pulumi/provider.proto
"""

# ruff: noqa: D102, N802 - the methods and their names are the protocol's

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final
from urllib.parse import urlsplit

import grpc
from botocore.exceptions import BotoCoreError, ClientError
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from stacks.local.aws_kinds import Cloud, Kind, Properties
from stacks.local.aws_resources import KINDS, LOOKUPS

VERSION: Final = f"{importlib.metadata.version('pulumi_aws')}+stand-in"
"""The engine compares it with the version that the program's package was made for."""
_LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
_PARALLEL: Final = 16


class Refused(Exception):  # noqa: N818 - reads as what it is at the raise site
    """What the engine shall show instead of a result."""

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


class StandIn(provider_pb2_grpc.ResourceProviderServicer):
    """The provider's side of the protocol. What a type of resource is, ``aws_resources`` knows."""

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
        return _difference(_read(request.old_inputs), _read(request.news), fixed=frozenset({"region"}))

    def Configure(self, request: Any, context: Any) -> Any:
        with _told(context):
            self._cloud = _connect(_read(request.args))
        return provider_pb2.ConfigureResponse(acceptSecrets=False, supportsPreview=True, acceptResources=False)

    def Check(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind = _kind(request.urn)
            wanted = _read(request.news)
            if kind.named and not wanted.get(kind.named):
                before = _read(request.olds).get(kind.named)
                wanted[kind.named] = before or _unique(request.urn, request.randomSeed)
            unknown = sorted(wanted.keys() - kind.inputs)
            failures = [
                provider_pb2.CheckFailure(
                    property=name,
                    reason=f"the stand-in for AWS of the local stack does not know {name} of {kind.token}",
                )
                for name in unknown
            ]
            return provider_pb2.CheckResponse(inputs=_written(wanted), failures=failures)

    def Diff(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind, old, new = _kind(request.urn), _read(request.old_inputs), _read(request.news)
            for name in request.ignoreChanges:
                old.pop(name, None)
                new.pop(name, None)
            if kind.tagged:
                old["tagsAll"] = _read(request.olds).get("tagsAll", {})
                new["tagsAll"] = self._tags(new)
            return _difference(old, new, fixed=kind.fixed, unordered=kind.unordered, named=kind.named)

    def Create(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind, wanted = _kind(request.urn), _read(request.properties)
            if request.preview:  # what AWS would make up is left out, which the program takes as not known yet
                return provider_pb2.CreateResponse(properties=_written(wanted))
            key = kind.create(self._ready(), wanted, self._tags(wanted) if kind.tagged else {})
            found = kind.read(self._ready(), key, wanted)
            if found is None:
                raise Refused(f"{kind.token} {key} was made but cannot be found", grpc.StatusCode.INTERNAL)
            return provider_pb2.CreateResponse(id=key, properties=_written(wanted | found))

    def Read(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind, state, wanted = _kind(request.urn), _read(request.properties), _read(request.inputs)
            found = kind.read(self._ready(), request.id, wanted or state)
            if found is None:
                return provider_pb2.ReadResponse()
            live = self._as_inputs(kind, wanted, found)
            return provider_pb2.ReadResponse(
                id=request.id, properties=_written(state | live | _projected(state, found)), inputs=_written(live)
            )

    def Update(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind, old, new = _kind(request.urn), _read(request.old_inputs), _read(request.news)
            if request.preview:
                kept = {key: value for key, value in _read(request.olds).items() if key not in kind.moving}
                return provider_pb2.UpdateResponse(properties=_written(kept | new))
            kind.update(self._ready(), request.id, old, new)
            if kind.tagged:
                before = _read(request.olds).get("tagsAll", {})
                kind.retag(self._ready(), request.id, before, self._tags(new))
            found = kind.read(self._ready(), request.id, new) or {}
            return provider_pb2.UpdateResponse(properties=_written(new | found))

    def Delete(self, request: Any, context: Any) -> Any:
        with _told(context):
            kind = _kind(request.urn)
            try:
                kind.delete(self._ready(), request.id, _read(request.properties))
            except ClientError as error:
                if not _is_gone(error):
                    raise
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:
        with _told(context):
            lookup = LOOKUPS.get(request.tok)
            if lookup is None:
                raise Refused(f"the stand-in for AWS of the local stack does not serve {request.tok}")
            answer: dict[str, Any] = {"return": _written(lookup(self._ready(), _read(request.args)))}
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
        live: Properties = {**wanted, **_projected(wanted, found)}
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
    if urlsplit(endpoint).hostname not in _LOOPBACK:
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


def _difference(
    old: Properties,
    new: Properties,
    *,
    fixed: frozenset[str],
    unordered: frozenset[str] = frozenset(),
    named: str = "",
) -> Any:
    changed = [key for key in sorted(old.keys() | new.keys()) if _differ(key, old, new, unordered)]
    replaces = [key for key in changed if key in fixed]
    kinds = provider_pb2.PropertyDiff
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=changed,
        replaces=replaces,
        # Two of one name cannot stand side by side.
        deleteBeforeReplace=bool(replaces and named and old.get(named) == new.get(named)),
        hasDetailedDiff=True,
        detailedDiff={
            key: kinds(kind=kinds.UPDATE_REPLACE if key in fixed else kinds.UPDATE, inputDiff=True) for key in changed
        },
    )


def _differ(key: str, old: Properties, new: Properties, unordered: frozenset[str]) -> bool:
    before, after = old.get(key), new.get(key)
    if key in unordered and isinstance(before, list) and isinstance(after, list):
        return sorted(map(_canonical, before)) != sorted(map(_canonical, after))
    return before != after


def _projected(wanted: Any, found: Any) -> Any:
    """What was found, in the shape and spelling of what was wanted: what nobody asked for is left out."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {
            key: _projected(value, found.get(key)) for key, value in wanted.items() if key in found or value is None
        }
    if isinstance(wanted, list) and isinstance(found, list):
        by_shape = sorted(wanted, key=_canonical), sorted(found, key=_canonical)
        if by_shape[0] == by_shape[1]:
            return wanted
        return [_projected(one, other) for one, other in zip(wanted, found, strict=False)] + found[len(wanted) :]
    if isinstance(wanted, str) and isinstance(found, (bool, int)):
        return str(found).lower()
    if isinstance(wanted, str) and isinstance(found, str) and wanted != found and _same_json(wanted, found):
        return wanted
    return found


def _same_json(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def _canonical(value: object) -> str:
    return json.dumps(value, sort_keys=True)


def _unique(urn: str, seed: bytes) -> str:
    """A name for a resource that the program left unnamed, as the engine would make it."""
    return f"{urn.rpartition('::')[2]}-{seed.hex()[:7] or os.urandom(4).hex()[:7]}"


def _read(message: struct_pb2.Struct) -> Properties:
    properties: Properties = _whole(json_format.MessageToDict(message))
    return properties


def _whole(value: Any) -> Any:
    """Whole numbers again: a Struct of protobuf knows none."""
    if isinstance(value, dict):
        return {key: _whole(inner) for key, inner in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _written(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    message = struct_pb2.Struct()
    json_format.ParseDict({key: value for key, value in properties.items() if value is not None}, message)
    return message


def _is_gone(error: ClientError) -> bool:
    code = error.response.get("Error", {}).get("Code", "")
    return "NotFound" in code or code in ("NoSuchEntity", "InvalidAllocationID.NotFound")


class _told:  # noqa: N801 - used as a statement
    """Failures inside become the engine's diagnostics: in words, without a stack trace."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Refused):
            self._context.abort(error.code, str(error))
        if isinstance(error, (BotoCoreError, ClientError)):
            self._context.abort(grpc.StatusCode.UNKNOWN, str(error))


def serve(*, announce: Callable[[int], None]) -> None:
    """Serve on a free port, which is announced, until this process is ended."""
    server = grpc.server(
        ThreadPoolExecutor(max_workers=_PARALLEL),
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(StandIn(), server)
    announce(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def _end_with_the_engine(parent: int) -> None:
    """The engine ends its plugins; one that was killed cannot."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def main() -> int:
    """Serve the engine that started this process; the first line written is the port."""
    threading.Thread(target=_end_with_the_engine, args=[os.getppid()], daemon=True).start()
    serve(announce=lambda port: print(port, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
