"""Bytes of prepared messages that are kept in memory, so that their commit need not read them."""

from __future__ import annotations

from fmq.store.bytes.kinds import Prepare, Run

KEPT_BYTES_MAX = 16 << 20


class PreparedBytes:
    """Counts the bytes of prepared messages that an engine keeps in memory. The caller holds the
    engine's lock.
    """

    def __init__(self, reference_bytes_min: int) -> None:
        self._reference_bytes_min = reference_bytes_min
        self._bytes = 0

    def keep(self, prepare: Prepare, runs: list[Run], size: int) -> None:
        """Keep the bytes of `runs`, `size` in total, if their commit will copy them. Drop them if
        it will refer to them, or if too much is kept already.
        """
        large = [run for run in runs if run.raw_bytes >= self._reference_bytes_min]
        if not large and self._bytes + size <= KEPT_BYTES_MAX:
            self._bytes += size
            prepare.kept_bytes = size
            return
        for run in runs:
            run.bodies, run.columns, run.tail = None, b"", b""

    def drop(self, prepare: Prepare) -> None:
        """Subtract what was kept for `prepare`, because its transaction is decided."""
        self._bytes -= prepare.kept_bytes
