"""Where the API server is and as whom we talk to it, by the stock client's configuration loader, without its models."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import proxy_bypass

import urllib3
import yaml

from autoscaler.model.errors import BadInput, Unavailable


class Account:
    """Where the API server is and as whom we talk to it. Tokens are refreshed by the stock loader's own rules.

    Raises ``BadInput`` for a kubeconfig that cannot be used, and ``Unavailable`` where it names a program for
    credentials, such as ``aws eks get-token``, that gives none: at first, and whenever a token has to be renewed.
    """

    def __init__(self, kubeconfig: Path | None) -> None:
        self._kubeconfig = kubeconfig
        self._lock = threading.Lock()
        self._load()

    def _load(self) -> None:
        from kubernetes import config  # noqa: PLC0415 - slow to import, and only its loader is wanted
        from kubernetes.client import Configuration  # noqa: PLC0415

        loaded = Configuration()
        try:
            with tempfile.TemporaryDirectory(prefix="spillway-") as certificates, self._credentials():
                _load_into(loaded, config, self._kubeconfig, certificates)
                self.tls = _tls(loaded)
        except (config.ConfigException, yaml.YAMLError, OSError, ValueError, TypeError) as error:
            raise BadInput(_configuration_help(self._kubeconfig, error)) from None
        self._loaded = loaded
        self.url = str(loaded.host).rstrip("/")
        given = self.tls.get_ca_certs(binary_form=True) if self.tls and loaded.ssl_ca_cert else []
        self.authorities = frozenset(hashlib.sha256(one).hexdigest() for one in given)
        """Fingerprints of the cluster's own authorities; empty where the machine's are believed."""
        self.server_name: str | None = loaded.tls_server_name
        self.proxy: str | None = None if proxy_bypass(urlsplit(self.url).hostname or "") else loaded.proxy

    def headers(self) -> dict[str, str]:
        """The identity, with a token that has not expired."""
        with self._lock:
            if self._loaded.refresh_api_key_hook:
                with self._credentials():
                    self._loaded.refresh_api_key_hook(self._loaded)
            keys: Mapping[str, str] = self._loaded.api_key
        token = keys.get("BearerToken") or keys.get("authorization")
        return {"Authorization": token} if token else {}

    def renew(self) -> None:
        """Read the configuration again: the server did not know our token."""
        with self._lock:
            self._load()

    @contextlib.contextmanager
    def _credentials(self) -> Iterator[None]:
        """The stock loader logs it where a program gives no credentials, and goes on without any."""
        complaints = _Complaints()
        logging.root.addHandler(complaints)
        try:
            yield
        finally:
            logging.root.removeHandler(complaints)
        if complaints.said:
            said = " ".join("; ".join(complaints.said).split()).rstrip(".")
            raise Unavailable(
                f"{_source(self._kubeconfig)}: the program that it names for credentials gave none ({said})"
            )


class _Complaints(logging.Handler):
    """What the stock loader of kubeconfig files logs as errors."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps what the kubeconfig's reader complains of."""
        if record.module == "kube_config":
            self.said.append(record.getMessage())


def _load_into(loaded: Any, config: Any, kubeconfig: Path | None, certificates: str) -> None:
    default = os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    if kubeconfig is None and not os.environ.get("KUBECONFIG") and not Path(default).exists():
        config.load_incluster_config(client_configuration=loaded)
        return
    config.load_kube_config(
        config_file=str(kubeconfig or default),
        client_configuration=loaded,
        persist_config=False,
        temp_file_path=certificates,
    )


def _tls(loaded: Any) -> ssl.SSLContext | None:
    """Read certificates and keys into memory, so that no file of them stays."""
    if not str(loaded.host).startswith("https"):
        return None
    context = urllib3.util.ssl_.create_urllib3_context()
    if loaded.ssl_ca_cert:
        context.load_verify_locations(cafile=loaded.ssl_ca_cert)
    else:
        context.load_default_certs()
    if loaded.cert_file:
        context.load_cert_chain(loaded.cert_file, loaded.key_file)
    if not loaded.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _configuration_help(kubeconfig: Path | None, error: Exception) -> str:
    said = " ".join(str(error).split()).rstrip(".")
    return (
        f"{_source(kubeconfig)}: no usable configuration of a Kubernetes cluster ({said}): "
        "name a kubeconfig with --kubeconfig or $KUBECONFIG, or run in a pod with a service account"
    )


def _source(kubeconfig: Path | None) -> str:
    return str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
