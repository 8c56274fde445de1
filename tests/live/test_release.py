"""The autoscaler's release on a real API server; what its ServiceAccount may do there: what it uses, and no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pytest
import yaml

from autoscaler.config.release_manifests import RBAC, manifests
from autoscaler.kube.client import Kube, Refused
from autoscaler.kube.schema.convert import pod_from
from autoscaler.kube.schema.core import PodJson
from autoscaler.kube.writes import Writes
from autoscaler.model import labels as words
from stacks.local.ground.control_plane import BINARIES, apply_manifests, control_plane, path_of, wait_for_namespace
from stacks.local.kubeapi.client import KubeHttp, KubeRefusedError
from stacks.local.process.ports import free_ports
from stacks.local.toolchain.pulumi_engine import pulumi_destroy, pulumi_preview, pulumi_up
from stacks.local.toolchain.tools import ensure_tools
from tests import ROOT
from tests.live.conftest import Plane
from tests.live.custom_kinds import provisioning_request, served
from tests.live.hybrid import autoscaler, bound, gpu_pod, kept, make_pod, stand_in_aws, until, write_policy
from tests.live.stacks import client, settings_for

pytestmark = pytest.mark.live
CONFLICT = 409

ACCOUNT = f"system:serviceaccount:{words.NAMESPACE}:{words.AUTOSCALER}"
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": [f"system:serviceaccounts:{words.NAMESPACE}"]}, {"level": "None"}],
}
Use = tuple[str, str, str]
"""API group, resource, verb."""


@dataclass(frozen=True)
class Audited:
    """A control plane that writes down what the accounts of the release ask."""

    kube: KubeHttp
    kubeconfig: Path
    url: str
    directory: Path

    def uses(self, account: str = ACCOUNT) -> dict[Use, set[int]]:
        """What the account asked for so far, and how it was answered."""
        found: dict[Use, set[int]] = {}
        for line in (self.directory / "audit.log").read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            asked = event.get("objectRef", {})
            if asked.get("resource") and event["user"]["username"] == account:
                below = f"/{asked['subresource']}" if asked.get("subresource") else ""
                use = (asked.get("apiGroup", ""), f"{asked['resource']}{below}", event["verb"])
                found.setdefault(use, set()).add(event.get("responseStatus", {}).get("code", 0))
        return found

    def as_the_account(self, path: Path, *, account: str = words.AUTOSCALER) -> Path:
        """A kubeconfig with a token of the ServiceAccount, as its pods have one."""
        account = f"/api/v1/namespaces/{words.NAMESPACE}/serviceaccounts/{account}"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        token = self.kube.send("POST", f"{account}/token", asked)["status"]["token"]
        config = json.loads(self.kubeconfig.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": token}
        path.write_text(json.dumps(config), encoding="utf-8")
        return path


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Audited]:
    """Of this module's own: it loses and gains the autoscaler's objects."""
    tools = ensure_tools(BINARIES, progress=print)
    directory = tmp_path_factory.mktemp("audited")
    client_port, peer, api = free_ports(3)
    plane = control_plane(directory, tools=tools, ports=(client_port, peer, api))
    (directory / "audit.yaml").write_text(json.dumps(AUDIT), encoding="utf-8")
    flags = (f"--audit-policy-file={directory / 'audit.yaml'}", f"--audit-log-path={directory / 'audit.log'}")
    processes = [
        replace(one, argv=(*one.argv, *flags)) if one.name == "kube-apiserver" else one for one in plane.processes
    ]
    with kept(processes, directory=directory):
        kube = KubeHttp(plane.kubeconfig)
        wait_for_namespace(kube)
        yield Audited(kube=kube, kubeconfig=plane.kubeconfig, url=plane.url, directory=directory)


def test_the_release_through_its_life(audited: Audited, engine: dict[str, Path], tmp_path: Path) -> None:
    """Up, nothing to do, a changed policy restarts nothing, an edit by hand is mended, destroy takes it away."""
    with stand_in_aws(tmp_path / "aws") as aws:
        groups = [{"name": "gpu", "instance_type": "g5.12xlarge", "zones": ["us-east-1a"], "max": 4}]
        made = settings_for(tmp_path, aws_url=aws.url, tools=engine, cluster="lab", groups=groups)
        release = {"spillway:program": "release", "spillway:release": {"image": "registry.example.org/autoscaler:1"}}
        settings = replace(made, kubeconfig=audited.kubeconfig, overrides=release)
        outputs = pulumi_up(settings)
        assert outputs.release
        assert outputs.release.namespace == words.NAMESPACE
        standing = objects(audited.kube)
        assert {one["kind"] for one in standing} >= {"Deployment", "ConfigMap", "PodDisruptionBudget", "PriorityClass"}
        first = deployment(audited.kube)
        assert first["spec"]["replicas"] == 2
        secret = audited.kube.get(f"/api/v1/namespaces/{words.NAMESPACE}/secrets/{words.AUTOSCALER}-aws")
        assert set(secret["data"]) == {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
        state = "".join(file.read_text(encoding="utf-8") for file in (settings.directory / "state").rglob("*.json"))
        assert '"AWS_SECRET_ACCESS_KEY": "' not in state
        assert pulumi_preview(settings), "a second up changes nothing"

        settings.policy.write_text(
            json.dumps({"cluster": "lab", "groups": [{**groups[0], "max": 5}]}), encoding="utf-8"
        )
        name = f"/apis/policy/v1/namespaces/{words.NAMESPACE}/poddisruptionbudgets/{words.AUTOSCALER}"
        merge = "application/merge-patch+json"
        audited.kube.send("PATCH", name, {"spec": {"minAvailable": 0}}, content=merge)
        pulumi_up(settings, refresh=True)
        assert deployment(audited.kube)["metadata"]["generation"] == first["metadata"]["generation"]
        edited = audited.kube.get(f"/api/v1/namespaces/{words.NAMESPACE}/configmaps/{words.POLICY}")
        assert '"max": 5' in edited["data"][words.POLICY_KEY]
        assert audited.kube.get(name)["spec"]["minAvailable"] == 1, "an edit by hand is mended"

        pulumi_destroy(settings)
        users = client("iam", aws.url).list_users()["Users"]
    assert not [one["UserName"] for one in users]
    until(lambda: not objects(audited.kube), told=lambda: [one["metadata"]["name"] for one in objects(audited.kube)])


def objects(kube: KubeHttp) -> list[dict[str, Any]]:
    """Those of a release that stand."""
    found = []
    for manifest in manifests_of_a_release():
        try:
            found.append(kube.get(f"{path_of(manifest)}/{manifest['metadata']['name']}"))
        except KubeRefusedError as refused:
            assert refused.status == 404  # noqa: PT017 - anything else is a failure of the server
    return found


def manifests_of_a_release() -> list[dict[str, Any]]:
    """By name."""
    from autoscaler.config.release_manifests import ReleaseSpec  # noqa: PLC0415

    return manifests(ReleaseSpec(image="x", region="us-east-1", policy="", aws_access="access-key"))


def deployment(kube: KubeHttp) -> dict[str, Any]:
    """The autoscaler's."""
    found = kube.get(f"/apis/apps/v1/namespaces/{words.NAMESPACE}/deployments/{words.AUTOSCALER}")
    return dict(found)


def granted(file: Path = RBAC) -> set[Use]:
    """What `rbac.yaml` says, spelled out."""
    found: set[Use] = set()
    for document in yaml.safe_load_all(file.read_text(encoding="utf-8")):
        for rule in (document or {}).get("rules", []):
            found |= {
                (group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def test_all_that_the_autoscaler_does_is_allowed_and_all_that_is_allowed_it_does(
    audited: Audited, tmp_path: Path
) -> None:
    """The real autoscaler as its ServiceAccount, and the writes that no plan of this test needs by its own door."""
    apply_manifests(audited.kube, RBAC.read_text(encoding="utf-8"))
    kubeconfig = audited.as_the_account(tmp_path / "account.kubeconfig")
    file, policy = write_policy(tmp_path)
    edited = {"metadata": {"name": words.POLICY}, "data": {words.POLICY_KEY: file.read_text(encoding="utf-8")}}
    audited.kube.send("POST", "/api/v1/namespaces/spillway/configmaps", edited)
    where = ("--policy", f"configmap:spillway/{words.POLICY}")
    with (
        served(audited.kube, group="autoscaling.x-k8s.io", version="v1", kind="ProvisioningRequest") as requests,
        stand_in_aws(tmp_path / "aws", kubeconfig=audited.kubeconfig, boot_delay="500ms") as aws,
    ):
        aws.make_groups(policy)
        template = {"metadata": {"name": "large"}, "template": {"spec": gpu_pod("large", gpus=16)["spec"]}}
        audited.kube.send("POST", "/api/v1/namespaces/default/podtemplates", template)
        request = provisioning_request("room", template="large", count=1)
        audited.kube.send("POST", requests, request)
        with autoscaler(*where, policy=file, env=aws.env, kubeconfig=kubeconfig, log=tmp_path / "log") as brain:
            pod = gpu_pod("gang-0", labels={words.GANG: "g"}, annotations={words.GANG_SIZE: "1"})
            pod["spec"]["schedulingGates"] = [{"name": words.GATE}]
            make_pod(audited.kube, pod)
            make_pod(audited.kube, gpu_pod("hopeless", gpus=16))
            make_pod(audited.kube, inquisitive_pod())
            node = until(lambda: bound(audited.kube, "gang-0"), told=brain.texts)
            until(lambda: ("", "events", "create") in audited.uses(), told=brain.texts)
            until(lambda: "CapacityIsNotFound" in str(audited.kube.get(f"{requests}/room")), told=brain.texts)
            until(lambda: {use for use in audited.uses() if use[2] == "watch"} >= FROM_A_QUESTION, told=brain.texts)
            assert brain.stop() == 0
            assert "apply autoscaler/rbac.yaml" not in brain.texts()
    use_the_door(audited, Kube.connect(kubeconfig), node)
    used = audited.uses()
    refused = {use: codes for use, codes in used.items() if 403 in codes}
    assert not refused
    assert set(used) - OWN_QUESTIONS <= granted()
    assert granted() - set(used) <= NOT_SERVED, "what nobody uses is not to be granted"


def inquisitive_pod() -> dict[str, Any]:
    """It asks about volumes and about namespaces."""
    term = {"topologyKey": words.HOSTNAME, "labelSelector": {}, "namespaceSelector": {"matchLabels": {"a": "b"}}}
    pod = gpu_pod("inquisitive")
    pod["spec"] |= {
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "not-there"}}],
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    }
    return pod


FROM_A_QUESTION = {
    ("", "persistentvolumeclaims", "watch"),
    ("", "persistentvolumes", "watch"),
    ("", "namespaces", "watch"),
    ("storage.k8s.io", "storageclasses", "watch"),
    ("storage.k8s.io", "csinodes", "watch"),
}
"""Nobody watches them before a pod asks."""
OWN_QUESTIONS = {("authorization.k8s.io", "selfsubjectaccessreviews", "create")}
OF_OTHERS = (
    *("scheduling.k8s.io", "scheduling.x-k8s.io", "scheduling.volcano.sh"),
    *("jobset.x-k8s.io", "leaderworkerset.x-k8s.io", "kubeflow.org"),
)
NOT_SERVED = {use for use in granted() if use[0] in OF_OTHERS}
"""Gangs of schedulers and operators that this cluster has not installed."""


def use_the_door(audited: Audited, kube: Kube, node: str) -> None:
    """Every write that no plan of the test above needs, once."""
    door = Writes(kube)
    at_last(lambda: door.cordon(node, at=datetime.now(UTC)))
    at_last(lambda: door.uncordon(node))
    seen = door.node(node)
    list(door.pods_on(node))
    waiting = audited.kube.get("/api/v1/namespaces/default/pods/hopeless")
    at_last(lambda: nominated(kube, "hopeless", node))
    at_last(lambda: door.delete_unbound("default", "hopeless", uid=waiting["metadata"]["uid"]))
    make_pod(audited.kube, gpu_pod("moved", gpus=16))
    raw = msgspec.json.decode(kube.get("/api/v1/namespaces/default/pods/moved"), type=PodJson)
    assert door.evict([pod_from(raw)], dry_run=True) == {"default/moved": None}
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    audited.kube.send("POST", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)
    (read,) = door.budgets("default")
    assert (read.metadata.name, read.is_of({"app": "web"}), read.is_of({"app": "db"})) == ("web", True, False)
    assert read.status.disruptions_allowed == 0
    assert audited.kube.get("/api/v1/namespaces/default/pods/moved")["metadata"]["uid"] == raw.metadata.uid
    assert door.evict([pod_from(raw)]) == {"default/moved": None}
    for name, partner in (("workers", ""), ("servers", "workers")):
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "annotations": {words.ENDS_WITH: partner} if partner else {}},
            "spec": {
                "suspend": bool(partner),
                "template": {
                    "metadata": {"annotations": {"local.spillway.dev/runs-for": "0s"}},
                    "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "nodeName": node},
                },
            },
        }
        audited.kube.send("POST", "/apis/batch/v1/namespaces/default/jobs", job)
    path = "/apis/batch/v1/namespaces/default/jobs/workers"
    until(lambda: "Complete" in str(audited.kube.get(path).get("status", {}).get("conditions")))
    door.end_job("default", "servers")
    elastic = job | {
        "metadata": {"name": "elastic"},
        "spec": job["spec"] | {"suspend": True, "completionMode": "Indexed", "parallelism": 1, "completions": 1},
    }
    audited.kube.send("POST", "/apis/batch/v1/namespaces/default/jobs", elastic)
    at_last(lambda: door.resize_job("default", "elastic", was=1, to=2, at=datetime.now(UTC)))
    assert audited.kube.get("/apis/batch/v1/namespaces/default/jobs/elastic")["spec"]["completions"] == 2
    door.delete_node(node, uid=seen.metadata.uid)


def nominated(kube: Kube, name: str, node: str) -> None:
    """Name the node for the pod as it is now. Raises ``Refused`` where it has just changed."""
    raw = msgspec.json.decode(kube.get(f"/api/v1/namespaces/default/pods/{name}"), type=PodJson)
    for answer in Writes(kube).nominate([((pod_from(raw), raw.metadata.version()), node)]).values():
        if isinstance(answer, Exception):
            raise answer


def at_last(write: Callable[[], object]) -> None:
    """Try again where somebody else, such as the node's kubelet or the scheduler, has written in between."""

    def tried() -> bool:
        try:
            write()
        except Refused as refused:
            if refused.status != CONFLICT:
                raise
            return False
        return True

    until(tried)


def test_nothing_else_is_allowed(audited: Audited, tmp_path: Path) -> None:
    """Every verb on every resource that the server knows: yes for those of `rbac.yaml`, no for the rest."""
    apply_manifests(audited.kube, RBAC.read_text(encoding="utf-8"))
    account = KubeHttp(audited.as_the_account(tmp_path / "account.kubeconfig"))
    allowed = {
        (group, resource, verb)
        for group, resource in resources(audited.kube)
        for verb in ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
        if may(account, group, resource, verb)
    }
    known = {(group, resource) for group, resource in resources(audited.kube)}
    of_everybody = {use for use in allowed if use[0] in ("authorization.k8s.io", "authentication.k8s.io")}
    assert allowed - of_everybody == {use for use in granted() if use[:2] in known}


def resources(kube: KubeHttp) -> list[tuple[str, str]]:
    """API group and resource of all that the server serves, subresources too."""
    versions = ["/api/v1"] + [f"/apis/{one['preferredVersion']['groupVersion']}" for one in kube.get("/apis")["groups"]]
    return [
        (path.split("/")[2] if path.startswith("/apis") else "", one["name"])
        for path in versions
        for one in kube.get(path)["resources"]
    ]


BY_NAME = MappingProxyType(
    {
        "leases": words.LEASE,
        "configmaps": words.MEMORY,
        "list configmaps": words.POLICY,
        "watch configmaps": words.POLICY,
    }
)
"""Objects that it may touch by name alone: of a kind, or by a verb on a kind."""


def may(
    account: KubeHttp,
    group: str,
    resource: str,
    verb: str,
    *,
    namespace: str = words.NAMESPACE,
    named: Mapping[str, str] = BY_NAME,
) -> bool:
    """Whether the account may, in its own namespace, and for those that it may by name alone."""
    kind, _, below = resource.partition("/")
    attributes = {
        "group": group,
        "resource": kind,
        "subresource": below,
        "verb": verb,
        "namespace": namespace,
        "name": named.get(f"{verb} {kind}", named.get(kind, "")) if verb != "create" else "",
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = account.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("access", ["irsa", "access-key"])
def test_the_api_server_takes_what_autoscale_manifests_prints(plane: Plane, access: str) -> None:
    """Strictly: a misspelt field is an error. The namespace is made for good, everything else is a dry run.

    A ServiceMonitor is of the Prometheus operator, which is not here: its Service alone is tried.
    """
    policy = ROOT / "autoscaler" / "policies" / "lab.yaml"
    line = ["autoscale", "manifests", "--policy", str(policy), "--image", "registry/autoscaler:1", "--service-monitor"]
    printed = subprocess.run(
        [sys.executable, "-m", "spillway", *line, "--aws-access", access, "--pull-secret", "pull"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    taken = []
    for manifest in yaml.safe_load_all(printed):
        if manifest["kind"] == "ServiceMonitor":
            continue
        path = f"{path_of(manifest)}/{manifest['metadata']['name']}"
        dry = "" if manifest["kind"] == "Namespace" else "&dryRun=All"
        strict = f"{path}?fieldManager=tests&force=true&fieldValidation=Strict{dry}"
        plane.kube.send("PATCH", strict, manifest, content="application/apply-patch+yaml")
        taken.append(manifest["kind"])
    assert {"Deployment", "PodDisruptionBudget", "ConfigMap", "ClusterRole", "Role", "Service"} <= set(taken)
