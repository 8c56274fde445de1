"""A provider that takes everything and makes nothing: ``python -m tests.bench.empty_provider``, for the engine."""

# ruff: noqa: D102, N802 - the methods and their names are the protocol's

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc


class Empty(provider_pb2_grpc.ResourceProviderServicer):
    """Answers at once."""

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version="1.0.0")

    def CheckConfig(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Configure(self, request: Any, context: Any) -> Any:
        return provider_pb2.ConfigureResponse()

    def Check(self, request: Any, context: Any) -> Any:
        return provider_pb2.CheckResponse(inputs=request.news)

    def Create(self, request: Any, context: Any) -> Any:
        return provider_pb2.CreateResponse(id=request.urn, properties=request.properties)

    def Delete(self, request: Any, context: Any) -> Any:
        return empty_pb2.Empty()


def main() -> int:
    """Serve until the engine ends this process; the first line written is the port."""
    server = grpc.server(ThreadPoolExecutor(max_workers=16))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Empty(), server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
