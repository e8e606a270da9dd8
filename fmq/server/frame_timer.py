"""The time limits for the first frame of a client, and for the rest of a frame that has begun."""

from __future__ import annotations

from collections.abc import Callable

from fmq.loops.event_loop import Loop, Timer

HELLO_SECONDS = 5.0
FRAME_SECONDS = 30.0


class FrameTimer:
    """Calls a function once if a frame is not complete in time."""

    __slots__ = ("_late", "_loop", "_timer", "_waits_for_rest")

    def __init__(self, loop: Loop, late: Callable[[], None]) -> None:
        """Begin to wait for the first frame. `late` is called if it is not complete in time."""
        self._loop = loop
        self._late = late
        self._waits_for_rest = False
        self._timer: Timer | None = loop.call_later(HELLO_SECONDS, late)

    @property
    def is_running(self) -> bool:
        """Return whether the timer runs."""
        return self._timer is not None

    def watch(self, *, begun: bool, moved: bool) -> None:
        """Wait for the rest of a frame if one has `begun`. Otherwise stop the timer.

        `moved` says that another frame was completed since the last call.
        """
        if begun and self._waits_for_rest and not moved:
            return
        self.stop()
        if begun:
            self._waits_for_rest = True
            self._timer = self._loop.call_later(FRAME_SECONDS, self._late)

    def stop(self) -> None:
        """Stop the timer."""
        self._waits_for_rest = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
