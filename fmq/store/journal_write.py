"""One write of the journal: the bytes and rolls that it takes along, and who waits for it.

Calls plan into a write under the engine's lock until a thread takes it. That thread alone has it
from then on, and calls plan into the next one.
"""

from __future__ import annotations

from collections import deque

from fmq.disk import Buffer
from fmq.store.callers import Callback, Waiter
from fmq.store.segment import Segment
from fmq.store.spares import Spare


class Roll:
    """The step from one segment to the next: `buffers` are written to `old`, then `spare` becomes
    `new`.
    """

    __slots__ = ("buffers", "header", "new", "old", "ordinary", "spare", "start")

    def __init__(
        self,
        old: Segment,
        start: int,
        buffers: list[Buffer],
        new: Segment,
        spare: Spare,
        header: bytes,
        *,
        ordinary: bool,
    ) -> None:
        self.old = old
        self.start = start
        self.buffers = buffers
        self.new = new
        self.spare = spare
        self.header = header
        self.ordinary = ordinary  # it does not take the room that is set aside for decisions


class JournalWrite:
    """Rolls, then bytes of one segment from `start` to `end`. One is made for each write, so most
    of what it says is of the class until it differs.
    """

    end = 0  # known once it is taken
    rolls: tuple[Roll, ...] = ()
    ahead = 0  # how many of the buffers are written without a sync; they end at `ahead_to`
    ahead_of_sync = False  # whether it is such a write itself, of what stays pending
    is_forced = False  # whether a call has asked for a sync, in a mode without
    is_noted = False  # whether `CommitQueue.on_pending` was called for it
    is_hurried = False  # whether it was begun for what was posted

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.start = self.ahead_to = start
        self.buffers: list[Buffer] = []
        self.waiters: deque[Waiter | Callback] = deque()
