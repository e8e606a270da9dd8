"""What a supervisor such as systemd hands to a process, and what the process reports to it:
sd_listen_fds(3) and sd_notify(3), without its library.
"""

from __future__ import annotations

import os
import socket
from contextlib import suppress

FIRST_DESCRIPTOR = 3  # sockets are passed from here on


def passed_sockets() -> list[socket.socket]:
    """Return the sockets that were passed to this process. A second call returns none."""
    wanted = os.environ.pop("LISTEN_PID", None)
    count = os.environ.pop("LISTEN_FDS", None)
    os.environ.pop("LISTEN_FDNAMES", None)
    if wanted != str(os.getpid()) or count is None:
        return []  # they are for another process, which has started this one
    found = []
    for descriptor in range(FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + int(count)):
        os.set_inheritable(descriptor, False)
        found.append(socket.socket(fileno=descriptor))
    return found


def notify(state: str) -> None:
    """Tell the supervisor, if there is one, that this process is in `state`, as in "READY=1"."""
    where = os.environ.get("NOTIFY_SOCKET")
    if not where:
        return
    name = "\0" + where[1:] if where.startswith("@") else where
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made, suppress(OSError):
        made.sendto(state.encode(), name)  # a supervisor that is gone is no reason to end
