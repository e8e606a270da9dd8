"""What the pieces of a file's zeros cost later: `python -m benchmarks.zeros`.

A segment is full of zeros before anything is appended, and the kernel keeps them in its page
cache, in folios as large as the pieces were that wrote them. A small synced write walks through
all blocks of each folio that it touches, several times, so over large pieces it takes longer; over
small ones a large append does. Files of each kind take turns, and so do appends of each size.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from fmq.posix import ZEROS_BYTES

FILE_BYTES = 16 << 20
PIECES = (4 << 10, 32 << 10, 128 << 10, 512 << 10, 1 << 20, FILE_BYTES)
APPENDS = {168: 1500, 1600: 1500, 110_000: 140, 1_050_000: 15}  # bytes, and how often a round
ROUNDS = 7


def fill(fd: int, size: int, piece: int = ZEROS_BYTES) -> None:
    """Let the file be so many zeros, on the disk, written by `piece`: as fmq does, if not said."""
    zeros = bytes(piece)
    for offset in range(0, size, piece):
        os.pwrite(fd, zeros, offset)
    os.fsync(fd)


def zeroed(path: Path, piece: int) -> int:
    """A new file of zeros."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.posix_fallocate(fd, 0, FILE_BYTES)
    fill(fd, FILE_BYTES, piece)
    return fd


def append_us(fd: int, size: int, times: int) -> float:
    """Return the median time of one synced append."""
    data, offset, spent = bytes(size), 4096, []
    for _ in range(times):
        if offset + size > FILE_BYTES:
            offset = 4096
        started = time.perf_counter()
        os.pwritev(fd, (data,), offset, os.RWF_DSYNC)
        spent.append(time.perf_counter() - started)
        offset += size
    return statistics.median(spent) * 1e6


def main() -> None:
    taken: dict[tuple[int, int], list[float]] = {}
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        for _ in range(ROUNDS):
            for piece in PIECES:
                fd = zeroed(Path(folder, "zeros"), piece)
                for size, times in APPENDS.items():
                    taken.setdefault((piece, size), []).append(append_us(fd, size, times))
                os.close(fd)
    print("us for an append of", *(f"{size:>10,} B" for size in APPENDS))
    for piece in PIECES:
        medians = [statistics.median(taken[piece, size]) for size in APPENDS]
        print(f"by {piece >> 10:>6,} KiB       ", *(f"{each:12.1f}" for each in medians))


if __name__ == "__main__":
    main()
