"""The ground. Pulumi programs that make the network, the control plane, the groups of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
"""The folder that the rooms lie in. Relative paths in a stack's configuration start there: at ``Pulumi.yaml``."""
