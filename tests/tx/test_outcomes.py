"""Looking up what was decided, while retention drops what is looked at."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.basics.message import Decision
from fmq.errors import Closed, Damaged, EngineFailed, TxIdInUse, UnknownTransaction
from fmq.store.bytes.kinds import Record
from fmq.store.reading.reader import Reader
from fmq.testing import FaultDisk
from fmq.testing.inside import inside
from fmq.tx.looks.outcomes import Outcomes
from tests.small import CrashDisk, check, fill, flip, flip_two, opened, remove, segments


@pytest.mark.parametrize(("decision", "messages"), [("commit", 2), ("rollback", 0)])
def test_an_outcome_counts_published_messages_and_prepared_bytes(
    decision: Decision, messages: int
) -> None:
    """A transaction that was rolled back has bytes and no messages, also after a restart."""
    disk = CrashDisk()
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send_many("t", [b"12", b"345"])
        tx.prepare()
        assert (engine.outcome("T").messages, engine.outcome("T").bytes) == (2, 5)
        decided = engine.decide("T", decision)
        assert decided == engine.outcome("T")
    with opened(disk) as engine:
        assert engine.outcome("T") == decided
    assert (decided.messages, decided.bytes) == (messages, 5)


def steps_of_one(tx: fmq.Transaction) -> None:
    tx.commit()


def steps_of_two(tx: fmq.Transaction) -> None:
    tx.prepare()
    tx.commit()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("nth", [0, 1])
@pytest.mark.parametrize("steps", [steps_of_one, steps_of_two])
def test_a_failed_engine_returns_only_outcomes_from_before_its_failure(
    steps: Callable[[fmq.Transaction], None], nth: int, named: bool
) -> None:
    """The call that failed may be on the disk or not. The next engine finds out."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        for state in ("committed", "undecided"):
            tx = engine.transaction(tx_id=state)
            tx.send("t", b"1")
            tx.prepare()
            if state == "committed":
                tx.commit()
        tx = engine.transaction(tx_id="T" if named else None)
        tx.send("t", b"2")
        disk.fail("write", nth=nth, error=errno.EIO, names="*.seg")
        with suppress(EngineFailed):  # unless there was but one write to fail
            steps(tx)
        with pytest.raises(EngineFailed):
            engine.send("t", b"3")
        if steps is steps_of_two or nth == 0:
            for ask in (tx.outcome, lambda: engine.outcome(tx.tx_id)):
                with pytest.raises(EngineFailed, match="open the directory again"):
                    ask()
        else:
            assert tx.outcome().state == "committed"
        with pytest.raises(EngineFailed):
            engine.outcome("never heard of")  # another's, and on its way when the write failed?
        assert engine.outcome("committed").state == "committed"
        assert engine.outcome("undecided").state == "undecided"
        if steps is steps_of_two and nth == 1:
            with pytest.raises(EngineFailed):
                engine.undecided()  # one of them may have been committed
        else:
            assert [each.tx_id for each in engine.undecided()] == ["undecided"]
    disk.heal()
    with opened(disk) as engine:
        known = engine.undecided()
        assert "undecided" in {each.tx_id for each in known}


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
    parts = inside(engine)
    reader = Reader(parts.journal.files, parts.journal.seed, engine.options.read_ahead_bytes)
    return Outcomes(
        parts.commit_queue.lock,
        parts.journal,
        parts.ledger,
        parts.catalog,
        ReaderThatWaits(reader, nth, happen),  # type: ignore[arg-type]
        parts.messages.clock,
        engine.options,
    )


@pytest.mark.parametrize("nth", [0, 1, 2])
def test_an_outcome_that_retention_drops_while_it_is_read_is_unknown(nth: int) -> None:
    """No file is reported as damaged or missing.

    Method: let retention run between finding a position and reading it, for the decision itself and
    for each record before it that belongs to the outcome.
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


def test_an_id_is_looked_up_without_reading_indexes_twice() -> None:
    """Each index is read once, and none when the directory is opened."""
    disk = FaultDisk(CrashDisk())

    def reads() -> int:
        return disk.count("read", names="*.idx")

    with opened(disk, sync="never") as engine:
        engine.transaction(tx_id="T").commit()
        while engine.stats().segments < 520:
            engine.send("t", b"x" * 3000)
        assert reads() == 0
    with opened(disk, sync="never") as engine:
        assert reads() == 0
        engine.transaction(tx_id="U").rollback()
        assert reads() == (once := engine.stats().segments - 1)
        for number in range(5):
            engine.transaction(tx_id=f"V{number}").rollback()
            with pytest.raises(UnknownTransaction):
                engine.outcome("never")
            with pytest.raises(UnknownTransaction):
                engine.decide("never", "commit")
        assert reads() == once
        with pytest.raises(TxIdInUse):
            engine.transaction(tx_id="T")
        assert reads() == once + 1


def test_a_transaction_relocated_while_the_disk_failed_is_undecided() -> None:
    """Relocated or not, it was not decided.

    Method: count the writes of the send that relocates it, then let each of them fail.
    """
    disk = FaultDisk(CrashDisk())

    def writes() -> int:
        return disk.count("write", names="*.seg")

    with lagging(disk) as engine:
        (position,) = {each.position for each in engine.undecided()}
        while engine.undecided()[0].position == position:
            before = writes()
            engine.send("t", b"f" * 900)
        after = writes()
    assert after - before > 1
    for nth in range(before, after):
        disk = FaultDisk(CrashDisk())
        disk.fail("write", nth=nth, names="*.seg")
        with lagging(disk) as engine:
            with pytest.raises(EngineFailed):
                for _ in range(200):
                    engine.send("t", b"f" * 900)
            assert [each.tx_id for each in engine.undecided()] == ["T"]
            assert engine.outcome("T").state == "undecided"


def lagging(disk: FaultDisk) -> Engine:
    """An engine with an undecided transaction that is soon written again."""
    engine = opened(disk, relocate_bytes=4096)
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"x")
    tx.prepare()
    return engine


def test_a_removed_segment_raises_damaged_for_an_outcome() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"x")
        for _ in range(3):
            fill(engine)
        engine.checkpoint()
        first = segments(disk)[0]
        remove(disk, first, first.replace(".seg", ".idx"))
        for call in (
            lambda: engine.outcome("T"),
            lambda: engine.decide("T", "commit"),
            lambda: engine.transaction(tx_id="T"),
        ):
            with pytest.raises(Damaged, match=f"{first}.*the segment is missing"):
                call()


def test_a_rolled_back_handle_gets_no_outcome_of_another_one() -> None:
    """A second transaction commits under the id that the first one has freed."""
    with opened(CrashDisk()) as engine:
        first = engine.transaction(tx_id="T")
        first.rollback()
        with engine.transaction(tx_id="T") as second:
            second.send("t", b"1")
        assert second.outcome().state == "committed"
        with pytest.raises(UnknownTransaction, match="rolled back before it was prepared"):
            first.outcome()


def damaged_at_the_second(wound: Any = flip_two) -> tuple[CrashDisk, str]:
    """A transaction in each of four segments; the second one has lost its index, and is damaged."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for number in range(4):
            with engine.transaction(tx_id=f"T{number}") as tx:
                tx.send("t", b"x")
            fill(engine)
    second = segments(disk)[1]
    remove(disk, second.replace(".seg", ".idx"))
    wound(disk, second, 70)  # damage a head: after a damaged body the decisions would be known
    return disk, second


def test_damage_hides_no_decision_of_a_newer_segment() -> None:
    """Older outcomes are not known: their ids may have been used again in the damaged part."""
    disk, second = damaged_at_the_second()
    with opened(disk) as engine:
        for tx_id in ("T2", "T3"):
            assert engine.outcome(tx_id).state == "committed"
            assert engine.decide(tx_id, "commit").state == "committed"
            with pytest.raises(TxIdInUse):
                engine.transaction(tx_id=tx_id)
        for tx_id in ("T0", "T1", "never"):
            with pytest.raises(Damaged, match=second):
                engine.outcome(tx_id)


def test_one_flipped_bit_hides_no_decision() -> None:
    disk, _ = damaged_at_the_second(flip)
    with opened(disk) as engine:
        for number in range(4):
            assert engine.outcome(f"T{number}").state == "committed"
        with pytest.raises(UnknownTransaction):
            engine.outcome("never")


def test_an_id_that_damage_may_hide_is_refused() -> None:
    disk, second = damaged_at_the_second()
    with opened(disk) as engine:
        with pytest.raises(Damaged, match=f"{second}.*'new' was decided there.*Leave tx_id= out"):
            engine.transaction(tx_id="new")
        with engine.transaction() as tx:
            tx.send("t", b"goes on")
        assert engine.outcome(tx.tx_id).state == "committed"


def test_a_transaction_of_a_closed_engine_raises_closed() -> None:
    """Another engine may have decided it since."""
    disk = CrashDisk()
    with opened(disk) as engine:
        prepared = engine.transaction(tx_id="T")
        prepared.send("t", b"x")
        prepared.prepare()
        with engine.transaction(tx_id="long ago") as ended:
            ended.send("t", b"x")
        dropped = engine.transaction(tx_id="dropped")
        dropped.rollback()
        fill(engine)
    with opened(disk) as another:
        another.decide("T", "commit")
        for tx in prepared, ended, dropped:
            with pytest.raises(Closed):
                tx.outcome()


def test_closing_the_engine_during_outcome_raises_closed() -> None:
    """It does not raise that a file cannot be read."""
    disk = FaultDisk(CrashDisk())
    with opened(disk) as engine:
        with engine.transaction(tx_id="T") as tx:
            tx.send("t", b"x")

        fill(engine)

        def close() -> None:
            engine.close()
            raise OSError(errno.EBADF, "Bad file descriptor")

        disk.before("read", close, names="*.seg")
        with pytest.raises(Closed):
            tx.outcome()
