"""Stores filled beforehand: measuring how messages are read must not include sending them.

A stock is made once a run for each subject, by a process of its own, and then serves all
rows and rounds. A store of single messages differs from one of batches only where a batch is a
thing of its own on disk, so peers, which keep one row a message, are filled once for both.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from benchmarks import payload
from benchmarks.loop import Effort
from benchmarks.peers import batches_on_disk, open_peer
from benchmarks.peers.protocol import Peer

BATCH = 1000
BODY_BYTES = 100
MEASURED = "stock.json"


@dataclass(frozen=True, slots=True)
class Stock:
    """So many messages of 100 bytes, or of 50 to 150, sent by 1,000 or one by one."""

    count: int
    mixed: bool = False
    singly: bool = False

    def name(self, subject: str) -> str:
        layout = "singly" if self.singly and batches_on_disk(subject) else "batched"
        lengths = "mixed" if self.mixed else "equal"
        return f"{subject}-{self.count}-{lengths}-{layout}"

    def place(self, subject: str, effort: Effort) -> Path:
        """Return the place of this stock of `subject` in the run that `effort` belongs to."""
        return effort.directory.parent / "stock" / self.name(subject)

    def bodies(self) -> list[bytes]:
        return payload.mixed(BODY_BYTES) if self.mixed else payload.equal(BODY_BYTES)


def add(subject: str, stock: Stock, place: Path, count: int) -> Peer:
    """Add `count` messages to the store at `place`, durable when this returns; left open."""
    place.mkdir(parents=True, exist_ok=True)
    peer = open_peer(subject, place)
    peer.load(payload.stream(stock.bodies(), count, BATCH), singly=stock.singly)
    return peer


def make(subject: str, stock: Stock, effort: Effort) -> None:
    """Fill the stock if this run has not yet, and note what it takes on disk."""
    place = stock.place(subject, effort)
    if (place / MEASURED).exists():
        return
    count = effort.scaled(stock.count)
    add(subject, stock, place, count).close()
    note = {"count": count, "bytes": used_bytes(place)}
    (place / MEASURED).write_text(json.dumps(note))


def noted(place: Path) -> tuple[int, int]:
    """Return how many messages the stock at `place` has, and how many bytes they took."""
    note = json.loads((place / MEASURED).read_text())
    return note["count"], note["bytes"]


def used_bytes(directory: Path) -> int:
    """Return the bytes that the files hold: blocks in use, without the zeros at a file's end."""
    total = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            path = Path(parent, name)
            total += min(path.stat().st_blocks * 512, _end_of_data(path))
    return total


def _end_of_data(path: Path) -> int:
    """The position behind the last byte of the file that is not zero."""
    with path.open("rb") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 20))
            file.seek(start)
            kept = file.read(end - start).rstrip(b"\0")
            if kept:
                return start + len(kept)
            end = start
    return 0
