"""Bodies that lie one after another, as in a column of Arrow, and are not cut apart to be sent."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from typing import overload


class JoinedBodies(Sequence[bytes]):
    """Bodies, of which `pieces` have the bytes one after another, and `sizes` the size of each."""

    __slots__ = ("pieces", "sizes")

    def __init__(self, sizes: array[int], pieces: Iterable[bytes | memoryview]) -> None:
        self.sizes = sizes[:]
        self.pieces = [*pieces]

    def __reduce__(self) -> tuple[object, ...]:
        return JoinedBodies, (self.sizes, [self.data()])

    def data(self) -> bytes:
        """Return the bytes of all bodies."""
        if len(self.pieces) != 1 or type(self.pieces[0]) is not bytes:
            self.pieces = [b"".join(self.pieces)]
        return self.pieces[0]  # type: ignore[return-value]

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[bytes]:
        return map(BytesIO(self.data()).read, self.sizes)

    @overload
    def __getitem__(self, at: int) -> bytes: ...

    @overload
    def __getitem__(self, at: slice) -> JoinedBodies: ...

    def __getitem__(self, at: int | slice) -> bytes | JoinedBodies:
        if not isinstance(at, slice):
            return list[bytes](self)[at]
        start, end, step = at.indices(len(self))
        assert step == 1
        first, sizes = sum(self.sizes[:start]), self.sizes[start:end]
        return JoinedBodies(sizes, [memoryview(self.data())[first : first + sum(sizes)]])

    def append(self, body: bytes) -> None:
        self.sizes.append(len(body))
        self.pieces.append(body)

    def extend(self, more: Sequence[bytes]) -> None:
        if isinstance(more, JoinedBodies):
            self.sizes.extend(more.sizes)
            self.pieces += more.pieces
        else:
            self.sizes.extend(map(len, more))
            self.pieces += more
