"""The process in which machines are looked at and changed: gevent's patch comes before every other import.

`spillway nodes` replaces itself by ``python -m roles``: the patch must not reach whoever imports a module of this room.
"""

from gevent import monkey

monkey.patch_all()

from roles.cli import main  # noqa: E402 - the patch comes first

main()
