"""The provider: which type of resource does what, in the terms of Pulumi's protocol."""

# ruff: noqa: D102 - the methods are the protocol's, documented there

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from pulumi.provider.experimental import provider as protocol

from autoscaler.model.errors import BadInput
from stacks.on_prem_provider import keys, machine
from stacks.on_prem_provider.grpc_server import VERSION
from stacks.on_prem_provider.kube import Kube
from stacks.on_prem_provider.machine_args import check_args, read_args, write_args
from stacks.on_prem_provider.values import Plain, is_known, plain, properties_of

PACKAGE: Final = "spillway-onprem"
MACHINE: Final = f"{PACKAGE}:index:Machine"
KEYS: Final[dict[str, tuple[Callable[[], Plain], tuple[str, ...]]]] = {
    f"{PACKAGE}:index:WireguardKey": (keys.wireguard_pair, ("privateKey",)),
    f"{PACKAGE}:index:PresharedKey": (keys.preshared_key, ("key",)),
}
"""By type: what makes one, and what of it is secret."""
_ROTATE: Final = "rotate"
_AT_ONCE: Final = 32
"""Machines that are asked at one time."""
_Kind = protocol.PropertyDiffKind
T = TypeVar("T")


class OnPremProvider(protocol.Provider):
    """Machines and keys. What waits for the network waits in a thread, so that many machines are asked at once."""

    def __init__(self) -> None:
        self._kube: Kube | None = None
        self._threads = ThreadPoolExecutor(_AT_ONCE)

    async def get_schema(self, request: protocol.GetSchemaRequest) -> protocol.GetSchemaResponse:  # noqa: ARG002
        about = "Machines that you own, and keys, as resources of a hybrid cluster"
        return protocol.GetSchemaResponse(json.dumps({"name": PACKAGE, "version": VERSION, "description": about}))

    async def diff_config(self, request: protocol.DiffRequest) -> protocol.DiffResponse:  # noqa: ARG002
        return protocol.DiffResponse(changes=False)  # another way to the same API server replaces no machine

    async def configure(self, request: protocol.ConfigureRequest) -> protocol.ConfigureResponse:
        kubeconfig = plain(request.args).get("kubeconfig")
        if kubeconfig and is_known(kubeconfig):
            self._kube = await self._in_thread(lambda: Kube(str(kubeconfig)))
        return await super().configure(request)

    async def check(self, request: protocol.CheckRequest) -> protocol.CheckResponse:
        wanted = plain(request.new_inputs)
        if _type(request) == MACHINE and is_known(wanted):
            failures = list(check_args(wanted))
            if failures:
                return protocol.CheckResponse(inputs=request.new_inputs, failures=failures)
            return protocol.CheckResponse(inputs=properties_of(write_args(read_args(wanted))))
        return protocol.CheckResponse(inputs=request.new_inputs)

    async def diff(self, request: protocol.DiffRequest) -> protocol.DiffResponse:
        old, new = plain(request.old_state), plain(request.new_inputs)
        if _type(request) == MACHINE:
            changed, replaces = machine.difference(old, new)
        else:
            changed = replaces = [_ROTATE] if old.get(_ROTATE, "") != new.get(_ROTATE, "") else []
        top = {one.partition(".")[0] for one in replaces}
        return protocol.DiffResponse(
            changes=bool(changed),
            diffs=changed,
            replaces=sorted(top),
            # Two machines of one name cannot be members at the same time; a key is changed while the old one holds.
            delete_before_replace=bool(replaces) and _type(request) == MACHINE,
            detailed_diff={
                key: protocol.PropertyDiff(
                    _Kind.UPDATE_REPLACE if key in top else _Kind.UPDATE,
                    input_diff=key not in ("problems", "registered"),
                )
                for key in changed
            },
        )

    async def create(self, request: protocol.CreateRequest) -> protocol.CreateResponse:
        wanted = plain(request.properties)
        if request.preview:  # what is found and made is left out, which a program takes as not known yet
            return protocol.CreateResponse(properties=request.properties)
        if _type(request) == MACHINE:
            kube = self._kube
            made = await self._in_thread(lambda: machine.create(kube, wanted, stack=_stack(request.urn)))
            return protocol.CreateResponse(str(wanted["name"]), properties_of(made, secret=machine.SECRET))
        make, secret = _key(_type(request))
        return protocol.CreateResponse(request.name, properties_of({**wanted, **make()}, secret=secret))

    async def read(self, request: protocol.ReadRequest) -> protocol.ReadResponse:
        state = plain(request.properties)
        if _type(request) != MACHINE:  # a key is nowhere else
            return protocol.ReadResponse(request.resource_id, request.properties, request.inputs)
        if not state.get("name"):
            raise BadInput(
                f"{request.resource_id}: a machine cannot be imported by its name alone: `pulumi up` takes it in as it "
                "stands, with its node"
            )
        kube = self._kube
        now = await self._in_thread(lambda: machine.read(kube, state))
        live = properties_of(write_args(read_args(now)))
        return protocol.ReadResponse(request.resource_id, properties_of(now, secret=machine.SECRET), live)

    async def update(self, request: protocol.UpdateRequest) -> protocol.UpdateResponse:
        old, new = plain(request.olds), plain(request.news)
        if _type(request) != MACHINE:
            return protocol.UpdateResponse(request.olds)
        if request.preview:
            return protocol.UpdateResponse(properties_of({**old, **new}, secret=machine.SECRET))
        kube = self._kube
        made = await self._in_thread(lambda: machine.update(kube, old, new, stack=_stack(request.urn)))
        return protocol.UpdateResponse(properties_of(made, secret=machine.SECRET))

    async def delete(self, request: protocol.DeleteRequest) -> None:
        if _type(request) == MACHINE:
            kube, state = self._kube, plain(request.properties)
            await self._in_thread(lambda: machine.delete(kube, state))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _stack(urn: str) -> str:
    """Returns ``project/stack``, of ``urn:pulumi:stack::project::...``."""
    stack, project = urn.removeprefix("urn:pulumi:").split("::")[:2]
    return f"{project}/{stack}"


def _type(request: Any) -> str:
    """Returns the type of the resource itself: a URN has the types of its parents before it."""
    return str(request.type).rpartition("$")[2]


def _key(token: str) -> tuple[Callable[[], Plain], tuple[str, ...]]:
    if token not in KEYS:
        known: list[Any] = [MACHINE, *KEYS]
        raise BadInput(f"{token} is none of this provider's types: {', '.join(known)}")
    return KEYS[token]
