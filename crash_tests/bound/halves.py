"""A disk of this machine on which something may happen in the middle of a write."""

from __future__ import annotations

import os
from collections.abc import Sequence

from crash_tests.bound.steps import Stage
from fmq.machine.disk import Buffer
from fmq.posix import RealDisk


class Halves(RealDisk):
    """A disk that writes one half of a write before the other, where the stage asks for it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__()
        self._stage = stage
        self._writer = self._write

    def _write(self, fd: int, buffers: Sequence[Buffer], offset: int, flags: int) -> int:
        step = self._stage.splits()
        if step is None:
            return os.pwritev(fd, buffers, offset, flags)
        data = b"".join(buffers)
        written = os.pwritev(fd, (data[: len(data) // 2],), offset, flags)
        self._stage.reached(step)
        return written  # a short one, so the rest is written next
