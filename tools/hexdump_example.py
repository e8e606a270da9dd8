#!/usr/bin/env python3
"""The annotated hex dump in docs/format.md: a transaction of two messages, as the engine wrote it.

    python tools/hexdump_example.py

A real engine writes on a disk in memory, by a clock that stands still, into a store with a fixed
UUID, so the bytes are the same each time. tests/test_docs.py compares them with the document.
The tables of fields here name what the structs of `fmq.store` pack, and docs/format.md has the
same names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from fmq.recovery import checkpoint
from fmq.store.bytes import columns, extension, record
from fmq.store.bytes.kinds import Kind
from fmq.store.index import index_blocks
from fmq.store.journal import segment
from fmq.store.journal.journal import create_first_segment
from fmq.testing import CrashDisk, FakeClock

STORE = bytes(range(16))
SEGMENT_BYTES = 4096
WIDTH = 12  # bytes on a line


class Field(NamedTuple):
    """A stretch of bytes, and what it says."""

    offset: int
    data: bytes
    name: str
    value: str


def names(text: str) -> list[str]:
    return text.split()


PREFIX = names("magic head_crc")
COMMON = names("size head_size position durable_lag bodies_crc kind flags queue")
PLACE = names("offset time_us messages topic_bytes producer_bytes tx_id_bytes")
PREPARE = names(
    "tx time_us prepared_us replaces records messages bytes seal check_after_ms acks "
    "producer_bytes tx_id_bytes"
)
DECISION = names(
    "tx time_us prepared_us append_start records messages bytes seal asked "
    "producer_bytes tx_id_bytes decided_by_bytes reason_bytes"
)
TIME = names("tx time_us")
SEGMENT = names(
    "magic crc format required optional store base capacity previous_end previous_chain epoch"
)
INDEX = names(
    "magic head_crc head_size body_crc body_size lanes outcomes format store base end chain ids"
)
COLUMN = names("number size")
MARK = names("set value data_bytes name_bytes")
LANE = names("first next first_us last_us entries queue flags topic_bytes")
CHECKPOINT = names("magic crc size format generation")

# Every struct that lies on disk, by the heading under which docs/format.md has its table.
STRUCTS: dict[str, tuple[Struct, list[str]]] = {
    "Segment header": (segment.HEADER, SEGMENT),
    "Head": (Struct("<4sI" + record.COMMON.format.removeprefix("<")), PREFIX + COMMON),
    "Extension": (extension.COLUMN, COLUMN),
    "Place": (record.PLACE, PLACE),
    "MARK": (record.MARK_FRONT, MARK),
    "PREPARE": (record.PREPARE_HEAD, PREPARE),
    "COMMIT and ROLLBACK": (record.DECISION_HEAD, DECISION),
    "Index": (index_blocks.HEAD, INDEX),
    "Lane": (index_blocks.LANE, LANE),
    "Checkpoint": (checkpoint.HEAD, CHECKPOINT),
}


def journal() -> bytes:
    """The first segment after the transaction, up to its last record."""
    disk = CrashDisk()
    directory = disk.directory("shop", make=True)
    create_first_segment(directory, STORE, SEGMENT_BYTES)
    options = fmq.Options(segment_bytes=SEGMENT_BYTES)
    with fmq.open("shop", options, disk=disk, clock=FakeClock(), background=False) as engine:
        with engine.transaction(tx_id="order-42", producer="checkout") as tx:
            tx.send("orders", b"order 1", key="c-7")
            tx.send("emails", b"receipt 1")
        end = engine.stats().position
    return directory.open(segment.segment_name(0)).read(0, end)


class Cutter:
    """Cuts fields off the front of `data`, one after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at
        self.found: dict[str, int] = {}

    def struct(self, layout: Struct, fields: list[str]) -> Iterator[Field]:
        values = iter(layout.unpack_from(self.data, self.at))
        for name, (offset, size, code) in zip(fields, places(layout), strict=True):
            data = self.data[self.at + offset : self.at + offset + size]
            value = 0 if code == "x" else next(values)
            if isinstance(value, int):
                self.found[name] = value
            yield Field(self.at + offset, data, name, say(name, value))
        self.at += layout.size

    def rest(self, name: str, size: int) -> Iterator[Field]:
        if size:
            data = self.data[self.at : self.at + size]
            yield Field(self.at, data, name, "" if name == "padding" else repr(data)[1:])
            self.at += size


def places(layout: Struct) -> list[tuple[int, int, str]]:
    """Offset, size and code of each item of a struct, pad bytes as one item."""
    found, offset, count = [], 0, ""
    for code in layout.format.removeprefix("<"):
        if code.isdigit():
            count += code
            continue
        repeat = 1 if code in "sx" else int(count or 1)
        size = int(count or 1) if code in "sx" else Struct("<" + code).size
        for _ in range(repeat):
            found.append((offset, size, code))
            offset += size
        count = ""
    return found


def say(name: str, value: object) -> str:
    if name == "kind" and isinstance(value, int):
        return f"{value} = {Kind(value).name}"
    if name == "flags" and isinstance(value, int):
        return f"{value:#x}" + "".join(f" {word}" for word, bit in FLAGS.items() if value & bit)
    if isinstance(value, bytes):
        return value.hex() if name in ("store", "seal") else repr(value)[1:]
    return f"{value:#010x}" if "crc" in name or "chain" in name else str(value)


FLAGS = {
    "FIRST": record.FIRST,
    "LAST": record.LAST,
    "COMPRESSED": columns.COMPRESSED,
    "LENGTHS": columns.LENGTHS,
    "KEYS": columns.KEYS,
    "TAGS": columns.TAGS,
    "HEADERS": columns.HEADERS,
    "BOUND": record.BOUND,
    "EXTENDED": record.EXTENDED,
}


def fields_of_record(data: bytes, at: int) -> Iterator[Field]:
    """The fields of the record at `data[at]`, padding included."""
    cut = Cutter(data, at)
    yield from cut.struct(record.PREFIX, PREFIX)
    yield from cut.struct(record.COMMON, COMMON)
    size, head_size, kind = (cut.found[name] for name in ("size", "head_size", "kind"))
    if kind in (Kind.MESSAGE, Kind.PRE_MESSAGE, Kind.REF_MESSAGE, Kind.TX_MESSAGE):
        if kind != Kind.MESSAGE:
            yield from cut.struct(record.U64, ["tx"])
        yield from cut.struct(record.PLACE, PLACE)
        yield from texts(cut, "topic", "producer", "tx_id")
        yield from cut.rest("columns", at + head_size - cut.at)
    elif kind == Kind.PREPARE:
        yield from cut.struct(record.PREPARE_HEAD, PREPARE)
        yield from texts(cut, "producer", "tx_id")
    elif kind in (Kind.COMMIT, Kind.ROLLBACK):
        yield from cut.struct(record.DECISION_HEAD, DECISION)
        yield from texts(cut, "producer", "tx_id", "decided_by", "reason")
    else:
        assert kind == Kind.TOPIC, "the example has no other kinds"
        yield from cut.struct(Struct("<Qq"), TIME)
        yield from cut.struct(record.U16, ["queues"])
        yield from cut.struct(Struct("<B"), ["name_bytes"])
        yield from cut.rest("name", cut.found["name_bytes"])
    yield from cut.rest("bodies", size - head_size)
    yield from cut.rest("padding", -size % record.ALIGNMENT)


def texts(cut: Cutter, *fields: str) -> Iterator[Field]:
    for name in fields:
        yield from cut.rest(name, cut.found[f"{name}_bytes"])


def dump() -> str:
    """The whole journal of the example, a line for each field."""
    data = journal()
    header = Cutter(data, 0)
    lines = ["segment header", *map(line, header.struct(segment.HEADER, SEGMENT))]
    at = header.at
    while at < len(data):
        fields = list(fields_of_record(data, at))
        kind = next(field for field in fields if field.name == "kind").data[0]
        lines += ["", f"{Kind(kind).name} at {at}", *map(line, fields)]
        at = fields[-1].offset + len(fields[-1].data)
    return "\n".join(lines) + "\n"


def line(field: Field) -> str:
    first, *more = (field.data[i : i + WIDTH].hex(" ") for i in range(0, len(field.data), WIDTH))
    text = f"{field.offset:04x}  {first:<{3 * WIDTH}} {field.name} {field.value}".rstrip()
    for number, rest in enumerate(more, 1):
        text += f"\n{field.offset + number * WIDTH:04x}  {rest}"
    return text


if __name__ == "__main__":
    print(dump(), end="")
