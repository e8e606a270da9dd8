"""One write of the journal: its bytes, its rolls, and the callers that wait for it.

Calls plan into a write under the engine's lock until a thread takes it. That thread alone has it
from then on, and calls plan into the next one.
"""

from __future__ import annotations

from fmq.machine.disk import Buffer
from fmq.store.journal.callers import Callback, Waiter
from fmq.store.journal.segment import Segment
from fmq.store.journal.spares import Spare


class Roll:
    """The step from one segment to the next: `buffers` are written to `segment`, from `start` to
    `end`, then `spare` becomes `new`.
    """

    __slots__ = ("buffers", "end", "header", "new", "ordinary", "segment", "spare", "start")

    def __init__(
        self,
        segment: Segment,
        start: int,
        buffers: list[Buffer],
        new: Segment,
        spare: Spare,
        header: bytes,
        *,
        ordinary: bool,
    ) -> None:
        self.segment = segment
        self.start = start
        self.end = segment.end
        self.buffers = buffers
        self.new = new
        self.spare = spare
        self.header = header
        self.ordinary = ordinary  # True if the append may not use the room reserved for decisions


class JournalWrite:
    """The bytes of one write: rolls, and then bytes of one segment from `start` to `end`."""

    __slots__ = (
        *("ahead", "buffers", "end", "is_forced", "is_hurried", "is_noted", "rolls", "segment"),
        *("start", "thread", "waiters"),
    )

    def __init__(self, segment: Segment, start: int) -> None:
        self.segment = segment
        self.start = start
        self.rolls: tuple[Roll, ...] = ()
        self.buffers: list[Buffer] = []
        # How many buffers a write ahead of its sync writes. They stay pending. 0 for other writes.
        self.ahead = 0
        self.is_forced = False  # True if a call wants a sync in a mode without syncs
        self.is_noted = False  # True once `CommitQueue.on_pending` was called for this write
        self.is_hurried = False  # True if the write began because posted appends were wanted
        self.waiters: list[Waiter | Callback] = []
        self.thread = 0  # the one that writes, while another write may begin

    end: int  # set when the write is taken
