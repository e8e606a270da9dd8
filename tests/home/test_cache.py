"""The directory of a machine is a cache: it may be old or empty, and no other journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import closing

import pytest

import fmq
from fmq.errors import Damaged, EngineFailed, EraseRefused, FmqError, HomeBehind, HomeRefused
from fmq.home.home_cache import HomeCache, become_store
from fmq.home.home_disk import HomeDisk
from fmq.home.home_history import HomeAppend, HomeHistory, HomeSegment
from fmq.recovery.checkpoint import SLOTS
from fmq.store.journal.segment import segment_name
from fmq.testing import CrashDisk, FakeClock, FaultDisk
from tests.home.machines import OPTIONS, Machine, begun, check


def engine_on(disk: FaultDisk, machine: Machine) -> fmq.Engine:
    home = HomeDisk(disk, machine.log())
    return fmq.open("data", OPTIONS, disk=home, clock=FakeClock(), background=False)


def segments(machine: Machine) -> dict[str, bytes]:
    """Return the segments in the directory, without the zeros at their ends."""
    files = machine.disk.files("data")
    return {
        name: image.read(0, image.size).rstrip(b"\0")
        for name, image in files.items()
        if name.endswith(".seg")
    }


def refused(machine: Machine, error: type[FmqError], words: str) -> None:
    """The machine cannot open the home, and its directory stays as it is."""
    before = segments(machine)
    with pytest.raises(error, match=words):
        machine.open()
    assert segments(machine) == before


def test_a_cache_that_was_away_becomes_equal_to_the_home() -> None:
    """Segments that the home has dropped meanwhile go, and all others have its bytes."""
    home, first, second = begun()
    for number in range(12):
        first.send(b"%d" % number * 900)
    away = segments(first)
    second.options = dataclasses.replace(OPTIONS, retain_bytes=4096)
    second.open()
    for number in range(12):
        second.send(b"%d" % number * 900)
    second.engine.checkpoint()
    assert second.engine.queues("t")[0].first > 0
    first.close()
    second.close()
    first.open()
    assert segments(first).items() >= segments(second).items()
    assert not segments(first).keys() & (away.keys() - segments(second).keys())
    first.close()
    assert home


def test_an_empty_directory_is_filled_from_pieces_and_entries() -> None:
    """Pieces have what lies below the floor, entries what lies above it."""
    home, first, _ = begun()
    first.close()
    assert any(key.startswith("pieces/") for key in home)
    third = Machine(home, 3)
    third.open()
    assert segments(third) == segments(first)
    third.close()


def test_a_power_cut_harms_the_cache_and_not_the_home() -> None:
    """Nothing of a segment was synced here, so all of it may be gone."""
    home, first, _ = begun()
    lost = first.disk.after_power_loss(seed=1)
    first.close()
    first.disk = lost
    first.open()
    first.send(b"after")
    check(home, first)


def test_a_cache_that_becomes_a_store_survives_a_power_cut() -> None:
    """Nothing of its segments was synced before."""
    home, first, _ = begun()
    first.close()
    second = Machine(home, 2)
    second.open()
    second.send(b"unsynced")
    second.close()
    become_store(second.disk.directory("data", make=False))
    for seed in range(20):
        left = second.disk.after_power_loss(seed=seed)
        with fmq.open("data", OPTIONS, disk=left, clock=FakeClock(), background=False) as engine:
            found = [bytes(each.body) for each in engine.read("t")]
        assert found == [*first.acked, b"unsynced"]


def without_its_last_entry(home: dict[str, bytes]) -> None:
    del home[max(key for key in home if key.startswith("slots/"))]


def with_a_bit_turned(home: dict[str, bytes]) -> None:
    key = max(key for key in home if key.startswith("slots/"))
    home[key] = home[key][:-1] + bytes([home[key][-1] ^ 1])


def without_a_floor() -> tuple[dict[str, bytes], Machine]:
    """Return a home in which all is in slots, and the machine that had it."""
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.floor_slots = 1000
    machine.open()
    machine.work(b"begun")
    machine.close()
    machine.open()
    machine.close()
    return home, machine


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (without_its_last_entry, HomeBehind, "has lost what it had acknowledged"),
        (dict.clear, HomeBehind, "it is empty"),
        (with_a_bit_turned, Damaged, "checksum does not match"),
    ],
)
def test_a_home_that_lost_something_is_refused(
    spoil: Callable[[dict[str, bytes]], object], error: type[FmqError], words: str
) -> None:
    home, machine = without_a_floor()
    spoil(home)
    refused(machine, error, words)


def test_a_home_that_went_another_way_is_refused() -> None:
    """It was restored from an older copy, and another machine has worked since."""
    home, first = without_a_floor()
    older = dict(home)
    first.open()
    first.work(b"lost")
    first.close()
    first.open()
    first.close()
    home.clear()
    home.update(older)
    second = Machine(home, 2)
    second.floor_slots = 1000
    second.open()
    for number in range(9):
        second.work(b"%d" % number)
    second.close()
    refused(first, HomeBehind, "has another entry than it had")


def test_a_home_that_went_far_another_way_is_refused() -> None:
    """All that the two had in common lies below the floor now, and its slots are freed."""
    home, first, second = begun()
    older = dict(home)
    first.work(b"lost")
    first.close()
    home.clear()
    home.update(older)
    second.open()
    for number in range(20):
        second.work(b"%d" % number)
    second.close()
    refused(first, HomeBehind, "has another entry than it had")


def test_the_cache_of_another_home_is_refused() -> None:
    _, first, _ = begun()
    first.close()
    other = Machine({}, 5)
    other.open()
    other.close()
    first.objects.objects = other.objects.objects
    refused(first, HomeRefused, "is the cache of another home")


def test_a_journal_of_its_own_is_no_cache() -> None:
    machine = Machine({}, 1)
    fmq.open("data", OPTIONS, disk=machine.disk, clock=FakeClock(), background=False).close()
    refused(machine, HomeRefused, "has a journal of its own")


def test_a_cache_is_not_opened_without_its_home() -> None:
    """What is written then would not be in the home. To look is allowed."""
    _, first, _ = begun()
    first.close()
    with pytest.raises(HomeRefused, match="is the cache of a home"):
        fmq.open("data", OPTIONS, disk=first.disk, clock=FakeClock())
    with fmq.open("data", disk=first.disk, clock=FakeClock(), read_only=True) as engine:
        assert len(engine.read("t")) == 2
    assert not fmq.check("data", disk=first.disk).problems


def test_a_file_home_that_is_damaged_is_refused() -> None:
    _, first, _ = begun()
    first.close()
    directory = first.disk.directory("data", make=False)
    file = directory.open("HOME", write=True)
    file.write(0, (b"x",), sync=True)
    file.close()
    refused(first, HomeRefused, "file HOME is damaged")


def test_a_home_cannot_erase() -> None:
    home, first, _ = begun()
    with pytest.raises(EraseRefused, match="a home cannot erase yet"):
        first.engine.erase("t", 0, 0)
    first.send(b"after")
    check(home, first)


def test_a_backup_of_an_engine_with_a_home_is_an_ordinary_one() -> None:
    home, first, _ = begun()
    first.engine.backup("backup")
    first.send(b"after")
    fmq.restore("backup", "restored", disk=first.disk)
    with fmq.open("restored", OPTIONS, disk=first.disk, clock=FakeClock()) as engine:
        assert [bytes(each.body) for each in engine.read("t")] == first.acked[:2]
    check(home, first)


def test_a_cache_that_cannot_be_written_ends_the_engine_and_loses_nothing() -> None:
    """The home has the message, though its caller got an error: its outcome was unknown."""
    home, first, second = begun()
    faults = FaultDisk(second.disk)
    with engine_on(faults, second) as engine:
        faults.fail("write", names="*.seg")
        with pytest.raises(EngineFailed):
            engine.send("t", b"unknown")
    with Machine(home, 3).open() as engine:
        assert [bytes(each.body) for each in engine.read("t")] == [*first.acked, b"unknown"]
    first.close()


def test_what_was_derived_from_other_bytes_is_forgotten_once_for_each_segment() -> None:
    """And not at each append that is written over these bytes."""
    disk, history = CrashDisk(), HomeHistory()
    directory = disk.directory("data", make=True)
    for base in (0, 4096):
        with closing(directory.create(segment_name(base))) as file:
            file.write(0, (b"x" * 4096,), sync=False)
        directory.create(segment_name(base, ".idx")).close()
    directory.create(SLOTS[0]).close()
    cache, segment = HomeCache(directory, "fake://home"), HomeSegment(4096)
    before = len(disk.history)
    for append in range(20):
        for base in (0, 4096):
            cache.write(HomeAppend(base, append * 10, b"y" * 10), segment)
    assert sorted(directory.names()) == [segment_name(base) for base in (0, 4096)]
    assert disk.history[before:].count("directory sync data") == 2
    cache.take_files(history, lambda wanted: iter(()))
    directory.create(segment_name(0, ".idx")).close()  # as if it had been taken
    cache.write(HomeAppend(0, 200, b"y" * 10), segment)
    assert segment_name(0, ".idx") not in directory.names()
    cache.close()
