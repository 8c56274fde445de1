"""JobSet, TFJob and Volcano: how each is told the gang, the end, the order, the roles."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.model.errors import BadInput
from images.cli import TEMPLATES
from images.job_files import read_job
from images.jobs import Job, as_data
from images.renderers import jobset, marathon, tfjob, volcano, yarn
from tests import examples
from tests.test_images.test_jobs import GOOD, job
from tests.test_images.test_renderers.test_all import TASK

LAUNCHED = GOOD.replace("image:", "entry: [python, t.py], image:")


def flow(**given: str) -> Any:
    """The workflow template."""
    return read_job(TEMPLATES / "workflow.yaml", {"image": "a/b:1"} | given)


def test_a_jobset_ends_with_its_workers_and_takes_the_servers_along() -> None:
    """Success is theirs alone."""
    spec = jobset.render(job(GOOD)).documents[0]["spec"]
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["worker"]}
    assert [(one["name"], one["template"]["spec"]["parallelism"]) for one in spec["replicatedJobs"]] == [
        ("worker", 2),
        ("ps", 1),
    ]


def test_a_jobset_knows_an_order_of_steps() -> None:
    """Each names the one before, which stands before it, as the API server demands."""
    spec = jobset.render(flow()).documents[0]["spec"]
    order = [(one["name"], one.get("dependsOn")) for one in spec["replicatedJobs"]]
    assert order == [
        ("prepare", None),
        ("train", [{"name": "prepare", "status": "Complete"}]),
        ("serve", [{"name": "train", "status": "Complete"}]),
    ]


def test_a_tfjob_says_what_becomes_of_its_servers() -> None:
    """Its own default would leave them running."""
    spec = tfjob.render(job(GOOD.replace("worker: {", "worker: {restart: node-failure, "))).documents[0]["spec"]
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running"
    assert spec["runPolicy"]["schedulingPolicy"] == {"minAvailable": 3}
    worker = spec["tfReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (2, "ExitCode")
    container = worker["template"]["spec"]["containers"][0]
    assert (container["name"], container["ports"]) == ("tensorflow", [{"name": "tfjob-port", "containerPort": 2222}])
    assert "TF_CONFIG" not in {entry["name"] for entry in container["env"]}


def test_a_tfjob_refuses_roles_that_it_does_not_know() -> None:
    """By name."""
    with pytest.raises(BadInput, match="trial at port 2222 is none of them"):
        tfjob.render(job(GOOD.replace("worker:", "trial:")))


def test_a_volcano_job_is_a_gang_and_ends_with_its_workers() -> None:
    """Of an elastic role, the least must be there."""
    spec = volcano.render(job(GOOD.replace("count: 2", "count: 2..5"))).documents[0]["spec"]
    assert spec["minAvailable"] == 3
    worker, ps = spec["tasks"]
    assert (worker["replicas"], worker["minAvailable"]) == (5, 2)
    assert {"event": "TaskCompleted", "action": "CompleteJob"} in worker["policies"]
    assert {"event": "TaskCompleted", "action": "CompleteJob"} not in ps["policies"]


def test_marathon_apps_have_ports_and_names_of_their_own() -> None:
    """As Mesos-DNS makes them."""
    apps = marathon.render(job(GOOD)).documents[0]["apps"]
    assert [(app["id"], app["portDefinitions"][0]["port"]) for app in apps] == [
        ("/mnist/worker-0", 2222),
        ("/mnist/worker-1", 2223),
        ("/mnist/ps-0", 2224),
    ]
    assert (apps[0]["gpus"], apps[0]["cpus"], apps[0]["mem"]) == (4, 8.0, 32768)


def test_yarn_fills_in_hosts_and_indexes_itself() -> None:
    """In its own words."""
    worker = yarn.render(job(GOOD)).documents[0]["components"][0]
    assert '\\"index\\":${COMPONENT_ID}""}""}' in worker["configuration"]["env"]["TF_CONFIG"]
    launched = yarn.render(job(LAUNCHED)).documents[0]["components"][0]
    told = launched["configuration"]["env"]
    assert told["SPILLWAY_INDEX"] == "${COMPONENT_ID}"
    assert "worker-1.${SERVICE_NAME}.${USER}.${DOMAIN}:2222" in told["SPILLWAY_CLUSTER"]
    assert worker["resource"] == {
        "cpus": 8,
        "memory": "32768",
        "additional": {"yarn.io/gpu": {"value": 4, "unit": ""}},
    }


def test_yarn_ends_servers_where_the_launcher_sees_the_exits() -> None:
    """Else it says that they go on; the launcher travels in each component as a file."""
    mine = "logs: /logs\n" + LAUNCHED.replace("{image", "{volumes: [{mount: /logs, host: /logs}], image")
    for text, told in ((LAUNCHED, True), (mine, False)):
        made = yarn.render(job(text))
        assert any("ps.essential" in loss for loss in made.losses) == told
        for component in made.documents[0]["components"]:
            (file,) = component["configuration"]["files"]
            assert "def main(command" in file["properties"]["content"]
            assert component["launch_command"].startswith("python3 conf/launcher.py ")


HARD = st.lists(
    st.sampled_from(["{", "}", "$", '"', "'", "\\", "`", "\n", "<CPS>", "<LOG_DIR>", "${PATH}", "a", " "]), max_size=6
).map("".join)


@given(args=st.lists(HARD, max_size=3), value=HARD)
@settings(max_examples=examples(30), deadline=None)
def test_what_yarn_puts_into_its_script_comes_out_as_it_was_written(args: list[str], value: str) -> None:
    """Node managers write all between double quotes and escape nothing; what they replace themselves is replaced first.

    https://github.com/apache/hadoop/blob/rel/release-3.4.1/hadoop-yarn-project/hadoop-yarn/hadoop-yarn-server/hadoop-yarn-server-nodemanager/src/main/java/org/apache/hadoop/yarn/server/nodemanager/containermanager/launcher/ContainerLaunch.java
    """
    one = Job.model_validate(as_data(job(GOOD)) | {"roles": {"worker": TASK | {"args": args, "env": {"VALUE": value}}}})
    component = yarn.render(one).documents[0]["components"][0]
    command = component["launch_command"].replace("python3 conf/launcher.py", "printf '%s\\0' \\\"\\$VALUE\\\"", 1)
    script = f'export VALUE="{component["configuration"]["env"]["VALUE"]}"\nexec bash -c "{command}"\n'
    for theirs, becomes in (("{{", "$"), ("}}", ""), ("<CPS>", ":"), ("<LOG_DIR>", "/var/log")):
        script = script.replace(theirs, becomes)
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.split("\0")[:-1] == [value, *TASK["entry"], *args]
