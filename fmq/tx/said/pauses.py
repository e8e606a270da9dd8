"""A pause of a group, a topic or a schedule, as the journal has it."""

from __future__ import annotations

from typing import NamedTuple


class PauseMet(NamedTuple):
    """Who has paused something, why, and when."""

    by: str
    reason: str
    time_us: int
