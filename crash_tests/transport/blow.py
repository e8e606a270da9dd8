"""Where a story is interrupted, and how: a connection is cut, or a client or the server dies."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from fmq.testing import CrashDisk

# How much of the bytes of a request, or of an answer, comes through.
PARTS = ("first", "half", "last", "all")
LOSSES_MAX = 40  # limit of losses that are tried at one operation


class Blow(NamedTuple):
    """`how` happens at number `at`: of the pieces that clients send if it is `ask`, `leave` or
    `die`, of the pieces of answers if it is `answer`, and else of the operations of the disk.
    """

    at: int
    how: str
    loss: int = 0  # the number of the loss, of those that the power cut may cause

    @property
    def is_of_disk(self) -> bool:
        """Return whether it ends the server in an operation of the disk."""
        return self.how in ("killed", "killed unwritten", "power")


def part_of(data: bytes, part: str) -> bytes:
    """Return the part of `data` that comes through."""
    return {
        "first": data[:1],
        "half": data[: len(data) // 2],
        "last": data[:-1],
        "all": data,
        "at once": data,  # and the connection ends before the server's loop goes on
    }[part]


def crashes(disk: CrashDisk) -> Iterator[tuple[Blow, CrashDisk]]:
    """Yield the crashes that a disk may meet at its next operation, and the disk that each
    leaves.
    """
    at = disk.operations
    yield Blow(at, "killed"), disk.after_kill()
    yield Blow(at, "killed unwritten"), disk.after_kill(written=False)
    for number, loss in enumerate(islice(disk.losses(), LOSSES_MAX)):
        yield Blow(at, "power", number), disk.after(loss)


def left_of(disk: CrashDisk, blow: Blow) -> CrashDisk:
    """Return the disk that the next server finds."""
    match blow.how:
        case "power":
            return disk.after(next(islice(disk.losses(), blow.loss, None)))
        case "killed unwritten":
            return disk.after_kill(written=False)
    return disk.after_kill()
