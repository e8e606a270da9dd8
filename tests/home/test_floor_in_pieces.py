"""A floor that is larger than what the storage takes at once is in pieces. Whatever happens between
the making of two pieces, or the looks at two, nothing is lost.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import fmq
from benchmarks.peers.programs import Folder
from fmq.basics.clock import SystemClock
from fmq.errors import Damaged
from fmq.home import home_calls
from fmq.home.home_addresses import objects_at
from fmq.home.home_calls import HomeCalls
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.home.home_sweeper import SMALL_FLOORS
from fmq.posix import RealDisk
from fmq.testing import FakeClock
from fmq.testing.fake_home import FakeObjects
from tests.home.machines import Machine, begun, check, overtake_at
from tests.home.other_streams import home_in_stream
from tests.store.lines import Lines, at_each_line
from tools.home_servers import KINDS, missing

SMALL = 300  # bytes that the storage takes at once; a floor has more


def floors(home: dict[str, bytes]) -> list[str]:
    return sorted(key for key in home if key.startswith("floors/"))


def pieces(home: dict[str, bytes], key: str) -> list[str]:
    start = f"files/{key.partition('/')[2]}-floor-"
    return sorted(each for each in home if each.startswith(start))


def test_a_large_floor_rises_and_numbers_are_freed() -> None:
    home, first, second = begun(SMALL)
    for number in range(6):
        first.work(b"%d" % number * 600)
    (newest,) = floors(home)
    assert len(pieces(home, newest)) > 2
    assert len([key for key in home if key.startswith("slots/")]) < 12
    assert len([key for key in home if "-floor-" in key]) == len(pieces(home, newest))
    second.open()
    second.work(b"second")
    check(home, first, second)


def test_a_large_floor_rises_only_once_as_much_lies_above_it() -> None:
    """All of it is written anew, however little was sent since."""
    home: dict[str, bytes] = {}
    machine = Machine(home, 1)
    machine.floor_bytes = SMALL_FLOORS * 1000
    machine.open()
    size, rises = 0, list[int]()
    for number in range(60):
        machine.send(b"%d" % number * 30)
        above, before = machine.owner.history.bytes_since_floor, floors(home)
        machine.engine.checkpoint()
        if floors(home) != before:
            assert size < 1000 or above >= size
            (newest,) = floors(home)
            size = len(home[newest])
            rises.append(number)
    assert size > 1000, "it has become large"
    assert rises[:2] == [0, 1], "a small one rises with each checkpoint"
    assert rises[-1] - rises[-2] > 2
    check(home, machine)


def test_a_stream_of_nats_that_takes_little_at_once(tmp_path: Path) -> None:
    """Its owner frees numbers, and a machine that has nothing finds all."""
    if why := missing("nats"):
        pytest.skip(why)
    folder = Folder("fmq-home-")
    server = KINDS["nats"](folder.path)
    try:
        home = home_in_stream(server, "small", max_msg_size=6000)
        objects = objects_at(home)
        disk, said = RealDisk(), {"host": "here", "pid": 7}
        log = HomeLog(*(objects, disk.random, SystemClock(), said), retry_seconds=30, floor_slots=1)
        with fmq.open(tmp_path / "a", disk=HomeDisk(disk, log), background=False) as engine:
            for _ in range(4):
                engine.send("t", os.urandom(60_000), queue=0)
            engine.checkpoint()
            sent = [bytes(each.body) for each in engine.read("t", queue=0)]
            assert len(objects.names("floors")) == 1
            assert [each for each in objects.names("files") if "-floor-" in each][2:]
            assert len(objects.names("slots")) < 5
        with fmq.open(tmp_path / "b", home=home) as engine:
            assert [bytes(each.body) for each in engine.read("t", queue=0)] == sent
    finally:
        server.end()
        folder.remove()


def test_a_newer_floor_while_the_pieces_are_read() -> None:
    """The machine that reads them begins with the newer floor."""
    home, first, second = begun(SMALL)
    before = floors(home)

    def others(what: str) -> None:
        if what.startswith("read files/") and "-floor-" in what:
            second.objects.before = lambda what: None
            first.work(b"meanwhile")
            assert floors(home) != before

    second.objects.before = others
    second.open()
    assert floors(home) != before
    second.work(b"second")
    check(home, first, second)


def test_a_fenced_owner_leaves_the_pieces_of_the_newer_floor_alone() -> None:
    home, first, second = begun(SMALL)
    overtake_at("names floors", first, second)
    newest = floors(home)[-1]
    there = pieces(home, newest)
    assert there
    first.engine.close()
    assert pieces(home, newest) == there
    check(home, first, second)


@pytest.mark.parametrize("at", [0, -1])
def test_a_piece_that_is_lost_or_damaged_is_said(at: int) -> None:
    home, first, second = begun(SMALL)
    key = pieces(home, floors(home)[-1])[at]
    data = home.pop(key)
    with pytest.raises(Damaged, match="lacks a piece of this floor"):
        second.open()
    home[key] = data[:-1] + bytes([data[-1] ^ 1])
    with pytest.raises(Damaged, match="the checksum of the floor does not match"):
        second.open()
    home[key] = data
    second.open()
    second.work(b"second")
    check(home, first, second)


def test_of_two_looks_at_once_each_returns_what_it_has_read() -> None:
    """One that began later may not be given the older floor, which the other one has read."""
    home, first, _ = begun(SMALL)
    calls = HomeCalls(FakeObjects(home), FakeClock(), 5)
    assert calls.floor() is not None
    older = calls._floor
    first.work(b"more")

    def the_other_ends() -> None:
        if calls._floor != older:
            calls._floor = older

    newest = HomeCalls(FakeObjects(home), FakeClock(), 5).floor()
    assert newest is not None
    for tracer in at_each_line(partial(Lines, home_calls, act=the_other_ends)):
        calls._floor = b"", b""
        found: Any = tracer.run(calls.floor)
        assert found.next == newest.next, tracer.met
    check(home, first)


def test_the_pieces_of_a_floor_are_read_once() -> None:
    """A machine that stands by looks at the floor again and again."""
    home, first, _ = begun(SMALL)
    asked: list[str] = []
    objects = FakeObjects(home)
    objects.before = asked.append
    calls = HomeCalls(objects, FakeClock(), 5)
    found = [calls.floor() for _ in range(3)]
    assert len({each.next for each in found if each is not None}) == 1
    assert len([each for each in asked if "-floor-" in each]) == 1
    first.work(b"more")
    newer = calls.floor()
    assert newer is not None
    assert newer.next > max(each.next for each in found if each is not None)
    check(home, first)
