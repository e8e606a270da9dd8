"""What all pages share: the engine, what was seen of it, and what a reader may do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

import fmq
from fmq.basics.clock import Clock, as_datetime
from fmq.dash.pulse import Pulse
from fmq.findings.troubles import Troubles
from fmq.findings.visit import visit
from fmq.machine.disk import Directory


@dataclass(frozen=True, slots=True)
class DashSite:
    """One engine, and the pages about it. `directory` is where its files are on this machine, None
    if they are on another one. `person` is who acts, unless a form says otherwise.
    """

    engine: fmq.WritingEngine
    directory: str | None
    troubles: Troubles
    pulse: Pulse
    clock: Clock
    person: str
    read_only: bool

    @property
    def now(self) -> datetime:
        return as_datetime(self.clock.time_us())

    def age(self, time: datetime | None) -> float | None:
        """Return how many seconds ago a time was."""
        return None if time is None else max((self.now - time).total_seconds(), 0.0)

    @contextmanager
    def files(self) -> Iterator[Directory | None]:
        """Return the files; None if they are on another machine."""
        if self.directory is None:
            yield None
            return
        with visit(self.directory) as directory:
            yield directory
