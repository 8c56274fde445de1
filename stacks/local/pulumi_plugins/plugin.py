"""What a stand-in for a plugin of Pulumi needs of the engine's protocol, whatever it stands in for.

The engine talks to it over gRPC: https://github.com/pulumi/pulumi/blob/master/proto/pulumi/provider.proto
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import grpc
from google.protobuf import json_format, struct_pb2
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

LOOPBACK: Final = ("127.0.0.1", "localhost", "::1")
"""The only hosts that a stand-in talks to."""
_PARALLEL: Final = 16
_SIGNATURE: Final = "4dabf18193072939515e22adb298388d"
_SECRET: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - what marks one
"""https://github.com/pulumi/pulumi/blob/master/sdk/go/common/resource/sig/sig.go."""

Properties = dict[str, Any]


class Refused(Exception):  # noqa: N818 - reads as what it is at the raise site
    """What the engine shall show instead of a result."""

    def __init__(self, message: str, code: grpc.StatusCode = grpc.StatusCode.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.code = code


class told:  # noqa: N801 - used as a statement
    """Failures inside become the engine's diagnostics: in words, without a stack trace."""

    def __init__(self, context: Any, *outages: type[Exception]) -> None:
        """``outages``: what the outside party's client raises, told in its own words."""
        self._context = context
        self._outages = outages

    def __enter__(self) -> None:
        """Prepares nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """End the call with what went wrong."""
        if isinstance(error, Refused):
            self._context.abort(error.code, str(error))
        if isinstance(error, self._outages):
            self._context.abort(grpc.StatusCode.UNKNOWN, str(error))


def difference(
    old: Properties,
    new: Properties,
    *,
    fixed: frozenset[str],
    unordered: frozenset[str] = frozenset(),
    named: str = "",
) -> Any:
    """The engine's answer to what is to be done: ``fixed`` properties replace, ``unordered`` lists compare as sets.

    ``rootBlockDevice.encrypted`` among the fixed ones is that part of ``rootBlockDevice`` alone.
    """
    changed = [key for key in sorted(old.keys() | new.keys()) if _differ(key, old, new, unordered)]
    parts = {path for path in fixed if _at(path, old) != _at(path, new)}
    replaces = [key for key in changed if key in fixed or any(path.startswith(f"{key}.") for path in parts)]
    kinds = provider_pb2.PropertyDiff
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=changed,
        replaces=replaces,
        # Two of one name cannot stand side by side.
        deleteBeforeReplace=bool(replaces and named and old.get(named) == new.get(named)),
        hasDetailedDiff=True,
        detailedDiff={
            key: kinds(kind=kinds.UPDATE_REPLACE if key in replaces else kinds.UPDATE, inputDiff=True)
            for key in changed
        },
    )


def _at(path: str, value: Any) -> Any:
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _differ(key: str, old: Properties, new: Properties, unordered: frozenset[str]) -> bool:
    before, after = old.get(key), new.get(key)
    if key in unordered and isinstance(before, list) and isinstance(after, list):
        return sorted(map(_canonical, before)) != sorted(map(_canonical, after))
    return before != after


def projected(wanted: Any, found: Any) -> Any:
    """What was found, in the shape and spelling of what was wanted: what was not asked for is left out."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return {key: projected(value, found.get(key)) for key, value in wanted.items() if key in found or value is None}
    if isinstance(wanted, list) and isinstance(found, list):
        by_shape = sorted(wanted, key=_canonical), sorted(found, key=_canonical)
        if by_shape[0] == by_shape[1]:
            return wanted
        return [projected(one, other) for one, other in zip(wanted, found, strict=False)] + found[len(wanted) :]
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


def read(message: struct_pb2.Struct) -> Properties:
    """Plain values of a message."""
    properties: Properties = _whole(json_format.MessageToDict(message))
    return properties


def _whole(value: Any) -> Any:
    """Whole numbers again: a Struct of protobuf knows none. Secrets, which a configuration may hold, unwrapped."""
    if isinstance(value, dict):
        if value.get(_SIGNATURE) == _SECRET:
            return _whole(value.get("value"))
        return {key: _whole(inner) for key, inner in value.items() if not key.startswith("__")}
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def written(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """The message of plain values."""
    message = struct_pb2.Struct()
    json_format.ParseDict({key: value for key, value in properties.items() if value is not None}, message)
    return message


def run_plugin(servicer: provider_pb2_grpc.ResourceProviderServicer) -> int:
    """Serve the engine that started this process; the first line written is the port."""
    threading.Thread(target=_end_with_the_engine, args=[os.getppid()], daemon=True).start()
    server = grpc.server(
        ThreadPoolExecutor(max_workers=_PARALLEL),
        options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()
    return 0


def _end_with_the_engine(parent: int) -> None:
    """The engine ends its plugins; one that was killed cannot."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
