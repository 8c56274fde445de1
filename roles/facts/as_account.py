"""Shell that root has an account run, so that the kernel keeps it to what that account may do.

Whoever owns a folder may put a link, a hard link, a pipe or another folder to any place in it, at any moment. So what
lies below a home is looked at and written as its account: a link then leads nowhere that the account could not go.

The account's other processes may stop, end or trace such a process. It therefore holds nothing of root's: its input and
output are pipes of its own, what it says is cut to a length and to printable letters, and a time limit that it cannot
reach ends the whole of it.
"""

from __future__ import annotations

import shlex

SUCCEEDED = "status 0"
"""The last line of what is printed, where the script did not fail."""


def as_account(user: str, script: str, *, seconds: int, most: int) -> str:
    """Shell for root that prints what ``script`` says when this account runs it, and last its exit status.

    It ends within ``seconds`` and prints at most ``most`` bytes, whatever the account does. The script finds its home
    in ``$HOME``, and on standard input what the shell has there. ``user``: a name, or ``$VARIABLE`` of the environment.
    """
    name = f'"{user}"' if user.startswith("$") else shlex.quote(user)
    rights = f'--reuid={name} --regid="$(id -g -- {name})" --init-groups --reset-env --no-new-privs'
    inner = (
        f'{{ setpriv {rights} sh -c {shlex.quote(script)} 2>&1; echo "status $?"; }}'
        f" | head -c {most} | LC_ALL=C tr -cd '\\n -~'"
    )
    return f"timeout -k 2 {seconds} sh -c {shlex.quote(inner)}"
