"""The DNS of a cluster of real machines: CoreDNS, which learns names from the API server."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

from stacks.local.process.ports import free_ports
from stacks.local.process.supervisor import Process
from stacks.local.toolchain.tools import ensure_tools
from tests.live.hybrid import kept
from tests.live.lab import Lab

_COREFILE: Final = """\
.:53 {{
    bind {address}
    errors
    log . {{class denial error}}
    ready 127.0.0.1:{ready}
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""
"""Other names are refused: what the pods do needs none."""


@contextlib.contextmanager
def cluster_dns(lab: Lab) -> Iterator[str]:
    """CoreDNS beside the API server for the length of a ``with`` block; gives its address, where pods ask at port 53.

    A process and no pod: an installed cluster has it as pods behind a Service, for which this ground lacks kube-proxy.
    """
    binary = ensure_tools(["coredns"], progress=lambda line: print(line, file=sys.stderr, flush=True))["coredns"]
    directory, address, (ready,) = lab.directory / "dns", lab.bench.gateway, free_ports(1)
    directory.mkdir()
    corefile = directory / "Corefile"
    corefile.write_text(_COREFILE.format(address=address, ready=ready, kubeconfig=lab.kubeconfig), encoding="utf-8")
    process = Process(
        name="coredns",
        argv=(str(binary), "-conf", str(corefile)),
        log=str(directory / "coredns.log"),
        ready_url=f"http://127.0.0.1:{ready}/ready",
    )
    with kept([process], directory=directory):
        yield address
