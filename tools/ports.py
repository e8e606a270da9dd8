"""Ports on loopback for servers that have to be told one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from random import Random

HOST = "127.0.0.1"
OF_THE_SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
COUNT = 12_000  # of those below the ones that the system gives
PRIVILEGED = 1024


def free_ports(count: int) -> list[int]:
    """Return ports that nobody has.

    The system gives none of them to whoever asks for any port, or connects. So nobody gets one of
    them until its server starts, or while that is down for a moment.
    """
    with ExitStack() as bound:
        return [bound.enter_context(each).getsockname()[1] for each in islice(_bound(), count)]


def free_port() -> int:
    """Return a port that nobody has."""
    return free_ports(1)[0]


def _bound() -> Iterator[socket.socket]:
    """Yield sockets, each at a port of its own."""
    first_given = int(OF_THE_SYSTEM.read_text().split()[0])
    ours = range(max(PRIVILEGED, first_given - COUNT), first_given)
    random = Random()
    while True:
        made = socket.socket()
        try:
            # A system that gives nearly all ports leaves too few: then one that it gives has to do.
            made.bind((HOST, random.choice(ours) if len(ours) > COUNT // 2 else 0))
        except OSError:  # somebody has it
            made.close()
        else:
            yield made
