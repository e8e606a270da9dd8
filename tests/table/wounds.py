"""Journals whose files can be broken one at a time, and what tables show of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from random import Random
from typing import Any

import fmq.table
from fmq.testing import CrashDisk, FakeClock
from tests.story import SEGMENT_BYTES, Files, disk_of, files_of, last_words, open_disk, tell

PATH = "data"
VIEWS = ("messages", "records", "transactions")

Row = dict[str, Any]


@dataclass(frozen=True)
class Whole:
    """The files of a directory, and the rows of its views."""

    files: Files
    rows: dict[str, list[Row]]

    @property
    def segments(self) -> list[str]:
        return sorted(name for name in self.files if name.endswith(".seg"))

    @property
    def last_append(self) -> int:
        """The position at which it begins."""
        begins: int = self.rows["records"][-1]["append"]
        return begins

    def vouches(self, wound: str) -> bool:
        """Return whether the damaged file may be the only proof that the last append is durable. A
        lost checkpoint does not count: an error reports it.
        """
        return self is killed() and self.segments[-1] in wound

    @property
    def is_shipped(self) -> bool:
        return "LOCK" not in self.files


@cache
def closed() -> Whole:
    """Make a closed directory with several segments of everything, of which retention has dropped
    some.
    """
    disk, clock = CrashDisk(), FakeClock()
    with open_disk(disk, clock, retain_bytes=6 * SEGMENT_BYTES, keep_unread=False) as engine:
        tell(engine, clock)
        noise = Random("more")
        for _ in range(20):
            engine.send_many("audit", [noise.randbytes(900), b"small"], producer="more")
        engine.decide("waiting", "rollback")
        late = engine.transaction(tx_id="late", producer="story")
        late.send("emails", b"nobody has decided")
        late.prepare()
        last_words(engine)
        assert engine.stats().first_position > 0, "retention has dropped something"
    return _whole(files_of(disk))


@cache
def killed() -> Whole:
    """Return a directory of a killed engine. Nothing proves that its last append is durable."""
    disk, clock = CrashDisk(), FakeClock()
    engine = open_disk(disk, clock)
    tell(engine, clock)
    files = files_of(disk.after_kill())
    engine.close()
    return _whole(files)


def shipped() -> Whole:
    """The closed segments alone."""
    whole = closed()
    return _whole({name: whole.files[name] for name in whole.segments[:-1]})


def _whole(files: Files) -> Whole:
    whole = Whole(files, {view: rows_of(files, view) for view in VIEWS})
    assert len(whole.segments) > 3
    assert all(whole.rows.values())
    return whole


def rows_of(files: Files, view: str, **how: Any) -> list[Row]:
    """The rows of a directory with these files, in memory."""
    found: list[Row] = fmq.table.read(PATH, view, disk=disk_of(files), **how).read_all().to_pylist()
    return found


def wounds(whole: Whole, seed: int, count: int) -> Iterator[tuple[str, Files]]:
    """Different damages to one file each: a bit, a stretch of zeros or noise, an end, a file."""
    random = Random(seed)
    names = sorted(name for name in whole.files if not name.endswith(".spare"))
    names += whole.segments  # there is more to break in them
    for number in range(count):
        name = random.choice(names)
        data = bytearray(whole.files[name])
        at = random.randrange(len(data)) if data else 0
        kind = random.choice(("bit",) * 6 + ("zeros", "noise", "cut", "gone"))
        size = random.choice((1, 8, 64, 600))
        if kind == "bit" and data:
            data[at] ^= 1 << random.randrange(8)
        elif kind in ("zeros", "noise"):
            fill = bytes(size) if kind == "zeros" else random.randbytes(size)
            data[at : at + size] = fill[: len(data) - at]
        elif kind == "cut":
            del data[at:]
        files = {**whole.files, name: bytes(data)}
        if kind == "gone":
            if whole.is_shipped and name in (whole.segments[0], whole.segments[-1]):
                continue  # dropped before it was shipped, or not shipped yet: that cannot be known
            del files[name]
        yield f"wound {number} of {seed=}: {kind} at {at} of {name}", files
