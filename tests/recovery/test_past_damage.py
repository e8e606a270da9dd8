"""Damaged messages cost themselves or their transaction, and never the directory."""

from __future__ import annotations

from typing import Any

import pytest

import fmq
from fmq.errors import Damaged, Impaired
from fmq.testing import CrashDisk, FakeClock
from tests.small import bodies, content, fill, flip, opened, overwrite, remove, segments

LOST = b"lost " * 40
SLOTS = ("checkpoint.0", "checkpoint.1")


def undecided(**options: Any) -> CrashDisk:
    """Return a directory with an undecided transaction of three messages, and sends after it."""
    disk = CrashDisk()
    with opened(disk, queues=1, **options) as engine:
        engine.create_group("g", "t")
        engine.send("t", b"first")
        tx = engine.transaction(tx_id="T", producer="p")
        tx.send("t", b"whole " * 40)
        tx.send("v", LOST)
        tx.send("u", b"whole, too")
        tx.prepare()
        engine.send("t", b"second")
    return disk


def damage(disk: CrashDisk, body: bytes = LOST) -> None:
    """Turn a bit in the one place that has `body`."""
    ((name, at),) = [
        (name, data.find(body)) for name, data in content(disk).items() if body in data
    ]
    flip(disk, name, at + 3)


def damaged(**options: Any) -> CrashDisk:
    disk = undecided(**options)
    damage(disk)
    return disk


def without_checkpoint(disk: CrashDisk) -> CrashDisk:
    remove(disk, *(name for name in SLOTS if name in content(disk)))
    return disk


def test_an_engine_opens_past_a_damaged_message_after_an_undecided_transaction() -> None:
    disk = undecided()
    damage(disk, b"second")
    with opened(disk) as engine:
        assert [tx.tx_id for tx in engine.undecided()] == ["T"]
        assert engine.read("t", limit=1)[0].body == b"first"
        with pytest.raises(Damaged, match="the bodies' checksum"):
            engine.read("t", offset=1)
        engine.send("t", b"third")
        engine.decide("T", "commit")
        assert bodies(engine, "t", 0, 2) == [b"third", b"whole " * 40]


@pytest.mark.parametrize("bit", [0, 3, 11, 40, 70, 100, 130, 300])
@pytest.mark.parametrize("with_slots", [True, False])
def test_a_bit_of_a_head_that_has_turned_is_turned_back(bit: int, with_slots: bool) -> None:
    """The head of PREPARE, which every opening reads: its checksum says which bit it was."""
    disk = undecided() if with_slots else without_checkpoint(undecided())
    before = content(disk)
    (name,) = [name for name in before if name.endswith(".seg") and b"pT" in before[name]]
    start = before[name].rfind(b"fmq\2", 0, before[name].find(b"pT"))
    changed = before[name][start + bit // 8] ^ (1 << bit % 8)
    overwrite(disk, name, start + bit // 8, bytes([changed]))
    assert not fmq.check("data", disk=disk).ok
    with opened(disk) as engine:
        (what,) = engine.stats().recovery.damaged
        assert "one bit of a head had turned" in what
        engine.decide("T", "commit")
        assert bodies(engine, "t") == [b"first", b"second", b"whole " * 40]
    assert fmq.check("data", disk=disk).ok
    with opened(disk) as engine:
        assert not engine.stats().recovery.damaged


def test_two_wrong_bits_of_a_head_are_not_corrected() -> None:
    disk = undecided()
    before = content(disk)
    (name,) = [name for name in before if name.endswith(".seg") and b"pT" in before[name]]
    start = before[name].rfind(b"fmq\2", 0, before[name].find(b"pT"))
    flip(disk, name, start + 9)
    flip(disk, name, start + 50)
    with pytest.raises(Damaged):
        opened(disk)


def test_a_wrong_bit_in_the_last_append_is_cut_and_not_corrected() -> None:
    """Nothing proves the last append durable, so its wrong bit may be what a power cut left."""
    disk = CrashDisk()
    engine = opened(disk, queues=1)
    engine.send("t", b"first")
    engine.send("t", b"last")
    left = without_checkpoint(disk.after_power_loss(1))
    engine.close()
    (name,) = segments(left)
    flip(left, name, content(left)[name].rfind(b"fmq\2") + 17)
    with opened(left, queues=1) as engine:
        assert bodies(engine, "t") == [b"first"]
        assert engine.stats().recovery.cut_bytes


def test_an_opening_reports_and_logs_the_damage_that_it_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with opened(damaged()) as engine:
        (what,) = engine.stats().recovery.damaged
    assert "the bodies' checksum does not match" in what
    assert what in caplog.text
    assert not fmq.check("data", disk=damaged()).ok


@pytest.mark.parametrize("with_slots", [True, False])
def test_an_impaired_transaction_is_not_committed_as_it_was_prepared(with_slots: bool) -> None:
    disk = damaged() if with_slots else without_checkpoint(damaged())
    with opened(disk) as engine:
        with pytest.raises(Impaired, match="1 of its messages") as raised:
            engine.decide("T", "commit")
        assert (raised.value.tx_id, raised.value.messages) == ("T", 1)
        assert [tx.tx_id for tx in engine.undecided()] == ["T"]
        assert bodies(engine, "t") == [b"first", b"second"]
        engine.decide("T", "rollback")
    for each in (disk, disk.after_kill(), without_checkpoint(disk.after_kill())):
        with opened(each) as engine:
            assert not engine.undecided()
            assert engine.outcome("T").state == "rolled back"


@pytest.mark.parametrize("reference_bytes_min", [1, 1 << 20])
@pytest.mark.parametrize("rolls", [True, False])
def test_the_rest_of_an_impaired_transaction_is_committed_on_demand(
    rolls: bool, reference_bytes_min: int
) -> None:
    disk = damaged(reference_bytes_min=reference_bytes_min)
    with opened(disk, reference_bytes_min=reference_bytes_min) as engine:
        if rolls:
            fill(engine)
        begun = engine.queues("t")[0].next
        outcome = engine.decide("T", "commit_without_lost", reason="a bad sector")
        assert (outcome.state, outcome.messages) == ("committed", 2)
        assert engine.decide("T", "commit").position == outcome.position
    for each in (disk, disk.after_kill(), without_checkpoint(disk.after_kill())):
        with opened(each) as engine:
            assert bodies(engine, "t", 0, begun) == [b"whole " * 40]
            assert bodies(engine, "u") == [b"whole, too"]
            assert engine.outcome("T") == outcome
            assert not engine.undecided()


def test_commit_without_lost_commits_a_sound_transaction_whole() -> None:
    with opened(undecided()) as engine:
        engine.decide("T", "commit_without_lost")
        assert bodies(engine, "v") == [LOST]


def test_an_impaired_transaction_is_not_relocated_and_keeps_its_segment() -> None:
    disk = damaged(relocate_bytes=4096)
    with opened(disk, relocate_bytes=4096, retain_bytes=8192, keep_unread=False) as engine:
        for _ in range(20):
            fill(engine)
            engine.sync()
        assert engine.stats().first_position == 0
        assert engine.stats().trouble is None
        engine.decide("T", "commit_without_lost")
        fill(engine)
        engine.sync()
        assert engine.stats().first_position > 0


def test_records_that_no_sync_covers_are_cut() -> None:
    """Nothing says that the last append had been durable, so it is torn and not damaged."""
    disk = CrashDisk()
    with opened(disk, queues=1, checkpoint_idle_seconds=1e9) as engine:
        engine.send("t", b"first")
        engine.send("t", LOST)
        killed = disk.after_power_loss(1)
    damage(killed)
    with opened(killed) as engine:
        assert bodies(engine, "t") == [b"first"]
        report = engine.stats().recovery
        assert report.cut_bytes
        assert not report.damaged


def test_a_checker_that_says_commit_does_not_commit_an_impaired_transaction() -> None:
    disk, clock = damaged(), FakeClock()
    with opened(disk, clock) as engine:
        engine.checker("p")(lambda question: "commit")
        clock.advance(3600)
        engine.settle()
        assert [tx.tx_id for tx in engine.undecided()] == ["T"]
        engine.decide("T", "rollback")


def many(**options: Any) -> CrashDisk:
    """A directory of several segments with twenty messages, of which a group has acked one."""
    disk = CrashDisk()
    with opened(disk, queues=1, **options) as engine:
        engine.create_group("g", "t")
        for number in range(20):
            engine.send("t", b"%d" % number * 900)
        with engine.consumer("t", group="g") as consumer:
            consumer.poll(limit=1)[0].ack()
    return disk


def cut(disk: CrashDisk, name: str, size: int) -> None:
    data = content(disk)[name][:size]
    remove(disk, name)
    disk.directory("data", make=False).create(name).write(0, (data,), sync=True)


def survivors(disk: CrashDisk) -> list[int]:
    """Open the directory, write to it, and return which of the twenty messages can be read. Then
    open it once more.
    """
    for offset in (20, 21):
        with opened(disk, queues=1) as engine:
            found = []
            for number in range(20):
                try:
                    (message,) = engine.read("t", offset=number, limit=1)
                    assert message.body == b"%d" % number * 900
                    found.append(number)
                except Damaged:
                    continue
            (info,) = engine.group("g").infos()
            assert info.unread == offset - 1
            if offset == 20:
                assert engine.stats().recovery.damaged
            assert engine.send("t", b"on").offset == offset
    return found


def test_a_sealed_segment_that_is_missing_costs_its_messages() -> None:
    for number in range(len(segments(many())) - 1):
        disk = many()
        remove(disk, segments(disk)[number])
        assert 14 < len(survivors(disk)) < 20


def test_a_damaged_header_of_the_last_segment_is_written_anew() -> None:
    for place in (1, 20, 40):
        disk = many()
        flip(disk, segments(disk)[-1], place)
        assert survivors(disk) == [*range(20)]
        assert fmq.check("data", disk=disk).ok


@pytest.mark.parametrize("size", [0, 63, 64, 1000, 4000])
def test_a_last_segment_that_is_cut_short_after_a_close_costs_what_it_held(size: int) -> None:
    disk = many()
    cut(disk, segments(disk)[-1], size)
    found = survivors(disk)
    assert found[:16] == [*range(16)]


def test_a_segment_that_is_cut_short_after_a_kill_is_refused_and_salvage_named() -> None:
    """More may have been in it than the checkpoint knows."""
    disk = many().after_kill()
    with opened(disk, queues=1) as engine:
        engine.send("t", b"more")
        killed = disk.after_kill()
    cut(killed, segments(killed)[-1], 64)
    with pytest.raises(Damaged, match="fmq salvage DIR NEW"):
        opened(killed, queues=1)


def test_a_segment_that_a_replay_needs_is_not_passed_over() -> None:
    disk = without_checkpoint(many())
    remove(disk, segments(disk)[1])
    with pytest.raises(Damaged, match="missing"):
        opened(disk, queues=1)


def test_a_missing_segment_behind_an_undecided_transaction_is_refused() -> None:
    """It may have held the decision."""
    disk = undecided()
    with opened(disk, queues=1) as engine:
        for _ in range(3):
            fill(engine)
    remove(disk, segments(disk)[1])
    with pytest.raises(Damaged, match="missing"):
        opened(disk, queues=1)


def test_retention_drops_a_missing_segment_in_its_turn() -> None:
    disk = many()
    remove(disk, segments(disk)[0])
    with opened(disk, queues=1, retain_bytes=8192, keep_unread=False) as engine:
        for _ in range(20):
            fill(engine)
            engine.sync()
        assert engine.stats().first_position > 0
        assert engine.stats().trouble is None
    with opened(disk, queues=1) as engine:
        assert engine.stats().recovery.clean


def test_a_reader_shows_sound_messages_before_a_damaged_one(disk: CrashDisk) -> None:
    disk = undecided()
    damage(disk, b"second")
    with fmq.open("data", disk=disk, read_only=True) as reader:
        assert reader.read("t", limit=1)[0].body == b"first"
        assert [tx.tx_id for tx in reader.undecided()] == ["T"]
        with pytest.raises(Damaged):
            reader.read("t", offset=1)
