#!/usr/bin/env python3
"""The print-outs in docs/client.md and docs/poll.md: the frames of a send, and the frames and the
records of one poll and its ack.

    python tools/poll_example.py

A real client talks to a real server in memory, on a disk in memory, by a clock that stands still.
So the bytes are the same each time. tests/test_walks.py compares them with the documents.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from zlib import crc32

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq
from fmq.server.session import Session
from fmq.store.bytes.kinds import Acks, Tried
from fmq.store.journal.journal import create_first_segment
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.transport import MemoryServer, MemoryWire
from fmq.wire.frames import Op, Splitter

STORE = bytes(range(16))
SEGMENT_BYTES = 4096
WIDTH = 24  # bytes on a line

Heard = list[tuple[str, bytes]]
"""Who has said it, and what."""


class Recorder(MemoryServer):
    """A server in memory that keeps the bytes of both directions."""

    def __init__(self, engine: fmq.Engine, clock: FakeClock) -> None:
        self.heard: Heard = []
        super().__init__(engine, clock)

    def deliver(self, session: Session, data: bytes) -> None:
        """Keep what a client sends."""
        self.heard.append(("client", data))
        super().deliver(session, data)

    def dial(self) -> MemoryWire:
        """Return a connection that keeps what the session answers."""
        return RecordingWire(self)


class RecordingWire(MemoryWire):
    """The client's end of a connection to a Recorder."""

    def arrive(self, data: bytes) -> None:
        """Keep what the session sends."""
        assert isinstance(self._server, Recorder)
        self._server.heard.append(("server", data))
        super().arrive(data)


def run() -> tuple[Heard, Heard, bytes]:
    """Send, poll and ack a message. Return the bytes of the send, those of poll and ack, and those
    of the journal.
    """
    disk, clock = CrashDisk(), FakeClock()
    directory = disk.directory("shop", make=True)
    create_first_segment(directory, STORE, SEGMENT_BYTES)
    options = fmq.Options(segment_bytes=SEGMENT_BYTES)
    with fmq.open("shop", options, disk=disk, clock=clock, background=False) as engine:
        server = Recorder(engine, clock)
        with server.connect() as client, client.consumer("orders", group="billing") as consumer:
            server.heard.clear()
            client.send("orders", b"order 7", key="ann")
            sent = [*server.heard]
            server.heard.clear()
            (delivery,) = consumer.poll(limit=10)
            delivery.ack()
            heard, end = [*server.heard], engine.stats().position
        server.close()
    return sent, heard, directory.open(segment_name(0)).read(0, end)


def frames() -> str:
    """Return the frames of the poll and the ack, each with its payload as hex and as text."""
    return "\n".join(_frame_lines(run()[1])) + "\n"


def send_frames() -> str:
    """Return the frames of the send, as `frames` does."""
    return "\n".join(_frame_lines(run()[0])) + "\n"


def _frame_lines(heard: Heard) -> Iterator[str]:
    for who, data in heard:
        for frame in Splitter(1 << 20).feed(data):
            name = Op(frame.op).name if who == "client" else f"answer to {Op(frame.op).name}"
            yield f"{who}: {name}, handle {frame.handle}, request {frame.request}"
            for at in range(0, len(data), WIDTH):
                part = data[at : at + WIDTH]
                text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
                yield f"  {at:04x}  {part.hex(' '):<{3 * WIDTH}} {text}"


def records() -> str:
    """Return a line for each record that the poll and the ack have written."""
    disk_bytes = run()[2]
    disk = CrashDisk()
    file = disk.directory("copy", make=True).create("copy")
    file.write(0, [disk_bytes], sync=True)
    lines = []
    for append in Scan(file, 0, len(disk_bytes), HEADER_BYTES, crc32(STORE)):
        for record in append:
            if isinstance(record, Tried):
                (tried,) = record.ranges
                where = f"{tried.group} {tried.topic}/{tried.queue}"
                said = f"{where}, offsets {tried.first} to {tried.end}: attempt {tried.tries}"
                lines.append(f"{record.position:4}  TRIED  {record.size} bytes  {said}")
            if isinstance(record, Acks):
                (ack,) = record.ranges
                said = f"{ack.group} {ack.topic}/{ack.queue}, offsets {ack.first} to {ack.end}"
                lines.append(f"{record.position:4}  ACK    {record.size} bytes  {said}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(send_frames(), end="")
    print()
    print(frames(), end="")
    print()
    print(records(), end="")
