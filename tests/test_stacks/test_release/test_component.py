"""The autoscaler's objects in the cluster, and how it comes to its rights, for each kind of control plane."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

import autoscaler
import roles
from autoscaler.cli.autoscale import run
from autoscaler.config.release_manifests import METRICS_PORT, NAME, RBAC, ReleaseSpec, manifests
from autoscaler.model import labels as words
from autoscaler.model.errors import BadInput
from roles.cli import approve
from roles.membership.csr_policy import BINDING
from stacks.network.parts import ControlPlanePart
from stacks.release.approver_manifests import RBAC as APPROVER_RBAC
from stacks.release.approver_manifests import approver_manifests
from stacks.release.component import AutoscalerRelease
from stacks.settings.outputs import ControlPlaneOutput
from stacks.settings.stack import Kind, ReleaseSettings, access_of
from tests import ROOT
from tests.fakes.aws_services.validation.iam import check_iam
from tests.test_stacks.graph import Graph, graph

POLICY = "cluster: lab\ngroups: []\n"
DOCKERFILE = ROOT / "images/containers/autoscaler/Dockerfile"


def by_kind(**given: Any) -> dict[str, dict[str, Any]]:
    """The manifests of a release."""
    spec = {"image": "registry/autoscaler:1", "region": "us-east-1", "policy": POLICY, "aws_access": "irsa"}
    return {one["kind"]: one for one in manifests(ReleaseSpec(**{**spec, **given}))}


def released(kind: Kind, *, approves_nodes: bool = False, **given: Any) -> Graph:
    """What the component registers beside a control plane."""
    about = ControlPlaneOutput(
        kind=kind,
        endpoint="https://api",
        certificate_authority="UEVN",
        oidc_provider_arn="arn:aws:iam::1:oidc-provider/issuer",
        oidc_issuer="https://issuer",
    )
    settings = ReleaseSettings.model_validate({"image": "registry/autoscaler:1", **given})

    def program() -> None:
        AutoscalerRelease(
            "lab",
            settings,
            cluster="lab",
            region="us-east-1",
            policy=POLICY,
            control_plane=ControlPlanePart(
                kind=kind,
                about=pulumi.Output.from_input(about),
                kubeconfig=pulumi.Output.secret("kubeconfig"),
            ),
            approves_nodes=approves_nodes,
        )

    return graph(program)


def test_rights_in_the_cluster_are_those_of_the_one_file() -> None:
    """Object by object, as they stand there."""
    declared = [one for one in yaml.safe_load_all(RBAC.read_text(encoding="utf-8")) if one]
    assert manifests(ReleaseSpec(image="i", region="r", policy="", aws_access="irsa"))[: len(declared)] == declared


def test_two_replicas_of_which_one_may_be_missing() -> None:
    """On different machines where there are some."""
    made = by_kind()
    assert made["Deployment"]["spec"]["replicas"] == 2
    assert made["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    labels = made["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert made["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert made["Deployment"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_changed_policy_changes_its_configmap_and_no_pod() -> None:
    """The map holds the very text of the file, and the autoscaler may follow that map through the API, no other."""
    changed = by_kind(policy=POLICY + "# another\n")
    assert changed["Deployment"] == by_kind()["Deployment"]
    assert changed["ConfigMap"]["data"] == {"policy.yaml": POLICY + "# another\n"}
    followed = [rule for rule in by_kind()["Role"]["rules"] if "watch" in rule["verbs"]]
    assert {name for rule in followed for name in rule["resourceNames"]} >= {changed["ConfigMap"]["metadata"]["name"]}
    assert all(rule["resourceNames"] for rule in followed)


def test_its_command_line_is_one_that_the_command_takes() -> None:
    """With the port that its probes ask."""
    [container] = by_kind()["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert container["args"][:2] == ["autoscale", "run"]
    with run.make_context("run", list(container["args"][2:])) as context:
        assert context.params["metrics_port"] == METRICS_PORT
        assert context.params["identity"] == "$(POD_NAME)"
    policy = by_kind()["ConfigMap"]["metadata"]
    assert context.params["policy"] == f"configmap:{policy['namespace']}/{policy['name']}"
    [port] = container["ports"]
    assert (port["name"], port["containerPort"]) == ("metrics", METRICS_PORT)
    for probe in ("readinessProbe", "livenessProbe", "startupProbe"):
        assert container[probe]["httpGet"]["port"] == "metrics"


def test_its_pods_are_those_of_a_restricted_namespace() -> None:
    """As Pod Security admission asks, but for the host's network beside a control plane of ours."""
    pod = by_kind()["Deployment"]["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert "hostNetwork" not in pod


def test_on_eks_its_service_account_takes_a_role() -> None:
    """Which trusts it alone; no credential is stored anywhere."""
    found = released("eks")
    trust = json.loads(found["Role lab-autoscaler"].inputs["assumeRolePolicy"])
    assert trust["Statement"][0]["Principal"] == {"Federated": "arn:aws:iam::1:oidc-provider/issuer"}
    account = found[f"ServiceAccount lab-{NAME}"]
    assert account.inputs["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn:aws:test:::lab-autoscaler"}
    [policy] = [one for one in found.of_type("RolePolicy") if "Role lab-autoscaler" in one.needs]
    assert [one["Sid"] for one in json.loads(policy.inputs["policy"])["Statement"]] == [
        *("Look", "ResizeItsOwnGroups", "LaunchAtOnce", "Listen")
    ]
    assert not found.of_type("AccessKey")
    assert not found.of_type("Secret")


@pytest.mark.parametrize("kind", ["kubeadm", "existing"])
def test_autoscaler_and_approver_have_identities_of_their_own(kind: Kind) -> None:
    """A hole in one gives none of the other's rights, nor those of the control plane's instances."""
    found = released(kind, approves_nodes=True)
    for program in ("autoscaler", "approver"):
        user = f"User lab-{program}"
        assert found[user].inputs["name"] == f"lab-{program}"
        [policy] = [one for one in found.of_type("UserPolicy") if user in one.needs]
        assert policy.inputs["name"] == program
        [key] = [one for one in found.of_type("AccessKey") if user in one.needs]
        [secret] = [one for one in found.of_type("Secret") if str(key) in one.needs]
        pod = found[f"Deployment lab-spillway-{program}"].inputs["spec"]["template"]["spec"]
        assert "hostNetwork" not in pod, "where a role of the instance would be in reach"
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": secret.inputs["metadata"]["name"]}}]
    assert not found.of_type("RolePolicy")


def test_elsewhere_it_has_an_access_key_that_is_secret_wherever_it_stands() -> None:
    """Of a user that may do nothing else."""
    found = released("existing")
    [policy] = found.of_type("UserPolicy")
    assert [one["Sid"] for one in json.loads(policy.inputs["policy"])["Statement"]] == [
        *("Look", "ResizeItsOwnGroups", "LaunchAtOnce", "Listen")
    ]
    [key] = found.of_type("AccessKey")
    assert "secret" in key.secret_outputs
    [secret] = found.of_type("Secret")
    assert secret.secrets >= {"stringData"}
    assert str(secret) in found[f"Deployment lab-{NAME}"].needs


@pytest.mark.parametrize("kind", ["eks", "kubeadm", "existing"])
def test_everything_stands_under_the_component_and_pods_come_last(kind: Kind) -> None:
    """A pod that starts before its account, rights and policy are there would fail first."""
    found = released(kind)
    assert {str(node) for node in found.nodes} - found.under("Autoscaler lab") == {"Autoscaler lab"}
    needs = found[f"Deployment lab-{NAME}"].needs
    assert {one.split()[0] for one in needs} >= {
        *("ServiceAccount", "ClusterRoleBinding", "RoleBinding", "PriorityClass", "ConfigMap", "Namespace")
    }
    [provider] = found.of_type("kubernetes")
    assert "kubeconfig" in provider.secrets
    assert provider.inputs["enableConfigMapMutable"] in {True, "true"}, "an edited policy is an edit of its map"


@pytest.mark.parametrize("kind", ["kubeadm", "existing"])
def test_the_approver_comes_where_nodes_are_made_by_the_roles(kind: Kind) -> None:
    """With its own account, and its rights on AWS beside the autoscaler's; elsewhere there is none."""
    found = released(kind, approves_nodes=True)
    deployment = found[f"Deployment lab-{words.APPROVER}"]
    assert deployment.inputs["spec"]["template"]["spec"]["serviceAccountName"] == words.APPROVER
    assert f"ServiceAccount lab-{words.APPROVER}" in deployment.needs
    rights = json.loads(found["UserPolicy lab-approver"].inputs["policy"])
    check_iam("PutRolePolicy", {"RoleName": "x", "PolicyName": "approver", "PolicyDocument": json.dumps(rights)})
    assert {one["Sid"] for one in rights["Statement"]} == {"SeeInstances", "SeeTokens", "KeepTokens", "WithAwsOwnKey"}
    in_cluster = {one.inputs["metadata"].get("namespace") for one in found.of_type("Role") if "metadata" in one.inputs}
    assert in_cluster == {"spillway", "kube-system"}
    assert not [node for node in released(kind).nodes if "approver" in str(node)]


def test_the_approvers_objects_are_those_of_the_one_file_and_its_command_is_one() -> None:
    """Read-only, unprivileged, without a port."""
    spec = ReleaseSpec(image="i", region="us-east-1", policy="", aws_access="access-key")
    *rbac, made = approver_manifests(spec, cluster="lab")
    assert rbac == [one for one in yaml.safe_load_all(APPROVER_RBAC.read_text(encoding="utf-8")) if one]
    assert BINDING in rbac, "which the roles find there"
    pod = made["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["args"][:2] == ["nodes", "approve"]
    with approve.make_context("approve", list(container["args"][2:])) as context:
        assert context.params["cluster"] == "lab"
        assert not context.params["once"]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "ports" not in container
    assert "hostNetwork" not in pod


@pytest.mark.parametrize(("kind", "asked"), [("existing", "irsa"), ("kubeadm", "irsa")])
def test_a_way_to_its_rights_that_a_control_plane_has_not_is_refused(kind: Kind, asked: str) -> None:
    """By its key."""
    settings = ReleaseSettings.model_validate({"image": "i", "aws_access": asked})
    with pytest.raises(BadInput, match=rf"spillway:release\.aws_access = '{asked}'"):
        access_of(settings, kind)


def test_the_image_holds_what_the_autoscaler_imports() -> None:
    """And runs as the user that the pods are allowed to be."""
    text = DOCKERFILE.read_text(encoding="utf-8")
    listed = re.search(r"--constraint /tmp/versions \\\n\s+(.*)\n", text)
    assert listed
    assert "USER 10001" in text
    names = {"yaml": "pyyaml", "botocore": "boto3", "prometheus_client": "prometheus-client"}
    room = Path(roles.__file__).parent
    of_approver = [room / "cli.py", *(room / "membership").glob("*.py")]
    files = [*Path(autoscaler.__file__).parent.rglob("*.py"), *of_approver]
    wanted = {names.get(name, name) for name in imported(files)}
    assert wanted - {"types_boto3_autoscaling", "types_boto3_ec2", "types_boto3_pricing"} <= set(listed[1].split())


def imported(files: Iterable[Path]) -> set[str]:
    """Packages of others that these import."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - {"autoscaler", "roles"}
