"""Message ids: a message is sent once for a topic, and each repeat gets the first receipt."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq import DelayedReceipt, Message
from fmq.basics.message import Decision
from fmq.errors import BadOption, MessageIdUndecided
from fmq.steps.call_steps import Durable
from fmq.store.bytes.kinds import Append
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from tests.small import bodies, opened, segments


def test_the_second_send_returns_the_first_receipt_and_sends_nothing() -> None:
    """Bodies, keys and queues are not compared."""
    with opened(CrashDisk(), queues=3) as engine:
        first = engine.send("t", b"1", message_id="order 1", queue=2)
        assert engine.send("t", b"other", message_id="order 1", key="k", queue=0) == first
        assert engine.send_many("t", [Message(b"1", message_id="order 1")], queue=1) == [first]
        assert [queue.next for queue in engine.queues("t")] == [0, 0, 1]


def test_an_id_counts_for_its_topic_only() -> None:
    with opened(CrashDisk()) as engine:
        receipts = [engine.send(topic, b"1", message_id="x") for topic in ("a", "b")]
        assert [each.topic for each in receipts] == ["a", "b"]
        assert [engine.send(topic, b"2", message_id="x") for topic in ("a", "b")] == receipts


@pytest.mark.parametrize("clean", [True, False])
def test_ids_are_known_after_a_restart(clean: bool) -> None:
    disk = CrashDisk()
    engine = opened(disk, checkpoint_bytes=2000)
    first = [engine.send("t", bytes(300), message_id=f"{i}") for i in range(40)]
    assert len(segments(disk)) > 3
    if clean:
        engine.close()
    else:
        disk = disk.after_kill()
        engine.close()
    with opened(disk) as engine:
        assert [engine.send("t", b"", message_id=f"{i}") for i in range(40)] == first
        assert engine.queues("t")[0].next == 40


def test_lost_index_files_lose_no_ids() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        first = [engine.send("t", bytes(300), message_id=f"{i}") for i in range(40)]
    directory = disk.directory("data", make=False)
    for name in [name for name in directory.names() if name.endswith((".idx", ".part"))]:
        directory.remove(name)
    with opened(disk) as engine:
        assert [engine.send("t", b"", message_id=f"{i}") for i in range(40)] == first


@pytest.mark.parametrize("reopened", [True, False])
def test_ids_are_known_after_retention_has_dropped_their_messages(reopened: bool) -> None:
    """They are carried as often as need be: the journal is turned over several times."""
    disk = CrashDisk()
    options: dict[str, Any] = {"retain_bytes": 16384, "keep_unread": False}
    with opened(disk, **options) as engine:
        first = [engine.send("t", bytes(100), message_id=f"{i}") for i in range(20)]
        for _ in range(150):
            engine.send("t", bytes(400))
        assert engine.queues("t")[0].first > 20
        if not reopened:
            assert [engine.send("t", b"", message_id=f"{i}") for i in range(20)] == first
    with opened(disk, **options) as engine:
        assert [engine.send("t", b"", message_id=f"{i}") for i in range(20)] == first
        assert len(segments(disk)) <= 6


def test_ids_beyond_the_number_are_forgotten_and_the_newest_are_not() -> None:
    disk = CrashDisk()
    options: dict[str, Any] = {"retain_bytes": 16384, "message_ids_kept": 30}
    with opened(disk, **options) as engine:
        for i in range(400):
            engine.send("t", bytes(100), message_id=f"{i}")
        window = inside(engine).ledger.id_window
        assert window is not None
        assert 30 <= len(window) <= 30 + 2 * 4096 // 100
        before = engine.queues("t")[0].next
        for i in range(370, 400):
            engine.send("t", b"", message_id=f"{i}")
        assert engine.queues("t")[0].next == before
        engine.send("t", b"", message_id="0")
        assert engine.queues("t")[0].next == before + 1


@pytest.mark.parametrize("restarted", [True, False])
def test_ids_beyond_the_age_are_forgotten(restarted: bool) -> None:
    disk, clock = CrashDisk(), FakeClock()
    options: dict[str, Any] = {"message_id_seconds": 60}
    engine = opened(disk, clock, **options)
    first = engine.send("t", b"1", message_id="x")
    clock.advance(60)
    if restarted:
        engine.close()
        engine = opened(disk, clock, **options)
    assert engine.send("t", b"2", message_id="x") == first
    clock.advance(0.001)
    second = engine.send("t", b"3", message_id="x")
    assert second.offset == 1
    clock.advance(59)
    assert engine.send("t", b"4", message_id="x") == second
    engine.close()


def test_a_deleted_topic_forgets_its_ids() -> None:
    disk = CrashDisk()
    options: dict[str, Any] = {"retain_bytes": 12288, "keep_unread": False}
    with opened(disk, **options) as engine:
        engine.send("t", b"1", message_id="x")
        engine.send("other", b"1", message_id="x")
        engine.topic("t").delete()
        first = engine.send("t", b"2", message_id="x")
        assert first.offset == 0
        assert bodies(engine, "t") == [b"2"]
        assert engine.send("t", b"3", message_id="x") == first
        engine.topic("t").delete()
        for _ in range(100):
            engine.send("more", bytes(400))
    with opened(disk, **options) as engine:
        again = engine.send("t", b"4", message_id="x")
        assert again.offset == 0
        assert again.position > first.position
        assert engine.send("other", b"", message_id="x").offset == 0
        assert engine.queues("other")[0].next == 1


# --- several at once ----------------------------------------------------------------------------


def test_a_batch_leaves_out_repeats_and_returns_their_receipts_last() -> None:
    """Within a batch the first of an id counts."""
    with opened(CrashDisk()) as engine:
        old = engine.send("t", b"old", message_id="old")
        batch: list[bytes | Message] = [
            Message(b"1", message_id="a"),
            Message(b"2", message_id="old"),
            b"3",
            Message(b"4", message_id="a", key="k"),
            Message(b"5", message_id="b", headers={"h": "v"}),
        ]
        new, *left_out = engine.send_many("t", batch)
        assert (new.offset, new.count) == (1, 3)
        assert left_out == [old, new._replace(count=1)]
        found = engine.read("t", offset=1)
        assert [each.body for each in found] == [b"1", b"3", b"5"]
        assert [each.message_id for each in found] == ["a", None, "b"]
        assert found[2].headers == {"h": "v"}
        b = engine.send("t", b"", message_id="b")
        assert b == new._replace(offset=3, count=1)
        receipts = engine.send_many("t", batch)
        assert receipts[0].count == 1  # the body without an id
        assert receipts[1:] == [new._replace(count=1), old, new._replace(count=1), b]


def test_a_batch_of_repeats_alone_writes_nothing() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        batch = [Message(b"1", message_id="a"), Message(b"2", message_id="b")]
        engine.send_many("t", batch)
        before = disk.operations
        receipts = engine.send_many("t", batch)
        assert [each.offset for each in receipts] == [0, 1]
        assert disk.operations == before


# --- transactions -------------------------------------------------------------------------------


@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize("size", [5, 700])
def test_a_transaction_leaves_out_repeats(phases: int, size: int) -> None:
    """Also what another call has sent since it was added; its receipts come last."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=16384, reference_bytes_min=256) as engine:
        old = engine.send("t", b"old", message_id="old")
        tx = engine.transaction()
        tx.send("t", bytes(size), message_id="old")
        tx.send("t", bytes(size), message_id="new")
        tx.send("t", bytes(size), message_id="new")
        tx.send("u", bytes(size), message_id="old")
        tx.send("t", bytes(size), message_id="since")
        since = engine.send("t", b"since", message_id="since")
        if phases == 2:
            tx.prepare()
        mine, other, *left_out = tx.commit()
        assert (mine.topic, mine.offset, mine.count) == ("t", 2, 1)
        assert (other.topic, other.offset, other.count) == ("u", 0, 1)
        assert left_out == [old, mine, since]
        assert engine.send("t", b"", message_id="new") == mine
        assert engine.outcome(tx.tx_id).messages == 2
    with opened(disk) as engine:
        assert engine.send("t", b"", message_id="new") == mine
        assert engine.send("u", b"", message_id="old") == other


@pytest.mark.parametrize("decision", ["commit", "rollback"])
@pytest.mark.parametrize("reopened", [True, False])
def test_an_undecided_transaction_holds_its_ids(decision: Decision, reopened: bool) -> None:
    disk = CrashDisk()
    engine = opened(disk)
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"1", message_id="x")
    tx.prepare()
    if reopened:
        engine.close()
        engine = opened(disk)
    more = engine.transaction()
    more.send("t", b"2", message_id="x")
    for call in (
        lambda: engine.send("t", b"2", message_id="x"),
        lambda: engine.send_many("t", [b"", Message(b"2", message_id="x")]),
        more.commit,
        more.prepare,
    ):
        with pytest.raises(MessageIdUndecided, match="'T'") as caught:
            call()
        assert (caught.value.message_id, caught.value.topic, caught.value.tx_id) == ("x", "t", "T")
    assert engine.queues() == [] or engine.queues("t")[0].next == 0
    outcome = engine.decide("T", decision)
    receipt = engine.send("t", b"2", message_id="x")
    assert more.commit() == [receipt]
    if decision == "commit":
        assert receipt == outcome.receipts[0]
        assert bodies(engine, "t") == [b"1"]
    else:
        assert bodies(engine, "t") == [b"2"]
    engine.close()


def test_a_rolled_back_transaction_takes_no_ids() -> None:
    with opened(CrashDisk()) as engine:
        tx = engine.transaction()
        tx.send("t", b"1", message_id="x")
        tx.rollback()
        assert engine.send("t", b"2", message_id="x").offset == 0


def test_a_relocated_transaction_holds_its_ids() -> None:
    disk = CrashDisk()
    with opened(disk, relocate_bytes=4096) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1", message_id="x")
        tx.prepare()
        for _ in range(60):
            engine.send("other", bytes(300))
        with pytest.raises(MessageIdUndecided):
            engine.send("t", b"2", message_id="x")
        (receipt,) = tx.commit()
        assert engine.send("t", b"2", message_id="x") == receipt


# --- before the first is durable ------------------------------------------------------------------


def planned(engine: Any, topic: str, body: bytes, message_id: str) -> Append:
    """Send without waiting, and without the chores that follow a call."""
    parts = inside(engine)
    nothing = None, None, None, None, None
    append: Append = parts.sender.one(topic, body, *nothing, message_id)
    parts.commit_queue.run(parts.manager.message_ids.planner(append), append, False)
    return append


def test_a_repeat_waits_until_the_first_is_durable() -> None:
    """Method: all that a power cut may leave when the repeat returns has the first message."""
    disk = CrashDisk()
    with opened(disk) as engine:
        run = planned(engine, "t", b"1", "x")[-1]
        (first,) = planned(engine, "t", b"2", "x")
        assert not inside(engine).ledger.topics["t"].queues[0].next, "not durable yet"
        receipt = engine.send("t", b"3", message_id="x")
        assert receipt == first
        assert (receipt.offset, receipt.position) == (run.offset, run.position)
        for crashed in disk.states():
            with fmq.open("data", disk=crashed, background=False) as again:
                assert bodies(again, "t") == [b"1"]


def test_a_repeat_with_a_sync_makes_the_first_durable_in_every_mode() -> None:
    disk = CrashDisk()
    with opened(disk, sync="never") as engine:
        engine.send("t", b"1", message_id="x")
        engine.send("t", b"2", message_id="x", sync=True)
        for crashed in disk.states():
            with fmq.open("data", disk=crashed, background=False) as again:
                assert bodies(again, "t") == [b"1"]


def test_a_planned_commit_takes_its_ids_and_a_planned_roll_back_frees_them() -> None:
    decided: tuple[tuple[Decision, bytes], ...] = ("commit", b"1"), ("rollback", b"2")
    with opened(CrashDisk()) as engine:
        for decision, taken in decided:
            tx = engine.transaction()
            tx.send(decision, b"1", message_id="x")
            tx.prepare()
            plan_decision(engine, tx, decision)
            assert inside(engine).ledger.decided_at >= inside(engine).ledger.shown_to
            planned(engine, decision, b"2", "x")
            engine.send(decision, b"3", message_id="x")
            assert bodies(engine, decision) == [taken]


def test_a_planned_prepare_holds_its_ids() -> None:
    with opened(CrashDisk()) as engine:
        parts = inside(engine)
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1", message_id="x")
        plan, what, done = parts.manager.preparing(tx._buffer)
        parts.commit_queue.run(plan, what, False)
        with pytest.raises(MessageIdUndecided, match="'T'"):
            planned(engine, "t", b"2", "x")
        parts.commit_queue.flush()
        done()
        with pytest.raises(MessageIdUndecided, match="'T'"):
            planned(engine, "t", b"2", "x")
        engine.decide("T", "rollback")


def plan_decision(engine: Any, tx: Any, decision: str) -> None:
    """Decide what is prepared without waiting, and without the chores that follow a call."""
    parts = inside(engine)
    decisions, what = parts.manager.decisions, (tx.tx_id, tx._buffer.number)
    commits = decision == "commit"
    step = next(decisions.committing_prepared(*what) if commits else decisions.rolling_back(*what))
    assert isinstance(step, Durable)
    parts.commit_queue.run(step.plan, step.what, False)


# --- delayed messages -----------------------------------------------------------------------------


@pytest.mark.parametrize("reopened", [True, False])
def test_a_delayed_message_takes_its_id_when_it_is_sent(reopened: bool) -> None:
    """Its receipt is that of the timer, also when it was published."""
    disk, clock = CrashDisk(), FakeClock()
    engine = opened(disk, clock)
    first = engine.send("t", b"1", message_id="x", delay=60)
    more = engine.send_many("t", [b"", Message(b"2", message_id="y")], delay=60)
    for wait in (0, 61, 61):
        clock.advance(wait)
        engine.sync()
        if reopened:
            engine.close()
            engine = opened(disk, clock)
        assert engine.send("t", b"", message_id="x") == first
        (y,) = engine.send_many("t", [Message(b"", message_id="y")])
        assert (y.position, y.count) == (more[0].position, 1)
        assert isinstance(y, DelayedReceipt)
        assert engine.send("t", b"", message_id="x", delay=5) == first
    assert sorted(bodies(engine, "t")) == [b"", b"1", b"2"]
    engine.close()


@pytest.mark.parametrize("phases", [1, 2])
def test_a_transaction_takes_the_ids_of_delayed_messages(phases: int) -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opened(disk, clock) as engine:
        tx = engine.transaction()
        tx.send("t", b"1", message_id="x", delay=60)
        tx.send("t", b"2", message_id="x", delay=90)
        if phases == 2:
            tx.prepare()
            with pytest.raises(MessageIdUndecided):
                engine.send("t", b"", message_id="x", delay=1)
        first, again = tx.commit()
        assert first == again
        assert engine.send("t", b"", message_id="x") == first
    clock.advance(61)
    with opened(disk, clock) as engine:
        assert engine.send("t", b"", message_id="x") == first
        assert bodies(engine, "t") == [b"1"]


@pytest.mark.parametrize("value", [0, -1, 1.5, None, "7"])
def test_bad_options_are_refused(value: Any) -> None:
    with pytest.raises(BadOption, match="message_ids_kept"):
        fmq.Options(message_ids_kept=value)


def test_the_window_is_loaded_only_when_an_id_is_used() -> None:
    with opened(CrashDisk()) as engine:
        engine.send("t", b"1", priority=3)
        with engine.transaction() as tx:
            tx.send("t", b"2")
        assert inside(engine).ledger.id_window is None
