"""After an engine that was killed: ``spillway recover --stack NAME``, and `pulumi up` (or `destroy`) goes on.

An engine that is killed while AWS makes something never learns its id. Its state then says only that a creation was
begun; the next `pulumi up` would make the thing again, and the first one would stand unowned, and be paid for. Such a
thing has nothing that hangs on it yet, since its id is not known: so it is taken away, and `up` makes it anew.

It is looked for by what the creation asked for (name, or `Name` tag, and the cluster's tag), more than once, since AWS
may still be at work on the call (``settling.py``); and what the state records is never touched.

A state that lies in files (`file://`) has beside each file one of attributes (`NAME.attrs`), which is not written in
one step: cut off in there, the engine can read the whole file beside it no more ("failed to load checkpoint: EOF").
Nothing in the attributes is needed, so torn ones are taken away.
(https://github.com/google/go-cloud/blob/v0.37.0/blob/fileblob/attrs.go)
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput, Unavailable
from stacks.project import check_code, find_project
from stacks.recovery.orphans import (
    Orphan,
    OrphanFinder,
    is_written_over,
    kind_of,
    name_of,
    remove,
    resource_of,
    token_of,
)
from stacks.recovery.settling import Patience, look_until_settled

_PROVIDER: Final = "pulumi:providers:aws"
Say = Callable[[str], None]
_NO_LOCK: Final = ("has never been updated", "no update in progress", "no lock")


@dataclass(frozen=True, slots=True)
class Begun:
    """A creation that the engine did not see the end of."""

    urn: str
    inputs: Mapping[str, Any]

    @property
    def token(self) -> str:
        """The type of the resource."""
        return token_of(self.urn)

    @property
    def name(self) -> str:
        """What the program calls it."""
        return name_of(self.urn)

    @property
    def resource(self) -> str:
        """What it is called to people."""
        return resource_of(kind_of(self.token), self.name)


def recover(
    *,
    stack: str,
    project: Path,
    confirm: Callable[[Sequence[Orphan]], bool],
    say: Say,
    patience: Patience = Patience(),  # noqa: B008 - it is frozen
) -> bool:
    """Mend the stack whose engine was killed; ``False`` where the user does not want it.

    Raises ``BadInput`` for a stack that is not there or a project of other code, ``Unavailable`` where a party does not
    answer or something was begun that this cannot look for.
    """
    check_code(_project_at(project))
    for torn in torn_attributes(_where_the_state_lies(project)):
        torn.unlink()
        say(f"taken away: {torn}, which was cut off while it was written; {torn.stem} beside it is whole")
    _cancel(stack, project)
    deployment = json.loads(_pulumi(project, "stack", "export", "--stack", stack)).get("deployment") or {}
    begun = list(begun_creations(deployment))
    if not begun:
        say(f"no creation was cut off in {stack}: {what_next(deployment)}")
        return True
    orphans = _look_for(begun, deployment, patience=patience, say=say)
    for one in orphans:
        say(f"begun and not recorded: {one.what}, for {one.name}")
    if orphans and not confirm(orphans):
        return False
    with _told_in_words():
        for one in reversed(orphans):
            say(f"{'taken away' if remove(one) else 'gone by itself'}: {one.what}")
    _pulumi(project, "refresh", "--stack", stack, "--yes", "--skip-preview", "--clear-pending-creates")
    say(f"{stack} is whole again: {what_next(deployment)}")
    return True


def what_next(deployment: Mapping[str, Any]) -> str:
    """Says by what the stack goes on, as the operations tell that were cut off."""
    pending = [(one["type"], one["resource"]["urn"]) for one in deployment.get("pending_operations") or ()]
    ended = sorted({resource_of(kind_of(token_of(urn)), name_of(urn)) for kind, urn in pending if kind == "deleting"})
    if ended and len(ended) == len({urn for _, urn in pending}):
        return (
            f"the deletion of {', '.join(ended)} was cut off: `pulumi destroy` goes on with taking the stack down; if "
            "it was a `pulumi up` that was to delete it, `pulumi up --refresh` goes on with that"
        )
    if pending and not ended:
        return "`pulumi up --refresh` goes on where it was cut off"
    return "`pulumi up --refresh` goes on with a `pulumi up`, and `pulumi destroy` with a `pulumi destroy`"


def begun_creations(deployment: Mapping[str, Any]) -> Iterator[Begun]:
    """Those that the state holds as pending, each once, in the order in which they were begun."""
    seen: set[str] = set()
    for operation in deployment.get("pending_operations") or ():
        resource = operation["resource"]
        if operation["type"] == "creating" and resource["urn"] not in seen:
            seen.add(resource["urn"])
            yield Begun(urn=resource["urn"], inputs=resource.get("inputs") or {})


def torn_attributes(state: Path | None) -> list[Path]:
    """Files of attributes below the folder that cannot be read."""
    return [one for one in sorted(state.rglob("*.attrs")) if not _is_json(one)] if state else []


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except ValueError:
        return False
    return True


def state_folder(url: str, project: Path) -> Path | None:
    """Where a backend of that URL keeps its files; ``None`` where it is no folder of this machine."""
    scheme, _, path = url.partition("://")
    return (project / Path(path.partition("?")[0]).expanduser() / ".pulumi") if scheme == "file" else None


def recorded_in(deployment: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
    """Type and id of all that the state knows."""
    resources = deployment.get("resources") or ()
    return frozenset((token_of(one["urn"]), one["id"]) for one in resources if one.get("id"))


def whereabouts(deployment: Mapping[str, Any]) -> tuple[str, str]:
    """Region and cluster of the stack, as its AWS provider has them: nothing without the cluster's tag is touched.

    Raises ``BadInput`` where the state has no such provider: nothing can have been begun in AWS then.
    """
    for resource in deployment.get("resources") or ():
        inputs = resource.get("inputs") or {}
        if token_of(resource["urn"]) == _PROVIDER and inputs.get("defaultTags"):
            tags = json.loads(inputs["defaultTags"]).get("tags", {})
            return str(inputs["region"]), str(tags[words.TAG_CLUSTER])
    raise BadInput("this stack's state has no AWS provider with the cluster's tag: is it one of this project's?")


def _look_for(
    begun: Iterable[Begun], deployment: Mapping[str, Any], *, patience: Patience, say: Say
) -> Sequence[Orphan]:
    region, cluster = whereabouts(deployment)
    candidates = [one for one in begun if not is_written_over(one.token)]
    with _told_in_words():
        finder = OrphanFinder(region=region, cluster=cluster, recorded=recorded_in(deployment))
        unknown = [one for one in candidates if not finder.knows(one.token, one.inputs)]
        known = [one for one in candidates if one not in unknown]

        def look() -> list[Orphan]:
            return [orphan for one in known for orphan in finder.find(one.token, one.name, one.inputs)]

        awaited = {one.resource for one in known}
        found = look_until_settled(look, begun=awaited, patience=patience, say=say) if known else []
    if unknown:
        listed = "\n".join(f"    {one.token} ({one.name})" for one in unknown)
        raise Unavailable(
            f"cannot look for these, whose creation was begun:\n{listed}\n"
            f"Look for them in the console by that name and the tag {words.TAG_CLUSTER}={cluster}, delete what is "
            "there, and run: pulumi refresh --clear-pending-creates"
        )
    return found


def _project_at(folder: Path) -> Path:
    found = find_project(folder)
    if found is None:
        raise BadInput(f"{folder.resolve()}: no Pulumi.yaml is here or in a folder above: name its folder by --cwd")
    return found


@contextlib.contextmanager
def _told_in_words() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow to import

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"AWS: {error}") from None


def _where_the_state_lies(project: Path) -> Path | None:
    return state_folder(json.loads(_pulumi(project, "whoami", "--json"))["url"], project)


def _cancel(stack: str, project: Path) -> None:
    """The lock of a killed engine stays; without one there is nothing to cancel."""
    said = _run(project, "cancel", "--yes", "--stack", stack)
    told = _told(said)
    if said.returncode and "no stack named" in told:
        raise BadInput(f"--stack {stack}: there is no such stack here: `pulumi stack ls` lists them")
    if said.returncode and not any(words in told for words in _NO_LOCK):
        raise Unavailable(f"`pulumi cancel` failed:\n{told}")


def _pulumi(project: Path, *arguments: str) -> str:
    said = _run(project, *arguments)
    if said.returncode:
        raise Unavailable(f"`pulumi {' '.join(arguments[:2])}` failed:\n{_told(said)}")
    return said.stdout


def _told(said: subprocess.CompletedProcess[str]) -> str:
    """All that it said, for people: what is read as JSON is its standard output alone."""
    return f"{said.stdout}{said.stderr}".strip()


def _run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command: Sequence[str] = ["pulumi", *arguments, "--color", "never"]
    try:
        return subprocess.run(
            [*command, "--non-interactive"],
            cwd=project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise BadInput("pulumi is not on PATH: https://www.pulumi.com/docs/install") from None
