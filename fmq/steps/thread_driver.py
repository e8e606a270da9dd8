"""Carries out the steps of a call in its thread, which waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fmq.basics.clock import Clock
from fmq.steps.call_steps import Apart, Arrival, Durable, Notify, Steps, Wakeup
from fmq.store.journal.commit_queue import CommitQueue

T = TypeVar("T")


class Watch:
    """The arrivals that one thread waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup: Wakeup | None = None
        self._until = 0.0
        self._stop: Callable[[Notify], None]

    def keep(self, arrival: Arrival) -> object:
        """Begin to listen and return. If the watch listens already, wait until it is woken."""
        if arrival.wakeup is not None:
            self._wakeup, self._until = arrival.wakeup, arrival.deadline
        elif self._wakeup is None:
            self._stop = arrival.stop
            self._wakeup = Wakeup()
            self._until = min(arrival.listen(self._wakeup), arrival.deadline)
            return None  # look once more
        self._stop = arrival.stop
        try:
            return self._clock.wait(self._wakeup.lock, self._until - self._clock.monotonic())
        finally:
            self.end()

    def end(self) -> None:
        """Listen no more."""
        wakeup, self._wakeup = self._wakeup, None
        if wakeup is not None:
            self._stop(wakeup)


def drive(call: Steps[T], queue: CommitQueue, clock: Clock) -> T:
    """Carry out the steps of `call` in this thread, which waits, and return its result."""
    step: Callable[[Any], Any] = call.send
    answer: Any = None
    watch: Watch | None = None
    try:
        while True:
            want = step(answer)
            try:
                if type(want) is Durable:
                    if want.ahead:
                        answer = queue.run(want.plan, want.what, wait=True, ahead=True)
                    elif want.is_awaited is None:
                        answer = queue.run(want.plan, want.what, want.sync)
                    else:
                        answer = queue.post(want.plan, want.what, want.is_awaited)
                elif type(want) is Arrival:
                    watch = watch or Watch(clock)
                    answer = watch.keep(want)
                elif type(want) is Apart:
                    answer = want.work()
                else:
                    answer = want()
                step = call.send
            except BaseException as error:
                step, answer = call.throw, error
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    finally:
        # An error in `answer` would keep this frame alive, and the frame would keep the error.
        answer = None
        if watch is not None:
            watch.end()
