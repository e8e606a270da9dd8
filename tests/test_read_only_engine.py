"""Looking without a lock and without writing, beside a live engine and after its end."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Options, ReadOnlyEngine
from fmq.errors import (
    BadOption,
    Closed,
    Damaged,
    EngineFailed,
    NotAStore,
    OffsetGone,
    ReadOnly,
    UnknownTransaction,
    Unreadable,
)
from fmq.recovery import follow as follow_module
from fmq.store.page import PAGE
from fmq.table.snapshot import see
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from fmq.testing.faults import Operation
from fmq.testing.inside import inside
from tests.interrupts import Interrupt
from tests.recovery.sights import OPTIONS, seen, work
from tests.small import FakeClock, bodies, content, fill, flip, opened, overwrite, remove, segments
from tests.store.lines import Lines


def looking(disk: Any) -> ReadOnlyEngine:
    return fmq.open("data", read_only=True, disk=disk, clock=FakeClock())


def without_pages(disk: Any) -> FaultDisk:
    """The disk for a reader that follows the records and the checkpoints alone."""
    faults = disk if isinstance(disk, FaultDisk) else FaultDisk(disk)
    faults.fail("open", names=f"*/{PAGE}", error=errno.EACCES, persistently=True)
    return faults


@pytest.fixture
def disk() -> CrashDisk:
    return CrashDisk()


@pytest.fixture
def reader(disk: CrashDisk) -> Iterator[ReadOnlyEngine]:
    with opened(disk):
        pass
    with looking(disk) as reader:
        yield reader


def test_a_reader_sees_all_of_a_closed_directory_and_changes_nothing(disk: CrashDisk) -> None:
    with opened(disk, **OPTIONS) as engine:
        work(engine)
        expected = seen(engine)
    before, operations = content(disk), disk.operations
    with looking(disk) as reader:
        assert seen(reader) == expected
        assert reader.damage is None
    assert (content(disk), disk.operations) == (before, operations)


def test_after_a_kill_a_reader_sees_only_proven_messages(disk: CrashDisk) -> None:
    """It shows nothing that recovery may cut: after recovery the writer shows at least as much."""
    with opened(disk, **OPTIONS) as engine:
        work(engine)
        left = disk.after_kill()
    operations = left.operations
    with looking(left) as reader:
        shown = {info: bodies(reader, info.topic, info.queue) for info in reader.queues()}
        assert left.operations == operations
    with opened(left) as engine:
        for info, found in shown.items():
            assert bodies(engine, info.topic, info.queue)[: len(found)] == found


def test_a_reader_follows_a_live_engine_over_rolls(disk: CrashDisk, reader: ReadOnlyEngine) -> None:
    """It always shows a prefix of what the engine shows, and all of it after a checkpoint."""
    with opened(disk, reference_bytes_min=100) as engine:
        for number in range(40):
            with engine.transaction(tx_id=f"T{number}") as tx:
                tx.send("t", b"%d" % number + b"x" * 300)
                tx.send("u", b"%d" % number)
                if number % 3 == 0:
                    tx.prepare()
            ts, us = bodies(reader, "t"), bodies(reader, "u")
            assert ts == bodies(engine, "t")[: len(ts)]
            assert len(us) >= len(ts) >= number
            if number % 10 == 0:
                engine.checkpoint()
                assert seen_of(reader) == seen_of(engine)
        assert engine.stats().segments > 3
    assert bodies(reader, "t") == [b"%d" % number + b"x" * 300 for number in range(40)]
    assert reader.outcome("T39").state == "committed"


def seen_of(engine: Any) -> tuple[object, ...]:
    return engine.queues(), engine.undecided(), bodies(engine, "t"), bodies(engine, "u")


def test_a_reader_sees_undecided_transactions_and_their_decisions(
    disk: CrashDisk, reader: ReadOnlyEngine
) -> None:
    with opened(disk) as engine:
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"1")
        tx.prepare()
        engine.checkpoint()
        assert reader.undecided() == engine.undecided()
        assert reader.outcome("T") == engine.outcome("T")
        assert bodies(reader, "t") == []
        tx.commit()
        engine.checkpoint()
        assert reader.undecided() == []
        assert reader.outcome("T") == engine.outcome("T")
        assert bodies(reader, "t") == [b"1"]
        with pytest.raises(UnknownTransaction):
            reader.outcome("U")


def test_a_reader_follows_retention(disk: CrashDisk, reader: ReadOnlyEngine) -> None:
    with opened(disk, retain_bytes=12288) as engine:
        for number in range(80):
            engine.send("t", b"%d" % number + b"x" * 400)
            if number % 20 == 10:
                (info,) = reader.queues("t")
                assert bodies(reader, "t", offset=info.first)
        engine.checkpoint()
        (info,) = engine.queues("t")
        assert reader.queues("t") == [info]
        assert info.first > 0
        with pytest.raises(OffsetGone) as caught:
            reader.read("t", offset=0)
        assert caught.value.first == info.first
        found = bodies(reader, "t", offset=info.first)
        assert found == bodies(engine, "t", offset=info.first)


def test_a_reader_follows_over_a_crash_and_recovery_of_the_writer(tmp_path: Path) -> None:
    """The segment that recovery copies is another file with the same name.

    Method: on real files, plant a torn tail as a crash leaves it, and open for writing again.
    """
    options = Options(segment_bytes=4096)
    with fmq.open(tmp_path / "d", options, background=False) as engine:
        engine.send("t", b"0")
    with fmq.open(tmp_path / "d", read_only=True) as reader:
        assert bodies(reader, "t") == [b"0"]
        segment = tmp_path / "d" / "00000000000000000000.seg"
        data = bytearray(segment.read_bytes())
        end = len(data.rstrip(b"\0")) + 64
        data[end : end + 100] = b"torn!" * 20
        segment.write_bytes(data)
        assert bodies(reader, "t") == [b"0"]
        before = segment.stat().st_ino
        with fmq.open(tmp_path / "d", options, background=False) as engine:
            assert engine.stats().recovery.copied
            assert segment.stat().st_ino != before
            assert bodies(reader, "t") == [b"0"]
            for number in range(1, 20):
                engine.send("t", b"%d" % number)
        assert bodies(reader, "t") == [b"%d" % number for number in range(20)]


def torn_and_looked_at(disk: CrashDisk, torn: bytes) -> ReadOnlyEngine:
    """A reader that has read from the segment behind whose last message a crash left `torn`."""
    with opened(disk) as engine:
        engine.send("t", b"0")
        end = engine.stats().position
    name = segments(disk)[-1]
    overwrite(disk, name, end - int(name.removesuffix(".seg")), torn)
    reader = looking(disk)
    (message,) = reader.read("t", limit=1)  # no more: a look for news would close the file
    assert message.body == b"0"
    return reader


@pytest.mark.parametrize("number", [2, 60])
def test_a_copied_segment_that_was_sealed_before_a_refresh_is_reopened(
    disk: CrashDisk, number: int
) -> None:
    """Recovery copied the segment that the reader had open, and it is not the last one any more."""
    with torn_and_looked_at(disk, b"torn!" * 20) as reader:
        sent = [b"%d" % i * 20 for i in range(number)]
        with opened(disk) as engine:
            assert engine.stats().recovery.copied
            for body in sent:
                engine.send("t", body)
            assert (len(segments(disk)) > 1) == (number == 60)
        assert bodies(reader, "t") == [b"0", *sent]


def test_a_reader_never_shows_cut_bytes_instead_of_later_messages(disk: CrashDisk) -> None:
    """Method: the cut bytes are sound, never published, and lie where the next message will."""
    with opened(disk) as engine:
        engine.send("t", b"0")
        at = engine.stats().position
        with engine.transaction() as tx:
            tx.send("t", b"NEVER COMMITTED")
            tx.send("t", b"second")
        end = engine.stats().position
    (name,) = segments(disk)
    whole = content(disk)[name][at:end]
    disk = CrashDisk()
    # The write came as far as its first sectors, but for the first bytes.
    with torn_and_looked_at(disk, bytes(120) + whole[120:]) as reader:
        with opened(disk) as engine:
            sent = [b"%d" % i * 20 for i in range(60)]
            for body in sent:
                engine.send("t", body)
        assert [reader.read("t", offset=i, limit=1)[0].body for i in range(61)] == [b"0", *sent]


@pytest.mark.parametrize("operation", ["read", "open"])
@pytest.mark.parametrize("retain_bytes", [None, 12288])
@pytest.mark.parametrize("pages", [True, False])
def test_an_error_in_a_refresh_loses_nothing(
    operation: Operation, retain_bytes: int | None, pages: bool
) -> None:
    """This holds while it follows several segments, and while it begins again because retention
    dropped the segment that it was in.

    Method: let each operation fail once. Without the fault, the reader shows everything that the
    writer shows, even where indexes must be built again.
    """
    for nth in count():
        disk = CrashDisk()
        faults = FaultDisk(disk)
        with opened(disk, retain_bytes=retain_bytes) as engine:
            engine.send("t", b"0")
            with looking(faults if pages else without_pages(faults)) as reader:
                for number in range(50):
                    with engine.transaction(tx_id=f"T{number}") as tx:
                        tx.send("t", b"x" * 150)
                engine.checkpoint()
                faults.fail(operation, nth=nth)
                try:
                    reader.refresh()
                except Unreadable:
                    met = True
                else:
                    met = False  # or by what it can do without
                faults.heal()
                engine.send("t", b"more")
                engine.checkpoint()
                remove(disk, *(name for name in content(disk) if name.endswith(".idx")))
                (info,) = engine.queues("t")
                assert reader.queues("t") == [info], nth
                assert len(bodies(reader, "t", offset=info.first)) == info.next - info.first, nth
                for number in range(info.first, 50):
                    assert reader.outcome(f"T{number}").state == "committed", nth
        if not met and nth > 3:
            break
    assert nth > 3


def questions(first: int) -> list[Callable[[Any], Any]]:
    """All that an engine can be asked of what the next test writes, from offset `first` on."""
    return [
        lambda it: bodies(it, "t", offset=first),
        lambda it: it.queues(),
        lambda it: bodies(it, "u1"),
        lambda it: it.outcome("T1"),
        lambda it: it.undecided(),
    ]


def refuses(reader: Any) -> bool:
    """Whether an interrupt in the middle of an append keeps it from showing anything more."""
    try:
        reader.refresh()
    except EngineFailed as error:
        return "interrupted" in str(error)
    return False


@pytest.mark.parametrize(
    ("retain_bytes", "since", "step"),
    [
        pytest.param(None, 1, 13, id="one append"),
        pytest.param(None, 20, 293, id="several segments"),
        pytest.param(12288, 7, 191, id="some were dropped"),
        pytest.param(12288, 40, 41, id="begun anew"),
    ],
)
def test_an_interrupt_in_a_refresh_loses_nothing(
    retain_bytes: int | None, since: int, step: int
) -> None:
    """Half an append is never shown, and no append is applied twice.

    Method: interrupt at every `step`-th line of fmq in a refresh. All later questions get the
    writer's answers.
    """
    for at in count(0, step):
        disk = CrashDisk()
        with opened(disk, retain_bytes=retain_bytes, reference_bytes_min=100) as engine:
            engine.send("t", b"0")
            with looking(disk) as reader:
                for left in range(40 if retain_bytes else since, 0, -1):
                    if left == since:
                        reader.refresh()
                    with engine.transaction(tx_id=f"T{left}") as tx:
                        tx.send("t", b"x" * 400)
                        tx.send(f"u{left}", b"x")
                        if left % 3 == 0:
                            tx.prepare()
                waits = engine.transaction(tx_id="T0")
                waits.send("t", b"x")
                waits.prepare()
                engine.checkpoint()
                news = Interrupt(at)
                with suppress(KeyboardInterrupt):
                    news.run(reader.refresh)
                if refuses(reader):
                    continue
                (info,) = engine.queues("t")
                asks = questions(info.first)
                turn = at // step % len(asks)
                for ask in asks[turn:] + asks[:turn]:
                    assert ask(reader) == ask(engine), news.met
                waits.commit()
                engine.checkpoint()
                for ask in asks:
                    assert ask(reader) == ask(engine), news.met
                assert reader.damage is None, news.met
                follower = inside(reader)
                assert len(follower.catalog.bases()) + 2 >= len(follower.segments), news.met
        if not news.met:
            break
    assert at > 20 * step


def test_a_refresh_reads_the_segment_to_its_end_only_once(disk: CrashDisk) -> None:
    """This holds for any size of the segment, with and without new messages, and for a reader that
    no page tells where the journal ends.
    """
    faults = FaultDisk(disk)
    faults.fail("open", names=f"*/{PAGE}", persistently=True)
    with opened(disk, segment_bytes=16 << 20) as engine:
        engine.send("t", b"0")
        with looking(faults) as reader:
            for number in range(1, 4):
                before = faults.count("read", names="*.seg")
                reader.refresh()
                assert faults.count("read", names="*.seg") - before < 5
                engine.send("t", b"%d" % number)
        with looking(faults) as reader:
            assert bodies(reader, "t") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("looked_before", [True, False])
@pytest.mark.parametrize("pages", [True, False])
def test_zeros_in_place_of_durable_bytes_are_damage(looked_before: bool, pages: bool) -> None:
    """They are more than a refresh reads at once. One reader had seen the rest as zeros."""
    disk = CrashDisk()
    with opened(disk, segment_bytes=8 << 20) as engine:
        engine.send("t", b"0")
        start = engine.stats().position
        reader = looking(disk if pages else without_pages(disk))
        if looked_before:
            reader.refresh()
        engine.send("t", b"x" * (3 << 20))
        end = engine.stats().position
        engine.send("t", b"1")
        engine.checkpoint()
        (name,) = segments(disk)
        overwrite(disk, name, start, bytes(end - start))
        if not looked_before:
            reader.close()
            remove(disk, "checkpoint.0", "checkpoint.1")
            reader = looking(disk if pages else without_pages(disk))
        with reader:
            reader.refresh()
            assert reader.damage is not None
            with pytest.raises(Damaged):
                reader.undecided()


def test_a_reader_shows_only_messages_that_survive_a_crash(disk: CrashDisk) -> None:
    """What a reader saw before the power failed is there after recovery, in whole transactions."""
    for crash_at in range(5, 120, 3):
        disk = CrashDisk(crash_at=crash_at)
        shown: list[Any] = []
        with pytest.raises(PowerLoss), opened(disk) as engine, looking(disk) as reader:
            for number in range(60):
                with engine.transaction() as tx:
                    tx.send("t", b"%d" % number + b"x" * 200)
                    tx.send("u", b"%d" % number)
                shown = [bodies(reader, "t"), bodies(reader, "u")]
                assert len(shown[0]) == len(shown[1])
        with opened(disk.after_power_loss(crash_at)) as engine:
            for topic, found in zip("tu", shown, strict=bool(shown)):
                assert bodies(engine, topic)[: len(found)] == found


def in_doubt(disk: CrashDisk) -> None:
    """A directory closed cleanly: U was prepared, C prepared and committed, one message besides."""
    with opened(disk) as engine:
        for tx_id in "UC":
            tx = engine.transaction(tx_id=tx_id)
            tx.send("t", tx_id.encode())
            tx.prepare()
        tx.commit()
        engine.send("t", b"last")


def told(reader: ReadOnlyEngine) -> tuple[list[str], str, str]:
    undecided = [each.tx_id for each in reader.undecided()]
    return undecided, reader.outcome("U").state, reader.outcome("C").state


def test_a_flipped_bit_hides_no_transaction_in_silence() -> None:
    """What the reader says of transactions is true, or it raises Damaged."""
    disk = CrashDisk()
    in_doubt(disk)
    (name,) = segments(disk)
    with looking(disk) as reader:
        assert told(reader) == (["U"], "undecided", "committed")
    refused = 0
    for place in range(len(content(disk)[name].rstrip(b"\0"))):
        flip(disk, name, place)
        try:
            with looking(disk) as reader:
                assert told(reader) == (["U"], "undecided", "committed"), place
                assert told(reader) == (["U"], "undecided", "committed"), place  # and again
        except Damaged:
            refused += 1
            with suppress(Damaged), looking(disk) as reader:
                assert reader.damage is not None
                assert set(bodies(reader, "t")) <= {b"C", b"last"}
                reader.refresh()
                assert reader.damage is not None, "looking again makes nothing whole"
        flip(disk, name, place)
    assert refused > 300


def test_damage_after_the_checkpoint_hides_no_decision_in_silence(disk: CrashDisk) -> None:
    """A decision before the damage is known. Anything else may have changed after it."""
    with opened(disk) as engine:
        decided, undecided = engine.transaction(tx_id="C"), engine.transaction(tx_id="A")
        for tx in (decided, undecided):
            tx.send("t", b"1")
            tx.prepare()
        decided.commit()
        engine.checkpoint()
        position = engine.stats().position
        engine.send("t", b"damaged")
        undecided.commit()
        engine.send("t", b"vouches for what is before it")
        left = disk.after_kill()
    flip(left, segments(left)[0], position + 20)
    with looking(left) as reader:
        assert reader.damage is not None
        assert reader.outcome("C").state == "committed"
        for look in (reader.undecided, lambda: reader.outcome("A"), lambda: reader.outcome("B")):
            with pytest.raises(Damaged):
                look()
        assert bodies(reader, "t") == [b"1"]


def test_the_error_for_an_unproven_prepare_names_the_remedy(
    disk: CrashDisk,
) -> None:
    """The writer was killed after a durable prepare that no later record proves durable."""
    with opened(disk) as engine:
        engine.send("t", b"1")
        tx = engine.transaction(tx_id="T")
        tx.send("t", b"2")
        tx.prepare()
        with pytest.raises(UnknownTransaction) as caught:
            engine.outcome("U")
        assert "read_only" not in str(caught.value)  # whoever writes sees all there is
        left = disk.after_kill()
    with looking(left) as reader:
        with pytest.raises(UnknownTransaction) as caught:
            reader.outcome("T")
        assert f"after position {reader.visible_to}:" in str(caught.value)
        assert "Opening it for writing tells." in str(caught.value)
        with opened(left) as engine:
            assert engine.outcome("T").state == "undecided"
            engine.checkpoint()
            assert reader.outcome("T").state == "undecided"


@pytest.mark.parametrize("undecided", [True, False])
def test_a_missing_first_segment_is_damage_and_not_retention(undecided: bool) -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        if undecided:
            tx = engine.transaction(tx_id="U")
            tx.send("t", b"u")
            tx.prepare()
        for _ in range(3):
            fill(engine, "t")
        last = len(bodies(engine, "t")) - 1
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        assert reader.damage is not None
        assert "missing" in reader.damage.reason
        with pytest.raises(Damaged):
            reader.undecided()
        with pytest.raises(Damaged):
            reader.outcome("U")
        assert bodies(reader, "t", offset=last)  # what is there can be read


def test_messages_of_a_missing_first_segment_raise_damaged() -> None:
    """If told of retention, a program would go on after messages that it never saw."""
    disk = CrashDisk()
    with opened(disk) as engine:
        engine.send("early", b"e")
        engine.transaction(tx_id="U").prepare()
        for number in range(60):
            engine.send("t", b"%d" % number + b"x" * 100)
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        found = [bodies(reader, "t", offset=offset) for offset in range(59, 61)]
        assert [len(each) for each in found] == [1, 0]
        for _ in range(2):
            for look in (
                lambda: reader.read("t"),
                lambda: reader.read_batch("t"),
                lambda: reader.read("t", offset=5),
                lambda: reader.read("early"),
                lambda: reader.read("never"),
                reader.queues,
                lambda: reader.queues("t"),
                reader.groups,
            ):
                with pytest.raises(Damaged, match="missing"):
                    look()
        lowest = next(at for at in range(60) if not isinstance(attempt(reader, at), Damaged))
        assert 0 < lowest < 60
        assert len(bodies(reader, "t", offset=lowest)) == 60 - lowest


def attempt(reader: ReadOnlyEngine, offset: int) -> object:
    try:
        return reader.read("t", offset=offset, limit=1)
    except (Damaged, OffsetGone) as error:
        return error


def test_a_missing_first_segment_hides_nothing_of_a_checkpoint() -> None:
    disk = CrashDisk()
    with opened(disk) as engine:
        for _ in range(3):
            fill(engine, "t")
        queues = engine.queues()
    first, *_ = segments(disk)
    remove(disk, first)
    with looking(disk) as reader:
        assert reader.damage is not None
        assert reader.queues() == queues
        assert reader.read("never") == []
        with pytest.raises(Damaged):
            reader.read("t")


def refuses_for_good(reader: ReadOnlyEngine, reason: str) -> None:
    """Every call says `reason`, and so does the next; nothing that was there before is shown."""
    for _ in range(2):
        for call in (
            reader.refresh,
            lambda: reader.read("t"),
            lambda: reader.read_batch("t", limit=1),
            reader.queues,
            reader.groups,
            reader.undecided,
            lambda: reader.outcome("T"),
        ):
            with pytest.raises(NotAStore, match=reason):
                call()


@pytest.mark.parametrize("before", [1, 30])
@pytest.mark.parametrize("behind", [1, 30])
def test_a_directory_that_is_emptied_and_begun_anew_is_refused(before: int, behind: int) -> None:
    """This holds with and without a refresh in between. A later reader sees the new one."""
    for looked_between in (True, False):
        disk = CrashDisk()
        with opened(disk) as engine:
            for number in range(before):
                engine.send("t", b"old %d" % number + b"x" * 400)
        with looking(disk) as reader:
            assert len(bodies(reader, "t")) == before
            remove(disk, *content(disk))
            if looked_between:
                refuses_for_good(reader, "has been removed")
            with opened(disk) as engine:
                for number in range(behind):
                    engine.send("t", b"new %d" % number + b"x" * 400)
            refuses_for_good(reader, "removed" if looked_between else "replaced by another one")
        with pytest.raises(Closed):
            reader.read("t")
        with looking(disk) as reader:
            assert len(bodies(reader, "t")) == behind


def test_a_directory_that_is_removed_is_refused(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "d", background=False) as engine:
        engine.send("t", b"0")
    with fmq.open(tmp_path / "d", read_only=True) as reader:
        assert bodies(reader, "t") == [b"0"]
        shutil.rmtree(tmp_path / "d")
        refuses_for_good(reader, "has been removed")


def test_an_index_that_is_never_written_keeps_no_later_one_in_memory(disk: CrashDisk) -> None:
    """Its segment was dropped before the next refresh.

    Method: refresh when a segment is sealed and its index is being written, not again until
    retention has dropped it, and from then on at every message.
    """
    clock = FakeClock()
    with opened(disk, clock, retain_bytes=8192) as engine:
        engine.send("t", b"x" * 500)
        with looking(disk) as reader:
            looks = []

            def look_once(operation: str) -> None:
                if operation.startswith("create") and ".idx.new" in operation:
                    disk.watch(None)
                    reader.refresh()
                    looks.append([index.base for index in inside(reader).ledger.sealed])

            disk.watch(look_once)
            while engine.stats().first_position == 0:
                engine.send("t", b"x" * 500)
            assert looks == [[0]]
            for _ in range(100):
                engine.send("t", b"x" * 500)
                reader.refresh()
            follower = inside(reader)
            assert len(follower.ledger.sealed) <= 1
            assert len(follower.catalog.bases()) + 2 >= len(follower.segments)
            engine.checkpoint()
            assert reader.queues("t") == engine.queues("t")
            first = reader.queues("t")[0].first
            assert bodies(reader, "t", offset=first) == bodies(engine, "t", offset=first)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_retention_that_no_checkpoint_knows_is_not_damage(rounds: int) -> None:
    """The STATE at the tail is proven durable, because what it says was dropped is gone.

    Method: end with the STATE of a retention, the first one or a later one, and remove the
    checkpoints, which are derived.
    """
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        for _ in range(rounds):
            before = engine.stats().first_position
            while engine.stats().first_position == before:
                engine.send("t", b"x" * 500)
        expected = engine.queues("t"), engine.undecided()
    remove(disk, "checkpoint.0", "checkpoint.1")
    with looking(disk) as reader:
        assert reader.damage is None
        assert (reader.queues("t"), reader.undecided()) == expected
        first = expected[0][0].first
        assert len(bodies(reader, "t", offset=first)) == expected[0][0].next - first
        reader.refresh()
        assert reader.damage is None


def test_a_retention_that_recovery_finishes_is_not_damage() -> None:
    """Method: kill the writer at every operation of a retention. Open one reader before recovery
    removes what the STATE says was dropped, and another one after it.
    """
    clock = FakeClock()
    keeping = {"checkpoint_bytes": 1 << 40, "checkpoint_idle_seconds": 1e9}
    finished = 0
    for crash_at in range(60):
        disk = CrashDisk()
        with opened(disk, clock, **keeping) as engine:
            for _ in range(20):
                engine.send("t", b"x" * 500)
        disk = disk.after_kill(crash_at=crash_at)
        with suppress(PowerLoss):
            with opened(disk, clock, retain_bytes=4096, **keeping) as engine:
                engine.send("t", b"more")
            break
        left = disk.after_kill()
        with looking(left) as early, opened(left, clock, **keeping) as engine:
            finished += len(segments(left)) < len(segments(disk.after_kill()))
            with looking(left) as late:
                for reader in early, late:
                    (shown,), (there,) = reader.queues("t"), engine.queues("t")
                    assert reader.damage is None, crash_at
                    assert shown.first == there.first, crash_at
                    assert reader.undecided() == []
                    assert bodies(reader, "t", offset=shown.first), crash_at
    assert finished


class Interrupted:
    """A disk on which `work` is done once, right after the names were read for the `nth` time."""

    def __init__(self, disk: CrashDisk, nth: int, work: Callable[[], None]) -> None:
        self._disk = disk
        self.left = nth
        self._work = work

    def directory(self, path: str, *, make: bool) -> Any:
        directory = self._disk.directory(path, make=make)
        names = directory.names

        def names_and_then() -> list[str]:
            found = names()
            self.left -= 1
            if self.left == 0:
                self._work()
            return found

        directory.names = names_and_then  # type: ignore[method-assign]
        return directory

    def random(self, size: int) -> bytes:
        return self._disk.random(size)


def test_a_segment_dropped_while_a_reader_opens_is_not_an_error() -> None:
    """Method: drop all segments there are, right after each of the reader's looks at the names."""
    for nth in count(1):
        disk = CrashDisk()
        with opened(disk, retain_bytes=4096) as engine:
            engine.send("t", b"x" * 500)
            engine.checkpoint()

            def drop(engine: Any = engine) -> None:
                for _ in range(30):
                    engine.send("t", b"x" * 500)

            busy = Interrupted(disk, nth, drop)
            with looking(busy) as reader:
                while_opening, busy.left = busy.left <= 0, 0
                (queue,) = reader.queues("t")
                assert reader.damage is None, nth
                assert bodies(reader, "t", offset=queue.first), nth
        if not while_opening:
            break
    assert nth > 2


def test_a_missing_segment_that_no_state_names_is_damage() -> None:
    disk = CrashDisk()
    with opened(disk, retain_bytes=8192) as engine:
        while engine.stats().first_position == 0:
            engine.send("t", b"x" * 500)
    remove(disk, "checkpoint.0", "checkpoint.1", segments(disk)[0])
    with looking(disk) as reader:
        assert reader.damage is not None
        assert "missing" in reader.damage.reason


WRITING = {
    "send": lambda reader: reader.send("t", b""),
    "send_many": lambda reader: reader.send_many("t", [b""]),
    "transaction": lambda reader: reader.transaction(),
    "decide": lambda reader: reader.decide("T", "commit"),
    "consumer": lambda reader: reader.consumer("t", group="g"),
    "sync": lambda reader: reader.sync(),
    "checkpoint": lambda reader: reader.checkpoint(),
}


@pytest.mark.parametrize("call", WRITING)
def test_calls_that_would_write_are_refused(reader: ReadOnlyEngine, call: str) -> None:
    with pytest.raises(ReadOnly, match="read_only=True"):
        WRITING[call](reader)


def test_an_unknown_attribute_is_an_attribute_error(reader: ReadOnlyEngine) -> None:
    with pytest.raises(AttributeError):
        reader.no_such_thing  # noqa: B018


def test_a_closed_reader_refuses_every_call(disk: CrashDisk) -> None:
    with opened(disk):
        pass
    with looking(disk) as reader:
        pass
    reader.close()
    for call in (
        lambda: reader.read("t"),
        reader.queues,
        reader.undecided,
        lambda: reader.outcome("T"),
        reader.refresh,
    ):
        with pytest.raises(Closed):
            call()


def test_a_reader_needs_a_journal(disk: CrashDisk) -> None:
    disk.directory("data", make=True)
    with pytest.raises(NotAStore, match="no journal"):
        looking(disk)


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"offset": -1}])
def test_a_negative_offset_or_limit_is_refused(
    reader: ReadOnlyEngine, wrong: dict[str, int]
) -> None:
    with pytest.raises(BadOption):
        reader.read_batch("t", **wrong)


def test_a_reader_needs_no_room_and_no_permission_to_write(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send("t", b"0")
        fill(engine)
        left = disk.after_kill()
    faults = FaultDisk(left)
    for operation in ("write", "create", "allocate", "sync", "rename", "remove", "mkdir"):
        faults.fail(operation, persistently=True)
    with looking(faults) as reader:
        assert bodies(reader, "t") == [b"0"]


@pytest.mark.parametrize("operation", ["open", "read"])
def test_an_os_error_is_a_typed_error_for_a_reader(disk: CrashDisk, operation: Any) -> None:
    """Like that of an engine it names the file and the remedy. Afterwards the reader works."""
    with opened(disk) as engine:
        engine.send("t", b"0")
        fill(engine)
        engine.decide(prepared(engine), "commit")
    faults = FaultDisk(disk)
    with looking(faults) as reader:
        expected = content_of(reader)
        for call in (
            reader.refresh,
            reader.queues,
            reader.groups,
            reader.undecided,
            lambda: reader.outcome("T"),
            lambda: reader.read("t"),
            lambda: reader.read_batch("u", offset=10_000),
        ):
            faults.fail(operation, error=errno.EMFILE, persistently=True)
            with suppress(Unreadable):
                call()
            faults.heal()
        assert content_of(reader) == expected


def prepared(engine: fmq.Engine) -> str:
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"of a transaction")
    tx.prepare()
    return "T"


def content_of(reader: ReadOnlyEngine) -> object:
    return bodies(reader, "t"), reader.queues(), reader.outcome("T")


def test_a_closed_reader_or_engine_refuses_even_a_limit_of_zero(disk: CrashDisk) -> None:
    with opened(disk) as engine:
        engine.send("t", b"0")
    with looking(disk) as reader:
        pass
    for closed in (engine, reader):
        for limit in (0, 1):
            with pytest.raises(Closed):
                closed.read("t", limit=limit)


def test_messages_after_damage_never_get_the_offsets_of_hidden_ones(
    disk: CrashDisk,
) -> None:
    """A record below the checkpoint is damaged and the part is gone. The index is built from the
    segment up to there, and goes on with what came after the checkpoint.
    """
    with opened(disk) as engine:
        at = [engine.send("t", b"%d" % number).position for number in range(3)]
        engine.checkpoint()
        for number in range(3, 6):
            engine.send("t", b"%d" % number)
        killed = disk.after_kill()
    flip(killed, segments(killed)[0], at[1] + 50)
    remove(killed, segments(killed)[0].replace(".seg", ".part"))
    with looking(killed) as reader:
        for _ in range(2):
            assert reader.damage is not None
            batch = reader.read_batch("t", offset=0)
            assert batch is not None
            assert batch.bodies == (b"0",)
            for hidden in (1, 2):
                with pytest.raises(Damaged, match=r"damaged in front of it|does not match"):
                    reader.read("t", offset=hidden)
            assert bodies(reader, "t", offset=3) == [b"3", b"4"]
            reader.refresh()


class BusyFile:
    """A segment that somebody writes to whenever it has been read."""

    def __init__(self, file: Any, write: Callable[[], object]) -> None:
        self._file, self._write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read(self, offset: int, size: int) -> bytes:
        data: bytes = self._file.read(offset, size)
        self._write()
        return data


class Busy:
    """A disk, or a directory of one, whose segments are such files."""

    def __init__(self, inner: Any, write: Callable[[], object]) -> None:
        self._inner, self._write = inner, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def directory(self, path: str, *, make: bool) -> Any:
        return Busy(self._inner.directory(path, make=make), self._write)

    def open(self, name: str, *, write: bool = False) -> Any:
        file = self._inner.open(name, write=write)
        return BusyFile(file, self._write) if name.endswith(".seg") else file


def test_a_write_between_two_reads_of_a_file_is_not_damage(disk: CrashDisk) -> None:
    """Two records follow each read, so that the second proves the first one durable, which the
    reader has seen as zeros.
    """
    with opened(disk, segment_bytes=1 << 20) as engine:
        engine.send("t", b"x")

        def write() -> None:
            engine.send("t", b"x")
            engine.send("t", b"x")

        with looking(without_pages(Busy(disk, write))) as reader:
            assert reader.damage is None
            assert reader.undecided() == []
            with pytest.raises(UnknownTransaction):
                reader.outcome("never")
            assert len(reader.read("t")) > 1
            journal = see("data", disk=Busy(disk, write))
            assert journal.visible_to > 0


def test_a_reader_waits_for_the_first_message_until_its_timeout(disk: CrashDisk) -> None:
    """The clock lets the time of each wait pass at once. A message comes during one of them."""
    clock = FakeClock()

    class Waking(FakeClock):
        waits = 0

        def wait(self, lock: Any, timeout: float | None) -> bool:
            self.waits += 1
            if self.waits == 3:
                engine.send("t", b"news")
                engine.checkpoint()
            return super().wait(lock, timeout)

    with opened(disk, clock) as engine:
        waking = Waking()
        with fmq.open("data", read_only=True, disk=disk, clock=waking) as reader:
            (message,) = reader.read("t", timeout=1)
            assert (message.body, waking.waits) == (b"news", 3)
            began = waking.monotonic()
            assert reader.read("t", offset=1, timeout=1) == []
            assert reader.read_batch("none", timeout=0.5) is None
            assert waking.monotonic() - began == pytest.approx(1.5)
            with pytest.raises(BadOption):
                reader.read("t", timeout=float("nan"))
            with pytest.raises(TypeError, match="timeout"):
                reader.read_batch("t", timeout="1")  # type: ignore[arg-type]


def test_an_interrupted_close_is_finished_by_the_next_one(tmp_path: Path) -> None:
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("t", b"x")
    interrupts = 0
    for at in range(50):
        before = len(list(Path("/proc/self/fd").iterdir()))
        reader = fmq.open(tmp_path / "shop", read_only=True)
        reader.read("t")

        def interrupt() -> None:
            raise KeyboardInterrupt

        lines = Lines(follow_module, at, interrupt)
        with suppress(KeyboardInterrupt):
            lines.run(reader.close)
        reader.close()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        if not lines.met:
            break
        interrupts += 1
    assert interrupts
