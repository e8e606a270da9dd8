"""Notes of fmq on exceptions that are not its own."""

from __future__ import annotations

from contextlib import suppress


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception of the user's, if it takes one."""
    with suppress(Exception):
        error.add_note(f"fmq: {note}")
