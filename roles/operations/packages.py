"""Debian packages at exact versions, held there; nothing else is taken away for their sake.

    packages.pinned("nvidia-driver", {"nvidia-driver-cuda": "580.126.09-1"})
    packages.installed({"nvidia-driver-cuda": "580.126.09-1"})

apt waits for its lock instead of failing (unattended-upgrades runs at boot), goes back to an older version where that
one is wanted, and refuses where a package would have to go that was not named.
"""

from __future__ import annotations

import fnmatch
import itertools
import re
import shlex
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from pyinfra.api.command import StringCommand
from pyinfra.api.exceptions import OperationError
from pyinfra.api.operation import operation
from pyinfra.context import host

from roles.engine.disruption import Harmless
from roles.facts.apt_candidates import Offered, Sources
from roles.facts.files import FileState
from roles.facts.packages import AlteredFiles, Package, Packages, PinFiles, Unusable
from roles.operations import files
from roles.operations.files import Commands, kept_at
from roles.settings.version_matrix import setting_of

LOCK_TIMEOUT: Final = 300
"""Seconds that apt waits for another apt."""
_APT: Final = (
    "DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get -q -y"
    f" -o DPkg::Lock::Timeout={LOCK_TIMEOUT} -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold"
)
_PRIORITY: Final = 1001
"""The least at which apt also goes back to an older version. A general pin of as much is in its way."""
_SHOWN: Final = 6
"""Versions that a message names, those that are most like the wanted one first."""
_STAMP: Final = "/var/lib/apt/lists/spillway-updated"
_KNOWN: Final = (
    f'[ -n "$(find {_STAMP} -mmin -60 2>/dev/null)" ]'
    f""" && [ -z "$(find /etc/apt -newer {_STAMP} ! -path '/etc/apt/preferences*' -print -quit)" ]"""
)
"""A pin changes no index: on a bare machine each role brings one, and would have all of them fetched again."""
_UPDATE: Final = f"{{ {_APT} -o APT::Update::Error-Mode=any update >/dev/null && touch {_STAMP}; }}"
"""Fails where a source cannot be read or is signed by an unknown key; apt by itself would only warn."""
_INSTALL: Final = f"{_APT} --no-install-recommends --allow-downgrades --allow-change-held-packages install"
_WHOLE: Final = (
    "{ apt-get -q check >/dev/null 2>&1"
    f" || {_APT} --no-remove --allow-downgrades --allow-change-held-packages --ignore-hold -f install; }}"
)
"""Packages that were forced in and do not fit each other keep apt from installing any other: to the pins first."""
NOT_BACK: Final = "these packages are not as they were:"
_BACK: Final = (
    f"{_APT} --no-install-recommends --allow-downgrades --allow-change-held-packages -o APT::Get::AutomaticRemove=false"
    " install"
)
_LIST: Final = "dpkg-query -W -f='${binary:Package}\\t${Version}\\t${db:Status-Abbrev}\\n'"
_AGAIN: Final = """\
held=" $(apt-mark showhold | tr '\\n' ' ')"
owners=$(for p in {files}; do
  for n in "$p" "$(readlink -m "$p")" "${{p#/usr}}"; do
    o=$(dpkg -S "$n" 2>/dev/null | grep -v ^diversion | head -n 1)
    [ -z "$o" ] || {{ echo "${{o%%[:,]*}}"; break; }}
  done
done | sort -u)
[ -n "$owners" ] || {{ echo "no package has {files}" >&2; exit 1; }}
again=$(dpkg-query -W -f='${{Package}}=${{Version}} ' $owners)
{install} || exit 1
for n in $owners; do case "$held" in *" $n "*) apt-mark hold "$n" >/dev/null ;; esac; done
left=$({check})
[ -z "$left" ] || {{
  echo "$left cannot be used, though its package was unpacked again: dpkg-divert --list and dpkg-statoverride --list" \
    "say who wanted that; undo it" >&2
  exit 1
}}"""
"""Unpacks the packages again that have these files, in the versions that are there. apt lets go of what it changes."""
_FINISH: Final = (
    "DEBIAN_FRONTEND=noninteractive dpkg --force-confdef --force-confold --configure -a"
    f" || {_APT} --no-remove -f install"
)
"""Goes on with an installation that was cut off."""


class Nowhere(OperationError):  # noqa: N818 - reads as what it is at the raise site
    """No source of the machine has a package in the version that a setting asks for."""

    def __init__(self, said: str, *, setting: str) -> None:
        super().__init__(said)
        self.setting = setting
        """Such as ``versions.driver``; empty where none names it."""


@operation()
def installed(wanted: Mapping[str, str], *, hold: bool = True, instead_of: Collection[str] = ()) -> Commands:
    """Have these packages in these versions (``580.126.09-*``: any revision; ``*``: any), and held there.

    ``instead_of``: what they take the place of, in one step: all is fetched before anything goes. What else would have
    to go is refused.
    """
    have: dict[str, Package] = host.get_fact(Packages)
    gone = sorted(name for name in instead_of if name in have)
    if any(package.broken for package in have.values()):
        yield StringCommand(f"{_remember()} && {{ {_FINISH}; }}")
    wrong = [name for name, version in wanted.items() if name not in have or not have[name].fits(version)]
    if wrong or gone:
        _refuse_what_is_nowhere({name: wanted[name] for name in wrong})
        steps = [_step(name, have.get(name), wanted[name]) for name in wrong]
        files.told("\n".join(steps + [f"remove {name} {have[name].version}" for name in gone]))
        # All of them in one go: a driver and its library must never be apart, not even between two commands.
        words = " ".join(shlex.quote(_word(name, version)) for name, version in wanted.items())
        yield StringCommand(f"{_remember()} && {_install(words, gone=gone)}")
    changed = bool(wrong or gone)  # apt lets go of what it changes
    loose = [name for name in wanted if hold and (changed or not have[name].held)]
    if loose:
        yield Harmless(f"apt-mark hold {' '.join(map(shlex.quote, loose))} >/dev/null")
    if not changed and not loose:
        host.noop("installed and held")


@operation()
def unaltered(names: Collection[str]) -> Commands:
    """Have the files of these packages as they were packed. Reads all of them: for small packages."""
    altered = host.get_fact(AlteredFiles, packages=tuple(names))
    have: dict[str, Package] = host.get_fact(Packages)
    present = [name for name in names if name in have]
    if not altered or not present:
        host.noop("as packed")
        return
    files.told("\n".join(f"unpack again: {path} is {how}" for path, how in sorted(altered.items())))
    words = " ".join(shlex.quote(_word(name, have[name].version)) for name in present)
    yield StringCommand(f"{_install(f'--reinstall {words}')}  # {' '.join(sorted(altered))}")
    held = [name for name in present if have[name].held]
    if held:  # apt lets go of what it changes
        yield StringCommand(f"apt-mark hold {' '.join(map(shlex.quote, held))} >/dev/null")


@operation()
def usable(paths: Collection[str]) -> Commands:
    """Have these programs and libraries, by their whole paths, where they are looked for.

    A package that is there may lack one all the same. Where its files are put aside or kept from being run by dpkg's
    own means, unpacking it again does not help: then the reason is told.
    """
    missing: list[str] = host.get_fact(Unusable, files=tuple(paths))
    if not missing:
        host.noop("all are there")
        return
    files.told("\n".join(f"unpack again: {path} is missing, empty, may not be run, or is set-uid" for path in missing))
    words = " ".join(map(shlex.quote, missing))
    check = Unusable().command(tuple(missing))
    yield StringCommand(_AGAIN.format(files=words, install=_install("--reinstall $again"), check=check))


@operation()
def removed(names: Collection[str]) -> Commands:
    """Have none of these packages: what a wanted one takes the place of. What else would go with them is refused."""
    have: dict[str, Package] = host.get_fact(Packages)
    gone = sorted(name for name in names if name in have)
    if not gone:
        host.noop("not there")
        return
    files.told("\n".join(f"remove {name} {have[name].version}" for name in gone))
    step = f"{_APT} --allow-change-held-packages remove {' '.join(map(shlex.quote, gone))}"
    yield StringCommand(f"{_removes_no_other(step, gone)} && {_remember()} && {step}")


@operation()
def snapped(snap: str, *, command: str) -> Commands:
    """Have a snap with access to the whole system, known by the command that it brings."""
    if host.get_fact(FileState, path=f"/snap/bin/{command}"):
        host.noop("installed")
        return
    yield StringCommand(f"snap install --classic {shlex.quote(snap)}")


@operation()
def pinned(pins_of: str, wanted: Mapping[str, str], *, along: Mapping[str, str] | None = None) -> Commands:
    """Have apt prefer these versions over every other, newer or older ones, by the file ``spillway-PINS_OF``.

    ``along``: the same by patterns of names. What a package needs in its own version is not looked for beyond the
    candidates: a newer one in the same source, or of the same name in another, would be in the way.

    A pin of the same packages in another file is refused: which of two wins depends on the names of the files.
    """
    path = pin_file(pins_of)
    for pin in host.get_fact(PinFiles):
        both = sorted(name for name in wanted if any(speaks_of(word, name) for word in pin.names))
        if "*" in pin.names and pin.priority >= _PRIORITY:
            both = sorted(wanted)
        if both and not pin.file.startswith(pin_file("")):
            raise OperationError(
                f"{pin.file} pins {', '.join(both)}, and so does this role in {path}: two writers. Remove the pin there"
            )
    pinned_to = {**(along or {}), **dict(sorted(wanted.items()))}
    exact = {package: version for package, version in pinned_to.items() if version != "*"}
    for command in files.place._inner(path, pins(exact), meaning="deb822"):  # noqa: SLF001 - pyinfra's way to nest operations
        yield Harmless(*command.bits, **command.connector_arguments)


@operation()
def refused(because: str) -> Commands:
    """Something is wrong that no command of ours can or may mend: the reason is the result."""
    raise OperationError(because)
    yield StringCommand("true")


def come_from(entries: Iterable[tuple[str, str, str]], *, exclusive: bool) -> None:
    """Note where the packages of this machine will come from: path, text and key of each entry."""
    host.connector_data["sources"] = Sources(tuple(entries), exclusive=exclusive)


def _refuse_what_is_nowhere(wanted: Mapping[str, str]) -> None:
    """While planning: what a setting asks for and apt cannot get is told before anything is changed for its sake."""
    if host.state.is_executing:
        return
    sources = host.connector_data.get("sources", Sources())
    chosen = [name for name in wanted if setting_of(name)]
    asked = {name: host.get_fact(Offered, package=name, version=wanted[name], sources=sources) for name in chosen}
    nowhere = {name: versions for name, versions in asked.items() if versions is not None}
    if not nowhere:
        return
    missing = ", ".join(name if wanted[name] == "*" else f"{name} {wanted[name]}" for name in nowhere)
    (first, versions), *_ = nowhere.items()
    near = sorted(dict.fromkeys(versions), key=lambda version: -_alike(version, wanted[first]))
    there = f"of {first} there are {', '.join(near[:_SHOWN])}" if near else f"they have no {first} at all"
    raise Nowhere(f"no package source of this machine has {missing}; {there}", setting=setting_of(first))


def _alike(one: str, other: str) -> int:
    """How many letters both begin with."""
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


def pins(wanted: Mapping[str, str]) -> str:
    """Returns the text of a preferences file that pins these versions."""
    return "\n".join(
        f"Package: {name}\nPin: version {version}\nPin-Priority: {_PRIORITY}\n" for name, version in wanted.items()
    )


def speaks_of(word: str, package: str) -> bool:
    """Whether a word of a pin means the package: a name, a pattern, /an expression/.

    ``*`` alone means none: the general form, for all other versions of all packages.
    """
    if word == "*":
        return False
    if len(word) > 2 and word.startswith("/") and word.endswith("/"):  # noqa: PLR2004 - something between the slashes
        try:
            return re.search(word[1:-1], package) is not None
        except re.error:
            return False
    return fnmatch.fnmatchcase(package, word)


def pin_file(pins_of: str) -> str:
    """Where the pins of a role lie."""
    return f"/etc/apt/preferences.d/spillway-{pins_of}"


def restore_packages(kept: str) -> str:
    """Shell that has every package in the version again that it had, and no others; prints what it changed.

    They come from the sources, else from apt's own cache: what was there before was fetched once. A line that begins
    with :data:`NOT_BACK` names those for which neither would do.
    """
    return f"""\
set -u; k={shlex.quote(kept)}; p=$k/packages; c=/var/cache/apt/archives
[ -f $p ] || exit 0
differ() {{ {_LIST} | awk -F'\\t' -v want="$1" '
  NR == FNR {{ if ($3 ~ /^.i/) now[$1] = $2; next }}
  $3 ~ /^.i/ {{ was[$1] = $2 }}
  END {{
    if (want == "back") for (n in was) if (now[n] != was[n]) print n "=" was[n]
    if (want == "gone") for (n in now) if (!(n in was)) print n
  }}' - $p | sort; }}
back=$(differ back); gone=$(differ gone)
if [ -n "$back$gone" ]; then
  away=$(for n in $gone; do echo "$n-"; done)
  {_BACK} $back $away >/dev/null 2>&1 || {{ {_UPDATE} >/dev/null 2>&1; {_BACK} $back $away >/dev/null 2>&1; }} || {{
    for b in $back; do
      ls $c/${{b%%[:=]*}}_$(echo "${{b#*=}}" | sed s/:/%3a/)_*.deb 2>/dev/null
    done | xargs -r dpkg --force-downgrade --force-hold --force-confold -i >/dev/null 2>&1
    [ -z "$gone" ] || dpkg --force-hold -r $gone >/dev/null 2>&1
  }}
  left="$(differ back) $(differ gone)"
  [ "$left" = " " ] || {{ echo "{NOT_BACK} $left"; exit 0; }}
  awk -F'\\t' '$3 ~ /^hi/ {{ print $1 }}' $p | xargs -r apt-mark hold >/dev/null
  echo "$back $gone"
fi
rm -f $p; rmdir $k 2>/dev/null; exit 0"""


def _remember() -> str:
    """Shell that writes down which packages are there, unless an earlier change of the same rollout has."""
    kept = shlex.quote(kept_at(host.data))
    write = f"mkdir -p -m 700 $k && {_LIST} > $k/part && mv $k/part $k/packages"
    return f"k={kept}; {{ [ -e $k/packages ] || {{ {write}; }}; }}"


def _install(words: str, *, gone: Collection[str] = ()) -> str:
    """Shell that installs, with an index fetched anew where it is old, or not from the sources of now, or too small."""
    away = " ".join(shlex.quote(f"{name}-") for name in gone)
    step = f"{_INSTALL} {words} {away}" if gone else f"{_INSTALL} --no-remove {words}"
    check = f"{_removes_no_other(step, gone)} && " if gone else ""
    return f"{{ {_KNOWN} && {step} -s >/dev/null 2>&1 || {_UPDATE}; }} && {_WHOLE} && {check}{step}"


def _removes_no_other(step: str, gone: Collection[str]) -> str:
    """Shell that ends the command where the step of apt's would take more away than these."""
    return (
        f"{{ also=$({step} -s | sed -n 's/^Remv \\([^ ]*\\).*/\\1/p'"
        f" | grep -vxF {' '.join(f'-e {shlex.quote(name)}' for name in gone)} || true);"
        ' [ -z "$also" ] || { echo "refused: would also remove $also" >&2; exit 1; }; }'
    )


def _step(name: str, now: Package | None, wanted: str) -> str:
    """What a plan says of a package."""
    have = now.version if now and now.installed else ""
    version = "" if wanted == "*" else f" {wanted}"
    return f"{name}: {have} becomes{version}" if have else f"install {name}{version}"


def _word(name: str, version: str) -> str:
    return name if version == "*" else f"{name}={version}"
