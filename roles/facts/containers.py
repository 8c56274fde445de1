"""What containerd has."""

from __future__ import annotations

from pyinfra.api.command import StringCommand
from pyinfra.api.facts import FactBase

from roles.facts.batched import Plain


class ImageMarks(FactBase[frozenset[tuple[str, str]]]):
    """Images that kubelets see and that were imported from an archive: name, and the archive's digest."""

    @staticmethod
    def default() -> frozenset[tuple[str, str]]:
        """Returns the value for no output: none."""
        return frozenset()

    def command(self, folder: str) -> StringCommand:
        """An import leaves a file with both in ``folder``; it counts while containerd has the image."""
        return Plain(
            f'set -- {folder}/*.imported; if [ -e "$1" ]; then'
            ' h=" $(timeout 20 ctr -n k8s.io images ls -q 2>/dev/null | tr "\\n" " ")";'
            ' cat "$@" | while read -r name digest; do'
            ' case "$h" in *" $name "*) echo "$name $digest" ;; esac; done; fi; true'
        )

    def process(self, output: list[str]) -> frozenset[tuple[str, str]]:
        """Reads two words per line: an image and its mark."""
        return frozenset((line.split()[0], line.split()[1]) for line in output if len(line.split()) > 1)


class MissingImages(FactBase[list[str]]):
    """Images of a control plane that containerd does not have; where there is no kubeadm yet to name them, all."""

    @staticmethod
    def default() -> list[str]:
        """Returns the value for no output: not known."""
        return []

    def command(self, version: str) -> str:
        """Asked of kubeadm itself, which knows what goes with its version."""
        return (
            "command -v kubeadm >/dev/null || { echo all; exit 0; };"
            " h=$(timeout 20 ctr -n k8s.io images ls -q 2>/dev/null || true);"
            f" kubeadm config images list --kubernetes-version v{version} 2>/dev/null | while read -r name; do"
            ' printf "%s\\n" "$h" | grep -qxF "$name" || echo "$name"; done; true'
        )

    def process(self, output: list[str]) -> list[str]:
        """Reads one image per line."""
        return output


class RuncInUse(FactBase[str]):
    """The version of the runc that containerd starts containers by: the first on the path of systemd's services.

    Docker's package brings one of its own, of which dpkg's database says nothing.
    """

    @staticmethod
    def default() -> str:
        """Returns the value for no output: no runc."""
        return ""

    def command(self) -> StringCommand:
        """Its own word; one that hangs is given up."""
        return Plain(
            "for d in /usr/local/sbin /usr/local/bin /usr/sbin /usr/bin; do if [ -x $d/runc ]; then"
            " timeout 10 $d/runc --version 2>/dev/null | sed -n 's/^runc version //p'; break; fi; done"
        )

    def process(self, output: list[str]) -> str:
        """``1.3.3``, or with what a distribution put behind."""
        return "".join(output[:1]).strip()
