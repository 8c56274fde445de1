"""Marathon groups against what Marathon publishes of its API: its RAML types of 1.7, as a JSON Schema.

None of its packages that can be had carries them, so that those which concern our groups stand here, each with its
file in 1.7/docs/rest-api/public/api/v2/types of https://github.com/mesosphere/marathon (at commit 76950213). A key that
a type has not is refused, as Marathon does not know it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from images.job_files import read_job
from images.jobs import Job
from images.renderers import marathon
from tests import examples
from tests.test_images.test_job_files import FILES, given_for
from tests.test_images.test_renderers.test_all import REFUSED, jobs

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": "string"}
WORDS: Final[Schema] = {"type": "array", "items": TEXT}
LABEL: Final = "([a-z0-9]|[a-z0-9][a-z0-9-]*[a-z0-9])"
# stringTypes.raml
PATH: Final[Schema] = {"type": "string", "pattern": rf"^(/?((\.\.)|({LABEL}\.)*{LABEL})?($|/))+$"}
NAME: Final[Schema] = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}


def thing(needs: tuple[str, ...] = (), **keys: Schema) -> Schema:
    """An object with these keys and no others."""
    return {"type": "object", "properties": keys, "required": list(needs), "additionalProperties": False}


PORT: Final = thing(  # network.raml, PortDefinition; numberTypes.raml
    port={"type": "integer", "minimum": 0, "maximum": 65535}, name=NAME, protocol={"enum": ["tcp", "udp", "udp,tcp"]}
)
VOLUME: Final = thing(  # volumes.raml, AppHostVolume
    ("containerPath", "hostPath", "mode"),
    containerPath={"type": "string", "minLength": 1},
    hostPath={"type": "string", "minLength": 1},
    mode={"enum": ["RO", "RW"]},
)
CONTAINER: Final = thing(  # appContainer.raml; without a type it were DOCKER, which knows no GPUs
    ("type",),
    type={"enum": ["MESOS", "DOCKER"]},
    docker=thing(("image",), image={"type": "string", "minLength": 1}),
    volumes={"type": "array", "items": VOLUME},
)
CONSTRAINT: Final[Schema] = {  # constraint.raml, AppConstraint
    "type": "array",
    "prefixItems": [TEXT, {"enum": ["UNIQUE", "CLUSTER", "GROUP_BY", "LIKE", "UNLIKE", "MAX_PER", "IS"]}, TEXT],
    "minItems": 2,
    "items": False,
}
APP: Final = thing(  # app.raml
    ("id",),
    id=PATH,
    args=WORDS,
    cmd={"type": "string", "minLength": 1},
    constraints={"type": "array", "items": CONSTRAINT, "uniqueItems": True},
    container=CONTAINER,
    cpus={"type": "number", "minimum": 0.001},
    env={"type": "object", "additionalProperties": TEXT},  # environmentVariable.raml, but for secrets
    gpus={"type": "integer", "minimum": 0},
    instances={"type": "integer", "minimum": 0},
    mem={"type": "number", "minimum": 0},
    networks={"type": "array", "items": thing(mode={"enum": ["container", "container/bridge", "host"]})},
    portDefinitions={"type": "array", "items": PORT},
    requirePorts={"type": "boolean"},
) | {"not": {"required": ["cmd", "args"]}}
GROUP: Final = thing(("id",), id=PATH, apps={"type": "array", "items": APP, "uniqueItems": True})  # group.raml


def faults(group: Any) -> list[str]:
    """What Marathon would refuse."""
    found = [f"{fault.json_path}: {fault.message}" for fault in Draft202012Validator(GROUP).iter_errors(group)]
    apps = group["apps"]
    if len({app["id"] for app in apps}) < len(apps):
        found.append("two apps have one id")
    found += [f"{app['id']} is not of the group" for app in apps if not app["id"].startswith(f"{group['id']}/")]
    found += [
        f"{app['id']}: GPUs need the Mesos containerizer"  # AppValidation.scala, complyWithGpuRules
        for app in apps
        if app.get("gpus") and app.get("container", {}).get("type") != "MESOS"
    ]
    return found


def test_the_schema_is_one() -> None:
    """By its own."""
    Draft202012Validator.check_schema(GROUP)


@pytest.mark.parametrize(
    "path", [path for path in FILES if (path.stem, "marathon") not in REFUSED], ids=lambda p: p.stem
)
def test_marathon_takes_the_group_of_every_template(path: Path) -> None:
    """As it is published."""
    (group,) = marathon.render(read_job(path, given_for(path))).documents
    assert faults(group) == []


@given(one=jobs)
@settings(max_examples=examples(20), deadline=None)
def test_marathon_takes_the_group_of_any_job(one: Job) -> None:
    """Whatever its arguments hold."""
    (group,) = marathon.render(one).documents
    assert faults(group) == []


def _longer(app: Any) -> None:
    app["portDefinitions"][0]["port"] = 65_536


@pytest.mark.parametrize(
    "break_it",
    [
        lambda app: app.update(restart="never"),
        lambda app: app.update(cmd="x", args=[]),
        lambda app: app.update(gpus=0.5),
        lambda app: app.update(env={"A": 1}),
        lambda app: app.update(id="/mnist/Worker_0"),
        lambda app: app["container"].update(type="DOCKER") or app.update(gpus=1),
        lambda app: app.update(constraints=[["rack", "NEAR", "b"]]),
        _longer,
    ],
)
def test_what_marathon_refuses_is_seen(break_it: Callable[[Any], None]) -> None:
    """Each of these would come back from its API with status 422."""
    path = next(path for path in FILES if path.stem == "parameter-server")
    group = copy.deepcopy(marathon.render(read_job(path, given_for(path))).documents[0])
    break_it(group["apps"][0])
    assert faults(group)
