"""A directory whose last segment is known record by record, to plant other bytes at its end."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

from fmq import Engine
from fmq.store.bytes.content import encode_one
from fmq.store.bytes.encoding import size_of
from fmq.store.bytes.kinds import Kind, Record
from fmq.store.bytes.record import FIRST, LAST
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, base_of, decode_header
from tests.small import CrashDisk, content, opened, overwrite, segments
from tests.store.samples import encoded, run_at


@dataclass
class Tail:
    """The last segment of a directory at rest; places are bytes from the start of the file."""

    disk: CrashDisk
    name: str
    base: int
    seed: int
    appends: list[list[Record]]
    end: int

    def place(self, append: int = -1) -> int:
        """Return where an append begins in the file."""
        return self.appends[append][0].position - self.base

    def plant(self, place: int, data: bytes) -> None:
        overwrite(self.disk, self.name, place, data)

    def message(self, offset: int) -> bytes:
        """A sound MESSAGE, as an append of its own, for the end of the journal."""
        return self.record(run_at(encode_one(b"planted", None), Kind.MESSAGE, "t", 0, offset, 1))

    def record(self, record: Record) -> bytes:
        """`record` as an append of its own for the end of the journal."""
        record.position, record.flags = self.base + self.end, record.flags | FIRST | LAST
        record.size = size_of(record)
        return encoded(record, 0, self.seed)


def tail_of(disk: CrashDisk) -> Tail:
    name = segments(disk)[-1]
    data = content(disk)[name]
    header = decode_header(data, name)
    base, seed = base_of(name), zlib.crc32(header.store)
    file = disk.directory("data", make=False).open(name)
    limit = base + header.capacity
    scan = Scan(file, base, limit, base + HEADER_BYTES, seed)
    appends = list(scan)
    assert scan.ending is not None
    return Tail(disk, name, base, seed, appends, scan.ending.append_start - base)


def left_by(*steps: Callable[[Engine], object]) -> Tail:
    """Return what a power cut leaves after these steps. Only a checkpoint proves it durable."""
    disk = CrashDisk()
    with opened(disk) as engine:
        for step in steps:
            step(engine)
        left = disk.after_power_loss(1)
    return tail_of(left)


def send(body: bytes) -> Callable[[Engine], object]:
    return lambda engine: engine.send("t", body)


def checkpoint(engine: Engine) -> None:
    engine.checkpoint()
