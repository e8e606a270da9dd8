"""An old copy of each file of a directory, put back among the newer ones: found, or harmless.

The table in docs/recovery.md is what this file finds. `python -m pytest -s
tests/recovery/test_old_copies.py` prints it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.errors import Damaged
from fmq.store.journal.segment import base_of
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.tx.ledger.timers import Bounds
from tests.recovery.sights import consumable, seen
from tests.small import check, content, fill, opened, overwrite, remove, segments

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"
COPIES_MAX = 4  # of one file, spread over the run
OPTIONS: dict[str, Any] = {
    "queues": 2, "checkpoint_bytes": 3000, "retain_bytes": 8 * 4096, "keep_unread": False,
}  # fmt: skip
FEW = Bounds(near=8, noted=1)  # so that a few timers make a file
HOW = "closed", "killed", "power cut"
ROW = re.compile(rf"^\| (.+?) \| ({'|'.join(HOW)}|either) \| ([a-z, ]+) \|", re.MULTILINE)


class Told:
    """A run, with a copy of all files after each of its steps."""

    def __init__(self, how: str) -> None:
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.copies: dict[str, list[bytes]] = {}
        with opened(self.disk, self.clock, **OPTIONS) as engine:
            inside(engine).ledger.timers.bounds = FEW
            for step in STEPS:
                step(engine, self)
                self.copy()
            if how == "killed":
                self.disk = self.disk.after_kill()
            elif how == "power cut":
                self.disk = self.disk.after_power_loss(1)
        if how == "closed":
            self.copy()
        self.files = content(self.disk)
        self.sight = sight_of(self.disk)

    def copy(self) -> None:
        for name, data in content(self.disk).items():
            copies = self.copies.setdefault(name, [])
            if data not in copies:
                copies.append(data)


def send_and_ack(engine: fmq.Engine, told: Told) -> None:
    with engine.consumer("t", group="g") as consumer:
        for number in range(6):
            engine.send("t", b"%d" % number, key=f"k{number % 2}", queue=number % 2)
        for delivery in consumer.poll(limit=3):
            delivery.ack()
        for delivery in consumer.poll(limit=1):
            delivery.release()


def undecided(engine: fmq.Engine, told: Told) -> None:
    tx = engine.transaction(tx_id=f"open {engine.stats().position}", producer="p")
    tx.send("u", b"never", queue=0)
    tx.prepare()


def decide(engine: fmq.Engine, told: Told) -> None:
    engine.decide(engine.undecided()[0].tx_id, "commit")


def erase(engine: fmq.Engine, told: Told) -> None:
    """Erase a message, with a copy of the files at every operation of that."""
    told.disk.watch(lambda line: told.copy())
    engine.erase("t", 0, engine.queues("t")[0].next - 1)
    told.disk.watch(None)


def deliver_later(engine: fmq.Engine, told: Told) -> None:
    for delay in (60.0, 61.0):
        engine.send("t", b"soon", delay=delay, queue=0)
    engine.send("t", b"late", delay=6000.0, queue=0)
    engine.checkpoint()


def let_time_pass(engine: fmq.Engine, told: Told) -> None:
    told.clock.advance(70.0)
    engine.checkpoint()


def drop_segments(engine: fmq.Engine, told: Told) -> None:
    for _ in range(9):
        fill(engine)
        engine.find("t", key="k1")
        told.copy()
    assert engine.queues("t")[0].first > 0


def ship(engine: fmq.Engine, told: Told) -> None:
    fmq.ship("data", "elsewhere", disk=told.disk, keep_bytes=1)


STEPS: list[Callable[[fmq.Engine, Told], object]] = [
    send_and_ack,
    ship,
    deliver_later,
    drop_segments,
    send_and_ack,
    undecided,
    deliver_later,
    lambda engine, told: fill(engine),
    lambda engine, told: engine.find("t", key="k1"),
    undecided,
    erase,
    send_and_ack,
    lambda engine, told: engine.checkpoint(),
    let_time_pass,
    ship,
    decide,
    lambda engine, told: fill(engine),
    lambda engine, told: engine.find("t", key="k1"),
    send_and_ack,
    lambda engine, told: engine.checkpoint(),
    send_and_ack,
    deliver_later,
    undecided,
]


def with_old(told: Told, name: str, data: bytes) -> CrashDisk:
    """Return the disk after the run, with one file as it was before."""
    disk = told.disk.after_kill()
    if name in told.files:
        remove(disk, name)
    directory = disk.directory("data", make=False)
    with closing(directory.create(name)) as file:
        file.write(0, (data,), sync=True)
        file.sync()
    directory.sync()
    return disk


def sight_of(disk: CrashDisk) -> dict[str, object]:
    """Return what an engine shows that opens a copy of the disk."""
    with fmq.open("data", disk=disk.after_kill(), clock=FakeClock(), background=False) as engine:
        keys = {key: [each.offset for each in engine.find("t", key=key)] for key in ("k0", "k1")}
        return {**seen(engine), "keys": keys, "waiting": engine.stats().delayed,
                "consumable": consumable(engine)}  # fmt: skip


def outcome_of(told: Told, name: str, data: bytes) -> str:
    """Put one old copy among the files, and return what comes of it."""
    disk = with_old(told, name, data)
    try:
        sight = sight_of(disk)
    except Damaged:
        return "found"
    if sight == told.sight:
        return "harmless"
    if fmq.check("data", disk=disk.after_kill()).problems:
        return "found by verify"
    return "shorter" if is_prefix(sight["messages"], told.sight["messages"]) else "wrong"


def is_prefix(short: Any, whole: Any) -> bool:
    """Return whether each queue in `short` has the first messages of that in `whole`."""
    return all(messages == whole[key][: len(messages)] for key, messages in short.items())


def kind_of(told: Told, name: str) -> str:
    if name.endswith(".seg"):
        return "the last `*.seg`" if name == max(segments(told.disk)) else "an earlier `*.seg`"
    if name.startswith("SHIPPING."):
        return "`SHIPPING.*`"
    if name.startswith("checkpoint."):
        return "`checkpoint.*`"
    suffix = name.rpartition(".")[2]
    return f"`*.{suffix}`" if "." in name else f"`{name}`"


def found_in(told: Told) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for name, copies in sorted(told.copies.items()):
        old = [data for data in copies if data != told.files.get(name)]
        for data in old[:: max(1, -(-len(old) // COPIES_MAX))]:
            found.setdefault(kind_of(told, name), set()).add(outcome_of(told, name, data))
    return found


def said(how: str) -> dict[str, set[str]]:
    """Return the rows of the table. For a power cut it has those that are not as after a kill."""
    rows = ROW.findall(PAGE.read_text())
    return {kind: {*outcomes.split(", ")} for kind, when, outcomes in rows if when == how}


@pytest.mark.parametrize("how", HOW)
def test_an_old_copy_of_each_file_is_found_or_harmless_as_the_table_says(how: str) -> None:
    told = Told(how)
    check(told.disk.after_kill())
    found = found_in(told)
    for kind, outcomes in found.items():
        print(f"| {kind} | {how} | {', '.join(sorted(outcomes))} |")
    assert found == {**said("killed" if how == "power cut" else how), **said(how)}


@pytest.mark.parametrize("put_back", ["an older one", "nothing", "a part"])
def test_an_old_copy_never_hides_acknowledged_messages_in_silence(put_back: str) -> None:
    """After a kill, the page says how far the journal was durable. A journal that is shorter is
    refused by an opening, and reported by verify and by a salvage.
    """
    disk = CrashDisk()
    with opened(disk) as engine:
        fill(engine)
        engine.checkpoint()
        before = content(disk)
        engine.send("t", b"acknowledged")
        if put_back != "an older one":
            fill(engine)
            engine.send("t", b"acknowledged")
        told, disk = engine.stats().position, disk.after_kill()
    name = max(segments(disk))
    if put_back == "nothing":
        # An index would tell that its segment was sealed.
        remove(disk, name, *(each for each in content(disk) if each.endswith(".idx")))
    elif put_back == "a part":
        overwrite(disk, name, told - base_of(name) - 40, bytes(40))
    else:
        overwrite(disk, name, 0, before[name])
    for how in (disk.after_kill(), disk):
        with pytest.raises(Damaged) as refused, fmq.open("data", disk=how, background=False):
            pass
    assert refused.value.position < told
    (problem,) = fmq.check("data", disk=disk.after_kill()).problems
    assert problem.position == refused.value.position
    salvaged = fmq.salvage("data", "new", disk=disk)
    assert not salvaged.ok and salvaged.problems
    with fmq.open("new", disk=disk, clock=FakeClock(), background=False) as again:
        assert (
            again.send("t", b"more").offset == len(again.read("t", queue=0, offset=0, limit=9)) - 1
        )


def served(path: Path, copies: Path) -> None:
    """Serve a directory, and copy its files while a client has a message in hand."""
    with fmq.open(path) as engine, engine.serve(), fmq.connect(path, start=False) as client:
        for number in range(4):
            client.send("t", b"%d" % number, queue=0)
        with client.consumer("t", group="g") as consumer:
            consumer.poll(limit=2)
            shutil.copytree(path, copies, ignore=shutil.ignore_patterns("SOCKET"))
            os.link(path / "SOCKET", copies / "SOCKET")


@pytest.mark.parametrize("name", ["LOCK", "SOCKET", "HANDED_OUT"])
def test_an_old_copy_of_a_file_about_processes_is_harmless(tmp_path: Path, name: str) -> None:
    served(tmp_path / "shop", tmp_path / "old")
    served(tmp_path / "shop", tmp_path / "new")
    (tmp_path / "new" / name).unlink()
    os.rename(tmp_path / "old" / name, tmp_path / "new" / name)
    path = tmp_path / "new"
    with fmq.open(path) as engine, engine.serve(), fmq.connect(path, start=False) as client:
        shown = client.read("t", queue=0, offset=0, limit=99)
        assert [each.body for each in shown] == [b"%d" % number for number in range(4)] * 2
    assert fmq.check(path).ok
    assert said("either")[f"`{name}`"] == {"harmless"}
