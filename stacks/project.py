"""Which project a command is at work for, and whether it is the one whose code runs.

A stack's paths start at the folder of ``Pulumi.yaml``, and its ``main`` names the code. Python imports the package that
is installed in its environment, which may be another checkout's: that one would plan with other rules, without a word.
So it is refused before anything is made. What is imported before that is in this module and in
``autoscaler.model.errors``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.model.errors import BadInput

CODE: Final = Path(__file__).resolve().parent
"""The package that runs."""
_FILE: Final = "Pulumi.yaml"
_PROVIDER: Final = "spillway-onprem"


def project_folder() -> Path:
    """The folder of ``Pulumi.yaml`` of the program that an engine has started. Raises ``BadInput`` where none is."""
    import pulumi  # noqa: PLC0415 - slow to import, and there already where an engine has started this

    told: str | None = pulumi.get_root_directory()
    if told and Path(told).is_absolute():  # without an engine it is a word that stands for one
        return Path(told)
    # The language host that the tests build does not tell. It starts a program in its own folder.
    found = find_project(Path.cwd())
    if found is None:
        raise BadInput(f"{Path.cwd()}: no {_FILE} is here or in a folder above: start Pulumi where the project is")
    return found


def find_project(start: Path) -> Path | None:
    """The nearest folder with a ``Pulumi.yaml``, from ``start`` upwards, as Pulumi looks for it."""
    folders = (start.resolve(), *start.resolve().parents)
    return next((folder for folder in folders if (folder / _FILE).is_file()), None)


def check_code_here() -> None:
    """Whether the project that the shell is in, where it is in one, names the code that runs. Raises ``BadInput``."""
    project = find_project(Path.cwd())
    if project:
        check_code(project)


def check_code(project: Path, *, running: Path = CODE) -> None:
    """Whether the project's ``Pulumi.yaml`` names the code that runs. Raises ``BadInput``."""
    for key, named in _named_in(project):
        if named != running:
            raise BadInput(
                f"{project / _FILE}: {key} names the code in {named}, and this Python ({sys.prefix}) runs that in "
                f"{running}, which may be another version's: {_remedy(key, named, running)}"
            )


def _remedy(key: str, named: Path, running: Path) -> str:
    if named.name != running.name:
        return f"name the code that runs there, in {running}, or run the code of this project"
    own = f"name the environment in which it is as runtime.options.virtualenv in {_FILE}, or " if key == "main" else ""
    return f"{own}install this one in yours: `pip install --no-deps -e {named.parent}`"


def _named_in(project: Path) -> Iterator[tuple[str, Path]]:
    """Each key of ``Pulumi.yaml`` that names code of this package, and the package's folder that it leads to."""
    path = project / _FILE
    try:
        read: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        main = str(read.get("main") or ".")
        providers = ((read.get("plugins") or {}).get("providers")) or ()
        paths = [str(one["path"]) for one in providers if one["name"] == _PROVIDER]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        raise BadInput(f"{path}: cannot be read as a project of Pulumi: {error}") from None
    entry = project / main
    yield "main", (entry if entry.suffix == ".py" else entry / "__main__.py").resolve().parent
    for one in paths:
        yield "plugins.providers.path", (project / one / "__main__.py").resolve().parents[1]
