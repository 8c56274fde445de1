"""A real YARN of one process, with its service framework: resource manager, node managers, service masters.

What is not as in a cluster: containers are plain processes of this machine, as it has no Docker that node managers
could ask; names are known by a file of hosts in place of YARN's registry DNS; a service is submitted by the framework's
own client, in which its REST API ends as well (that API's jar, hadoop-yarn-services-api, cannot be had).
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests.fakes import hosts as own_hosts
from tests.fakes.hosts import WITH_HOSTS
from tests.training.frameworks import made_once

HERE: Final = Path(__file__).parent
DOMAIN: Final = "root.spillway.test"
"""Of the user whose services they are."""
GOES_ON: Final = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
"""States of an application that has not ended."""
_ALONE: Final = (
    *("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child=KILL"),
    *WITH_HOSTS,
)
"""Its containers end with it."""
_JAVA: Final = (
    "java",
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
)
_LOG: Final = """\
log4j.rootLogger=WARN,all
log4j.appender.all=org.apache.log4j.ConsoleAppender
log4j.appender.all.target=System.err
log4j.appender.all.layout=org.apache.log4j.PatternLayout
log4j.appender.all.layout.ConversionPattern=%d %p %c{1}: %m%n
"""
_SITE: Final = """\
<configuration>
  <property><name>hadoop.service.shutdown.timeout</name><value>1s</value></property>
</configuration>
"""
"""A service's master waits so long for a thread that waits for it: it held its container for 30 s after the end."""


@dataclass(frozen=True)
class Yarn:
    """Is asked line by line: ``MiniYarn.java`` says what it answers."""

    process: subprocess.Popen[str]
    log: Path

    def ask(self, *words: object) -> str:
        """Its answer."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline().strip()
        assert said, self.log.read_text()[-3000:]
        return said

    def service(self, name: str) -> dict[str, Any]:
        """As its framework sees it."""
        found: dict[str, Any] = json.loads(self.ask("service", name))
        return found


@contextmanager
def mini_yarn(folder: Path, *, hosts: tuple[str, ...]) -> Iterator[Yarn]:
    """Two nodes of 4 GB and 8 cores, where all of these names are this machine."""
    (folder / "conf").mkdir()
    (folder / "conf" / "log4j.properties").write_text(_LOG)
    (folder / "conf" / "core-site.xml").write_text(_SITE)
    (folder / "hosts").write_text(
        "".join(f"127.0.0.1 {host}\n" for host in ("localhost", socket.gethostname(), *hosts))
    )
    command = [*_ALONE, str(folder / "hosts"), *_JAVA, "-cp", f"{folder}/conf:{jars()}/*"]
    log = folder / "yarn.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [*command, str(HERE / "MiniYarn.java"), "2"],
            cwd=folder,
            env=os.environ | {"JAVA_HOME": str(Path(shutil.which("javac") or "").resolve().parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        )
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n", log.read_text()[-3000:]
        yield Yarn(process, log)
    finally:
        process.kill()
        process.communicate()


def jars() -> Path:
    """Hadoop's, 105 MB; skips the test where they are not kept and cannot be had."""
    pom = HERE / "pom.xml"

    def make(place: Path) -> None:
        words = ("dependency:copy-dependencies", f"-DoutputDirectory={place}")
        command = ["mvn", "--quiet", "--batch-mode", "--file", pom, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and ("Unknown host" in done.stdout or "Connect to" in done.stdout):
            pytest.skip(f"Hadoop is not in {place}, and Maven Central cannot be reached")
        assert done.returncode == 0, done.stdout[-2000:]

    return made_once("yarn", pom.read_bytes(), make)


def why_not() -> str:
    """Why none can be started here; empty where one can."""
    missing = [program for program in ("javac", "mvn") if shutil.which(program) is None]
    if missing:
        return f"a YARN needs {', '.join(missing)}: install openjdk-17-jdk-headless, maven"
    return own_hosts.why_not()
