"""Where the sound records end: the table of the design, row by row, with real bytes planted."""

from __future__ import annotations

import shutil
import tracemalloc
import zlib
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

import fmq
from fmq import Engine, Options
from fmq.errors import Damaged, NewerFormat
from fmq.recovery.tail import TAIL, Verdict, judge
from fmq.recovery.walk import Walk
from fmq.store.bytes.kinds import Kind, Prepare
from fmq.store.journal.scan import Finding, ScanEnd
from fmq.testing import CrashDisk
from fmq.tx.ledger.seal import seal_of
from tests.recovery.planting import Tail, checkpoint, left_by, send, tail_of
from tests.small import bodies, check, content, fill, opened, truncate


def opens_with(tail: Tail, *expected: bytes, cut: int = 0) -> None:
    """The directory opens, shows exactly this, has cut so many bytes, and goes on working."""
    with opened(tail.disk) as engine:
        assert bodies(engine, "t") == list(expected)
        assert engine.stats().recovery.cut_bytes == cut
        assert engine.send("t", b"next").offset == len(expected)
    check(tail.disk)
    with opened(tail.disk) as engine:
        assert bodies(engine, "t") == [*expected, b"next"]


def open_one(engine: Engine) -> None:
    """Leave a transaction undecided: recovery reads from here on, whatever the checkpoint says."""
    engine.transaction(tx_id="T").prepare()


def is_refused(tail: Tail, error: type[Exception], match: str, place: int | None = None) -> None:
    """Opening raises, names the file and the position, and changes no byte of any file."""
    before = content(tail.disk)
    with pytest.raises(error, match=match) as caught:
        opened(tail.disk)
    assert getattr(caught.value, "file") == tail.name  # noqa: B009
    if place is not None:
        assert getattr(caught.value, "position") == tail.base + place  # noqa: B009
    assert content(tail.disk) == before


def test_the_table_has_a_verdict_for_each_finding_of_a_scan() -> None:
    assert set(TAIL) == set(product(Finding, (False, True)))
    for (finding, known), verdict in TAIL.items():
        assert judge(ScanEnd(finding, 64, 64, ""), 65 if known else 64) is verdict
    refusals = {Verdict.SHORTER, Verdict.DAMAGED, Verdict.MISPLACED, Verdict.NEWER}
    assert {TAIL[finding, True] for finding in Finding if finding is not Finding.END} == refusals


@pytest.mark.parametrize("finding", [Finding.END, Finding.ZEROS])
def test_an_end_inside_an_append_cuts_it_at_its_first_record(finding: Finding) -> None:
    assert judge(ScanEnd(finding, 200, 100, ""), 100) is Verdict.CUT
    assert judge(ScanEnd(finding, 200, 100, ""), 101) is not Verdict.CUT


# --- a sound record ------------------------------------------------------------------------------


def test_a_sound_record_is_applied() -> None:
    opens_with(left_by(send(b"0"), checkpoint, send(b"1")), b"0", b"1")


# --- the file ends here --------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("left", ["header", "some", "torn", "data", "all but one"])
def test_a_file_that_is_too_short_is_refused(left: str, known: bool) -> None:
    """A segment has its full length before it has its name, so no crash leaves it short."""
    tail = left_by(send(b"0"), send(b"1"), *([checkpoint] if known else []))
    sizes = {"header": 64, "some": tail.place(), "torn": tail.place() + 8, "data": tail.end}
    truncate(tail.disk, tail.name, sizes.get(left, 4095))
    is_refused(tail, Damaged, "shorter than its segment")


def test_a_sealed_segment_that_is_too_short_is_refused() -> None:
    tail = left_by(send(b"0"), fill, send(b"1"))
    sealed = tail_of(tail.disk)
    sealed.name = "00000000000000000000.seg"
    truncate(tail.disk, sealed.name, 500)
    is_refused(sealed, Damaged, "shorter than its segment")


# --- torn or damaged bytes -----------------------------------------------------------------------


def test_damage_in_the_last_record_is_cut_and_kept_in_quarantine() -> None:
    """It cannot be told from a torn write, and nothing else is lost."""
    whole = left_by(send(b"0"), send(b"1"))
    torn = content(whole.disk)[whole.name][whole.place() : whole.end].rstrip(b"\0")
    for byte in range(len(torn)):
        tail = left_by(send(b"0"), send(b"1"))
        damaged = bytearray(torn)
        damaged[byte] ^= 0x10
        tail.plant(tail.place(), bytes(damaged))
        kept = bytes(damaged).rstrip(b"\0")
        opens_with(tail, b"0", cut=len(kept))
        folder = tail.disk.directory("data", make=False).subdirectory("quarantine", make=False)
        (name,) = folder.names()
        assert folder.open(name).read(0, 4096) == kept
        assert name == f"{tail.base + tail.place():020d}.cut"


def test_garbage_after_the_last_record_is_cut() -> None:
    tail = left_by(send(b"0"))
    tail.plant(tail.end, b"\x5a" * 700)
    opens_with(tail, b"0", cut=700)


def test_a_tail_of_many_blocks_is_kept_whole_and_once(tmp_path: Path) -> None:
    """Method: plant a tail, then the same one again as if the first recovery had been interrupted,
    then another one at the same place.
    """
    path = tmp_path / "d"
    options = Options()
    with fmq.open(path, options, background=False) as engine:
        engine.send("t", b"x")
        end = engine.stats().position
    tail = bytes(range(1, 256)) * 1_000
    for torn in (tail, tail, tail[:-1] + b"!"):
        with open(path / "00000000000000000000.seg", "r+b") as file:
            file.seek(end)
            file.write(torn)
        with fmq.open(path, options, background=False) as engine:
            assert engine.stats().recovery.cut_bytes == len(tail)
    kept = sorted((path / "quarantine").iterdir())
    assert [each.name for each in kept] == [f"{end:020d}.1.cut", f"{end:020d}.cut"]
    assert [each.read_bytes() for each in kept] == [tail[:-1] + b"!", tail]


def test_garbage_after_a_hole_is_cut_and_kept_with_the_hole() -> None:
    tail = left_by(send(b"0"))
    tail.plant(tail.end + 1024, b"\x5a" * 16)
    opens_with(tail, b"0", cut=1040)


def test_damage_below_the_checkpoint_is_refused() -> None:
    """Recovery reads that part again, because a transaction in it is undecided."""

    tail = left_by(open_one, send(b"0"), checkpoint, send(b"1"))
    tail.plant(tail.place(-2) + 40, b"\xff")
    is_refused(tail, Damaged, "had been durable", tail.place(-2))


def test_damage_below_the_checkpoint_is_refused_segments_later() -> None:
    """Recovery begins to read some segments before, at an undecided transaction."""
    tail = left_by(open_one, fill, fill, send(b"0"), send(b"1"), checkpoint)
    tail.plant(tail.place() + 40, b"\xff")
    is_refused(tail, Damaged, "had been durable", tail.place())


def test_damage_that_recovery_does_not_read_is_found_by_a_reader() -> None:
    """Opening reads nothing below the checkpoint. Other messages stay readable."""
    tail = left_by(send(b"0"), send(b"1"), send(b"2"), checkpoint)
    tail.plant(tail.place(1) + 40, b"\xff")
    with opened(tail.disk) as engine:
        with pytest.raises(Damaged) as caught:
            engine.read("t", offset=1, limit=1)
        assert (caught.value.file, caught.value.position) == (tail.name, tail.place(1))
        assert bodies(engine, "t", offset=2) == [b"2"]
    (problem, *_) = fmq.check("data", disk=tail.disk).problems
    assert (problem.file, problem.position) == (tail.name, tail.place(1))


def test_damage_that_a_later_record_proves_durable_is_refused() -> None:
    """There is no checkpoint, but the third record states that the first was durable."""
    tail = left_by(send(b"0"), send(b"1"), send(b"2"))
    tail.plant(tail.place(0) + 40, b"\xff")
    is_refused(tail, Damaged, "had been durable", tail.place(0))


def test_damage_before_a_torn_last_write_is_refused() -> None:
    tail = left_by(send(b"0"), send(b"1"), send(b"2"), send(b"3"))
    tail.plant(tail.place(1) + 40, b"\xff")
    tail.plant(tail.place(3) + 40, b"\xff")
    is_refused(tail, Damaged, "had been durable", tail.place(1))


def test_damage_in_a_sealed_segment_is_refused_if_recovery_reads_it() -> None:
    tail = left_by(send(b"0"), fill, send(b"1"))
    tail.name, tail.base = "00000000000000000000.seg", 0
    tail.plant(64 + 100, b"\xff\xff\xff")
    is_refused(tail, Damaged, "had been durable")


# --- zeros to the end of the segment -------------------------------------------------------------


def test_zeros_end_the_journal() -> None:
    tail = left_by(send(b"0"), send(b"1"))
    tail.plant(tail.place(), bytes(4096 - tail.place()))
    opens_with(tail, b"0")


def test_zeros_where_data_had_been_durable_are_refused() -> None:
    tail = left_by(open_one, send(b"0"), send(b"1"), checkpoint)
    tail.plant(tail.place(), bytes(4096 - tail.place()))
    is_refused(tail, Damaged, "nothing but zeros, and data up to .* had been durable")


def test_zeros_in_a_sealed_segment_are_refused() -> None:
    tail = left_by(send(b"0"), fill, send(b"1"))
    tail.name, tail.base = "00000000000000000000.seg", 0
    tail.plant(200, bytes(4096 - 200))
    is_refused(tail, Damaged, "had been durable")


# --- a sound record that belongs elsewhere -------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_a_sound_record_of_another_position_is_refused(known: bool) -> None:
    """A block that was written to the wrong place, or an old file put back."""
    tail = left_by(send(b"0"), send(b"1"), *([checkpoint] if known else []))
    tail.plant(tail.end, content(tail.disk)[tail.name][tail.place(0) : tail.place(1)])
    is_refused(tail, Damaged, "belongs at", tail.end)


def test_a_record_of_another_store_is_cut_as_torn_bytes() -> None:
    """Its checksum is seeded with its own store."""
    disk = CrashDisk()
    with fmq.open("first", disk=disk, background=False), opened(disk) as engine:
        engine.send_many("t", [b"0"])
        engine.send("t", b"1")
    tail, other = left_by(send(b"0")), tail_of(disk)
    assert tail.seed != other.seed
    data = content(other.disk)[other.name][other.place() : other.end].rstrip(b"\0")
    tail.plant(tail.end, data)
    opens_with(tail, b"0", cut=len(data))


# --- from the future -----------------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True])
def test_a_sound_record_of_an_unknown_kind_is_refused_as_newer(known: bool) -> None:
    tail = left_by(send(b"0"), *([checkpoint] if known else []))
    data = bytearray(tail.message(1))
    data[32] = 99
    head_size = int.from_bytes(data[12:16], "little")
    data[4:8] = zlib.crc32(data[8:head_size], tail.seed).to_bytes(4, "little")
    tail.plant(tail.end, bytes(data))
    is_refused(tail, NewerFormat, "newer", tail.end)


@pytest.mark.parametrize("known", [False, True])
def test_a_sound_record_of_a_newer_version_is_refused_as_newer(known: bool) -> None:
    """A later fmq leaves such records. A reader, `fmq.check` and the walk say the same."""
    tail = left_by(send(b"0"), *([checkpoint] if known else []))
    tail.plant(tail.end, b"fmq\4" + tail.message(1)[4:])
    is_refused(tail, NewerFormat, "a record of version 4 is newer", tail.end)
    with pytest.raises(NewerFormat, match="version 4"):
        fmq.open("data", read_only=True, disk=tail.disk)
    [problem] = fmq.check("data", disk=tail.disk).problems
    assert (problem.position, "version 4" in problem.what) == (tail.base + tail.end, True)
    walk = Walk(tail.disk.directory("data", make=False))
    assert len(list(walk)) == len(tail.appends)
    assert isinstance(walk.damage, NewerFormat)


def test_a_torn_record_of_a_newer_version_is_cut() -> None:
    """It cannot be told from other bytes, and is kept in quarantine."""
    tail = left_by(send(b"0"))
    data = tail.message(1)
    torn = (b"fmq\4" + data[4:40]).rstrip(b"\0")
    tail.plant(tail.end, torn)
    opens_with(tail, b"0", cut=len(torn))


def test_a_reader_raises_newer_format_and_shows_earlier_messages() -> None:
    tail = left_by(send(b"0"), checkpoint)
    with fmq.open("data", read_only=True, disk=tail.disk) as reader:
        assert bodies(reader, "t") == [b"0"]
        tail.plant(tail.end, b"fmq\4" + tail.message(1)[4:])
        for _ in range(2):
            assert [message.body for message in reader.read("t", limit=1)] == [b"0"]
            with pytest.raises(NewerFormat, match="version 4"):
                reader.read("t", offset=1)


HEADERS: list[tuple[int, int, type[Exception] | None]] = [
    (8, 3, NewerFormat),  # the version of the format
    (10, 1, NewerFormat),  # a required flag
    (12, 1, None),  # an optional flag
]


@pytest.mark.parametrize(("place", "value", "error"), HEADERS)
def test_a_segment_header_of_a_newer_format_is_refused_if_it_says_so(
    place: int, value: int, error: type[Exception] | None
) -> None:
    tail = left_by(send(b"0"))
    header = bytearray(content(tail.disk)[tail.name][:64])
    header[place] = value
    header[4:8] = zlib.crc32(header[8:]).to_bytes(4, "little")
    tail.plant(0, bytes(header))
    if error is None:
        opens_with(tail, b"0")
    else:
        is_refused(tail, error, "newer", 0)


# --- a sound record that may not follow ----------------------------------------------------------


def prepare_without_messages(tail: Tail) -> bytes:
    position = tail.base + tail.end
    return tail.record(Prepare("T", "", 1, 1, 2, 0, seal_of([]), tx=position))


MAY_NOT_FOLLOW: list[tuple[Callable[[Tail], bytes], str]] = [
    (lambda tail: tail.message(0), "continues at offset 0, not 1"),
    (lambda tail: tail.message(2), "continues at offset 2, not 1"),
    (prepare_without_messages, "were stated"),
]


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(("made", "match"), MAY_NOT_FOLLOW)
def test_a_sound_record_that_may_not_follow_is_refused(
    made: Callable[[Tail], bytes], match: str, known: bool
) -> None:
    tail = left_by(send(b"0"), *([checkpoint] if known else []))
    tail.plant(tail.end, made(tail))
    is_refused(tail, Damaged, f"sound record in a wrong place: .*{match}", tail.end)


@pytest.mark.parametrize("flags", [0, 2])
def test_a_record_that_continues_no_append_is_refused(flags: int) -> None:
    tail = left_by(send(b"0"))
    run = tail.appends[-1][-1]
    assert run.kind == Kind.MESSAGE
    data = bytearray(tail.message(1))
    data[33] = flags
    head_size = int.from_bytes(data[12:16], "little")
    data[4:8] = zlib.crc32(data[8:head_size], tail.seed).to_bytes(4, "little")
    tail.plant(tail.end, bytes(data))
    is_refused(tail, Damaged, "lacks its head", tail.end)


# --- the end is reached inside an append ---------------------------------------------------------


def prepared(engine: Engine) -> None:
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"1")
    tx.send("u", b"2")
    tx.prepare()


def committed(engine: Engine) -> None:
    prepared(engine)
    engine.decide("T", "commit")


def at_once(engine: Engine) -> None:
    tx = engine.transaction(tx_id="T")
    tx.send("t", b"1")
    tx.send("u", b"2")
    tx.commit()


@pytest.mark.parametrize("fill_with", [b"\0", b"\xa5"])
@pytest.mark.parametrize("step", [prepared, committed, at_once])
def test_an_unfinished_append_is_cut_whole_at_every_byte(
    step: Callable[[Engine], None], fill_with: bytes
) -> None:
    """Whatever was being written, nothing of it is visible and no transaction has changed."""
    whole = left_by(send(b"0"), step)
    data = content(whole.disk)[whole.name]
    start, end = whole.place(), len(data.rstrip(b"\0"))
    assert end - start > 150
    for left in range(start, end, 3):
        tail = Tail(whole.disk.after_kill(), whole.name, whole.base, whole.seed, [], 0)
        tail.plant(left, fill_with * (end - left))
        with opened(tail.disk) as engine:
            assert bodies(engine, "t") == [b"0"], left
            assert bodies(engine, "u") == [], left
            expected = ["T"] if step is committed else []
            assert [each.tx_id for each in engine.undecided()] == expected, left
            for tx_id in expected:
                engine.decide(tx_id, "commit")
                assert (bodies(engine, "t"), bodies(engine, "u")) == ([b"0", b"1"], [b"2"])
        check(tail.disk)


def test_bytes_that_were_cut_are_never_read_again() -> None:
    """Old bytes after the new tail would be a message that was never acknowledged.

    Method: cut a record, write a shorter one in its place, and lose the power.
    """
    tail = left_by(send(b"0"), send(b"long enough to reach far"), send(b"2"))
    tail.plant(tail.place(1) + 40, b"\xff")
    # The record after it would prove that the damaged one had been durable. Let it be torn as well.
    tail.plant(tail.place(2) + 8, b"\xff")
    with opened(tail.disk) as engine:
        engine.send("t", b"1")
        disk = CrashDisk.after_power_loss(tail.disk, 1)
    with opened(disk) as engine:
        assert bodies(engine, "t") == [b"0", b"1"]
    check(disk)


@pytest.mark.parametrize("tail", ["whole", "torn", "garbage to the end"])
def test_a_tail_takes_little_memory_however_large_the_segment(tmp_path: Path, tail: str) -> None:
    """Otherwise a small machine could not open what a kill left, or even check it."""
    size = 64 << 20
    with fmq.open(tmp_path / "live", Options(segment_bytes=size), background=False) as engine:
        engine.send("t", b"x")
        engine.send("t", b"y" * 5000)
        end = engine.stats().position
        shutil.copytree(tmp_path / "live", tmp_path / "killed")
    if tail != "whole":
        with open(tmp_path / "killed" / "00000000000000000000.seg", "r+b") as file:
            file.seek(end - 1000)
            file.write(bytes(1000) if tail == "torn" else b"garbage!" * ((size - end) // 8))
    tracemalloc.start()
    try:
        assert fmq.check(tmp_path / "killed").ok
        with fmq.open(tmp_path / "killed", read_only=True) as reader:
            assert reader.damage is None
        with fmq.open(tmp_path / "killed", background=False) as engine:
            assert engine.stats().recovery.copied
            assert (engine.stats().recovery.cut_bytes > 0) == (tail != "whole")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 4
