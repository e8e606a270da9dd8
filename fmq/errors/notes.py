"""Notes that fmq adds to exceptions of other code."""

from __future__ import annotations

from contextlib import suppress


def add_note(error: BaseException, note: str) -> None:
    """Add a note to `error`, unless its class refuses notes."""
    with suppress(Exception):
        error.add_note(f"fmq: {note}")
