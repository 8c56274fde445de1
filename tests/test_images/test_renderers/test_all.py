"""What holds of every renderer: no key of a job is dropped without a word, and the same job gives the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.job_files import read_job
from images.job_roles import Role
from images.jobs import Failure, Job, as_data
from images.launcher import GRACE
from images.renderers import RENDERERS
from images.renderers.rendering import Rendering
from tests import examples
from tests.test_images.test_job_files import FILES, given_for

TASK = {"image": "team/mnist:1", "entry": ["python", "t.py"], "cpus": 2, "memory": "1Gi"}
JOB: dict[str, Any] = {"name": "mnist", "roles": {"worker": TASK | {"count": 2}, "ps": TASK}}
OTHERWISE: dict[str, Any] = {
    "name": "other",
    "kind": "service",
    "gang": False,
    "success": "first",
    "failure": {"restarts": 7},
    "logs": "/logs",
    "retain": "forever",
    "priority": "urgent",
    "queue": "night",
    "owner": "ada",
    "data_dir": "/data",
    "train_dir": "/results",
    "network": "host",
    "namespace": "vision",
    "expected": "2h",
    "patience": "1h",
    "same": "zone",
    "elastic": {"restart": "30s"},
    "node_selector": {"a": "b"},
    "tolerations": [{"key": "spot"}],
    "roles": JOB["roles"] | {"evaluator": TASK},
    "depends_on": {"ps": ["worker"]},
}
"""Another value of each key of a job."""
ROLE_OTHERWISE: dict[str, Any] = {
    "count": "2..3",
    "cpus": 3,
    "memory": "2Gi",
    "gpus": 1,
    "image": "team/other:2",
    "python": "/opt/venv",
    "entry": ["python", "other.py"],
    "args": ["--lr=1"],
    "env": {"EPOCHS": "3"},
    "port": 3333,
    "restart": "never",
    "essential": False,
    "volumes": [{"mount": "/x", "host": "/y"}],
    "checkpoint": ["sync"],
    "grace": "5m",
    "annotations": {"a": "b"},
    "idle": {"after": "1h"},
}
CASES = [(key, {key: value}) for key, value in OTHERWISE.items()] + [
    ("failure.deadline", {"failure": {"deadline": "3h"}}),
    *(
        (f"roles.worker.{key}", {"roles": JOB["roles"] | {"worker": JOB["roles"]["worker"] | {key: value}}})
        for key, value in ROLE_OTHERWISE.items()
    ),
]


def said(target: str, data: dict[str, Any]) -> Rendering | str:
    """The job in the target's words; or why it has none."""
    try:
        return RENDERERS[target](Job.model_validate(data))
    except BadInput as refusal:
        return str(refusal)


@pytest.mark.parametrize("target", RENDERERS)
@pytest.mark.parametrize(("key", "change"), CASES, ids=[key for key, _ in CASES])
def test_every_key_is_said_or_named_as_lost_or_refused(target: str, key: str, change: dict[str, Any]) -> None:
    """Another value makes another document; or a loss that names the key; or an error that does."""
    base = JOB
    if key == "logs":  # containers have to have it on a volume
        roles = {role: task | {"volumes": [{"mount": "/logs", "host": "/logs"}]} for role, task in JOB["roles"].items()}
        base = JOB | {"roles": roles}
    if key == "elastic":
        base = JOB | {"roles": JOB["roles"] | {"worker": TASK | {"count": "2..3"}}}
    if key == "depends_on":
        base = JOB | {"gang": False}
    if key == "roles.worker.essential":
        change = {"roles": JOB["roles"] | {"worker": JOB["roles"]["worker"] | {"essential": False}, "mine": TASK}}
        base = JOB | {"roles": JOB["roles"] | {"mine": TASK}}
    before, after = said(target, base), said(target, base | change)
    if isinstance(after, str):
        assert key.rsplit(".", maxsplit=1)[-1] in after or "knows the roles" in after
        return
    assert isinstance(before, Rendering)
    changed = (before.documents, before.script) != (after.documents, after.script)
    told = {*after.losses} | ({*before.losses} - {*after.losses})  # or it is what the target does anyway
    assert changed or any(loss.startswith(key) for loss in told), (after.losses, before.losses)


def test_the_cases_are_all_keys() -> None:
    """A new key of a job needs a case here."""
    assert {*OTHERWISE} == {*Job.model_fields}
    assert {*ROLE_OTHERWISE} == {*Role.model_fields}
    assert {*Failure.model_fields} == {"restarts", "deadline"}


@pytest.mark.parametrize(
    ("target", "grace", "launched", "own"),
    [
        ("kubernetes", None, ("30", 40), (None, None)),
        ("kubernetes", "5m", ("300", 310), (None, 300)),
        ("compose", None, ("30", "40s"), (None, None)),
        ("compose", "5m", ("300", "310s"), (None, "300s")),
        ("local", "5m", ("300", 310), None),
    ],
)
def test_a_task_is_not_killed_before_its_grace_is_over(
    target: str, grace: str | None, launched: tuple[str, object], own: tuple[None, object] | None
) -> None:
    """What the launcher is told, and for how long its surroundings wait; without the launcher they alone know."""
    given = {"grace": grace} if grace else {}
    worker = TASK | given
    assert told_of_grace(target, worker) == launched
    if own is not None:
        assert told_of_grace(target, {key: value for key, value in worker.items() if key != "entry"}) == own


def told_of_grace(target: str, worker: dict[str, Any]) -> tuple[str | None, object]:
    """Seconds that the launcher gives the program, if there is one; what the target gives both."""
    documents = RENDERERS[target](Job.model_validate({"name": "one", "roles": {"worker": worker}})).documents
    if target == "kubernetes":
        spec = next(one for one in documents if one["kind"] == "Job")["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        variables = {entry["name"]: entry.get("value") for entry in container["env"]}
        waits = spec.get("terminationGracePeriodSeconds")
    elif target == "compose":
        service = documents[0]["services"]["worker-0"]
        variables, waits = service["environment"], service.get("stop_grace_period")
    else:
        variables, waits = documents[0]["tasks"][0]["environment"], documents[0]["ends_within"]
    usual = str(GRACE) if "SPILLWAY_ROLE" in variables else None
    return variables.get("SPILLWAY_GRACE", usual), waits


REFUSED = {
    ("workflow", "tfjob"), ("workflow", "aliyun-compose"), ("workflow", "slurm"),
    ("workflow", "marathon"), ("workflow", "yarn"),
    ("parameter-server-host-network", "tfjob"), ("pytorch-ddp", "tfjob"), ("notebook", "tfjob"), ("search", "tfjob"),
}  # fmt: skip
"""What the table in the README calls no."""


@pytest.mark.parametrize("target", RENDERERS)
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_template_becomes_something_for_every_target_but_those_that_refuse_it(path: Path, target: str) -> None:
    """As the README has it."""
    one = read_job(path, given_for(path))
    if (path.stem, target) in REFUSED:
        with pytest.raises(BadInput, match=f"job '{one.name}' cannot be (rendered to {target}|run as processes)"):
            RENDERERS[target](one)
    else:
        assert RENDERERS[target](one).text


jobs = st.builds(
    lambda workers, servers, args, env: Job.model_validate(
        {
            "name": "j",
            "roles": {
                "worker": TASK | {"count": workers, "args": args, "env": env},
                "ps": TASK | {"count": servers},
            },
        }
    ),
    st.integers(1, 5),
    st.integers(1, 3),
    st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8), max_size=3),
    st.dictionaries(
        st.sampled_from(["A", "B_1"]), st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=8)
    ),
)


@given(one=jobs)
@settings(max_examples=examples(20))
@pytest.mark.parametrize("target", RENDERERS)
def test_rendering_is_a_function_of_the_job(target: str, one: Job) -> None:
    """Of nothing else, whatever the arguments hold."""
    again = Job.model_validate(as_data(one))
    assert RENDERERS[target](again).text == RENDERERS[target](one).text
