"""What of the prepared stays in memory until it is decided, so that its commit need not read it."""

from __future__ import annotations

from fmq.store.kinds import Prepare, Run

KEPT_BYTES_MAX = 16 << 20


class PreparedBytes:
    """How much is kept of one engine's transactions. Under the engine's lock."""

    def __init__(self, reference_bytes_min: int) -> None:
        self._reference_bytes_min = reference_bytes_min
        self._bytes = 0

    def keep(self, prepare: Prepare, runs: list[Run], size: int) -> None:
        """Keep `runs`, of `size` bytes, if they are small enough to be copied; else drop what they
        hold, as their commit will refer to them.
        """
        small = all(run.raw_bytes < self._reference_bytes_min for run in runs)
        if small and self._bytes + size <= KEPT_BYTES_MAX:
            self._bytes += size
            prepare.kept_bytes = size
            return
        for run in runs:
            run.content, run.tail = None, b""

    def let_go(self, prepare: Prepare) -> None:
        """Count what `keep` kept no more: its transaction is decided."""
        self._bytes -= prepare.kept_bytes
