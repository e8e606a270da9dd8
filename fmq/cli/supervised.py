"""The protocol between a process and a supervisor such as systemd, without its library:
sd_listen_fds(3) and sd_notify(3).
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

FIRST_DESCRIPTOR = 3  # the first descriptor of those that a supervisor passes


def passed_sockets() -> list[socket.socket]:
    """Return the sockets that the supervisor passed to this process. A second call returns none."""
    wanted = os.environ.pop("LISTEN_PID", None)
    count = os.environ.pop("LISTEN_FDS", None)
    os.environ.pop("LISTEN_FDNAMES", None)
    if wanted != str(os.getpid()) or count is None:
        return []  # the sockets are meant for the parent of this process
    found = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        found.append(socket.socket(fileno=descriptor))
    return found


def notify(state: str) -> None:
    """Report to the supervisor, if there is one, that this process is in `state`, as in
    "READY=1".
    """
    where = os.environ.get("NOTIFY_SOCKET")
    if not where:
        return
    name = "\0" + where[1:] if where.startswith("@") else where
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made, suppress(OSError):
        made.sendto(state.encode(), name)  # the supervisor may be gone, and this process goes on
