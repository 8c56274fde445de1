"""The gRPC side of the provider: Pulumi's own servicer, with failures told in words instead of stack traces.

``pulumi.provider.experimental`` adds a Python stack trace to whatever a provider raises. What a person can do something
about (``BadInput``, ``Unavailable``) is passed on as it was said; anything else keeps its trace, since it is a bug.
"""

# ruff: noqa: D102, N802 - the methods and their names are the protocol's

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
from pulumi.provider.experimental.provider import Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import provider_pb2_grpc

from autoscaler.model.errors import BadInput, Unavailable

VERSION: Final = "0.1.0"
_ANY_SIZE: Final = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class PlainSpoken(ProviderServicer):
    """Says what went wrong, and no more."""

    async def Check(self, request: Any, context: Any) -> Any:
        return await _told(super().Check, request, context)

    async def Diff(self, request: Any, context: Any) -> Any:
        return await _told(super().Diff, request, context)

    async def Configure(self, request: Any, context: Any) -> Any:
        return await _told(super().Configure, request, context)

    async def Create(self, request: Any, context: Any) -> Any:
        return await _told(super().Create, request, context)

    async def Read(self, request: Any, context: Any) -> Any:
        return await _told(super().Read, request, context)

    async def Update(self, request: Any, context: Any) -> Any:
        return await _told(super().Update, request, context)

    async def Delete(self, request: Any, context: Any) -> Any:
        return await _told(super().Delete, request, context)


async def _told(method: Callable[[Any, Any], Awaitable[Any]], request: Any, context: Any) -> Any:
    try:
        return await method(request, context)
    except Exception as error:
        said = error.__context__  # the servicer raised its own from within the handler of the provider's
        if isinstance(said, (BadInput, Unavailable)):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(said))
        raise


def serve(provider: Provider, *, arguments: Sequence[str]) -> None:
    """Serve on a free port, which is printed, until the engine ends this process, or is gone itself."""
    threading.Thread(target=_end_with_the_engine, args=[os.getppid()], daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(provider, list(arguments)))


async def _serve(provider: Provider, arguments: list[str]) -> None:
    server = grpc.aio.server(options=_ANY_SIZE)
    servicer = PlainSpoken(arguments, VERSION, provider, engine_address=arguments[0] if arguments else "")
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


def _end_with_the_engine(parent: int) -> None:
    """The engine ends its plugins; one that was killed cannot."""
    while os.getppid() == parent:
        time.sleep(0.5)
    print("the engine is gone", file=sys.stderr)
    os._exit(1)
