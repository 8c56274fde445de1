"""The version matrix: what a machine gets, and whether those versions go together, told before any host is touched.

``versions.yaml`` beside this module holds the facts, each with the page that it was read on; here is only the reading
and the comparing. :func:`mistakes` is a pure question.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Formatter
from typing import Any, Final

from pydantic import Field, ValidationInfo, field_validator

from autoscaler.config.documents import Document, parse_data, read_document
from autoscaler.model.errors import BadInput
from roles.settings import version_ranges

MATRIX: Final = Path(__file__).with_name("versions.yaml")
SUBJECTS: Final = ("kernel", "os", "architecture")
"""What a machine brings itself; everything else in a rule is chosen."""
_WORDS: Final = ("branch", "fabric_branch", "cuda_dashed")
"""What names of packages are made of, beside the versions."""
_PACKAGED: Final = (
    *("driver", "driver_open", "driver_proprietary", "persistence", "fabric_manager", "cuda", "container_toolkit"),
)
_BEFORE: Final = re.compile(r"(\w+)_before_([0-9]+)")
"""A part that had other packages up to a branch of the driver."""
_BRANCHED: Final = re.compile(r"(?:.*-|lib)?(?:nvidia|cuda-drivers)(?:-[a-z0-9]+)*?-([0-9]{3})(?:-.*)?")
"""A name of a package of NVIDIA's with a branch of the driver in it."""
_ONCE_BRANCHED: Final = re.compile(
    r"libnvidia-(?!container|nscq|sdm).*|nvidia-(?:compute-utils|dkms|driver|firmware|headless|kernel|utils)(?:-.*)?"
    r"|xserver-xorg-video-nvidia|cuda-drivers"
)
"""Names of packages on Ubuntu that bear none from R590 on, and did before."""
_MODULES: Final = ("open", "proprietary")
_OF_PACKAGES: Final = ("cuda", "container_toolkit", "containerd", "runc", "kubelet")
"""Parts whose packages put a revision of their own behind the version."""
_PARTS: Final = {
    "cuda-toolkit": "cuda",
    "nvidia-container": "container_toolkit",
    "libnvidia-container": "container_toolkit",
    "nvidia-fabricmanager": "fabric_manager",
    "nvidia-": "driver",
    "libnvidia-": "driver",
    "containerd": "containerd",
    "runc": "runc",
    "kube": "kubelet",
}
"""By how the names of their packages begin: the first that fits."""
_EXAMPLES: Final = {"cuda": "13.0", "api_server": "1.35", "driver": "580.126.09", "fabric_manager": "580.126.09"}
"""Parts whose versions have two numbers at least; the others have three."""


class Chosen(Document):
    """One version of each part."""

    driver: str
    driver_modules: str
    fabric_manager: str
    cuda: str
    container_toolkit: str
    containerd: str
    runc: str
    kubelet: str
    api_server: str
    device_plugin: str
    dcgm_exporter: str

    @field_validator("*")
    @classmethod
    def _is_a_version(cls, text: str, info: ValidationInfo) -> str:
        if info.field_name == "driver_modules":
            return text
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)*([-+~.]\w+)*", text, re.ASCII):
            raise ValueError("must be a version such as 580.126.09")
        bare = re.match(r"[0-9.]+[0-9](~(alpha|beta|rc)[.0-9]+)?", text)
        if info.field_name in _OF_PACKAGES and bare and bare[0] != text:
            raise ValueError(f"must be the version without its package's revision, {bare[0]}: that follows by itself")
        fewest = 2 if info.field_name in _EXAMPLES else 3
        if len(version_ranges.numbers(text)) < fewest:
            raise ValueError(
                f"must be a whole version such as {_EXAMPLES.get(str(info.field_name), '1.7.28')}, not a branch"
            )
        return text

    @field_validator("driver", "fabric_manager")
    @classmethod
    def _has_numbers_only(cls, text: str) -> str:
        if not re.fullmatch(r"[0-9]+(\.[0-9]+)+", text):
            raise ValueError("must be a whole version such as 580.126.09")
        if not re.fullmatch(r"[0-9]+\.[0-9]+(\.[0-9]{2})?", text):
            raise ValueError("must be as NVIDIA writes them, a third number with two digits: such as 580.126.09")
        return text

    @field_validator("cuda")
    @classmethod
    def _is_a_release(cls, text: str) -> str:
        if len(version_ranges.numbers(text)) > 2:  # noqa: PLR2004 - the package has these two in its name
            raise ValueError(f"must be a release such as {'.'.join(text.split('.')[:2])}: its newest update is taken")
        return text

    @field_validator("driver_modules")
    @classmethod
    def _modules_are_of_a_kind(cls, text: str) -> str:
        if text not in _MODULES:
            raise ValueError("must be open or proprietary")
        return text


class Rule(Document):
    """Which versions of two parts go together."""

    pair: tuple[str, str]
    because: str = Field(min_length=1)
    source: str = Field(min_length=1)
    rows: tuple[dict[str, str], ...] = Field(min_length=1)
    otherwise: str = Field(default="", pattern="^(|refuse|warn)$", description="refuse, warn, or nothing")
    warn: bool = Field(default=False, description="true: tell, and go on")

    @field_validator("rows")
    @classmethod
    def _rows_can_be_read(cls, rows: tuple[dict[str, str], ...], info: ValidationInfo) -> tuple[dict[str, str], ...]:
        pair = info.data.get("pair", ())
        for row in rows:
            if pair and {*row} != {*pair}:
                raise ValueError(f"holds a row of {', '.join(row) or 'nothing'}: each says {' and '.join(pair)}")
            for text in row.values():
                version_ranges.check(text)
        return rows


class Matrix(Document):
    """The whole file."""

    chosen: Chosen
    rules: tuple[Rule, ...]
    architectures: dict[str, tuple[str, ...]]
    packages: dict[str, dict[str, dict[str, str]]]

    @field_validator("packages")
    @classmethod
    def _packages_can_be_named(
        cls, given: dict[str, dict[str, dict[str, str]]]
    ) -> dict[str, dict[str, dict[str, str]]]:
        known = (*Chosen.model_fields, *_WORDS)
        for distribution, parts in given.items():
            earlier = {part for part in parts if (found := _BEFORE.fullmatch(part)) and found[1] in _PACKAGED}
            for part in sorted(({*parts} - earlier) ^ {*_PACKAGED}):
                what = "are not there" if part in _PACKAGED else "are none of"
                raise ValueError(f"{distribution}.{part} {what}; the parts are {', '.join(_PACKAGED)}")
            for part, named in parts.items():
                try:
                    written = [*Formatter().parse(" ".join((*named, *named.values())))]
                except ValueError:
                    raise ValueError(f"{distribution}.{part} has a brace without its other one") from None
                strange = {word for _, word, _, _ in written if word is not None} - {*known}
                if strange:
                    what = f"has {{{min(strange)}}}, which stands for nothing"
                    raise ValueError(f"{distribution}.{part} {what}; there are {', '.join(known)}")
        return given

    @field_validator("architectures")
    @classmethod
    def _each_product_is_of_one(cls, given: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        of: dict[str, str] = {}
        for architecture, products in given.items():
            if not products:
                raise ValueError(f"{architecture} has no product: name one, or leave it out")
            for product in products:
                if of.setdefault(product, architecture) != architecture:
                    raise ValueError(f"have {product} twice: of {of[product]} and of {architecture}")
        return given

    def architecture(self, product: str) -> str:
        """The architecture of a GPU by its product name; empty where the file does not know it."""
        words = product.replace(" ", "-").split("-")
        for architecture, names in self.architectures.items():
            if any(name in words or (("-" in name) and name in product.replace(" ", "-")) for name in names):
                return architecture
        return ""


@dataclass(frozen=True, slots=True)
class Mistake:
    """Two versions that do not go together."""

    machine: str
    pair: tuple[str, str]
    text: str
    stops: bool
    """False: told, and gone on."""


@cache
def read_matrix(path: Path = MATRIX) -> Matrix:
    """The matrix. Raises ``BadInput`` where the file is wrong, also where a rule speaks of an unknown part."""
    matrix = read_document(path, Matrix, what="version matrix")
    known = {*Chosen.model_fields, *SUBJECTS}
    words = {"architecture": {*matrix.architectures}, "driver_modules": {*_MODULES}}
    for rule in matrix.rules:
        for part, kinds in words.items():
            named = {word.strip() for row in rule.rows for word in row.get(part, "*").split("|")} - {"*"}
            if strange := sorted(named - kinds):
                of = f"{path}: rule {' with '.join(rule.pair)}: {part}"
                raise BadInput(f"{of} {strange[0]!r} is none of {', '.join(sorted(kinds))}")
        for name in (*rule.pair, *(key for row in rule.rows for key in row)):
            if name not in known:
                raise BadInput(
                    f"{path}: rule {' with '.join(rule.pair)}: {name!r} is none of {', '.join(sorted(known))}"
                )
    return matrix


def choose(matrix: Matrix, own: Mapping[str, str], *, machine: str) -> Chosen:
    """The versions of one machine: the matrix's, with the machine's own in their place. Raises ``BadInput``."""
    unknown = [name for name in own if name not in Chosen.model_fields]
    if unknown:
        known = ", ".join(Chosen.model_fields)
        raise BadInput(f"machine {machine}: versions.{unknown[0]} is not a part here; the parts are: {known}")
    chosen = parse_data({**matrix.chosen.model_dump(), **own}, Chosen, source=f"machine {machine}: versions")
    follows = "driver" in own and "fabric_manager" not in own  # they are one thing in two packages
    return chosen.model_copy(update={"fabric_manager": chosen.driver}) if follows else chosen


def mistakes(matrix: Matrix, chosen: Chosen, *, machine: str, brought: Mapping[str, str]) -> list[Mistake]:
    """Every pair that does not go together. ``brought`` has what is known of kernel, os, architecture."""
    have = chosen.model_dump() | {name: value for name, value in brought.items() if value}
    found = (_judge(rule, have, machine=machine) for rule in matrix.rules)
    return [mistake for mistake in found if mistake]


def refuse(found: Sequence[Mistake]) -> None:
    """Raise ``BadInput`` with every mistake that stops."""
    stopping = [mistake.text for mistake in found if mistake.stops]
    if stopping:
        raise BadInput("\n".join(stopping))


def packages(matrix: Matrix, chosen: Chosen, part: str, *, distribution: str) -> dict[str, str]:
    """The Debian packages of a part, name to version (``*`` at its end stands for any revision).

    ``distribution`` is ``debian`` or ``ubuntu``. Raises ``BadInput`` for another one.
    """
    if distribution not in matrix.packages:
        raise BadInput(f"distribution {distribution!r}: packages are known for {', '.join(sorted(matrix.packages))}")
    words: dict[str, Any] = chosen.model_dump()
    words["branch"] = chosen.driver.split(".")[0]
    words["fabric_branch"] = chosen.fabric_manager.split(".")[0]
    words["cuda_dashed"] = "-".join(chosen.cuda.split(".")[:2])
    parts = matrix.packages[distribution]
    branch = int(words["fabric_branch" if part == "fabric_manager" else "branch"])
    ends = sorted(int(found[2]) for name in parts if (found := _BEFORE.fullmatch(name)) and found[1] == part)
    end = next((end for end in ends if branch < end), 0)
    named = parts[f"{part}_before_{end}" if end else part]
    return {name.format(**words): version.format(**words) for name, version in named.items()}


def of_other_branches(have: Mapping[str, str], driver: str, *, wanted: Iterable[str]) -> list[str]:
    """Returns the installed packages (name to version) that the ``wanted`` ones of this driver conflict with.

    They bear another branch in their names; or none, where the wanted ones have one there and the same name before it.
    """
    branch = driver.partition(".")[0]
    bears_one = any(_BRANCHED.fullmatch(name) for name in wanted)
    return sorted(name for name, version in have.items() if _branch_of(name, version, bears_one) not in ("", branch))


def _branch_of(name: str, version: str, bears_one: bool) -> str:  # noqa: FBT001 - of the names
    if found := _BRANCHED.fullmatch(name):
        return found[1]
    return version.partition(".")[0] if bears_one and _ONCE_BRANCHED.fullmatch(name) else ""


def setting_of(package: str) -> str:
    """The setting by which a machine chooses a package's version; empty where there is none."""
    part = next((part for start, part in _PARTS.items() if package.startswith(start)), "")
    return f"versions.{part}" if part else ""


def _judge(rule: Rule, have: Mapping[str, str], *, machine: str) -> Mistake | None:
    left, right = rule.pair
    if left not in have or right not in have:
        return None
    row = next((row for row in rule.rows if version_ranges.fits(have[left], row[left])), None)
    if row is None:
        if not rule.otherwise:
            return None
        known = "; ".join(row[left] for row in rule.rows)
        remedy = f"nothing is known of {left} {have[left]}: choose one of {known}"
        return _mistake(rule, have, machine, remedy, stops=rule.otherwise == "refuse")
    if version_ranges.fits(have[right], row[right], other=have[left]):
        return None
    return _mistake(rule, have, machine, _remedy(rule, have, row), stops=not rule.warn)


def _remedy(rule: Rule, have: Mapping[str, str], row: Mapping[str, str]) -> str:
    """What would be right: another right side, or a left side that goes with the right one."""
    left, right = rule.pair
    remedy = f"{right} must be {version_ranges.in_words(row[right], other=have[left])}"
    others = [one[left] for one in rule.rows if one is not row and version_ranges.fits(have[right], one[right])]
    return f"{remedy}, or {left} {' or '.join(others)}" if others else remedy


def _mistake(rule: Rule, have: Mapping[str, str], machine: str, remedy: str, *, stops: bool) -> Mistake:
    left, right = rule.pair
    text = f"{machine}: {left} {have[left]} with {right} {have[right]}: {rule.because}; {remedy} ({rule.source})"
    return Mistake(machine=machine, pair=rule.pair, text=text, stops=stops)
