"""Walking through the raw journal, append by append, whether or not it is sound or at rest.

Nothing is applied and nothing is concluded but this: what stopped the walk is the journal's
end, an append that a crash left unfinished or a writer has not finished yet, or damage. Which
of them, recovery/tail.py decides, as it does for recovery.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace

from fmq.disk import Directory, File
from fmq.errors import Damaged, FmqError, NewerFormat
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.layout import Layout, known_segments, read_header
from fmq.recovery.tail import Verdict, judge
from fmq.store.kinds import Record
from fmq.store.record import aligned
from fmq.store.scan import Ending, Finding, Scan, vouched_beyond
from fmq.store.segment import HEADER_BYTES, Segment, segment_name

Append = list[Record]
ATTEMPTS = 5


def end_of(append: Append) -> int:
    """The position behind `append`."""
    return append[-1].position + aligned(append[-1].size)


class Walk:
    """The appends that lie at or behind `start`, or reach over it, as an iterator.

    Once it is exhausted, `position` is where it stopped, `damage` what is wrong there, if
    anything is, and `unfinished` why the bytes there are no append, if there are any.
    """

    def __init__(self, directory: Directory, layout: Layout, start: int = 0) -> None:
        self._directory = directory
        self._layout = layout
        self._start = start
        self._seed = 0
        self._vouched = 0
        self.position = start
        self.damage: FmqError | None = None
        self.unfinished: str | None = None

    def __iter__(self) -> Iterator[Append]:
        bases = self._layout.bases
        at = max(bisect_right(bases, self._start) - 1, 0)
        try:
            store = read_header(self._directory, bases[at]).store
            self._seed = zlib.crc32(store)
            checkpoint = checkpoints.read(self._directory, store)
            self._vouched = checkpoint.applied_upto if checkpoint else 0
            for number in range(at, len(bases)):
                yield from self._segment(*bases[number : number + 2])
        except FmqError as error:
            self.damage = error

    def _segment(self, base: int, behind: int | None = None) -> Iterator[Append]:
        """The appends of one segment; `behind` is the base of the next, which tells its end."""
        segment, trouble = self._known(base, behind)
        self.position = base + HEADER_BYTES
        ended = behind is not None and trouble is None
        file = self._directory.open(segment.name)
        try:
            yield from self._appends(file, segment, ended=ended)
        finally:
            file.close()
        if trouble is not None:
            raise trouble

    def _known(self, base: int, behind: int | None) -> tuple[Segment, FmqError | None]:
        """The segment at `base`; beside it what is wrong with the next one's header."""
        bases = (base,) if behind is None else (base, behind)
        try:
            pair = replace(self._layout, bases=bases)
            return known_segments(self._directory, pair, None)[0], None
        except FmqError as error:
            if behind is None:
                raise
            return self._known(base, None)[0], error

    def _appends(self, file: File, segment: Segment, *, ended: bool) -> Iterator[Append]:
        """What lies in `file`; if its end is not known, a writer may be at work there.

        So what looks wrong then counts only if it is still so when looked at again.
        """
        limit = segment.end if ended else segment.limit
        ending, verdict = None, Verdict.ENDS
        for _ in range(1 if ended else ATTEMPTS):
            scan = Scan(file, segment.base, limit, self.position, self._seed)
            for append in scan:
                self.position = end_of(append)
                if self.position > self._start:
                    yield append
            ending = scan.ending
            assert ending is not None
            self._vouched = max(self._vouched, scan.durable_to)
            verdict = self._judge(file, segment, ending, limit, ended=ended)
            if verdict in (Verdict.ENDS, Verdict.GOES_ON):
                return
        assert ending is not None
        if verdict is not Verdict.CUT:
            raise trouble_of(segment, ending, verdict)
        self.unfinished = ending.reason or "the file ends inside it"

    def _judge(
        self, file: File, segment: Segment, ending: Ending, limit: int, *, ended: bool
    ) -> Verdict:
        vouched = limit + 1 if ended else self._vouched
        if ending.finding is Finding.BAD and not ended:
            beyond = vouched_beyond(file, segment.base, limit, ending.position, self._seed)
            vouched = max(vouched, beyond)
        return judge(ending, vouched)


def trouble_of(segment: Segment, ending: Ending, verdict: Verdict) -> FmqError:
    """What recovery would refuse the journal for."""
    if verdict is Verdict.NEWER:
        return NewerFormat(segment_name(segment.base), ending.position, ending.reason)
    reason = ending.reason
    if verdict is not Verdict.MISPLACED:
        reason = f"{reason}; this part had been durable"
    return Damaged(segment_name(segment.base), ending.position, reason)
