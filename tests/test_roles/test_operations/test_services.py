"""A unit of ours: restarted when a restart is owed, under whichever name, and overridden by what is declared alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.test_roles.sandbox import Sandbox

UNIT: Final = "nvidia-fabricmanager"
FOLDERS: Final = tuple(
    f"{folder}/systemd/system/{UNIT}.service.d" for folder in ("/etc", "/run", "/usr/local/lib", "/usr/lib")
)
OWED: Final = "/run/spillway/owed"
RESTARTS: Final = "/root/restarts"
SYSTEMCTL: Final = f"""\
cat > /usr/bin/systemctl <<'END'
#!/bin/sh
case $1 in
show)
  shift 4
  for u; do
    echo LoadState=loaded; echo ActiveState=active; echo SubState=running; echo UnitFileState=enabled
    echo NeedDaemonReload=no; echo "DropInPaths=$(ls -d /*/systemd/system/$u.d/* /usr/*/systemd/system/$u.d/* \\
      /usr/local/lib/systemd/system/$u.d/* 2>/dev/null | tr '\\n' ' ')"
    echo FragmentPath=/usr/lib/systemd/system/$u; echo MainPID=1; echo
  done ;;
restart) echo "$2" >> {RESTARTS} ;;
esac
END
chmod 755 /usr/bin/systemctl
rm -rf {RESTARTS} {OWED} {OWED}.done {" ".join(FOLDERS)}
mkdir -p {OWED}
"""
"""A stand-in that says which drop-ins there are, and keeps what was to be restarted."""


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """One for all tests here."""
    with Sandbox(tmp_path_factory.mktemp("sandbox")) as made:
        yield made


def kept(sandbox: Sandbox, plant: str, *watch: str) -> dict[str, Any]:
    """What became of the unit."""
    return sandbox.run({"plant": SYSTEMCTL + plant, "unit": UNIT, "watch": [RESTARTS, OWED, *watch]})


@pytest.mark.parametrize("mark", [UNIT, f"{UNIT}.service"])
def test_a_restart_that_is_owed_is_paid_once_under_either_name(sandbox: Sandbox, mark: str) -> None:
    """It was marked as the one and paid as the other: the daemon was never restarted, and the debt stayed."""
    found = kept(sandbox, f"touch {OWED}/{mark}")
    assert found["after"][RESTARTS].endswith(f"b'{UNIT}.service\\n'")
    assert found["after"][OWED].endswith("[]")
    assert (found["again"], found["failed"], found["unknown"]) == ([], "", "")


@pytest.mark.parametrize("folder", FOLDERS)
def test_an_override_that_is_not_declared_is_taken_away_and_the_unit_restarted(sandbox: Sandbox, folder: str) -> None:
    """In any folder that systemd reads: one below /usr/lib closed a node and halted a fleet."""
    path = f"{folder}/99-nice.conf"
    found = kept(sandbox, f"mkdir -p {folder}; printf '[Service]\\nNice=19\\n' > {path}", path)
    assert found["after"][path] == ""
    assert found["after"][RESTARTS].endswith(f"b'{UNIT}.service\\n'")
    assert (found["again"], found["failed"], found["unknown"]) == ([], "", "")


@pytest.mark.parametrize("unit", ["docker.service", "docker.socket"])
@pytest.mark.parametrize("folder", ["/etc", "/run", "/usr/local/lib", "/usr/lib"])
def test_dockers_service_and_socket_have_no_overrides_either(sandbox: Sandbox, folder: str, unit: str) -> None:
    """One of its socket can let every account in, which makes it root."""
    path = f"{folder}/systemd/system/{unit}.d/99-open.conf"
    clean = (
        "rm -rf /etc/systemd/system/docker.* /run/systemd/system/docker.*;"
        " printf '#!/bin/sh\\necho true\\n' > /usr/bin/docker; chmod 755 /usr/bin/docker"  # it has live-restore
    )
    plant = f"{clean}; mkdir -p {path.rpartition('/')[0]}; printf '[Socket]\\nSocketMode=0666\\n' > {path}"
    found = sandbox.run({"plant": SYSTEMCTL + plant, "unit": "docker", "watch": [RESTARTS, OWED, path]})
    assert found["after"][path] == ""
    assert f"{unit.removesuffix('.service')}\\n" in found["after"][RESTARTS]
    assert (found["again"], found["failed"], found["unknown"]) == ([], "", "")


PIN: Final = "/etc/apt/preferences.d/spillway-tests"
AS_WANTED: Final = (
    f"printf 'ours\\n' > /etc/tests.conf; chown root: /etc/tests.conf; chmod 644 /etc/tests.conf; rm -f {PIN};"
    " apt-mark hold dpkg >/dev/null; "
)


@pytest.mark.parametrize(
    ("what", "inject"),
    [
        ("hold", "apt-mark unhold dpkg >/dev/null"),
        ("selection", "echo dpkg deinstall | dpkg --set-selections"),
        ("pin", ":"),
        ("mode", "chmod 666 /etc/tests.conf"),
    ],
)
def test_a_mark_that_was_lost_restarts_nothing(sandbox: Sandbox, what: str, inject: str) -> None:
    """It closed the node and restarted containerd for a hold, a pin, and a mark of dpkg's, which no service reads."""
    found = sandbox.run({"plant": f"{SYSTEMCTL}{AS_WANTED}{inject}", "package": "dpkg", "watch": [RESTARTS, OWED]})
    assert found["changes"], what
    assert {*found["disrupts"].values()} == {"none"}
    assert found["after"][RESTARTS] == ""
    assert found["after"][OWED].endswith("[]")
    assert (found["again"], found["failed"], found["unknown"]) == ([], "", "")


def test_what_the_service_reads_restarts_it_whatever_was_lost_beside(sandbox: Sandbox) -> None:
    """A hold, a mode, and the text."""
    inject = "apt-mark unhold dpkg >/dev/null; echo theirs > /etc/tests.conf; chmod 666 /etc/tests.conf"
    found = sandbox.run({"plant": f"{SYSTEMCTL}{AS_WANTED}{inject}", "package": "dpkg", "watch": [RESTARTS, OWED]})
    assert {*found["disrupts"].values()} == {"none", "module-reload"}
    assert found["after"][RESTARTS].count(UNIT) == 1


def test_an_override_that_came_with_a_package_is_that_packages(sandbox: Sandbox) -> None:
    """As kubeadm's own is, below /usr/lib."""
    path = f"{FOLDERS[-1]}/10-packed.conf"
    plant = f"mkdir -p {FOLDERS[-1]}; echo '[Service]' > {path}; echo {path} >> /var/lib/dpkg/info/base-files.list"
    found = kept(sandbox, plant, path)
    assert found["after"][path].startswith("regular")
    assert found["changes"] == []


def test_no_program_runs_that_was_put_before_the_packaged_one(sandbox: Sandbox) -> None:
    """Whatever PATH the login has: a false containerd in /usr/local/bin failed a canary and halted the fleet."""
    names = ("systemctl", "timeout", "env", "dpkg", "sha256sum", "touch")
    planted = "; ".join(
        f"printf '#!/bin/sh\\necho {name} >> /root/misled\\nexec /usr/bin/{name} \"$@\"\\n' > /usr/local/bin/{name}; "
        f"chmod 755 /usr/local/bin/{name}"
        for name in names
    )
    found = kept(sandbox, f"rm -f /root/misled; touch {OWED}/{UNIT}; {planted}; rm -f /root/misled", "/root/misled")
    assert (found["after"]["/root/misled"], found["failed"], found["unknown"]) == ("", "", "")
    assert found["after"][OWED].endswith("[]")
