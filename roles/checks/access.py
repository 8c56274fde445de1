"""Who may do what on a machine beyond what the inventory declares: worth knowing, and nothing that stops a change."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final

from roles.checks.findings import Finding
from roles.settings.machine import MachineSettings, key_in

_MARK: Final = "==spillway-access=="
_ROOTS: Final = "root|sudo|wheel|admin|docker|disk|shadow|kmem|lxd|incus|incus-admin|libvirt"
"""Groups whose members are root, or can become it without a password of root's."""
SCRIPT: Final = rf"""
echo; echo {_MARK}
awk -F: 'NR == FNR {{
    if ($1 ~ /^({_ROOTS})$/) {{ name[$3] = $1; n = split($4, m, ","); for (i = 1; i <= n; i++)
      print "group", $1, m[i] }}
    next
  }}
  $4 in name {{ print "group", name[$4], $1 }}
  ($3 == 0 || ($3 >= 1000 && $3 < 60000)) && $7 !~ /\/(nologin|false|sync)$/ {{ print "account", $1, $3 }}
' /etc/group /etc/passwd
for f in /etc/sudoers /etc/sudoers.d/*; do
  case ${{f##*/}} in spillway-*|*~) continue ;; sudoers) ;; *.*) continue ;; esac
  [ ! -f "$f" ] || grep -E '^[[:space:]]*([^#@[:space:]]|#[0-9]|[#@]include)' "$f" | sed "s|^[[:space:]]*|sudoers $f |"
done 2>/dev/null
for f in /root/.ssh/authorized_keys /root/.ssh/authorized_keys2; do
  [ ! -f "$f" ] || grep -E '^[[:space:]]*[^#[:space:]]' "$f" | sed "s|^[[:space:]]*|key $f |"
done 2>/dev/null
find /etc/shadow /etc/gshadow -perm /o=r -printf 'open %p can be read by all\n' 2>/dev/null
find /etc/passwd /etc/group /etc/shadow /etc/gshadow -perm /o=w -printf 'open %p can be written by all\n' 2>/dev/null
[ ! -s /etc/ld.so.preload ] || sed "s|^[[:space:]]*|preload /etc/ld.so.preload |" /etc/ld.so.preload
true"""
"""Lines of a kind and what was found; sudo itself passes over files with a dot or a tilde in their names."""
_USUAL: Final = re.compile(
    r"Defaults\b(?!.*(!\s*(authenticate|env_reset)\b|\bsetenv\b|LD_)).*"
    r"|root\s+ALL=\(ALL(:ALL)?\)\s+ALL|%(sudo|admin|wheel)\s+ALL=\(ALL(:ALL)?\)\s+ALL"
    r"|[#@]includedir\s+/etc/sudoers\.d"
)
"""What a distribution's own /etc/sudoers says, and defaults that let nobody become root who could not."""


def access_findings(
    host: str, said: str, settings: MachineSettings, *, reached_as: str = "root", own_keys: Collection[bytes] = ()
) -> list[Finding]:
    """A finding for accounts, groups, sudo and root's keys each, given what :data:`SCRIPT` printed.

    None where accounts are none of the inventory's business, or ``undeclared: ignored`` says so. ``own_keys`` are those
    with which the controller comes in.
    """
    if not settings.users or settings.undeclared == "ignored":
        return []
    lines = [line.split(" ", 2) for line in said.partition(f"{_MARK}\n")[2].splitlines() if line.count(" ") > 1]
    rows = {
        kind: [row[1:] for row in lines if row[0] == kind]
        for kind in ("account", "group", "sudoers", "key", "preload", "open")
    }
    declared = {user.name: user for user in settings.users if not user.gone}
    known = {"root", reached_as, *declared}
    roots = {key_in(key) for key in (declared["root"].keys if "root" in declared else ())} | {*own_keys}
    roots.discard(b"")  # of a line that is no key
    told = {
        "accounts": [f"{name} (user id {number})" for name, number in rows["account"] if name not in known],
        "groups": [
            f"{name} is in {group}"
            for group, name in rows["group"]
            if name not in ("root", reached_as) and group not in getattr(declared.get(name), "groups", ())
        ],
        "sudo": [f"{path} says {line!r}" for path, line in rows["sudoers"] if not _is_usual(path, line, reached_as)],
        "root-keys": [
            f"{path} lets in {_short(line)}" for path, line in rows["key"] if key_in(line) not in roots - {b""}
        ],
    }
    told["preload"] = [f"{path} names {line}" for path, line in rows["preload"]]
    told["open-tables"] = [" ".join(words) for words in rows["open"]]
    return [
        Finding(host, check, "warning", f"{_WHAT[check]}: {'; '.join(dict.fromkeys(found))}", _REMEDY)
        for check, found in told.items()
        if found
    ]


_WHAT: Final = {
    "accounts": "accounts that the inventory does not declare",
    "groups": "members of groups that are as good as root, undeclared",
    "sudo": "rules of sudo that the inventory does not declare",
    "root-keys": "keys of root that the inventory does not declare",
    "open-tables": "tables of accounts that are open to all",
    "preload": "libraries that every program loads, root's too",
}
_REMEDY: Final = "declare it (users), or take it away; undeclared: ignored in the settings has this told no more"


def _is_usual(path: str, line: str, reached_as: str) -> bool:
    own = reached_as != "root" and line.split()[:1] == [reached_as]
    return own or (path == "/etc/sudoers" and _USUAL.fullmatch(line.strip()) is not None)


def _short(line: str) -> str:
    """A key by its type, its end and its comment: no log needs the whole of it."""
    words: Iterable[str] = line.split()
    return " ".join(word if len(word) < 40 else f"...{word[-12:]}" for word in words)  # noqa: PLR2004 - as shown
