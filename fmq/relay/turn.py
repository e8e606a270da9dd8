"""Whose turn it is to copy, of several relays with one name that stand by for each other.

The relay that copies raises the mark `relay-NAME-turn` again and again. Another one that has seen
no change of it for SILENT_SECONDS by its own clock raises it, and copies. If it was wrong, and the
other one was only slow, the claim of the target still shuts that one out.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any

from fmq.errors import MarkMoved, OutcomeUnknown
from fmq.relay.relay_errors import RelayTakenOver

SILENT_SECONDS = 10.0
BEAT_SECONDS, LOOK_SECONDS = 2.0, 0.5
HELD, FREE = b"held", b"free"


class RelayTurn:
    """The turn of the relay `name`, for one of those that stand by."""

    def __init__(
        self, engine: Any, name: str, ends: Event, now: Callable[[], float] = monotonic
    ) -> None:
        """`ends` ends a wait."""
        self._engine = engine
        self._mark = f"relay-{name}-turn"
        self._ends = ends
        self._now = now
        self._value: int | None = None  # of the mark, while it is the turn of this relay
        self._raised = 0.0

    def wait(self) -> bool:
        """Wait until it is the turn of this relay. Return False if it was stopped before."""
        seen, since = None, self._now()
        while self._value is None and not self._ends.is_set():
            mark = self._engine.mark(self._mark)
            value = -1 if mark is None else mark.value
            if value != seen:
                seen, since = value, self._now()
            is_free = mark is None or mark.data == FREE
            if is_free or self._now() - since >= SILENT_SECONDS:
                self._raise(value, HELD)
            else:
                self._ends.wait(LOOK_SECONDS)
        return self._value is not None

    def keep(self) -> None:
        """Raise the mark if it is time. Raises RelayTakenOver if another relay has done so."""
        if self._value is not None and self._now() - self._raised >= BEAT_SECONDS:
            self._raise(self._value, HELD)
            if self._value is None:
                raise RelayTakenOver("another relay of this name has found this one too silent.")

    def lose(self) -> None:
        """Note that another relay has the turn."""
        self._value = None

    def leave(self) -> None:
        """Let another relay have the turn at once."""
        if self._value is not None:
            self._raise(self._value, FREE)
        self._value = None

    def _raise(self, value: int, data: bytes) -> None:
        """Raise the mark from `value`, unless another relay was faster."""
        try:
            with self._engine.transaction() as tx:
                tx.mark(self._mark, value + 1, data, expect=value)
        except (MarkMoved, OutcomeUnknown):
            self._value = None
        else:
            self._value, self._raised = value + 1, self._now()
