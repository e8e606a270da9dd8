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
from fmq.findings.visit import visit, writer_of
from fmq.machine.disk import Directory


@dataclass(frozen=True, slots=True)
class DashSite:
    """One engine, and the pages about it. `directory` is where its files are on this machine, None
    if they are on another one. A state that lasts longer than `patience` seconds needs a person.
    """

    engine: fmq.WritingEngine
    directory: str | None
    patience: float
    pulse: Pulse
    clock: Clock
    read_only: bool
    person: str
    """Who acts, unless a form says otherwise."""

    @property
    def now(self) -> datetime:
        return as_datetime(self.clock.time_us())

    @property
    def path(self) -> str:
        """What commands name."""
        return self.engine.path if self.directory is None else self.directory

    @property
    def troubles(self) -> Troubles:
        """Return what needs a person. Raises NotAStore if the directory is gone."""
        with self.files() as directory:
            # Ask each time: another process may serve it now.
            writer = None if directory is None else writer_of(directory)
        return Troubles(self.engine, self.path, writer, self.patience, self.clock)

    @contextmanager
    def files(self) -> Iterator[Directory | None]:
        """Return the files; None if they are on another machine."""
        if self.directory is None:
            yield None
            return
        with visit(self.directory) as directory:
            yield directory
