"""What of the prepared stays in memory until it is decided, so that its commit need not read it."""

from __future__ import annotations

from fmq.tx.drafts import Draft

KEPT_BYTES_MAX = 16 << 20


class Kept:
    """How much is kept of one engine's transactions. Under the engine's lock."""

    def __init__(self, reference_bytes_min: int) -> None:
        self._reference_bytes_min = reference_bytes_min
        self._bytes = 0

    def keep(self, draft: Draft) -> bool:
        """Whether `draft` stays in memory: what is small will be copied, the rest referred to."""
        kept = self._bytes + draft.size
        if kept > KEPT_BYTES_MAX or not draft.is_small(self._reference_bytes_min):
            return False
        self._bytes = kept
        return True

    def let_go(self, draft: Draft) -> None:
        """What `keep` has kept is decided."""
        self._bytes -= draft.size
