"""One poll of a consumer: what its caller asks for, what it has got so far, and what it waits for.

A poll is written once, as a generator (`GroupMember.taking`). It knows no thread and no loop: who
carries out its steps is said in fmq/steps/call_steps.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fmq.basics.clock import Clock
from fmq.basics.message import Message
from fmq.consume.claims.claim import Claim
from fmq.steps.call_steps import Wakeup
from fmq.store.reading.batch import Batch

Taken = tuple[Claim, list[Any]] | None


class Poll:
    """One call of a consumer, and its progress. One thread at a time uses it."""

    # What the poll has claimed. `ranges`, `pieces` and `is_counted` belong to it.
    claim: Claim | None = None
    ranges: list[tuple[int, int]]  # the parts of the claim that the group wants
    pieces: list[Any]  # the messages of `ranges` if they were in memory; else empty
    is_counted = False  # True once an attempt of each message of `ranges` is planned
    most = 0  # how many messages the poll may get, by the group's limit; 0: as many as it asks for
    waits = False  # True if the poll has found nothing and has time left
    # What wakes the waiting thread, which waits at most until `until`.
    wakeup: Wakeup | None = None
    until = 0.0
    # Returns the part of the read messages that is handed out, counts an attempt of it, and gives
    # back the rest. If there is such a function, `counts` is False.
    fit: Callable[[Claim, list[Any]], list[Any]] | None = None
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
        self.tells = tells  # True: call `on_change` of the program if its queues have changed
        self.listens = listens  # True: a look that finds nothing makes a wakeup


def offsets_of(piece: Batch | list[Message]) -> tuple[int, int]:
    """Return the offset of the first message of a piece, and the offset after its last message."""
    if not isinstance(piece, list):
        return piece.offset, piece.next
    first = piece[0].offset
    assert first is not None, "the message was read"
    return first, first + len(piece)
