"""A reader that follows a live engine, over rolls, retention, crashes and its own errors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Options, ReadOnlyEngine
from fmq.errors import (
    EngineFailed,
    OffsetGone,
    UnknownTransaction,
    Unreadable,
)
from fmq.store.journal.durable_page import PAGE
from fmq.table.snapshot import see
from fmq.testing import CrashDisk, FaultDisk, PowerLoss
from fmq.testing.faults import Operation
from fmq.testing.inside import inside
from tests.budget import BUDGET, SEED
from tests.interrupts import Interrupt
from tests.read_only.looking import looking, without_pages
from tests.recovery.sights import OPTIONS, seen, work
from tests.small import FakeClock, bodies, content, opened, overwrite, remove, segments


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
    """Return whether an interrupt in the middle of an append keeps the reader from showing more."""
    try:
        reader.refresh()
    except EngineFailed as error:
        return "interrupted" in str(error)
    return False


@pytest.mark.parametrize(
    ("retain_bytes", "since", "step"),
    [
        pytest.param(None, 1, 39, id="one append"),
        pytest.param(None, 20, 880, id="several segments"),
        pytest.param(12288, 7, 570, id="some were dropped"),
        pytest.param(12288, 40, 120, id="begun anew"),
    ],
)
def test_an_interrupt_in_a_refresh_loses_nothing(
    retain_bytes: int | None, since: int, step: int
) -> None:
    """Half an append is never shown, and no append is applied twice.

    Method: interrupt at every `step`-th line of fmq in a refresh. All later questions get the
    writer's answers. FMQ_BUDGET=3 interrupts at three times as many lines.
    """
    step = max(1, round(step / BUDGET))
    for at in count(SEED % step, step):
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
    assert at > 5 * step


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


def test_a_reader_shows_only_messages_that_survive_a_crash(disk: CrashDisk) -> None:
    """What a reader saw before the power failed is there after recovery, in whole transactions."""
    for crash_at in range(5 + SEED % 9, 120, 9):
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


class BusyFile:
    """A segment to which a writer appends after each read."""

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
