"""The disk and nothing else: one write of the same bytes to blocks full of zeros, synced.

`pwritev` with RWF_DSYNC, one system call, over a file that is written again from its start
when it ends. No engine can be faster without syncing less; the bodies are joined beforehand,
so not even encoding is in it. A two-phase transaction is two writes, an ack is one.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import zeros
from benchmarks.peers.doorbell import Doorbell
from benchmarks.peers.protocol import Messages

FILE_BYTES = 64 << 20
HEAD = bytes(range(32))  # what a record needs besides its body, in the smallest of formats
ACK = bytes(64)
PIECE_BYTES = 1 << 20


class RawDisk:
    """One file of written zeros."""

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / "raw", os.O_RDWR | os.O_CREAT, 0o600)
        self._next = 0
        self.bell = Doorbell()
        self.last = b""
        if os.fstat(self._fd).st_size < FILE_BYTES:
            zeros.fill(self._fd, FILE_BYTES)

    def write(self, data: Sequence[bytes], size: int) -> None:
        """Write `size` bytes behind the last ones and have them on disk."""
        if self._next + size > FILE_BYTES:
            self._next = 0
        at, self._next = self._next, self._next + size
        os.pwritev(self._fd, data, at, os.RWF_DSYNC)

    def producer(self) -> RawProducer:
        return RawProducer(self)

    def consumer(self) -> RawConsumer:
        return RawConsumer(self)

    def load(self, batches: Iterable[Sequence[bytes]], *, singly: bool) -> None:
        for batch in batches:
            data = b"".join(batch)
            os.pwrite(self._fd, data, self._next % (FILE_BYTES - PIECE_BYTES))
            self._next += len(data)

    def scan(self, kind: str) -> int:
        """Read and checksum the file in large pieces, as if it held 100 bytes a message."""
        for offset in range(0, FILE_BYTES, PIECE_BYTES):
            zlib.crc32(os.pread(self._fd, PIECE_BYTES, offset))
        return FILE_BYTES // 100

    def close(self) -> None:
        os.close(self._fd)

    @staticmethod
    def first_message_program() -> str:
        return (
            "import os, sys, time; started = time.perf_counter();"
            "store = os.open(os.path.join(sys.argv[1], 'raw'), os.O_RDONLY);"
            "opening = time.perf_counter() - started;"
            "print(os.pread(store, 100, 0)[:20], flush=True)"
        )


class RawProducer:
    def __init__(self, disk: RawDisk) -> None:
        self._disk = disk
        self._joined: dict[int, bytes] = {}  # by the identity of the list, which its caller keeps

    def send(self, body: bytes) -> None:
        self._disk.write((HEAD, body), len(HEAD) + len(body))

    def send_and_wake(self, body: bytes) -> None:
        self.send(body)
        self._disk.last = body
        self._disk.bell.ring()

    def send_many(self, bodies: Sequence[bytes]) -> None:
        data = self._joined.get(id(bodies))
        if data is None:
            data = self._joined[id(bodies)] = HEAD + b"".join(bodies)
        self._disk.write((data,), len(data))

    def transaction(self, messages: Messages) -> None:
        data = self._joined.get(id(messages))
        if data is None:
            data = self._joined[id(messages)] = b"".join(HEAD + body for _, body in messages)
        self._disk.write((data,), len(data))

    def two_phase(self, messages: Messages) -> None:
        self.transaction(messages)
        self._disk.write((ACK,), len(ACK))


class RawConsumer:
    def __init__(self, disk: RawDisk) -> None:
        self._disk = disk
        self._seen = 0

    def consume(self, limit: int) -> int:
        self._disk.write((ACK,), len(ACK))
        return limit

    def wait(self) -> bytes:
        self._seen = self._disk.bell.wait_beyond(self._seen)
        return self._disk.last
