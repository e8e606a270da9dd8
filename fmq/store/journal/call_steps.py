"""The steps of a call that waits, and how a thread carries them out.

A call that not only threads make is a generator. It knows no thread, no loop and no connection. It
yields what it waits for, and gets the answer back, or the error. `drive` carries the steps out in
its thread, fmq/aio/driver.py on a loop, and fmq/server/client_call.py for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from fmq.basics.clock import Clock
from fmq.store.journal.commit_queue import CommitQueue

T = TypeVar("T")
Notify = Callable[[], None]


class Durable(NamedTuple):
    """A step that ends when what `plan` has planned is durable. The answer is what it returned."""

    plan: Callable[[Any], Any]
    """Called under the engine's lock. It may refuse."""
    what: Any = None
    """The argument of `plan`."""
    sync: bool | None = None
    ahead: bool = False
    """Whether it only has to be written: see `CommitQueue.run`."""
    is_awaited: Callable[[], bool] | None = None
    """If given, no call has to wait for it: see `CommitQueue.post`."""


Command = tuple[Callable[[Any], object], Any, Callable[[], T]]
"""An append: a function that plans it under the engine's lock and may refuse, the argument of that
function, and a function that returns the result of the call once the append is durable.
"""


class Apart(NamedTuple):
    """A step that may take long, as it writes and syncs files. A loop leaves it to a thread of its
    own.
    """

    work: Callable[[], Any]


class Arrival(NamedTuple):
    """A step that ends when it is worth to look again. The first one of a call ends at once, as
    something may have arrived before there was a listener: so a call looks, and looks again.
    """

    listen: Callable[[Notify], float]
    """Has its argument called, by any thread, when it is worth to look. Returns when to look
    anyway.
    """
    stop: Callable[[Notify], None]
    deadline: float
    wakeup: Wakeup | None = None
    """What listens already, for a thread."""
    member: Any = None
    """The member of a group that looks. On a loop those of one group listen together."""


def nothing(what: object = None) -> None:
    """Do nothing: as a plan, it waits for what is planned already."""


# Makes a Durable of a tuple in C. Calling Durable() runs a Python function.
made_durable = partial(tuple.__new__, Durable)

Steps = Generator[Durable | Arrival | Apart | Callable[[], Any], Any, T]
"""A call. The last kind of step is work that may touch the disk: a function."""


class Wakeup:
    """One thread that waits. It is woken once."""

    __slots__ = ("lock", "woken")

    def __init__(self) -> None:
        self.lock = Lock()
        self.lock.acquire()
        self.woken = False

    def __call__(self) -> None:
        """Wake the thread. Under the engine's lock."""
        if not self.woken:
            if self.lock.locked():
                self.lock.release()
            # Set it last: if the engine fails before, its end wakes the thread once more.
            self.woken = True


class Watch:
    """The arrivals that one thread waits for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wakeup: Wakeup | None = None
        self._until = 0.0
        self._stop: Callable[[Notify], None]

    def keep(self, arrival: Arrival) -> object:
        """Begin to listen, and return; or wait if something listens already."""
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
