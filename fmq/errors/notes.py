"""Notes that fmq adds to exceptions of other code."""

from __future__ import annotations

from contextlib import suppress


def add_note(error: BaseException, note: str) -> None:
    """Add a note to `error`, unless its class refuses notes."""
    with suppress(Exception):
        error.add_note(f"fmq: {note}")


def note_carried_out(error: BaseException) -> None:
    """Add a note to `error`, which came while a call was carried out. The note says that the call
    was carried out.
    """
    with suppress(Exception):
        error.fmq_carried_out = True  # type: ignore[attr-defined]


def is_carried_out(error: BaseException) -> bool:
    """Return whether the call that raised `error` was carried out all the same."""
    return getattr(error, "fmq_carried_out", False)
