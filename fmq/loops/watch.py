"""What one call of a loop listens to while it waits for an arrival."""

from __future__ import annotations

from collections.abc import Callable

from fmq.loops.event_loop import DAY, Timer, notifier
from fmq.loops.wake_ups import GroupWaits, Waits
from fmq.steps.call_steps import Arrival, Notify


class LoopWatch:
    """The arrivals that one call waits for, one after the other."""

    # Defaults of the class, because most watches serve one arrival and set few of these attributes.
    _group: GroupWaits | None = None
    _stop: Callable[[Notify], object] | None = None
    _timer: Timer | None = None
    _until = 0.0
    deadline = 0.0

    def __init__(self, waits: Waits, arrived: Callable[[], object]) -> None:
        """The loop calls `arrived` when it is worth to look."""
        self._waits = waits
        self._loop, self._monotonic = waits.loop, waits.monotonic
        self._arrived = arrived
        self._notify = notifier(self._loop, arrived)

    @property
    def listens(self) -> bool:
        """True while it listens. Then the call has looked once since the listening began."""
        return self._stop is not None

    def listen(self, arrival: Arrival) -> None:
        """Begin to listen. The call looks once more, as something may have come before."""
        self._group, listen, self._stop = self._waits.listening(arrival)
        self.deadline = arrival.deadline
        self._until = min(listen(self._notify), arrival.deadline)

    def begin_to_wait(self) -> None:
        """Have the call look at the time at which it should, even if nothing arrives."""
        self.wait_until(self._until)

    def wait_until(self, time: float) -> None:
        """Have the call look at `time`."""
        later = max(time - self._monotonic(), 0.0)
        self._timer = self._loop.call_later(min(later, DAY), self._arrived)

    def pass_on(self) -> None:
        """Let another poll of the group look: there may be more, or this one was the next."""
        if self._group is not None:
            self._group.wake_next()

    def stop(self) -> None:
        """Listen no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        stop, self._stop = self._stop, None
        if stop is not None:
            stop(self._notify)

    def end(self, *, found: bool) -> None:
        """End the wait of a call. If it has `found` something, or ends early, another poll looks
        next.
        """
        if found or self._monotonic() < self.deadline:
            self.pass_on()
        self.stop()
