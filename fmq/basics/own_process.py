"""What other processes see of this one: the name of its machine, and its process id."""

from __future__ import annotations

import os
import socket

from fmq.basics.process import Process


def here() -> Process:
    """Return where this process runs."""
    return Process(socket.gethostname()[:200], os.getpid())


def caller(by: str | None) -> str:
    """Return who asks for a change: `by`, or this process if that is None."""
    host, pid, _ = here()
    return f"process {pid} on {host}" if by is None else by
