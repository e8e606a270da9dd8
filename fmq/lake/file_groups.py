"""Which small files of a table are merged into one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

F = TypeVar("F")
SMALL_BYTES = 32 << 20
MERGED_BYTES = 64 << 20
"""About as large are files that were merged. Their rows are held in memory meanwhile."""


def grouped(
    files: Sequence[F], *, first: Callable[[F], int], size: Callable[[F], int]
) -> Iterator[list[F]]:
    """Yield the files of which one is made, in the order of their `first` positions."""
    group, total = list[F](), 0
    for file in sorted(files, key=first):
        if total >= MERGED_BYTES:
            yield group
            group, total = [], 0
        group.append(file)
        total += size(file)
    yield group
