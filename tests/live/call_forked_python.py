"""What is called in place of Python: has :mod:`tests.live.forked_python` run it, and gives its exit status.

It is run without ``site`` and imports next to nothing: it is done in some ten milliseconds.
"""

import _signal
import _socket
import marshal
import os
import sys

address, *arguments = sys.argv[1:]
words = arguments[1:] if arguments[:1] == ["-u"] else arguments
if not words or (words[0].startswith("-") and words[0] != "-m"):
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - it is what was called
server = _socket.socket(_socket.AF_UNIX)
server.connect(address)
for number in (_signal.SIGINT, _signal.SIGTERM):  # what runs is to deal with them
    _signal.signal(number, lambda number, _frame: server.send(bytes([number])))
told = marshal.dumps((words, os.getcwd(), dict(os.environ)))  # noqa: PTH109 - pathlib takes as long as all this
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
server.sendmsg([len(told).to_bytes(4, "little")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
server.sendall(told)
os._exit((server.recv(1) or b"\1")[0])
