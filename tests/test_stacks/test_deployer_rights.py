"""What whoever deploys needs on AWS, held against the types of resource that the programs make."""

from __future__ import annotations

import ast
import json
from fnmatch import fnmatch
from pathlib import Path

import pytest

import stacks
from stacks.deployer_rights import LIMIT, WRITES, deployer_rights, main
from stacks.local.check_iam import check_iam, rights_of


def types_used() -> tuple[set[str], set[str]]:
    """Types that the programs declare, and look-ups that they make."""
    types, lookups = set(), set()
    for file in Path(str(stacks.__path__[0])).glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if not name.startswith("aws.") or name.count(".") != 2 or name.endswith("Args"):
                continue
            (lookups if name.split(".")[2].startswith("get_") else types).add(name.removeprefix("aws."))
    return types, lookups


def allowed(cluster: str = "lab") -> set[str]:
    """Every action that some statement allows."""
    documents = deployer_rights(cluster=cluster).values()
    return {action for one in documents for statement in one["Statement"] for action in statement["Action"]}


def test_each_type_that_a_program_makes_is_covered_and_no_other() -> None:
    """A new type in a program needs its calls here; one that goes takes them with it."""
    types, _ = types_used()
    assert set(WRITES) == types


def test_each_call_of_each_type_is_allowed() -> None:
    """Also where it is narrowed to the cluster's names."""
    assert {action for actions in WRITES.values() for action in actions} <= allowed()


def test_each_right_is_one_that_its_service_has() -> None:
    """A misspelled one would grant nothing, and be missed on the first `up`."""
    for action in allowed():
        service, _, name = action.partition(":")
        names = {"elasticloadbalancing": "elbv2"}
        assert any(fnmatch(one, name) for one in rights_of(names.get(service, service))), action


def test_an_administrator_can_attach_them() -> None:
    """By the commands of the README, against an IAM that tells misspelled rights."""
    for part, document in deployer_rights(cluster="lab").items():
        check_iam("CreatePolicy", {"PolicyName": f"lab-deployer-{part}", "PolicyDocument": json.dumps(document)})


def test_each_look_up_is_allowed() -> None:
    """By the service that it asks."""
    _, lookups = types_used()
    reads = {action.split(":")[0] for action in allowed() if action.split(":")[1].startswith(("Describe", "Get"))}
    services = {name.split(".")[0] for name in lookups}
    assert {"ec2" if one in ("ebs", "ec2transitgateway") else one for one in services} <= reads, "volumes are EC2's"


def test_what_eks_offers_may_be_asked() -> None:
    """Its look-ups are not called as the calls of EKS are."""
    asked = ("DescribeClusterVersions", "DescribeAddonVersions", "DescribeAddon", "DescribeCluster", "ListClusters")
    assert {action for action in asked if any(fnmatch(f"eks:{action}", one) for one in allowed())} == set(asked)


def test_identities_can_be_changed_under_the_clusters_own_name_alone() -> None:
    """Who may deploy cannot make an administrator of another role, nor hand on one that is not the cluster's."""
    for document in deployer_rights(cluster="lab").values():
        for statement in document["Statement"]:
            own = [one for one in statement["Action"] if "Role" in one and not one.startswith(("iam:Get", "iam:List"))]
            if [one for one in own if "ServiceLinked" not in one]:
                assert all(resource.endswith("/lab-*") for resource in statement["Resource"])


def test_each_policy_fits_into_a_managed_policy(tmp_path: Path) -> None:
    """And is written where it is asked for."""
    assert main(["lab", str(tmp_path)]) == 0
    assert len(list(tmp_path.iterdir())) == len(deployer_rights(cluster="lab"))
    for file in tmp_path.iterdir():
        assert len("".join(file.read_text(encoding="utf-8").split())) <= LIMIT
        assert json.loads(file.read_text(encoding="utf-8"))["Version"] == "2012-10-17"
    assert main([]) == 2


def test_a_folder_that_is_not_there_is_told_without_a_stack_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the file that could not be written."""
    assert main(["lab", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.endswith(
        "lab-deployer-look-and-iam.json: cannot write here: No such file or directory\n"
    )


def test_rights_of_another_checkout_are_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whose programs may make other things: refused in the folder of a project that names other code."""
    (tmp_path / "Pulumi.yaml").write_text("{name: spillway, runtime: python, main: stacks/}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert main(["lab", str(tmp_path)]) == 2
    assert f"main names the code in {tmp_path}/stacks" in capsys.readouterr().err
    assert [one.name for one in tmp_path.iterdir()] == ["Pulumi.yaml"]
