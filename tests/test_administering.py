"""Calls that administer groups and topics: what a replay would refuse is refused before the write.

Each story ends with a directory that is sound and that opens, with and without its checkpoints.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.basics.clock import as_datetime
from fmq.errors import OffsetGone, UsageError
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fault_disk import FaultDisk
from tests.remote.over_frames import OverFrames
from tests.small import check, content, opened, remove

FACES: dict[str, Callable[[fmq.Engine, FakeClock], Any]] = {
    "open": lambda engine, clock: engine,
    "connect": OverFrames,
}


@pytest.fixture(params=FACES)
def face(request: Any) -> Callable[[fmq.Engine, FakeClock], Any]:
    return FACES[request.param]


@contextmanager
def opens_again(disk: CrashDisk) -> Iterator[None]:
    """Check after the block that the directory is sound, and opens with and without its
    checkpoints.
    """
    yield
    check(disk)
    with opened(disk) as engine:
        engine.send("still", b"here")
    remove(disk, *(name for name in content(disk) if name.startswith("checkpoint")))
    with opened(disk) as engine:
        assert engine.read("still")


CHANGES: dict[str, Callable[[Any], object]] = {
    "seek to the earliest": lambda group: group.seek("", to="earliest"),
    "seek to an offset": lambda group: group.seek("", queue=0, offset=0),
    "skip": lambda group: group.skip("", 0, 0),
    "set a filter": lambda group: group.set_filter("", None),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["g", ""])
def test_a_topic_without_a_name_is_refused(face: Any, change: str, name: str) -> None:
    disk, clock = CrashDisk(), FakeClock()
    with opens_again(disk), face(opened(disk, clock), clock) as engine:
        engine.send("t", b"1")
        engine.create_group("g", "t")
        before = engine.stats().position
        with pytest.raises(UsageError, match=r"[Nn]othing was changed"):
            CHANGES[change](engine.group(name))
        assert engine.stats().position == before
        engine.send("t", b"2")


def test_the_command_refuses_a_topic_without_a_name(tmp_path: Path) -> None:
    """As in `fmq group seek DIR g "$UNSET" --to earliest`."""
    with fmq.open(tmp_path / "shop") as engine:
        engine.send("t", b"1")
        engine.create_group("g", "t")
    command = [sys.executable, "-m", "fmq", "group", "seek", str(tmp_path / "shop"), "g", ""]
    done = subprocess.run(
        [*command, "--to", "earliest"], check=False, capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "othing was changed" in done.stderr
    with fmq.open(tmp_path / "shop") as engine:
        assert len(engine.read("t")) == 1


@pytest.mark.parametrize("nth", [*range(0, 30, 3)])
@pytest.mark.parametrize("again", ["", "with fewer queues", "with other messages"])
def test_a_topic_may_be_deleted_while_it_is_trimmed(again: str, nth: int) -> None:
    """The trim has looked up offsets, and finds another topic of the name, or none."""
    under, clock = CrashDisk(), FakeClock()
    disk = FaultDisk(under)
    with opens_again(under), opened(disk, clock) as engine:
        engine.create_topic("t", queues=3, retain_seconds=10)
        for number in range(30):
            engine.send("t", bytes(300), queue=number % 3)
        clock.advance(60)

        def delete() -> None:
            engine.topic("t").delete()
            if again:
                engine.create_topic("t", queues=1, retain_seconds=10)
            if again == "with other messages":
                engine.send_many("t", [b"new"] * 99, queue=0)

        disk.before("read", delete, names="*.seg", nth=nth)
        for _ in range(3):
            clock.advance(60)
            engine.send("other", b"lets the chores run")
        assert disk.count("read", names="*.seg"), "the trim has looked up offsets"


@pytest.mark.parametrize("call", ["replay", "purge"])
@pytest.mark.parametrize("again", [0, 1, 9])
def test_a_group_may_be_deleted_while_its_dead_letters_are_moved(call: str, again: int) -> None:
    """What was asked of the letters of one group is not done to those of the next one."""
    under, clock = CrashDisk(), FakeClock()
    disk = FaultDisk(under)
    with opens_again(under), opened(disk, clock) as engine:

        def reject(count: int) -> None:
            engine.send_many("t", [b"%d" % number for number in range(count)])
            with engine.consumer("t", group="g") as consumer:
                for delivery in consumer.poll(limit=count):
                    delivery.reject("bad")

        def delete() -> None:
            engine.group("g").delete()
            if again:
                engine.create_group("g", "t", at="latest")
                reject(again)

        engine.create_group("g", "t")
        reject(5)
        clock.advance(60)
        disk.before("read", delete, names="*.seg")
        letters = engine.dead_letters("g")
        with suppress(OffsetGone):
            if call == "replay":
                assert letters.replay() == 0
            else:
                assert letters.purge(before=as_datetime(clock.time_us())) == 0
        assert len(letters) == again
        engine.send("t", b"goes on")


@pytest.mark.parametrize("retain_bytes", [12_000, 16_000, 20_000])
def test_queues_may_be_added_before_a_retention(retain_bytes: int) -> None:
    """An older queue whose first messages are dropped is met in a replay after the ADD_QUEUES."""
    disk, clock = CrashDisk(), FakeClock()

    def fill(engine: fmq.Engine) -> None:
        before = engine.stats().segments
        while engine.stats().segments == before:
            engine.send("fill", bytes(400))

    with opens_again(disk):
        with opened(disk, clock) as engine:
            engine.create_topic("t", queues=2)
            engine.send("t", b"0", queue=1)
            engine.send("t", b"1", queue=1)
            fill(engine)
            engine.send("t", b"0", queue=0)
            engine.topic("t").add_queues(1)
            engine.send("t", b"0", queue=2)
            engine.send("t", b"2", queue=1)
            fill(engine)
            fill(engine)
        with opened(disk, clock, retain_bytes=retain_bytes) as engine:
            for _ in range(30):
                engine.send("fill", bytes(40))


def test_a_topic_made_again_during_retention_gets_nothing_of_the_old_one() -> None:
    """What a retention has found in the old topic, it does not write about the new one."""
    met = True
    nth = 0
    while met:
        under, clock = CrashDisk(), FakeClock()
        disk = FaultDisk(under)
        with opens_again(under):
            with opened(disk, clock) as engine:
                for number in range(60):
                    engine.send("t", bytes(400), message_id=f"{number}")
            met = False
            with opened(disk, clock, retain_bytes=9000) as engine:

                def make_again(engine: fmq.Engine = engine) -> None:
                    nonlocal met
                    met = True
                    engine.topic("t").delete()
                    engine.send("t", b"new")

                disk.before("read", make_again, nth=nth)
                for _ in range(20):
                    engine.send("other", bytes(400))
                disk.heal()
                assert engine.stats().failure is None, nth
        nth += 1
    assert nth > 1
