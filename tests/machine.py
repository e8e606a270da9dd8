"""What a machine may lack. The tests that need it are skipped by name, with the reason."""

from __future__ import annotations

import os
import socket

import pytest


def can_listen(host: str) -> bool:
    """Return whether this machine has an address of the name."""
    try:
        family, *_, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family) as listener:
            listener.bind(address)
    except OSError:
        return False
    return True


NEEDS_IPV6 = pytest.mark.skipif(not can_listen("::1"), reason="no IPv6 on this machine")
NEEDS_LOCALHOST = pytest.mark.skipif(
    not can_listen("localhost"), reason="localhost has no address on this machine"
)
NEEDS_SEMAPHORES = pytest.mark.skipif(
    not os.access("/dev/shm", os.W_OK), reason="no /dev/shm on this machine"
)
