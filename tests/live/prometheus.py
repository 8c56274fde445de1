"""A real Prometheus for a test: Debian's package, unpacked into the cache."""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.local.process.paths import cache_root
from stacks.local.process.ports import free_ports


def programs() -> Path:
    """The folder with prometheus and promtool. Skips the test where they cannot be fetched."""
    folder = cache_root() / "prometheus"
    if not (folder / "usr" / "bin" / "promtool").exists():
        if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
            pytest.skip("this machine has no apt-get to fetch Debian's package of Prometheus with")
        folder.mkdir(parents=True, exist_ok=True)
        got = subprocess.run(
            ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, check=False
        )
        if got.returncode:
            pytest.skip(f"Debian's package of Prometheus cannot be fetched: {got.stderr.strip()}")
        [package] = folder.glob("prometheus_*.deb")
        subprocess.run(["dpkg-deb", "-x", package, folder], check=True)
        package.unlink()
    return folder / "usr" / "bin"


@contextmanager
def prometheus(
    folder: Path,
    directory: Path,
    scraped: Sequence[dict[str, Any]],
    *,
    rules: Path | None = None,
    before: Sequence[str] = (),
    address: str = "127.0.0.1",
) -> Iterator[str]:
    """A Prometheus that scrapes each second, with rules that fire at once; gives its URL.

    ``folder``: of the programs; ``scraped``: its ``scrape_configs``; ``before``: the command that starts it elsewhere,
    where it listens on ``address``.
    """
    (port,) = free_ports(1)
    config: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": list(scraped),
    }
    if rules is not None:
        read = yaml.safe_load(rules.read_text(encoding="utf-8"))
        for rule in read["groups"][0]["rules"]:
            rule["for"] = "0s"
        (directory / "rules.yaml").write_text(yaml.safe_dump(read))
        config["rule_files"] = ["rules.yaml"]
    (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
    line = [
        *(*before, folder / "prometheus", f"--config.file={directory}/prometheus.yaml"),
        *(f"--storage.tsdb.path={directory}/data", f"--web.listen-address={address}:{port}"),
    ]
    with (directory / "log").open("wb") as log, subprocess.Popen(line, stdout=log, stderr=log) as process:
        try:
            yield f"http://{address}:{port}"
        finally:
            process.terminate()


def asked(url: str, query: str) -> list[Any]:
    """What Prometheus says to an expression; nothing while it does not answer yet."""
    try:
        said = urllib.request.urlopen(f"{url}/api/v1/query?{urllib.parse.urlencode({'query': query})}", timeout=10)  # noqa: S310 - our own
    except OSError:
        return []
    with said as answer:
        return list(json.load(answer)["data"]["result"])
