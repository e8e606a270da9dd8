"""An undecided transaction that lags behind is written again at the end, and stays what it was."""

from __future__ import annotations

from typing import Any

import pytest

from fmq import Engine
from fmq.basics.message import Decision
from fmq.testing import PowerLoss
from fmq.tx.commands import appends
from fmq.tx.commands.appends import Ending
from tests.small import CrashDisk, FakeClock, bodies, check, fill, opened
from tests.store.lines import Lines

FAR: dict[str, Any] = {"relocate_bytes": 5000}


def prepared(engine: Engine, tx_id: str = "T", size: int = 50) -> str:
    tx = engine.transaction(tx_id=tx_id, producer="p")
    tx.send("orders", b"a" * size, key="k")
    tx.send_many("emails", [b"2", b"3"])
    tx.prepare()
    return tx.outcome().seal


def committed_whole(engine: Engine, size: int = 50) -> None:
    (message,) = engine.read("orders")
    assert (message.body, message.key, message.producer) == (b"a" * size, "k", "p")
    assert bodies(engine, "emails") == [b"2", b"3"]


def behind(engine: Engine) -> int:
    (first, *_) = engine.undecided()
    return engine.stats().position - first.position


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@pytest.mark.parametrize("restart", [False, True])
def test_an_old_undecided_transaction_is_relocated_and_can_be_decided(
    restart: bool, decision: str
) -> None:
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock, **FAR)
    seal = prepared(engine)
    (before,) = engine.undecided()
    clock.advance(1)
    while engine.stats().segments < 5:
        fill(engine)
    (after,) = engine.undecided()
    assert after.position > before.position
    assert (after.seal, after.prepared_at, after.topics) == (
        seal,
        before.prepared_at,
        before.topics,
    )
    if restart:
        engine.close()
        engine = opened(disk, **FAR)
        assert engine.undecided() == [after]
    with engine:
        assert bodies(engine, "orders") == []
        outcome = engine.decide("T", decision, seal=seal)  # type: ignore[arg-type]
        assert outcome.prepared_at == before.prepared_at
        if decision == "commit":
            committed_whole(engine)
        else:
            assert bodies(engine, "orders") == bodies(engine, "emails") == []
    check(disk)


def test_relocation_bounds_the_distance_of_undecided_transactions() -> None:
    """Restart time and disk use stay bounded, whatever a lost producer leaves behind."""
    with opened(CrashDisk(), **FAR) as engine:
        prepared(engine)
        for _ in range(40):
            engine.send("fill", b"f" * 400)
            assert behind(engine) <= 5000 + 2 * 4096
        assert engine.undecided()[0].position > 8192


def test_retention_drops_old_segments_after_a_relocation() -> None:
    disk = CrashDisk()
    with opened(disk, **FAR, retain_bytes=12288, checkpoint_bytes=2000) as engine:
        prepared(engine)
        for _ in range(12):
            fill(engine)
        assert engine.stats().segments <= 5
        assert engine.undecided()[0].position >= engine.stats().first_position
    check(disk)
    with opened(disk, **FAR) as engine:
        engine.decide("T", "commit")
        committed_whole(engine)
    check(disk)


def test_a_relocated_transaction_is_found_without_checkpoints() -> None:
    disk = CrashDisk()
    with opened(disk, **FAR, retain_bytes=12288, checkpoint_bytes=2000) as engine:
        prepared(engine)
        for _ in range(12):
            fill(engine)
        (before,) = engine.undecided()
    directory = disk.directory("data", make=False)
    for name in ("checkpoint.0", "checkpoint.1"):
        directory.remove(name)
    with opened(disk, **FAR) as engine:
        assert engine.undecided() == [before]
        engine.decide("T", "commit")
        committed_whole(engine)
    check(disk)


def test_relocation_ends_even_if_the_undecided_exceed_the_distance() -> None:
    """Otherwise each relocated transaction would push the next one too far back, for ever."""
    disk = CrashDisk()
    with opened(disk, relocate_bytes=2000) as engine:
        for number in range(8):
            prepared(engine, f"T{number}", size=1000)
        before = engine.stats().position
        for _ in range(10):
            engine.send("fill", b"f" * 100)
        assert engine.stats().position - before < 60_000
        assert len(engine.undecided()) == 8
        for number in range(8):
            engine.decide(f"T{number}", "commit")
        assert len(engine.read("orders")) == 8
    check(disk)


def test_a_crash_in_a_relocation_leaves_the_old_or_the_new_transaction() -> None:
    """The new one replaces the old one if it is complete, and is cut if it is not.

    Method: stop the power at every operation of the send that relocates, and decide after every
    state that it may leave.
    """

    disk = CrashDisk()
    with opened(disk, **FAR) as engine:
        prepared(engine)
        old, sends = engine.undecided()[0].position, 0
        while engine.undecided()[0].position == old:
            first, sends = disk.operations, sends + 1
            engine.send("fill", b"f" * 400)
        last = disk.operations
    seen = set()
    for crash_at in range(first, last):
        disk = CrashDisk(crash_at=crash_at)
        with pytest.raises(PowerLoss), opened(disk, **FAR) as engine:
            prepared(engine)
            for _ in range(sends):
                engine.send("fill", b"f" * 400)
        for state in disk.states():
            with opened(state, **FAR) as engine:
                (undecided,) = engine.undecided()
                seen.add(undecided.position == old)
                assert engine.decide("T", "commit").state == "committed"
                committed_whole(engine)
            check(state)
    assert seen == {True, False}


@pytest.mark.parametrize("decision", ["commit", "rollback"])
def test_a_decision_finds_a_transaction_relocated_while_it_read(
    decision: Decision,
) -> None:
    """Another thread relocates it meanwhile, and retention drops its old place."""
    limits = {"relocate_bytes": 4096, "retain_bytes": 8192, "reference_bytes_min": 100}
    with opened(CrashDisk(), None, **limits) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"x" * 200)  # not kept in memory
        tx.prepare()
        fill(engine)

        def relocate() -> None:
            first = engine.stats().first_position
            while engine.stats().first_position < first + 16384:
                fill(engine)

        lines = Lines(appends, 0, relocate, Ending.read_ahead.__code__)
        lines.run(lambda: engine.decide("T", decision))
        assert lines.met
        assert bodies(engine, "t") == ([b"x" * 200] if decision == "commit" else [])
