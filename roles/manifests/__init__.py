"""What runs on every GPU node as pods: the device plugin, and the exporter of GPU metrics."""

from __future__ import annotations

from pathlib import Path

from roles.versions import Chosen


def gpu_manifests(chosen: Chosen) -> str:
    """All of them as one YAML text, in the versions of the matrix."""
    texts = (file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.yaml")))
    whole = "---\n".join(texts)
    for part in ("device_plugin", "dcgm_exporter"):
        whole = whole.replace(f"{{{part}}}", getattr(chosen, part))
    return whole
