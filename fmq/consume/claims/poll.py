"""One poll of a consumer: what its caller asks for, what it has got so far, and what it waits for.

A poll is written once, as a generator (`GroupMember.taking`). It yields what it waits for and gets
the answer back, or the error. It knows no thread and no loop. `GroupMember.find` drives it in a
thread, and fmq/aio/polls.py on a loop.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import Enum
from math import isnan
from typing import Any

from fmq.arguments.names import check_count, check_seconds
from fmq.basics.clock import Clock
from fmq.consume.claims.claim import Claim
from fmq.tx.looks.messages import Wakeup


class PollStep(Enum):
    """What a poll waits for. It also waits for work that may touch the disk: a function."""

    LOOK = "a look"  # `GroupMember.plan_look` is called, and what it has planned is written
    ARRIVAL = "an arrival"  # until it is worth to look again, or the time of the poll is over


LOOK, ARRIVAL = PollStep.LOOK, PollStep.ARRIVAL
Taken = tuple[Claim, list[Any]] | None
Steps = Generator[PollStep | Callable[[], Any], Any, Taken]


class Poll:
    """What one call asks of a consumer. By one thread at a time."""

    claim: Claim | None = None  # what it holds; the next three are about that
    ranges: list[tuple[int, int]]  # as far as they are wanted
    pieces: list[Any]  # the messages of `ranges`, if they were in memory
    is_counted = False  # whether an attempt of each of `ranges` is planned
    waits = False  # whether there was nothing, and there is time left
    wakeup: Wakeup | None = None  # by which a thread waits, at the latest until `until`
    until = 0.0
    has_caught_up = False  # with what was posted; once is enough

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
        """Raises what refuses `limit` and `timeout`."""
        if type(limit) is not int or limit < 1:
            limit = check_count("limit", limit)
        if type(timeout) is not float or isnan(timeout):
            timeout = check_seconds("timeout", timeout)
        self.limit = limit
        self.deadline = clock.monotonic() + timeout
        self.as_batch = as_batch  # whether it wants batches, else lists of messages
        self.in_one_piece = in_one_piece
        self.counts = counts  # whether an attempt of each message is counted
        self.tells = tells  # whether the program may be told now which queues it has
        self.listens = listens  # whether a look that finds nothing makes a wakeup
