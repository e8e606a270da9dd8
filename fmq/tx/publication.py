"""What a decision writes: references or copies of what was prepared, acks, and the decision.

A run is referred to where its PRE_MESSAGE lies in the segment being written and is not small;
otherwise it is copied. So a segment holds the bodies of all that is published in it.
"""

from __future__ import annotations

from fmq.store.content import Content
from fmq.store.kinds import Acks, Decided, Kind, Record, Run
from fmq.store.segment import Segment
from fmq.tx.ledger import Entry
from fmq.tx.outcomes import Outcomes


class Publication:
    """The append that ends one transaction; made anew if the journal rolls before it is placed."""

    def __init__(
        self, entry: Entry, decided: Decided, outcomes: Outcomes, reference_bytes_min: int
    ) -> None:
        self._entry = entry
        self._outcomes = outcomes
        self._reference_bytes_min = reference_bytes_min
        self.decided = decided
        self.runs: list[Run] = []
        self._contents: dict[int, Content] = {}

    def read_ahead(self, segment: Segment, runs: list[Run]) -> None:
        """Read what of `runs` will have to be copied, outside the lock: what is small or lies
        elsewhere.
        """
        if self.decided.kind == Kind.ROLLBACK:
            return
        for run in runs:
            if run.content is not None:
                self._contents[run.position] = run.content
            elif run.position < segment.base or run.raw_bytes < self._reference_bytes_min:
                self._contents[run.position] = self._outcomes.content(run.position)

    def records(self, segment: Segment) -> list[Record]:
        """The append's records, if it is written into `segment`."""
        if self.decided.kind == Kind.ROLLBACK:
            return [self.decided]
        entry = self._entry
        self.runs = [self._publish(pre, segment.base) for pre in entry.runs]
        acks = [Acks(entry.prepare.acks, 0, entry.tx)] if entry.prepare.acks else []
        return [*self.runs, *acks, self.decided]

    def _publish(self, pre: Run, base: int) -> Run:
        content = self._contents.get(pre.position)
        small = content is not None and len(content.bodies) < self._reference_bytes_min
        refer = pre.position >= base and not small
        if not refer and content is None:
            # Only if the journal rolled after `read_ahead`: rare enough to read under the lock.
            content = self._outcomes.content(pre.position)
        return Run(
            Kind.REF_MESSAGE if refer else Kind.TX_MESSAGE,
            pre.topic,
            pre.queue,
            0,
            pre.count,
            0,
            pre.tx,
            pre.tx_id,
            pre.producer,
            pre.position if refer else 0,
            None if refer else content,
            pre.raw_bytes,
        )
