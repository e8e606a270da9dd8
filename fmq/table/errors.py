"""What can go wrong between a journal and a table of it."""

from __future__ import annotations

from fmq.errors import StorageError


class Overtaken(StorageError):
    """Retention has dropped a part of the journal that was still to be read."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"{path}: {what} was dropped by the engine's retention before it was read. Nothing "
            "else is missing. Read again from what is there now, keep more (retain_bytes, "
            "retain_seconds), or hold it with `with fmq.table.pinned(path):` while reading."
        )
        self.path = path
