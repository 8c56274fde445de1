"""Runs a program against an engine of the test's own, which keeps what Pulumi's mocks do not see.

Edges between resources (also those by single properties), parents, aliases, what is ignored, protected or kept, which
inputs are secret, what components registered and the stack exported: as the SDK sends it to an engine, over gRPC. ::

    made = graph(lambda: Network("lab", args))
    assert made["Subnet lab-nodes-us-east-1a"].parent == "Network lab"

A resource is called by its type's last word and its name. Nothing is made: each answer is that of the mocks in
``declared.py``.
"""

# ruff: noqa: N802 - the methods' names are the protocol's

from __future__ import annotations

import asyncio
import contextvars
import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
import pulumi.runtime
from google.protobuf import empty_pb2, json_format, struct_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, resource_pb2, resource_pb2_grpc
from pulumi.runtime.settings import ROOT, Settings, configure
from pulumi.runtime.stack import run_in_stack

from tests.test_stacks.declared import Recorder

_KIND: Final = "4dabf18193072939515e22adb298388d"
"""The key by which the SDK marks a value as something else than a plain one."""
_SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - what marks one
_OUTPUT: Final = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
_REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
_FEATURES: Final = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_OUTPUT_VALUES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
)
_STACK: Final = "pulumi:pulumi:Stack"

pulumi.log.debug = lambda *_, **__: None  # four of five calls to the engine, which drops them


@dataclass(frozen=True, kw_only=True)
class Node:
    """One resource, as a program registers it."""

    urn: str
    token: str
    name: str
    parent: str
    """What it stands under; empty for the stack's own."""
    inputs: dict[str, Any]
    """In the plugin's spelling, secrets and references taken out of their wrapping."""
    secrets: frozenset[str]
    """Inputs that are, or hold, a secret."""
    needs: frozenset[str]
    """All that must stand before it does: those whose outputs it takes, and those in ``depends_on``."""
    needs_for: dict[str, frozenset[str]]
    """The same by input."""
    ignores: tuple[str, ...]
    aliases: tuple[str, ...]
    """Earlier names, or whole earlier URNs."""
    protected: bool
    kept: bool
    """``retain_on_delete``."""
    replaced_first: bool
    """``delete_before_replace``."""
    replaces_on: tuple[str, ...]
    secret_outputs: tuple[str, ...]
    provider: str
    """Of a resource that has a provider given: its name."""

    def __str__(self) -> str:
        """What a test calls it."""
        return spoken(self.urn)


@dataclass(frozen=True)
class Graph:
    """A program's resources, in the order in which they came."""

    nodes: tuple[Node, ...]
    registered: Mapping[str, dict[str, Any]]
    """Outputs of components, and of the stack."""
    said: tuple[str, ...]
    """What the program logged."""

    def __getitem__(self, spoken_name: str) -> Node:
        """The resource of that type and name."""
        return next(node for node in self.nodes if str(node) == spoken_name)

    @property
    def exports(self) -> dict[str, Any]:
        """What the stack exports."""
        return next((outputs for name, outputs in self.registered.items() if name.startswith("Stack ")), {})

    def of_type(self, word: str) -> list[Node]:
        """All of a type, by the last word of its token."""
        return [node for node in self.nodes if node.token.rpartition(":")[2] == word]

    def under(self, component: str) -> set[str]:
        """All that stands under a component, at whatever depth."""
        own = {str(node) for node in self.nodes if node.parent == component}
        return own | {below for one in own for below in self.under(one)}

    def all_needs(self, spoken_name: str) -> set[str]:
        """All that must stand before it does, through any number of others."""
        seen: set[str] = set()
        ahead = [spoken_name]
        while ahead:
            fresh = self[ahead.pop()].needs - seen
            seen |= fresh
            ahead.extend(fresh)
        return seen


def graph(program: Callable[[], Any], *, preview: bool = False, mocks: pulumi.runtime.Mocks | None = None) -> Graph:
    """What ``program`` registers when an engine runs it; what it raises is raised here.

    With ``preview`` nothing is known of a resource but its inputs.
    """
    engine = _Engine(preview=preview, mocks=mocks or Recorder())
    with _serving(engine) as address:
        settings = Settings(
            project="spillway",
            stack="test",
            organization="organization",
            root_directory=".",
            monitor=address,
            engine=address,
            dry_run=preview,
            parallel=16,
        )
        # Pulumi keeps its settings in context variables, and asyncio a loop for each thread: in a context and a thread
        # of its own, a program touches none of another test's.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(contextvars.copy_context().run, _run, program, settings).result()
    return Graph(nodes=tuple(engine.nodes), registered=dict(engine.registered), said=tuple(engine.said))


def spoken(urn: str) -> str:
    """``Subnet lab-a`` for ``urn:pulumi:test::spillway::...$aws:ec2/subnet:Subnet::lab-a``."""
    _, _, types, name = urn.split("::", 3)
    return f"{types.rpartition('$')[2].rpartition(':')[2]} {name}"


def _run(program: Callable[[], Any], settings: Settings) -> None:
    ROOT.set(None)
    configure(settings)

    def run() -> None:  # what a program gives back is not for the engine
        program()

    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        loop.run_until_complete(run_in_stack(run))
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()
        asyncio.set_event_loop(None)


@contextmanager
def _serving(engine: _Engine) -> Iterator[str]:
    with ThreadPoolExecutor(max_workers=16) as threads:
        server = grpc.server(threads)
        resource_pb2_grpc.add_ResourceMonitorServicer_to_server(engine, server)
        engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            server.stop(grace=1).wait()


@dataclass
class _Engine(resource_pb2_grpc.ResourceMonitorServicer, engine_pb2_grpc.EngineServicer):
    """Both services that a program talks to."""

    preview: bool
    mocks: pulumi.runtime.Mocks
    nodes: list[Node] = field(default_factory=list)
    registered: dict[str, dict[str, Any]] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    _root: str = ""

    def GetDeploymentInfo(self, request: Any, context: Any) -> Any:
        return resource_pb2.DeploymentInfo(supportedFeatures=_FEATURES)

    def RegisterResource(self, request: Any, context: Any) -> Any:
        urn = _urn(request)
        if request.type == _STACK:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        self.nodes.append(_node(urn, request))
        if not request.custom:
            return resource_pb2.RegisterResourceResponse(urn=urn)
        args = pulumi.runtime.MockResourceArgs(typ=request.type, name=request.name, inputs=_plain(request.object))
        key, outputs = self.mocks.new_resource(args)
        key = key or ""
        if self.preview:  # what only the cloud knows is not known yet
            return resource_pb2.RegisterResourceResponse(urn=urn, object=request.object)
        answer = _struct(outputs)
        for name, value in request.object.fields.items():
            if _holds_a_secret(value):  # and stays one
                answer.fields[name].CopyFrom(value)
        for name in request.additionalSecretOutputs:
            if name in answer.fields and not _holds_a_secret(answer.fields[name]):
                answer.fields[name].CopyFrom(_as_secret(answer.fields[name]))
        return resource_pb2.RegisterResourceResponse(urn=urn, id=key, object=answer)

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:
        self.registered[spoken(request.urn)] = _plain(request.outputs)
        return empty_pb2.Empty()

    def ReadResource(self, request: Any, context: Any) -> Any:
        return resource_pb2.ReadResourceResponse(urn=_urn(request), properties=request.properties)

    def Invoke(self, request: Any, context: Any) -> Any:
        call = pulumi.runtime.MockCallArgs(token=request.tok, args=_plain(request.args), provider=request.provider)
        found, _ = self.mocks.call(call)
        answer: dict[str, Any] = {"return": _struct(found)}
        return resource_pb2.ResourceInvokeResponse(**answer)

    def SignalAndWaitForShutdown(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()

    def Log(self, request: Any, context: Any) -> Any:
        self.said.append(request.message)
        return empty_pb2.Empty()

    def GetRootResource(self, request: Any, context: Any) -> Any:
        return engine_pb2.GetRootResourceResponse(urn=self._root)

    def SetRootResource(self, request: Any, context: Any) -> Any:
        self._root = request.urn
        return engine_pb2.SetRootResourceResponse()


def _node(urn: str, request: Any) -> Node:
    edges = request.propertyDependencies.items()
    by_input = {name: frozenset(map(spoken, found.urns)) for name, found in edges if found.urns}
    return Node(
        urn=urn,
        token=request.type,
        name=request.name,
        parent=spoken(request.parent) if _STACK not in request.parent.split("::")[2:3] else "",
        inputs=_plain(request.object),
        secrets=frozenset(name for name, value in request.object.fields.items() if _holds_a_secret(value)),
        needs=frozenset(map(spoken, request.dependencies)).union(*by_input.values()),
        needs_for=by_input,
        ignores=tuple(request.ignoreChanges),
        aliases=tuple(alias.urn or alias.spec.name or str(alias.spec).strip() for alias in request.aliases),
        protected=request.protect,
        kept=request.retainOnDelete,
        replaced_first=request.deleteBeforeReplace,
        replaces_on=tuple(request.replaceOnChanges),
        secret_outputs=tuple(request.additionalSecretOutputs),
        provider=request.provider.rpartition("::")[0].rpartition("::")[2],
    )


def _urn(request: Any) -> str:
    above = request.parent.split("::")[2] + "$" if request.parent else ""
    above = "" if above == f"{_STACK}$" else above
    return f"urn:pulumi:test::spillway::{above}{request.type}::{request.name}"


def _plain(message: struct_pb2.Struct) -> dict[str, Any]:
    properties: dict[str, Any] = _unwrapped(json_format.MessageToDict(message))
    return properties


def _unwrapped(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(_KIND) == _REFERENCE:
            return spoken(value["urn"])
        if _KIND in value:  # a secret or an output
            return _unwrapped(value.get("value"))
        return {key: _unwrapped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_unwrapped(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _holds_a_secret(value: struct_pb2.Value) -> bool:
    text = json.dumps(json_format.MessageToDict(value))
    return _SECRET in text or (_OUTPUT in text and '"secret": true' in text)


def _as_secret(value: struct_pb2.Value) -> struct_pb2.Value:
    fields = {_KIND: struct_pb2.Value(string_value=_SECRET), "value": value}
    return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))


def _struct(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    message = struct_pb2.Struct()
    json_format.ParseDict({key: value for key, value in properties.items() if value is not None}, message)
    return message
