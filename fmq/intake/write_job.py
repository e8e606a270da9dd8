"""One job: rows that any number of tasks write in parts, and that one decision shows.

A task prepares its rows, in transactions that fit into a segment. The commit of the job then
decides all of them at once, and moves the mark of the job to its value in the same decision. So a
job that is committed again finds its mark, and does nothing. A job of a few rows prepares nothing:
its commit is one transaction, with the mark.

What is prepared and not decided belongs to no committed job. So it may always be rolled back: a
commit that comes later is refused, and nothing is lost that was committed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import count
from typing import Any

import pyarrow as pa

from fmq.basics.job_names import ABANDONED_SECONDS, PRODUCER, value_of
from fmq.errors import AlreadyDecided, BadOption, FmqError, TooLarge, TooMany, UnknownTransaction
from fmq.intake.intake_errors import JobPassed, JobUnsure
from fmq.intake.job_parts import PART_BYTES, JobPart, RowsEngine, prepared_parts, send_all
from fmq.intake.row_columns import ManySent, messages_of

NO_MARK = -1
LOG = logging.getLogger(__name__)


class WriteJob:
    """One attempt to write a job."""

    def __init__(
        self, engine: RowsEngine, mark: str | None, value: int, attempt: str, task: str = ""
    ) -> None:
        """`mark` and `value` name the job, and `attempt` this attempt to do it. `task` tells apart
        who writes for it.
        """
        self._engine = engine
        self._mark, self._value = mark, value
        self._producer = PRODUCER + (attempt if mark is None else mark)
        self._prefix = f"{PRODUCER}{value}/{attempt}/"
        self._ids = (f"{self._prefix}{task}/{number}" for number in count())

    def is_done(self) -> bool:
        """Return whether the job was committed before. Raises JobPassed if a later one was."""
        return self._mark is not None and self._before(self._mark) == self._value

    def _before(self, mark: str) -> int:
        """Return the value of the mark. Raises JobPassed if a later job was committed."""
        found = self._engine.mark(mark)
        if found is None:
            return NO_MARK
        if found.value > self._value:
            raise JobPassed(mark, self._value, found.value)
        return int(found.value)

    # --- by each task -----------------------------------------------------------------------------

    def write(
        self,
        batches: Iterable[pa.RecordBatch],
        topic: str | None,
        *,
        hold_bytes: int,
        part_bytes: int = PART_BYTES,
    ) -> JobPart:
        """Prepare the rows of `batches`. If they take no more than `hold_bytes`, only hold them."""
        return self.write_sent(
            messages_of(batches, topic), hold_bytes=hold_bytes, part_bytes=part_bytes
        )

    def write_sent(
        self,
        sent: Iterable[tuple[ManySent, int]],
        *,
        hold_bytes: int,
        part_bytes: int = PART_BYTES,
    ) -> JobPart:
        """Prepare messages, of which each comes with the bytes that it takes."""
        if self.is_done():
            return JobPart(skipped=True)
        prepared, waiting, size, messages = list[str](), list[ManySent](), 0, 0
        for each, bytes_of_each in sent:
            messages += len(each.messages)
            waiting.append(each)
            size += bytes_of_each
            if size >= part_bytes:
                prepared += self._prepare(waiting)
                waiting, size = [], 0
        if waiting and (prepared or size > hold_bytes):
            prepared += self._prepare(waiting)
            waiting = []
        return JobPart(tuple(prepared), tuple(waiting), messages)

    def _prepare(self, sent: Sequence[ManySent]) -> Iterator[str]:
        return prepared_parts(self._engine, self._producer, self._ids, sent)

    # --- once all tasks have written --------------------------------------------------------------

    def commit(self, parts: Sequence[JobPart]) -> bool:
        """Show the rows of all `parts` at one instant. Return False if the job was committed
        before, so that nothing was done.

        Raises JobPassed or MarkMoved if a later job was, AlreadyDecided if this attempt was given
        up, and then nothing was written.
        """
        before = NO_MARK if self._mark is None else self._before(self._mark)
        if self._mark is not None and before == self._value:
            self._settle_quietly(None)
            return False
        if any(part.skipped for part in parts):
            raise JobUnsure(
                f"the mark {self._mark!r} had the value {self._value} while tasks of this job ran, "
                f"and has {before} now. Nothing was written. Do the job again."
            )
        mark = None if self._mark is None else (self._mark, self._value, before)
        decided = self._in_one_transaction(parts, mark)
        if decided is None:
            ids = list[str]()
            for part in parts:
                ids += part.prepared
                if part.held:
                    ids += self._prepare(part.held)
            self._engine.decide_many(ids, "commit", mark=mark)
            decided = ids[0]
        self._settle_quietly(decided)
        return True

    def _in_one_transaction(
        self, parts: Sequence[JobPart], mark: tuple[str, int, int] | None
    ) -> str | None:
        """Commit rows of which nothing was prepared. Return the id of the transaction; None if they
        are too many for one.
        """
        if any(part.prepared for part in parts):
            return None
        tx = self._engine.transaction(producer=self._producer)
        try:
            for part in parts:
                send_all(tx, part.held)
            if mark is not None:
                name, value, expect = mark
                tx.mark(name, value, expect=expect)
        except (TooLarge, TooMany):
            tx.rollback()
            if any(part.held for part in parts):
                return None
            raise
        tx.commit()
        return str(tx.tx_id)

    # --- what is left behind ----------------------------------------------------------------------

    def abort(self, parts: Iterable[JobPart]) -> None:
        """Give this attempt up: roll back what it has prepared, unless the job was committed.

        A commit of this attempt that comes later is refused, if anything was prepared for it.
        """
        ids = {tx_id for part in parts for tx_id in part.prepared}
        for each in self._left_behind():
            if each.producer == self._producer and each.tx_id.startswith(self._prefix):
                ids.add(each.tx_id)
        self._roll_back(ids)

    def _settle_quietly(self, decided: str | None) -> None:
        """Settle once the job is committed: no error may make its caller believe that it is not."""
        try:
            self._settle(decided)
        except FmqError as error:
            LOG.warning("a later job rolls back what is left of this one: %s", error)

    def _settle(self, decided: str | None) -> None:
        """Roll back what is left of this job, and of those before it under the same mark. If
        `decided` is the id of a transaction that was decided just now, also what any job prepared
        a day before that. The clock is that of the engine.
        """
        ids, others = list[str](), list[Any]()
        for each in self._left_behind():
            if each.producer == self._producer and (value_of(each.tx_id) or 0) <= self._value:
                ids.append(each.tx_id)
            else:
                others.append(each)
        if others and decided is not None:
            old = self._engine.outcome(decided).decided_at - timedelta(seconds=ABANDONED_SECONDS)
            ids += [each.tx_id for each in others if each.prepared_at < old]
        self._roll_back(ids)

    def _left_behind(self) -> list[Any]:
        """Return the undecided transactions of all jobs."""
        return [each for each in self._engine.undecided() if value_of(each.tx_id) is not None]

    def _roll_back(self, ids: Iterable[str]) -> None:
        """Roll back all `ids`, or none if they were committed."""
        if not (listed := sorted(ids)):
            return
        try:
            self._engine.decide_many(listed, "rollback")
        except (AlreadyDecided, UnknownTransaction) as error:
            # Another process has decided some of them at this moment.
            LOG.info("nothing was rolled back: %s", error)


def check_job_mark(mark: object) -> tuple[str | None, int]:
    """Return the name and the value of a job's mark; no name without a mark. Raises TypeError or
    BadOption.
    """
    if mark is None:
        return None, 0
    if not isinstance(mark, (tuple, list)) or len(mark) != 2 or not isinstance(mark[0], str):
        raise TypeError(
            f"mark={mark!r:.80}: is a tuple of a name and a number. Nothing was written."
        )
    name, value = mark
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadOption(
            f"the value {value!r} of a mark: is a number from 0 on. Nothing was written."
        )
    return name, value
