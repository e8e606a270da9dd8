"""The only code that ever cuts: it copies an unproven tail into a new file and swaps it in.

After an unclean end the bytes behind the last proven position may be in the page cache and not
on the disk: after a failed sync, on common file systems, neither syncing again nor rewriting
them in place makes them durable. So the segment is copied up to its last whole append into a
new file, which is synced and takes the old one's name before anything is served. What is cut
is kept under `quarantine/`.

Each step leaves a directory that recovery reads the same way, so it can be interrupted anywhere.
"""

from __future__ import annotations

import contextlib

from fmq.disk import Directory, File, is_full
from fmq.errors import StorageFull
from fmq.recovery.layout import QUARANTINE
from fmq.store.scan import last_byte, zeros_from
from fmq.store.segment import Segment, segment_name

COPY = ".copy"
BLOCK_BYTES = 1 << 20


def copy_tail(directory: Directory, segment: Segment, spare: str | None) -> int:
    """Put a proven copy of `segment`, up to its end, in its place; bytes cut.

    `spare`, an unused file of zeros of the same size, saves finding room for the copy.
    StorageFull leaves everything as it was.
    """
    try:
        return _copy_tail(directory, segment, spare)
    except OSError as error:
        if not is_full(error):
            raise
        raise StorageFull(
            f"{directory.path}: no room to copy the last segment ({segment.capacity:,} bytes), "
            "which an unclean end requires before writing. Nothing was changed and nothing is "
            "lost: free some room and open again, or read with fmq.open(path, read_only=True)."
        ) from error


def _copy_tail(directory: Directory, segment: Segment, spare: str | None) -> int:
    temporary = segment_name(segment.base, COPY)
    source = directory.open(segment.name)
    end = segment.end - segment.base
    try:
        cut = _quarantine(directory, segment, _behind(source, segment))
        if temporary in directory.names():
            directory.remove(temporary)
        if spare is not None:
            directory.rename(spare, temporary)
            target = directory.open(temporary, write=True)
        else:
            target = directory.create(temporary)
        try:
            if spare is None:
                target.allocate(segment.capacity)
            for offset in range(0, end, BLOCK_BYTES):
                block = source.read(offset, min(BLOCK_BYTES, end - offset))
                target.write(offset, (block,), sync=False)
            target.sync()
        except OSError:
            with contextlib.suppress(OSError):
                directory.remove(temporary)
            raise
        finally:
            target.close()
    finally:
        source.close()
    directory.rename(temporary, segment.name)
    directory.sync()
    return cut


def _behind(file: File, segment: Segment) -> bytes:
    """What `file` holds behind the segment's end: it will be cut. The zeros are left out."""
    end = segment.end - segment.base
    return file.read(end, last_byte(file, end, segment.capacity) - end)


def _quarantine(directory: Directory, segment: Segment, cut: bytes) -> int:
    """Keep what will be cut, if there is anything; how many bytes it is."""
    if not cut:
        return 0
    folder = directory.subdirectory(QUARANTINE, make=True)
    try:
        name = f"{segment.end:020d}.cut"
        names = folder.names()
        number = 0
        while name in names:
            # An interrupted recovery kept it already; another tail at the same place is kept too.
            if _same(folder, name, cut):
                return len(cut)
            number += 1
            name = f"{segment.end:020d}.{number}.cut"
        file = folder.create(name)
        try:
            file.write(0, (cut,), sync=True)
            file.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                folder.remove(name)  # a part of it would look like all
            raise
        finally:
            file.close()
        folder.sync()
    finally:
        folder.close()
    directory.sync()
    return len(cut)


def _same(folder: Directory, name: str, data: bytes) -> bool:
    file = folder.open(name)
    try:
        return file.size() == len(data) and file.read(0, len(data)) == data
    finally:
        file.close()


def tail_bytes(directory: Directory, segment: Segment) -> int:
    """How many bytes behind the segment's end would be cut."""
    file = directory.open(segment.name)
    try:
        end = segment.end - segment.base
        return last_byte(file, end, segment.capacity) - end
    finally:
        file.close()


def tail_is_zeros(directory: Directory, segment: Segment) -> bool:
    """Whether nothing lies behind the segment's end."""
    file = directory.open(segment.name)
    try:
        whole = file.size() >= segment.capacity
        return whole and zeros_from(file, segment.end - segment.base, segment.capacity)
    finally:
        file.close()
