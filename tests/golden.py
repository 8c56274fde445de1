"""What came out before, in words: a commit that changes it shows in its diff what it changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Golden:
    """Cases by kind and number, and the file that keeps their lines."""

    file: Path
    kinds: Mapping[str, tuple[Callable[[int], Iterator[str]], int]]
    """Kind -> what gives the lines of one by its number, and how many are kept."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of all, in the order of the file."""
        return tuple(f"{kind} {number}" for kind, (_, many) in self.kinds.items() for number in range(many))

    def made(self, name: str) -> list[str]:
        """The lines of one as they are now."""
        kind, number = name.split()
        return [line for text in self.kinds[kind][0](int(number)) for line in text.splitlines()]

    def kept(self) -> dict[str, list[str]]:
        """The lines of each that the file has."""
        found: dict[str, list[str]] = {}
        for line in self.file.read_text(encoding="utf-8").splitlines():
            if line.startswith("# "):
                found[line[2:]] = []
            elif line:
                found[list(found)[-1]].append(line)
        return found

    def write(self) -> None:
        """All of them anew."""
        text = (f"# {name}\n" + "".join(f"{line}\n" for line in self.made(name)) for name in self.names)
        self.file.write_text("\n".join(text), encoding="utf-8")
