"""A control plane that is there already: its kubeconfig, read and tried before anything is made."""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from autoscaler.model.errors import BadInput, Unavailable
from stacks.settings.control_plane import ExistingSettings

_SECONDS: Final = 10.0
_FILES: Final = {
    "certificate-authority": "certificate-authority-data",
    "client-certificate": "client-certificate-data",
    "client-key": "client-key-data",
}


@dataclass(frozen=True, kw_only=True)
class Kubeconfig:
    """A kubeconfig of one cluster and one user, with nothing left in other files."""

    source: str
    """Where it is from, for messages."""
    content: Mapping[str, Any] = field(repr=False)
    endpoint: str
    certificate_authority: str
    """Base64 of PEM; empty where the system's own authorities are meant."""

    @property
    def text(self) -> str:
        """Returns the kubeconfig as a file's text."""
        return yaml.safe_dump(dict(self.content), sort_keys=False)


def read_kubeconfig(settings: ExistingSettings, *, root: Path) -> Kubeconfig:
    """The one that the settings name, its chosen context alone. Raises ``BadInput`` without its content."""
    if settings.kubeconfig is not None:
        source, text, folder = "spillway:control_plane.kubeconfig", settings.kubeconfig.get_secret_value(), root
    else:
        path = root / str(settings.kubeconfig_path)
        try:
            source, text, folder = str(path), path.read_text(encoding="utf-8"), path.parent
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise BadInput(
                f"{path}: cannot read this kubeconfig (spillway:control_plane.kubeconfig_path): {reason}"
            ) from None
    try:
        content = _narrowed(yaml.safe_load(text), settings.context, folder=folder)
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, StopIteration):
        raise BadInput(f"{source}: not a kubeconfig with clusters, users and contexts: make one with kubectl") from None
    except _NoContextError as missing:
        raise BadInput(f"{source}: {missing}") from None
    except OSError as error:
        raise BadInput(f"{source}: names a file that cannot be read: {error.filename}: {error.strerror}") from None
    cluster = content["clusters"][0]["cluster"]
    return Kubeconfig(
        source=source,
        content=content,
        endpoint=str(cluster["server"]),
        certificate_authority=str(cluster.get("certificate-authority-data", "")),
    )


class _NoContextError(Exception):
    """The context asked for is not there."""


def _narrowed(config: Any, context: str | None, *, folder: Path) -> dict[str, Any]:
    """One context, its cluster and its user; files become data, so that the text can be used anywhere."""
    name = context or config.get("current-context")
    contexts = {one["name"]: one["context"] for one in config["contexts"]}
    if name not in contexts:
        wrong = f"context {name!r} is not in it" if name else "it has no current context: name one with `context`"
        raise _NoContextError(f"{wrong}; it has {', '.join(sorted(contexts))}")
    chosen = contexts[name]
    cluster = next(one["cluster"] for one in config["clusters"] if one["name"] == chosen["cluster"])
    user = next(one["user"] for one in config["users"] if one["name"] == chosen["user"])
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": chosen["cluster"], "cluster": _without_files(cluster, folder)}],
        "users": [{"name": chosen["user"], "user": _without_files(user, folder)}],
        "contexts": [{"name": name, "context": chosen}],
    }


def _without_files(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    plain = {key: value for key, value in entry.items() if key not in (*_FILES, "tokenFile")}
    for name, data in _FILES.items():
        if entry.get(name):
            plain[data] = base64.b64encode((folder / entry[name]).read_bytes()).decode()
    if entry.get("tokenFile"):
        plain["token"] = (folder / entry["tokenFile"]).read_text(encoding="utf-8").strip()
    return plain


def check_existing(kubeconfig: Kubeconfig, *, at_least: str) -> str:
    """The server's version, once it has answered and is new enough. Raises ``BadInput`` or ``Unavailable``."""
    version = _ask_version(kubeconfig)
    numbers = re.match(r"v?(\d+)\.(\d+)", version)
    if numbers is None or (int(numbers[1]), int(numbers[2])) < _pair(at_least):
        raise BadInput(
            f"{kubeconfig.source}: the API server at {kubeconfig.endpoint} is Kubernetes {version}; this stack needs "
            f"{at_least} or newer (spillway:control_plane.at_least)"
        )
    return version


def _pair(version: str) -> tuple[int, int]:
    major, minor = version.split(".")
    return int(major), int(minor)


def _ask_version(kubeconfig: Kubeconfig) -> str:
    from kubernetes import client, config  # noqa: PLC0415 - slow to import, and needed for this kind alone
    from kubernetes.client.exceptions import ApiException  # noqa: PLC0415
    from urllib3.exceptions import HTTPError  # noqa: PLC0415

    loaded = client.Configuration()
    with tempfile.TemporaryDirectory(prefix="spillway-") as folder:
        try:
            config.load_kube_config_from_dict(  # type: ignore[no-untyped-call]
                dict(kubeconfig.content), client_configuration=loaded, persist_config=False, temp_file_path=folder
            )
        except (config.ConfigException, ValueError, TypeError, OSError) as error:
            raise BadInput(f"{kubeconfig.source}: this kubeconfig cannot be used: {error}") from None
        loaded.retries = False
        try:
            with client.ApiClient(loaded) as api:
                answer = client.VersionApi(api).get_code(_request_timeout=_SECONDS)
        except ApiException as refused:
            raise Unavailable(
                f"the API server at {kubeconfig.endpoint} ({kubeconfig.source}) answers {refused.status} "
                f"{refused.reason}: are the kubeconfig's credentials valid?"
            ) from None
        except (HTTPError, OSError) as error:
            raise Unavailable(
                f"the API server at {kubeconfig.endpoint} ({kubeconfig.source}) does not answer "
                f"({type(error).__name__}): is it running, and reachable from here?"
            ) from None
    return str(answer.git_version)
