"""An existing control plane: its kubeconfig read whole, and its server asked before anything is made."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from autoscaler.model.errors import BadInput, Unavailable
from stacks.control_plane.existing import Kubeconfig, check_existing, read_kubeconfig
from stacks.settings.control_plane import ExistingSettings
from stacks.settings.stack import read_settings

TOKEN = "hush-hush"  # noqa: S105 - of no server


def config(server: str = "http://127.0.0.1:1", **cluster: str) -> dict[str, Any]:
    """A kubeconfig with two contexts."""
    return {
        "current-context": "lab",
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}, {"name": "other", "user": {"token": "x"}}],
        "contexts": [
            {"name": "lab", "context": {"cluster": "c", "user": "u"}},
            {"name": "spare", "context": {"cluster": "c", "user": "other"}},
        ],
    }


def read(folder: Path, content: object, **more: Any) -> Kubeconfig:
    """From a file that a user wrote."""
    (folder / "kubeconfig").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    settings = ExistingSettings.model_validate({"kind": "existing", "kubeconfig_path": "kubeconfig", **more})
    return read_kubeconfig(settings, root=folder)


def test_only_the_chosen_context_is_taken(tmp_path: Path) -> None:
    """Other users' credentials in the file stay out of the state."""
    assert [user["name"] for user in read(tmp_path, config()).content["users"]] == ["u"]
    chosen = read(tmp_path, config(), context="spare")
    assert [user["user"]["token"] for user in chosen.content["users"]] == ["x"]
    assert yaml.safe_load(chosen.text)["current-context"] == "spare"


def test_files_that_it_names_become_data(tmp_path: Path) -> None:
    """So that the output can be used elsewhere than here."""
    (tmp_path / "ca.crt").write_text("PEM", encoding="utf-8")
    made = read(tmp_path, config(**{"certificate-authority": "ca.crt"}))
    assert base64.b64decode(made.certificate_authority) == b"PEM"
    assert "certificate-authority" not in made.content["clusters"][0]["cluster"]


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        ("just text", {}, "not a kubeconfig"),
        ("a: [", {}, "not a kubeconfig"),
        (config(), {"context": "nowhere"}, "context 'nowhere' is not in it; it has lab, spare"),
        (config() | {"current-context": ""}, {}, "no current context"),
        (config(**{"certificate-authority": "gone.crt"}), {}, "gone.crt: No such file"),
    ],
)
def test_what_is_wrong_with_it_is_told_without_its_secrets(
    tmp_path: Path, content: object, more: dict[str, Any], says: str
) -> None:
    """With the file's name."""
    with pytest.raises(BadInput, match=says) as refused:
        read(tmp_path, content, **more)
    assert str(tmp_path / "kubeconfig") in str(refused.value)
    assert TOKEN not in str(refused.value)


def test_a_secret_that_is_wrong_is_not_told() -> None:
    """Its key is."""
    control_plane = {"kind": "existing", "kubeconfig": "x", "join_token": TOKEN}
    with pytest.raises(BadInput, match=r"spillway:control_plane\.join_token: must be") as refused:
        read_settings({"spillway:policy": "p", "spillway:control_plane": json.dumps(control_plane)}, stack="lab")
    assert TOKEN not in str(refused.value)


@pytest.fixture
def server() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """An API server's /version: the URL, and the answer that it gives."""
    answer = [(200, "v1.35.4")]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, version = answer[0]
            body = json.dumps(
                {"gitVersion": version, "major": "1", "minor": "0", "gitCommit": "", "gitTreeState": ""}
                | dict.fromkeys(("buildDate", "goVersion", "compiler", "platform"), "")
            ).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", answer
        http.shutdown()


def test_a_server_that_answers_and_is_new_enough_will_do(
    tmp_path: Path, server: tuple[str, list[tuple[int, str]]]
) -> None:
    """Versions compare as numbers, and vendors' suffixes do not matter."""
    url, answer = server
    made = read(tmp_path, config(url))
    assert check_existing(made, at_least="1.33") == "v1.35.4"
    answer[0] = (200, "v1.100.0-eks-1234")
    assert check_existing(made, at_least="1.99")


@pytest.mark.parametrize("version", ["v1.9.11", "v1.32.7+k3s1", "development"])
def test_a_server_that_is_too_old_is_refused(
    tmp_path: Path, server: tuple[str, list[tuple[int, str]]], version: str
) -> None:
    """With its version, and the key that says what is needed."""
    url, answer = server
    answer[0] = (200, version)
    with pytest.raises(BadInput, match=r"needs 1\.33 or newer \(spillway:control_plane\.at_least\)") as refused:
        check_existing(read(tmp_path, config(url)), at_least="1.33")
    assert version in str(refused.value)


def test_a_server_that_does_not_know_us_or_does_not_answer_is_an_outage(
    tmp_path: Path, server: tuple[str, list[tuple[int, str]]]
) -> None:
    """Named by its address; without a stack trace or the token."""
    url, answer = server
    answer[0] = (401, "")
    with pytest.raises(Unavailable, match="answers 401"):
        check_existing(read(tmp_path, config(url)), at_least="1.33")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 .* does not answer") as outage:
        check_existing(read(tmp_path, config()), at_least="1.33")
    assert TOKEN not in str(outage.value)
