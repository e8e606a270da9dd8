"""An old copy of each file of a directory, put back among the newer ones: found, or harmless.

The table in docs/recovery.md is what this file finds. `python -m pytest -s
tests/recovery/test_old_copies.py` prints it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq.errors import Damaged
from fmq.testing import CrashDisk, FakeClock
from tests.recovery.sights import consumable, seen
from tests.small import check, content, fill, opened, segments

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recovery.md"
COPIES_MAX = 4  # of one file, spread over the run
OPTIONS: dict[str, Any] = {
    "queues": 2, "checkpoint_bytes": 3000, "retain_bytes": 8 * 4096, "keep_unread": False,
}  # fmt: skip
ROW = re.compile(r"^\| (.+?) \| (closed|killed) \| ([a-z, ]+) \|", re.MULTILINE)


class Told:
    """A run, with a copy of all files after each of its steps."""

    def __init__(self, *, closed: bool) -> None:
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.copies: dict[str, list[bytes]] = {}
        with opened(self.disk, self.clock, **OPTIONS) as engine:
            for step in STEPS:
                step(engine, self)
                self.copy()
            if not closed:
                self.disk = self.disk.after_kill()
        if closed:
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
    engine.send("t", b"soon", delay=60.0, queue=0)
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


def on_disk(files: dict[str, bytes]) -> CrashDisk:
    disk = CrashDisk()
    directory = disk.directory("data", make=True)
    for name, data in files.items():
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
    disk = on_disk({**told.files, name: data})
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


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_an_old_copy_of_each_file_is_found_or_harmless_as_the_table_says(how: str) -> None:
    told = Told(closed=how == "closed")
    check(told.disk.after_kill())
    found = found_in(told)
    for kind, outcomes in found.items():
        print(f"| {kind} | {how} | {', '.join(sorted(outcomes))} |")
    said = {
        kind: {*outcomes.split(", ")}
        for kind, when, outcomes in ROW.findall(PAGE.read_text())
        if when == how
    }
    assert found == said
