"""The bytes of one file. Zeros at its end that were never written take no memory.

A segment is zeros ahead of need, so an image holds bytes only up to the last place that was
written; a 16 MiB file of zeros costs nothing to keep, copy or compare. Many files share one
image, and what is known of it, until one of them changes: only who owns an image changes it.
"""

from __future__ import annotations

from hashlib import blake2b


class Image:
    """The bytes of a file. Only this module changes them."""

    __slots__ = ("_data", "_digest", "_shared", "size")

    def __init__(self) -> None:
        self._data = bytearray()  # zeros follow these bytes, up to `size`
        self._shared = False
        self._digest: bytes | None = None
        self.size = 0

    def share(self) -> Image:
        """Return this image, and never change it again."""
        self._shared = True
        return self

    def own(self) -> Image:
        """Return an image with these bytes that may be changed: this one, or a copy if it is
        shared.
        """
        if not self._shared:
            return self
        twin = Image()
        twin._data, twin._digest, twin.size = self._data.copy(), self._digest, self.size
        return twin

    def read(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes from `offset` on; fewer only at the end."""
        assert offset >= 0
        assert size >= 0
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        found = bytes(memoryview(self._data)[offset:end])
        return found if len(found) == end - offset else found.ljust(end - offset, b"\0")

    def content(self) -> bytes:
        """Return all bytes."""
        return self.read(0, self.size)

    def write(self, offset: int, data: bytes) -> None:
        """Put `data` at `offset`; a gap before it reads as zeros. O(len(data)), plus the gap."""
        assert offset >= 0
        self._change()
        if offset > len(self._data):
            self._data.extend(bytes(offset - len(self._data)))
        end = offset + len(data)
        self._data[offset:end] = data
        self.size = max(self.size, end)

    def clear(self, size: int) -> None:
        """Put `size` zeros at the start."""
        self._change()
        if size >= len(self._data):
            self._data.clear()
        else:
            self._data[:size] = bytes(size)
        self.size = max(self.size, size)

    def grow(self, size: int) -> None:
        """Make the file at least `size` long. New bytes read as zeros."""
        self._change()
        self.size = max(self.size, size)

    def digest(self) -> bytes:
        """Return a digest that is equal for equal bytes only."""
        if self._digest is None:
            hashed = blake2b(self._data.rstrip(b"\0"), digest_size=16)
            hashed.update(self.size.to_bytes(8, "little"))
            self._digest = hashed.digest()
        return self._digest

    def _change(self) -> None:
        assert not self._shared
        self._digest = None
