"""What containerd has."""

from __future__ import annotations

from pyinfra.api.facts import FactBase


class ImageMarks(FactBase[frozenset[tuple[str, str]]]):
    """Images that kubelets see and that were imported from an archive: name, and the archive's digest."""

    @staticmethod
    def default() -> frozenset[tuple[str, str]]:
        """None."""
        return frozenset()

    def command(self, folder: str) -> str:
        """An import leaves a file with both in ``folder``; it counts while containerd has the image."""
        return (
            "h=$(timeout 20 ctr -n k8s.io images ls -q 2>/dev/null || true);"
            f" cat {folder}/*.imported 2>/dev/null | while read -r name digest; do"
            ' printf "%s\\n" "$h" | grep -qxF "$name" && echo "$name $digest"; done; true'
        )

    def process(self, output: list[str]) -> frozenset[tuple[str, str]]:
        """Two words a line."""
        return frozenset((line.split()[0], line.split()[1]) for line in output if len(line.split()) > 1)
