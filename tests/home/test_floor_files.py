"""A machine whose directory is empty begins at the checkpoint that the floor names. What of it is
missing, damaged or of another history costs time, and no message.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

import fmq
from fmq.errors import Damaged
from fmq.home.floor_files import CHECKPOINT
from fmq.home.home_cache import HomeCache
from fmq.home.home_floor import decode_floor, encode_floor
from fmq.home.home_history import HomeHistory
from fmq.home.home_reader import HomeReadDirectory
from fmq.machine.disk import Directory
from fmq.testing import CrashDisk, FaultDisk, Loss
from fmq.testing.fake_home import MANY_BYTES, FakeObjects
from tests.home.machines import Machine, begun, check, overtake_at

LATER = 150  # more timers than a checkpoint itself has


def newest_floor(home: dict[str, bytes]) -> HomeHistory:
    key = max(key for key in home if key.startswith("floors/"))
    return decode_floor(home[key], key)


def named(home: dict[str, bytes]) -> dict[str, list[str]]:
    """Return the keys of each file that the newest floor names."""
    files = newest_floor(home).files.pieces
    return {name: [each.key(name) for each in pieces] for name, pieces in files.items()}


def filled(home: dict[str, bytes], number: int = 1) -> Machine:
    """Let a machine fill several segments, keep timers in files, and raise the floor."""
    machine = Machine(home, number)
    for _ in range(number):
        machine.disk.random(1)  # so that each one draws another store
    engine = machine.open()
    for number in range(12):
        machine.send(b"%d" % number * 900)
    tx = engine.transaction(tx_id="undecided")
    tx.send("t", b"never")
    tx.prepare()
    for number in range(LATER):
        engine.send("t", b"later", delay=1000 + number)
    engine.checkpoint()
    machine.work(b"more")  # the first checkpoint has no part yet
    machine.send(b"above the floor")
    return machine


def kinds(names: set[str]) -> set[str]:
    return {name.rpartition(".")[2] for name in names}


def directory_of(machine: Machine) -> Directory:
    return machine.disk.directory("data", make=False)


def replayed(home: dict[str, bytes]) -> int:
    """Return how many bytes a machine replays that has nothing, and close it."""
    with Machine(home, 98).open() as engine:
        found = engine.stats().recovery.replayed_bytes
        assert len(engine.undecided()) == 1
        assert len(engine.delayed(limit=999)) == LATER
    return found


def test_an_empty_directory_begins_at_the_checkpoint_of_the_home() -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    assert kinds({*named(home)}) == {CHECKPOINT, "idx", "part", "due"}
    elsewhere = {**home}
    with_files = replayed(elsewhere)
    for key in [key for key in home if key.startswith("files/")]:
        del home[key]
    without = replayed(home)
    assert with_files < 1000 < 9000 < without
    check(elsewhere, machine)


def test_the_files_are_those_of_the_owner() -> None:
    """What its engine can read, the next one can."""
    home: dict[str, bytes] = {}
    machine, other = filled(home), Machine(home, 2)
    machine.close()
    other.open()
    names = {*named(home)} - {CHECKPOINT}
    mine, others = machine.disk.files("data"), other.disk.files("data")
    indexes = {name for name in names if name.endswith(".idx")}
    assert len(indexes) > 2
    for name in indexes:
        assert others[name].read(0, others[name].size) == mine[name].read(0, mine[name].size)
    check(home, machine, other)


def without(home: dict[str, bytes], key: str) -> None:
    del home[key]


def turned(home: dict[str, bytes], key: str) -> None:
    home[key] = home[key][:-1] + bytes([home[key][-1] ^ 1])


def spoiled(
    home: dict[str, bytes], kind: str, spoil: Callable[[dict[str, bytes], str], None]
) -> list[str]:
    """Spoil the last piece of each file of this kind. Return the names of the files."""
    found = {name: keys[-1] for name, keys in named(home).items() if name.endswith(kind)}
    for key in found.values():
        spoil(home, key)
    return [*found]


@pytest.mark.parametrize("spoil", [without, turned])
@pytest.mark.parametrize("kind", [CHECKPOINT, "idx", "part", "due"])
def test_a_file_that_is_missing_or_damaged_costs_no_message(
    spoil: Callable[[dict[str, bytes], str], None], kind: str
) -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    lost = spoiled(home, kind, spoil)
    other = Machine({**home}, 2)
    log = other.log()
    log.take_over(cache_of(other)).close()
    assert kind == CHECKPOINT or lost[-1] not in directory_of(other).names()
    replayed({**home})
    check(home, machine)


def cache_of(machine: Machine) -> HomeCache:
    return HomeCache(machine.disk.directory("data", make=True), "fake://home")


class ReadDisk:
    """Implements Disk: a home that is only read."""

    def __init__(self, home: dict[str, bytes]) -> None:
        self.asked: list[str] = []
        self._home = home

    def directory(self, path: str, *, make: bool) -> HomeReadDirectory:
        objects = FakeObjects(self._home)
        objects.before = self.asked.append
        return HomeReadDirectory(objects)

    def random(self, size: int) -> bytes:
        return bytes(size)


def test_a_reader_begins_at_the_checkpoint() -> None:
    """It asks for no segment below what is undecided, before it looks for a message there."""
    home: dict[str, bytes] = {}
    machine = filled(home)
    disk = ReadDisk(home)
    with fmq.open("home", disk=disk, read_only=True) as engine:
        pieces = {each[5:32] for each in disk.asked if each.startswith("read pieces/")}
        segments = {key[:27] for key in home if key.startswith("pieces/")}
        assert min(pieces) > sorted(segments)[2]
        last = len(machine.acked) - 1
        found = engine.read("t", offset=last)
        assert [bytes(each.body) for each in found] == machine.acked[last:]
        assert [bytes(each.body) for each in engine.read("t")] == machine.acked
        assert len(engine.undecided()) == 1
        assert len(engine.delayed(limit=999)) == LATER
    assert fmq.check("home", disk=ReadDisk(home)).ok
    machine.close()


@pytest.mark.parametrize("spoil", [without, turned])
@pytest.mark.parametrize("kind", [CHECKPOINT, "idx", "part", "due"])
def test_a_reader_does_without_a_file_that_is_missing_or_damaged(
    spoil: Callable[[dict[str, bytes], str], None], kind: str
) -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    spoiled(home, kind, spoil)
    with fmq.open("home", disk=ReadDisk(home), read_only=True) as engine:
        assert [bytes(each.body) for each in engine.read("t")] == machine.acked
        assert len(engine.undecided()) == 1
        assert len(engine.delayed(limit=999)) == LATER
    machine.close()


def test_a_piece_that_is_damaged_is_refused() -> None:
    home: dict[str, bytes] = {}
    filled(home).close()
    turned(home, max(key for key in home if key.startswith("pieces/")))
    with pytest.raises(Damaged, match="its checksum in fake://home does not match"):
        Machine(home, 2).open()


def test_a_checkpoint_of_more_than_the_floor_has_is_left_alone() -> None:
    """What it knows beyond the floor may be what another owner has put in the place of it."""
    home: dict[str, bytes] = {}
    first, second = Machine(home, 1), Machine(home, 2)
    first.open()
    first.work(b"begun")
    older = {**home}
    first.send(b"a" * 700)
    first.engine.checkpoint()
    floor, later = newest_floor(older), newest_floor(home)
    assert floor.files.upto < later.files.upto <= later.position
    older |= {key: data for key, data in home.items() if key.startswith("files/")}
    floor.files = later.files
    older |= encode_floor(floor, MANY_BYTES)
    home.clear()
    home.update(older)
    first.acked.pop()
    second.floor_slots = 1000
    second.open()
    second.send(b"b" * 600)
    second.send(b"c" * 600)
    assert second.owner.history.position > later.files.upto
    check(home, first, second)


def test_a_checkpoint_of_another_store_is_left_alone() -> None:
    home: dict[str, bytes] = {}
    others: dict[str, bytes] = {}
    machine, other = filled(home), filled(others, 2)
    floor = newest_floor(home)
    floor.files = newest_floor(others).files
    home |= {key: data for key, data in others.items() if key.startswith("files/")}
    home |= encode_floor(floor, MANY_BYTES)
    replayed({**home})
    check(home, machine)
    other.close()


def test_a_floor_names_no_file_that_is_not_there() -> None:
    """At no call to the home: the files come before the floor, and go after the next one."""
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.open()
    machine.work(b"begun")
    lacking: list[str] = []

    def look(what: str) -> None:
        there = {key for keys in named(home).values() for key in keys}
        lacking.extend(f"{key} at {what}" for key in there - home.keys())

    machine.objects.before = look
    for number in range(9):
        machine.work(b"%d" % number * 300)
    assert not lacking
    check(home, machine)


def test_files_that_no_floor_names_any_more_are_removed() -> None:
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.open()
    for number in range(6):
        machine.work(b"%d" % number * 400)
    machine.engine.checkpoint()
    there = {key for key in home if key.startswith("files/")}
    assert there == {key for keys in named(home).values() for key in keys}
    check(home, machine)


def test_a_fenced_owner_leaves_the_files_of_a_newer_floor_alone() -> None:
    home, first, second = begun()
    overtake_at("names files", first, second)
    assert {key for keys in named(home).values() for key in keys} <= home.keys()
    check(home, first, second)


def test_a_newer_checkpoint_of_this_machine_is_kept() -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    machine.floor_slots = 1000
    machine.close()
    machine.open()
    machine.send(b"more")
    machine.engine.checkpoint()
    machine.close()
    engine = machine.open()
    assert engine.stats().checkpointed_upto > newest_floor(home).files.upto
    assert engine.stats().recovery.replayed_bytes == 0
    check(home, machine)


def test_an_owner_puts_an_index_once() -> None:
    """And of the index of the newest segment what is new."""
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.open()
    put: list[str] = []
    machine.objects.after = put.append
    for number in range(20):
        machine.work(b"%d" % number * 200)
    files = [each.split("/")[1] for each in put if each.startswith("create files/")]
    indexes = [each[21:] for each in files if "-idx-" in each]
    assert len(indexes) == len({*indexes}) > 1
    parts = [each for each in files if "-part-" in each]
    assert any("-part-0000000000-" not in each for each in parts)
    check(home, machine)


def stood_by(home: dict[str, bytes], number: int) -> Machine:
    """Return a machine that follows the home, with its directory as the home is now."""
    machine = Machine(home, number)
    log = machine.log()
    cache = cache_of(machine)
    log.mirror(cache)
    cache.close()
    log.close()
    return machine


def test_a_machine_that_stands_by_takes_the_checkpoint() -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    standby = stood_by(home, 2)
    log, cache = standby.log(), cache_of(standby)
    log.mirror(cache)
    machine.work(b"more" * 100)
    log.mirror(cache)
    cache.close()
    names = {*directory_of(standby).names()}
    assert {*named(home)} - {CHECKPOINT} <= names
    for key in [key for key in home if key.startswith("files/")]:
        del home[key]
    standby.floor_slots = 1000
    assert standby.open().stats().recovery.replayed_bytes < 1500
    check(home, machine, standby)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("size", [700, 500])
def test_a_checkpoint_of_what_the_home_has_lost_is_forgotten(size: int, cut: bool) -> None:
    """The home is put back from a backup, and goes on otherwise, while a machine that stood by, and
    has the checkpoint of what was lost, is away. With a power cut that leaves nothing but what was
    durable of its directory: the checkpoint.
    """
    home: dict[str, bytes] = {}
    first, second = Machine(home, 1), Machine(home, 2)
    first.open()
    first.work(b"begun")
    backup = {**home}
    first.send(b"a" * 700)
    first.engine.checkpoint()
    standby = stood_by({**home}, 3)
    home.clear()
    home.update(backup)
    second.floor_slots = standby.floor_slots = 1000
    second.open()
    for _ in range(3):
        second.send(b"b" * size)
    standby.objects = FakeObjects(home)
    if cut:
        standby.disk = standby.disk.after(Loss())
    standby.open()
    for number in range(6):
        standby.send(b"%d" % number * 900)
    first.acked.pop()
    replayed = Machine({**home}, 4)
    assert len(replayed.open().read("t", limit=99)) == len(
        first.acked + second.acked + standby.acked
    )
    replayed.close()
    check(home, first, second, standby)


def test_files_that_were_taken_outlive_a_power_cut() -> None:
    home: dict[str, bytes] = {}
    machine = filled(home)
    machine.close()
    other = Machine(home, 2)
    log = other.log()
    log.take_over(cache_of(other)).close()
    left = other.disk.after(Loss()).directory("data", make=False)
    for name in {*named(home)} - {CHECKPOINT}:
        mine, theirs = left.open(name), directory_of(machine).open(name)
        assert mine.read(0, 99) == theirs.read(0, 99) != b""


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_an_error_of_this_disk_costs_the_checkpoint_alone(error: int) -> None:
    home: dict[str, bytes] = {}
    machine, other = filled(home), Machine(home, 2)
    faults = FaultDisk(CrashDisk())
    faults.fail("write", names="*0.new", error=error, persistently=True)
    log = other.log()
    directory = faults.directory("data", make=True)
    log.take_over(HomeCache(directory, "fake://home")).close()
    assert not {name for name in directory.names() if name.endswith((".idx", ".part"))}
    check(home, machine)


@pytest.mark.parametrize("lost", [("-checkpoint-", "-part-"), ("-checkpoint-",)])
def test_files_that_cannot_be_put_do_not_keep_the_floor_down(lost: tuple[str, ...]) -> None:
    """What has come is not put again, and what was removed is not named."""
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.open()
    machine.work(b"begun")
    put: list[str] = []

    def before(what: str) -> None:
        if what.startswith("create files/"):
            if any(each in what for each in lost):
                machine.objects.lost_calls.add(machine.objects.calls)
            else:
                put.append(what)

    machine.objects.before = before
    for number in range(9):
        machine.work(b"%d" % number * 600)
        assert newest_floor(home).next > machine.owner.history.next - 5
    machine.objects.before = lambda what: None
    indexes = [each.split("/")[1][21:] for each in put if "-idx-" in each]
    assert len(indexes) == len({*indexes}) > 1
    machine.work(b"last")
    assert newest_floor(home).files.upto > 5000
    assert {key for keys in named(home).values() for key in keys} <= home.keys()
    check(home, machine)


def test_an_index_that_the_home_has_lost_is_put_again() -> None:
    home: dict[str, bytes] = {}
    machine, other = filled(home), Machine(home, 2)
    machine.close()
    keys = [key for key in home if "-idx-" in key]
    other.open()
    for key in keys:
        del home[key]
    other.work(b"other")
    assert {key for keys in named(home).values() for key in keys} <= home.keys()
    assert len([key for key in home if "-idx-" in key]) >= len(keys)
    check(home, machine, other)
