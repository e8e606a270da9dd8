"""Looking up what was decided, while retention drops what is looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fmq import Engine
from fmq.errors import UnknownTransaction
from fmq.store.kinds import Record
from fmq.store.reader import Reader
from fmq.tx.outcomes import Outcomes
from tests.small import CrashDisk, check, fill, opened


class ReaderThatWaits:
    """An engine's reader, before whose `nth` record something happens."""

    def __init__(self, reader: Reader, nth: int, happen: Callable[[], None]) -> None:
        self._reader = reader
        self._nth = nth
        self._happen = happen

    def record(self, base: int, place: int) -> Record:
        if self._nth == 0:
            self._happen()
        self._nth -= 1
        return self._reader.record(base, place)


def outcomes_of(engine: Engine, nth: int, happen: Callable[[], None]) -> Outcomes:
    """The outcomes that `engine` knows, read through a ReaderThatWaits."""
    parts = engine._parts
    return Outcomes(
        parts.group.lock,
        parts.journal,
        parts.ledger,
        parts.catalog,
        ReaderThatWaits(parts.messages._reader, nth, happen),  # type: ignore[arg-type]
        parts.messages.clock,
        engine.options,
    )


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_an_outcome_that_retention_drops_while_it_is_read_is_unknown(nth: int) -> None:
    """As if it had been asked for a moment later; nothing is damaged, and no file is missing.

    Method: let retention run between finding a position and reading it, for the decision itself
    and for each record before it that the outcome tells of.
    """
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"0")
        fill(engine)

        def drop() -> None:
            while engine.queues("t")[0].first == 0:
                fill(engine)

        outcomes = outcomes_of(engine, nth, drop)
        decided = outcomes.find("T")
        if nth == 0:
            assert decided is None
        else:
            assert decided is not None
            with pytest.raises(UnknownTransaction):
                outcomes.outcome(decided)
        with pytest.raises(UnknownTransaction):
            engine.outcome("T")
    check(disk)
