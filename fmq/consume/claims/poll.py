"""One poll of a consumer: what its caller asks for, what it has got so far, and what it waits for.

A poll is written once, as a generator: `GroupMember.taking` (consume/calls/member.py). The
generator knows no thread and no loop. Where it would have to wait, it yields a step, and its driver
sends the result back, or throws the error in:

    LOOK          the driver calls `plan_look` in the commit queue, and has what it plans written
    ARRIVAL       the driver waits for a message, the end of a lease, or the end of the timeout
    a function    the driver calls it: it may read the disk

The driver of a thread is `GroupMember.find`: it sleeps on a lock of its own. The driver of a loop
is fmq/aio/polls.py: it awaits a future, and calls functions in a thread. An engine process lets
`find` make polls without a timeout for its clients, and waits between them on its own loop
(fmq/server/waiting_call.py).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from typing import Any

from fmq.basics.clock import Clock
from fmq.consume.claims.claim import Claim
from fmq.tx.looks.messages import Wakeup


class PollStep(Enum):
    """A thing that a poll waits for. Instead it may yield a function that may read the disk."""

    # The driver calls `GroupMember.plan_look` and has the planned append written.
    LOOK = "a look"
    # The driver waits until it is worth to look again, or the poll's time is over.
    ARRIVAL = "an arrival"


LOOK, ARRIVAL = PollStep.LOOK, PollStep.ARRIVAL
Taken = tuple[Claim, list[Any]] | None
Steps = Generator[PollStep | Callable[[], Any], Any, Taken]


class Poll:
    """One call of a consumer, and its progress. One thread at a time uses it."""

    # What the poll has claimed. `ranges`, `pieces` and `is_counted` belong to it.
    claim: Claim | None = None
    ranges: list[tuple[int, int]]  # the parts of the claim that the group wants
    pieces: list[Any]  # the messages of `ranges` if they were in memory; else empty
    is_counted = False  # True once an attempt of each message of `ranges` is planned
    waits = False  # True if nothing was found and time is left
    # What wakes the waiting thread, which waits at most until `until`.
    wakeup: Wakeup | None = None
    until = 0.0
    # True once the poll has waited for posted appends to be shown. It waits for them only once.
    has_caught_up = False

    def __init__(
        self,
        clock: Clock,
        limit: int,
        timeout: float,
        *,
        as_batch: bool = False,
        in_one_piece: bool = False,
        counts: bool = False,
        tells: bool = True,
        listens: bool = True,
    ) -> None:
        """`limit` and `timeout` were checked where the call came in."""
        self.limit = limit
        self.deadline = clock.monotonic() + timeout
        self.as_batch = as_batch  # True: return batches; False: lists of messages
        self.in_one_piece = in_one_piece
        self.counts = counts  # True: count an attempt of each message
        self.tells = tells  # True: the program may be told which queues it has
        self.listens = listens  # True: a look that finds nothing makes a wakeup
