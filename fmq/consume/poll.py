"""One poll of a consumer: what its caller asks for, and what it has got so far."""

from __future__ import annotations

from typing import Any

from fmq.consume.claim import Claim
from fmq.tx.messages import Wakeup


class Poll:
    """What one call asks of a consumer. By one thread at a time."""

    claim: Claim | None = None  # what it holds; the next three are about that
    ranges: list[tuple[int, int]]  # as far as they are wanted
    pieces: list[Any]  # the messages of `ranges`, if they were in memory
    is_counted = False  # whether an attempt of each of `ranges` is planned
    wakeup: Wakeup | None = None  # by which it waits, at the latest until `until`
    until = 0.0
    has_caught_up = False  # with what was posted; once is enough

    def __init__(
        self,
        limit: int,
        deadline: float,
        as_batch: bool,
        in_one_piece: bool,
        counts: bool,
        tells: bool,
        is_quick: bool,
    ) -> None:
        self.limit = limit
        self.deadline = deadline
        self.as_batch = as_batch  # whether it wants batches, else lists of messages
        self.in_one_piece = in_one_piece
        self.counts = counts  # whether an attempt of each message is counted
        self.tells = tells  # whether the program may be told now which queues it has
        self.is_quick = is_quick  # whether messages that are not in memory are left to be read
