"""A thin stand-in for NVIDIA's DCGM exporter: it measures no GPU, and serves what it was told in the exporter's text.

https://docs.nvidia.com/datacenter/cloud-native/gpu-telemetry/latest/dcgm-exporter.html
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BLANK = 9223372036854775794
"""What DCGM says where a field has no value."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU, and the pod that holds it; by none where that is empty."""

    number: int
    percent: int
    namespace: str = ""
    pod: str = ""
    xid: int = 0
    """The last one; 0: none."""
    ecc_errors: int = 0
    """Uncorrectable ones since the driver was loaded."""
    remap_failed: bool = False


def as_text(gpus: Iterable[Gpu]) -> str:
    """Some of its metrics, as an exporter on Kubernetes serves them."""
    lines = {
        "DCGM_FI_DEV_GPU_TEMP": ("GPU temperature (in C).", lambda _gpu: 41),
        "DCGM_FI_DEV_GPU_UTIL": ("GPU utilization (in %).", lambda gpu: gpu.percent),
        "DCGM_FI_DEV_XID_ERRORS": ("Value of the last XID error encountered.", lambda gpu: gpu.xid),
        "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": (
            "Total number of double-bit volatile ECC errors.",
            lambda gpu: gpu.ecc_errors,
        ),
        "DCGM_FI_DEV_ROW_REMAP_FAILURE": (
            "Whether remapping of rows has failed",
            lambda gpu: int(gpu.remap_failed),
        ),
    }
    text = ""
    for name, (meaning, value) in lines.items():
        text += f"# HELP {name} {meaning}\n# TYPE {name} gauge\n"
        for gpu in gpus:
            labels = {
                "gpu": str(gpu.number),
                "UUID": f"GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e5{gpu.number}",
                "pci_bus_id": f"00000000:00:0{gpu.number}.0",
                "device": f"nvidia{gpu.number}",
                "modelName": "NVIDIA A10G",
                "Hostname": "lab",
                "DCGM_FI_DRIVER_VERSION": "550.90.07",
                "container": "main" if gpu.pod else "",
                "namespace": gpu.namespace,
                "pod": gpu.pod,
            }
            text += (
                f"{name}{{{','.join(f'{key}={chr(34)}{one}{chr(34)}' for key, one in labels.items())}}} {value(gpu)}\n"
            )
    return text


class Exporter:
    """What it serves, and where."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.gpus: tuple[Gpu, ...] = ()
        self.status = 200
        self.asked = 0


@contextmanager
def dcgm_exporter() -> Iterator[Exporter]:
    """One on this machine, for the length of a ``with`` block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said.asked += 1
            data = as_text(said.gpus).encode() if self.path == "/metrics" else b""
            self.send_response(said.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_given: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    said = Exporter(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield said
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
