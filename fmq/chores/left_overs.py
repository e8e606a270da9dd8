"""Rolls back what jobs have prepared and can commit no more: they have died, or had twins.

A job is committed by the decision that moves its mark to its value. So what is prepared for a value
that the mark has reached was left behind, and so was what nobody has decided in a day.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from fmq.basics.job_names import ABANDONED_SECONDS, PRODUCER, value_of
from fmq.errors import AlreadyDecided, UnknownTransaction
from fmq.tx.commands.decisions import Decisions
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.ledger import Entry

LOG = logging.getLogger("fmq.jobs")


class LeftOvers:
    """The undecided transactions of jobs in one engine."""

    def __init__(self, writer: Writer, decisions: Decisions) -> None:
        self._writer = writer
        self._ledger = writer.ledger
        self._decisions = decisions

    def may_come(self) -> bool:
        """Return whether anything is prepared that may become a left-over."""
        with self._writer.commit_queue.lock:
            return any(value_of(tx_id) is not None for tx_id in self._ledger.by_tx_id)

    def settle(self) -> None:
        """Roll back what was left behind."""
        with self._writer.commit_queue.lock:
            left = [*filter(self._is_left, self._ledger.by_tx_id.values())]
        for entry in left:
            tx_id = entry.prepare.tx_id
            with suppress(AlreadyDecided, UnknownTransaction):  # another process was faster
                why = "its job was committed without it, or did not come back"
                self._decisions.decide(tx_id, "rollback", reason=why, decided_by="fmq")
                LOG.warning("rolled back %s: %s", tx_id, why)

    def _is_left(self, entry: Entry) -> bool:
        prepare = entry.prepare
        value = value_of(prepare.tx_id)
        if value is None:
            return False
        mark = self._ledger.marks.get((prepare.producer or "").removeprefix(PRODUCER))
        age_us = self._writer.clock.time_us() - prepare.prepared_us
        return (mark is not None and value <= mark.value) or age_us > ABANDONED_SECONDS * 1_000_000
