"""The steps of a call that waits.

A call that not only threads make is a generator. It knows no thread, no loop and no connection. It
yields what it waits for, and gets the answer back, or the error. A driver carries the steps out:
thread_driver.py in the thread of the call, fmq/aio/driver.py on a loop, and
fmq/server/client_call.py for a client.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from threading import Lock
from typing import Any, NamedTuple, TypeVar

from fmq.basics.tuples import tuple_maker
from fmq.store.journal.commit_queue import CommitQueue

T = TypeVar("T")
Notify = Callable[[], None]


class Durable(NamedTuple):
    """A step that ends when the append that `plan` plans is durable. Its answer is the result of
    `plan`.
    """

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
    """Do nothing. A call with this as its plan only waits for the appends that are planned
    already.
    """


made_durable = tuple_maker(Durable)


def all_shown(queue: CommitQueue) -> Durable:
    """Return the step that ends when all that was planned before is shown, also in a mode in which
    calls do not wait for a sync.
    """
    return Durable(nothing, None, None if queue.waits(None) else True)


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
            # Set this last: if the engine fails before, its end wakes the thread once more.
            self.woken = True
