"""Walks through the raw journal, append by append, whether it is sound or not, at rest or not.

Nothing is applied and nothing is concluded but this: what stopped the walk is the journal's
end, an append that a crash left unfinished or a writer has not finished yet, or damage. Which
of them, recovery/tail.py decides, as it does for recovery.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Iterator

from fmq.errors import FmqError
from fmq.machine.disk import Directory, File
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.layout import known_segment, look, store_of
from fmq.recovery.tail import SOUND, Verdict, judge, refusal
from fmq.store.bytes.kinds import Record
from fmq.store.journal.scan import Finding, Scan, durable_beyond, end_of
from fmq.store.journal.segment import HEADER_BYTES, Segment

ReadAppend = list[Record]
ATTEMPTS = 5


class Walk:
    """Iterates over the appends from the one at position `start` on. `start` may lie inside of it.

    Once it is exhausted, `position` is where it stopped, `damage` what is wrong there, if
    anything is, and `unfinished` why the bytes there are no append, if there are any.
    """

    def __init__(self, directory: Directory, start: int = 0) -> None:
        self._directory = directory
        self._start = start
        self._seed = 0
        self._proven_to = 0
        self.position = start
        self.damage: FmqError | None = None
        self.unfinished: str | None = None

    def __iter__(self) -> Iterator[ReadAppend]:
        try:
            self._prepare()
            bases = self._layout.bases
            at = max(bisect_right(bases, self._start) - 1, 0)
            for number in range(at, len(bases)):
                yield from self._if_kept(*bases[number : number + 2])
        except FmqError as error:
            self.damage = error

    def _prepare(self) -> None:
        """Read what is proven durable, and only then which segments there are.

        The other way round, the checkpoint could speak of a segment that was not there yet.
        """
        store = store_of(self._directory, look(self._directory))
        checkpoint = checkpoints.read(self._directory, store)
        self._seed = zlib.crc32(store)
        self._proven_to = checkpoint.applied_upto if checkpoint else 0
        self._layout = look(self._directory)

    def _if_kept(self, base: int, behind: int | None = None) -> Iterator[ReadAppend]:
        """Yield the appends of one segment, unless retention drops the segment before it is
        opened.
        """
        try:
            yield from self._segment(base, behind)
        except FileNotFoundError:
            if base in look(self._directory).bases:
                raise

    def _segment(self, base: int, behind: int | None) -> Iterator[ReadAppend]:
        """Yield the appends of one segment. `behind`, the base of the next segment, tells the end
        of this one.
        """
        segment, trouble = known_segment(self._directory, self._layout, base, behind)
        self.position = base + HEADER_BYTES
        sealed = behind is not None
        file = self._directory.open(segment.name)
        try:
            if sealed and trouble is None:
                yield from self._appends(file, segment, segment.end, durable_to=segment.limit)
            elif sealed:
                # No other segment says where this segment ends, so read as far as its bytes are
                # sound. Damage is reported in any case.
                yield from self._appends(file, segment, segment.limit, durable_to=0)
            else:
                yield from self._tail(file, segment)
        finally:
            file.close()
        if trouble is not None:
            raise trouble

    def _tail(self, file: File, segment: Segment) -> Iterator[ReadAppend]:
        """Yield the appends of the last segment, which another process may be writing.

        So damage counts only if the segment is still damaged when it is read again.
        """
        for attempt in range(ATTEMPTS):
            self.unfinished = None
            try:
                yield from self._appends(file, segment, segment.limit, durable_to=None)
            except FmqError:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            if self.unfinished is None:
                return

    def _appends(
        self, file: File, segment: Segment, limit: int, *, durable_to: int | None
    ) -> Iterator[ReadAppend]:
        """Yield the appends in `file` up to `limit`.

        If `durable_to` is None, find out how far they are durable.
        """
        scan = Scan(file, segment.base, limit, self.position, self._seed)
        for append in scan:
            self.position = end_of(append)
            if self.position > self._start:
                yield append
        ending = scan.ending
        assert ending is not None
        if durable_to is None:
            self._proven_to = max(self._proven_to, scan.durable_to)
            durable_to = self._proven_to
            if ending.finding is Finding.BAD:
                beyond = durable_beyond(file, segment.base, limit, ending.position, self._seed)
                durable_to = max(durable_to, beyond)
        verdict = judge(ending, durable_to)
        if verdict is Verdict.CUT:
            self.unfinished = ending.reason or "the file ends inside it"
        elif verdict not in SOUND:
            raise refusal(segment.name, ending, verdict, durable_to)
