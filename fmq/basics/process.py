"""Where a member or a client runs: the machine, the process, and the address that it calls from."""

from __future__ import annotations

from typing import NamedTuple


class Process(NamedTuple):
    """A process, as it names itself."""

    host: str
    pid: int
    address: str | None = None
    """The address and the port of a client over TCP; None for any other."""
