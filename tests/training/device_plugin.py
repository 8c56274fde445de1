"""A stand-in for NVIDIA's device plugin: it looks for no GPU, and hands out device nodes that mknod made.

The kubelet is real, and so is the protocol, v1beta1:
https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/ . As NVIDIA's does with
``DEVICE_LIST_STRATEGY=cdi-cri``, the project's own setting, it writes a CDI specification of the GPUs and names a
container's devices; containerd, which must be 1.7 or later, adds what the specification says of them. It runs on this
machine: sockets are found by the machine's own root.
"""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.live.machines import Host

_KUBELET: Final = "var/lib/kubelet/device-plugins"
_SOCKET: Final = "spillway-gpus.sock"
_CDI: Final = "/var/run/cdi/k8s.device-plugin.nvidia.com-gpu.json"
_KIND: Final = "k8s.device-plugin.nvidia.com/gpu"
_STRING, _MESSAGE = descriptor_pb2.FieldDescriptorProto.TYPE_STRING, descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
_ONE, _MANY = descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL, descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
_MESSAGES: Final[dict[str, tuple[tuple[str, int, str, bool], ...]]] = {
    "Empty": (),
    "RegisterRequest": (("version", 1, "", False), ("endpoint", 2, "", False), ("resource_name", 3, "", False)),
    "Device": (("ID", 1, "", False), ("health", 2, "", False)),
    "ListAndWatchResponse": (("devices", 1, "Device", True),),
    "ContainerAllocateRequest": (("devices_ids", 1, "", True),),
    "AllocateRequest": (("container_requests", 1, "ContainerAllocateRequest", True),),
    "CDIDevice": (("name", 1, "", False),),
    "ContainerAllocateResponse": (("cdi_devices", 5, "CDIDevice", True),),
    "AllocateResponse": (("container_responses", 1, "ContainerAllocateResponse", True),),
}
"""Of the protocol what is used here: name, number, message, whether there may be several."""


def _made() -> Callable[[str], Any]:
    file = descriptor_pb2.FileDescriptorProto(name="v1beta1.proto", package="v1beta1", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, many in fields:
            added = message.field.add(name=field, number=number, type=_MESSAGE if kind else _STRING)
            added.label = _MANY if many else _ONE
            if kind:
                added.type_name = f".v1beta1.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"v1beta1.{name}"))


_of = _made()


@contextmanager
def device_plugin(host: Host, *, resource: str, gpus: int) -> Iterator[list[list[str]]]:
    """So many GPUs of that machine's kubelet, for the length of a ``with`` block; its node tells of them soon after.

    Gives a list that grows: the names of the device nodes that each container was given.
    """
    host.run("; ".join(f"mknod -m 666 /dev/nvidia{number} c 195 {number}" for number in range(gpus)))
    host.run(f"mkdir -p /var/run/cdi; printf %s {shlex.quote(_specification(gpus))} > {_CDI}")
    handed_out: list[list[str]] = []
    folder = next(root / _KUBELET for root in _roots(host.process.pid) if (root / _KUBELET / "kubelet.sock").exists())
    over = threading.Event()

    def listed(_asked: Any, _context: Any) -> Iterator[Any]:
        yield _of("ListAndWatchResponse")(devices=[{"ID": str(number), "health": "Healthy"} for number in range(gpus)])
        over.wait()
        yield _of("ListAndWatchResponse")(devices=[])

    def allocated(asked: Any, _context: Any) -> Any:
        containers = []
        for one in asked.container_requests:
            handed_out.append([f"nvidia{number}" for number in sorted(one.devices_ids)])
            containers.append({"cdi_devices": [{"name": f"{_KIND}={number}"} for number in one.devices_ids]})
        return _of("AllocateResponse")(container_responses=containers)

    def handler(kind: Callable[..., Any], what: Any, asked: str) -> Any:
        return kind(
            what, request_deserializer=_of(asked).FromString, response_serializer=lambda one: one.SerializeToString()
        )

    calls = {
        "GetDevicePluginOptions": handler(
            grpc.unary_unary_rpc_method_handler, lambda _asked, _context: _of("Empty")(), "Empty"
        ),
        "ListAndWatch": handler(grpc.unary_stream_rpc_method_handler, listed, "Empty"),
        "Allocate": handler(grpc.unary_unary_rpc_method_handler, allocated, "AllocateRequest"),
    }
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", calls),))
    server.add_insecure_port(f"unix:{folder / _SOCKET}")
    server.start()
    try:
        _register(folder / "kubelet.sock", resource)
        yield handed_out
    finally:
        over.set()
        server.stop(grace=1).wait()
        host.run(f"rm -f /dev/nvidia[0-9]* {_CDI} /{_KUBELET}/{_SOCKET}")


def _specification(gpus: int) -> str:
    """Of the Container Device Interface: https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md ."""
    devices = [
        {"name": str(number), "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{number}"}]}}
        for number in range(gpus)
    ]
    return json.dumps({"cdiVersion": "0.5.0", "kind": _KIND, "devices": devices})


def _roots(pid: int) -> Iterator[Path]:
    """What the process, and all that it has started, see as ``/``."""
    process = Path("/proc") / str(pid)
    yield process / "root"
    for child in (process / "task" / str(pid) / "children").read_text().split():
        yield from _roots(int(child))


def _register(kubelet: Path, resource: str) -> None:
    with grpc.insecure_channel(f"unix:{kubelet}", options=[("grpc.default_authority", "localhost")]) as channel:
        register = channel.unary_unary(
            "/v1beta1.Registration/Register",
            request_serializer=lambda one: one.SerializeToString(),
            response_deserializer=_of("Empty").FromString,
        )
        register(_of("RegisterRequest")(version="v1beta1", endpoint=_SOCKET, resource_name=resource), timeout=30)
