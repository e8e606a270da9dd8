"""Ranges of offsets, each from its first offset to the one after its last."""

from __future__ import annotations

from collections.abc import Iterable

Ranges = list[tuple[int, int]]


def ranges_of(offsets: Iterable[int]) -> Ranges:
    """Join sorted offsets to ranges."""
    found: Ranges = []
    for offset in offsets:
        if found and found[-1][1] == offset:
            found[-1] = found[-1][0], offset + 1
        else:
            found.append((offset, offset + 1))
    return found


def gaps_between(offsets: list[int], at: int, end: int) -> Ranges:
    """Return the ranges between `at` and `end` that contain none of `offsets`."""
    found: Ranges = []
    for offset in (*offsets, end):
        if offset > end:
            offset = end
        if at < offset:
            found.append((at, offset))
        at = max(at, offset + 1)
    return found
