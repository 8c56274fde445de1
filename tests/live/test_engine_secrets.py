"""A whole `up` with secrets that are known: none of them can be read in anything that it leaves behind."""

from __future__ import annotations

import base64
import json
import secrets as dice
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.local.toolchain.pulumi_engine import EngineSettings, environment, prepare
from tests.leaks import files_under, leaks
from tests.live.conftest import Plane
from tests.live.stacks import GROUPS, client, settings_for

pytestmark = pytest.mark.live


def run(settings: EngineSettings, *arguments: str, env: dict[str, str], stdin: str = "") -> bytes:
    """`pulumi` as a user calls it; what it said."""
    done = subprocess.run(
        [str(settings.tools["pulumi"]), *arguments, "--non-interactive", "--color", "never"],
        cwd=settings.directory / "project",
        env=environment(settings) | env,
        input=stdin.encode(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def whole(kubeconfig: Path) -> dict[str, Any]:
    """A kubeconfig with its certificates and keys in it."""
    config: dict[str, Any] = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
    for holder in (config["clusters"][0]["cluster"], config["users"][0]["user"]):
        for key in [key for key in holder if key in ("certificate-authority", "client-certificate", "client-key")]:
            path = kubeconfig.parent / holder.pop(key)
            holder[f"{key}-data"] = base64.b64encode(path.read_bytes()).decode()
    return config


def test_no_secret_can_be_read_after_an_up(
    aws_url: str, engine: dict[str, Path], plane: Plane, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Passphrase, AWS key, kubeconfig and join token: in state, outputs, user data, logs, events and files."""
    kubeconfig = whole(plane.kubeconfig)
    user = kubeconfig["users"][0]["user"]
    token = f"{dice.token_hex(3)}.{dice.token_hex(8)}"
    known = {
        "passphrase": dice.token_urlsafe(24),
        "AWS key": dice.token_urlsafe(24),
        "join token": token.partition(".")[2],
        "kubeconfig": str(user.get("token") or user["client-key-data"])[200:264] or str(user["token"]),
    }
    settings = settings_for(tmp_path, aws_url=aws_url, tools=engine, cluster="quiet", groups=GROUPS)
    temporary, events = tmp_path / "tmp", tmp_path / "events.json"
    temporary.mkdir()
    env = {
        "PULUMI_CONFIG_PASSPHRASE": known["passphrase"],
        "AWS_SECRET_ACCESS_KEY": known["AWS key"],
        "TMPDIR": str(temporary),
        "PULUMI_DEBUG_COMMANDS": "true",  # for --event-log
    }
    prepare(settings)
    said = run(settings, "stack", "select", "--create", "--stack", "local", env=env)
    path = ("config", "set", "--stack", "local", "--path")
    run(settings, *path, "spillway:control_plane.kind", "existing", env=env)
    for key, value in (("kubeconfig", yaml.safe_dump(kubeconfig)), ("join_token", token)):
        run(settings, *path, "--secret", f"spillway:control_plane.{key}", env=env, stdin=value)
    up = ("up", "--stack", "local", "--yes", "--skip-preview", "--event-log", str(events))
    said += run(settings, *up, env=env)
    said += run(settings, "stack", "output", "--stack", "local", "--json", env=env)

    places = files_under(settings.directory, temporary, *tmp_path_factory.getbasetemp().glob("aws*"))
    assert any("state/.pulumi/stacks" in place for place in places), "the state is among them"
    assert json.loads(events.read_text(encoding="utf-8").splitlines()[0]), "and the events are not empty"
    places |= {"what the engine said": said, "the events": events.read_bytes()}
    places |= {f"user data of {name}": text for name, text in user_data(aws_url).items()}
    assert leaks(known, places) == []
    planted = {"user data": base64.b64encode(known["join token"].encode())}
    assert leaks(known, places | planted) == ["join token in user data"]
    run(settings, "destroy", "--stack", "local", "--yes", "--skip-preview", env=env)


def user_data(url: str) -> dict[str, bytes]:
    """Of every launch template, as its instances would read it."""
    ec2 = client("ec2", url)
    versions = [
        version
        for template in ec2.describe_launch_templates()["LaunchTemplates"]
        for version in ec2.describe_launch_template_versions(LaunchTemplateId=template["LaunchTemplateId"])[
            "LaunchTemplateVersions"
        ]
    ]
    return {
        one["LaunchTemplateName"]: base64.b64decode(one["LaunchTemplateData"].get("UserData", "")) for one in versions
    }
