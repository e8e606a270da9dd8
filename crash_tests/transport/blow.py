"""What is done to a story, and where: a stream is cut, a client dies, or the server does."""

from __future__ import annotations

from typing import NamedTuple

# Of the bytes that arrive, or of those that are answered, this much comes through.
PARTS = ("first", "half", "last", "all")
# Each of these happens at a piece of data that a client sends.
CUTS = [f"{what} {part}" for what in ("ask", "answer", "leave") for part in PARTS][1:]
AT_PIECES = (*CUTS, "ask first", "kill before", "kill after")


class Blow(NamedTuple):
    """At piece number `at`, or at the disk's operation `at` for a `loss`, `how` happens."""

    at: int
    how: str
    loss: int = 0  # which of those that the power cut may cause


def part_of(data: bytes, part: str) -> bytes:
    """Return what comes through."""
    return {
        "first": data[:1],
        "half": data[: len(data) // 2],
        "last": data[:-1],
        "all": data,
    }[part]
