"""The only code that cuts. It copies the last segment, without what is cut, into a new file.

After an unclean end, bytes after the last proven position may be in the page cache and not on the
disk. After a failed sync, on common file systems, neither syncing again nor writing them again in
place makes them durable. So the segment is copied, up to its last whole append, into a new file.
That file is synced and takes the old one's name before a call is served. What is cut is kept under
`quarantine/`.

Each step leaves a directory that recovery reads the same way, so it can be interrupted anywhere.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

from fmq.errors import StorageFull
from fmq.machine.disk import Directory, File, free, is_full
from fmq.recovery.layout import QUARANTINE
from fmq.store.journal.scan import blocks, last_byte, zeros_from
from fmq.store.journal.segment import Header, Segment, segment_name

COPY = ".copy"


def copy_tail(
    directory: Directory, segment: Segment, spare: str | None, header: Header | None = None
) -> int:
    """Replace `segment` by a proven copy of its bytes up to its end. Return how many bytes were
    cut.

    If there is a `spare`, an unused file of zeros of the same size, the copy goes into it. If there
    is a `header`, it takes the place of the one that the segment has.
    StorageFull leaves the journal as it was.
    """
    try:
        return _copy_tail(directory, segment, spare, header)
    except OSError as error:
        if not is_full(error):
            raise
        raise StorageFull(
            f"{directory.path}: no room to copy the last segment ({segment.capacity:,} bytes) and "
            "to keep what is cut of it, which an unclean end requires before writing. Nothing of "
            "the journal was changed and nothing is lost: free some room and open again, or read "
            "with fmq.open(path, read_only=True)."
        ) from error


def _copy_tail(
    directory: Directory, segment: Segment, spare: str | None, header: Header | None
) -> int:
    source = directory.open(segment.name)
    end = segment.end - segment.base
    try:
        cut = _quarantine(directory, segment, source)
        temporary, target = _begin_copy(directory, segment, spare)
        try:
            if spare is None:
                target.allocate(segment.capacity)
            for offset, block in blocks(source, 0, end):
                target.write(offset, (block,), sync=False)
            if header is not None:
                target.write(0, (header.encode(),), sync=False)
            target.sync()
        except OSError:
            with contextlib.suppress(OSError):
                free(directory, temporary)
            raise
        finally:
            target.close()
    finally:
        source.close()
    directory.rename(temporary, segment.name)
    directory.sync()
    return cut


def _begin_copy(directory: Directory, segment: Segment, spare: str | None) -> tuple[str, File]:
    """Create the file for the copy, or take the spare. Return its name, and the open file."""
    temporary = segment_name(segment.base, COPY)
    if temporary in directory.names():
        free(directory, temporary)
    if spare is None:
        return temporary, directory.create(temporary)
    try:
        directory.rename(spare, temporary)
    except OSError as error:
        if not is_full(error):
            raise
        # The directory has no room for another name, so the copy uses the spare's.
        temporary = spare
    return temporary, directory.open(temporary, write=True)


def _quarantine(directory: Directory, segment: Segment, source: File) -> int:
    """Copy what will be cut to the quarantine, without the zeros at its end. Return its size in
    bytes.
    """
    start = segment.end - segment.base
    end = last_byte(source, start, segment.capacity)
    if end == start:
        return 0
    folder = directory.subdirectory(QUARANTINE, make=True)
    try:
        name = f"{segment.end:020d}.cut"
        names = folder.names()
        number = 0
        while name in names:
            # An interrupted recovery may have kept these bytes before. If it kept other bytes, keep
            # both.
            if _same(folder, name, source, start, end):
                return end - start
            number += 1
            name = f"{segment.end:020d}.{number}.cut"
        file = folder.create(name)
        try:
            for offset, cut in blocks(source, start, end):
                file.write(offset - start, (cut,), sync=True)
            file.sync()
        except BaseException:
            with contextlib.suppress(OSError):
                folder.remove(name)  # a partial copy would look like a complete one
            raise
        finally:
            file.close()
        folder.sync()
    finally:
        folder.close()
    directory.sync()
    return end - start


def _same(folder: Directory, name: str, source: File, start: int, end: int) -> bool:
    """Return whether the file `name` holds the bytes of `source` from `start` to `end`."""
    file = folder.open(name)
    try:
        return file.size() == end - start and all(
            file.read(offset - start, len(cut)) == cut for offset, cut in blocks(source, start, end)
        )
    finally:
        file.close()


def turn_back(directory: Directory, segments: Sequence[Segment], turned: Mapping[int, int]) -> None:
    """Write each byte of `turned`, by position, as it was before a bit of it turned. A write of one
    byte is never torn.
    """
    for position, byte in turned.items():
        segment = next(each for each in reversed(segments) if each.base <= position)
        file = directory.open(segment.name, write=True)
        try:
            file.write(position - segment.base, (bytes((byte,)),), sync=True)
        finally:
            file.close()


def tail_bytes(directory: Directory, segment: Segment) -> int:
    """Return how many bytes would be cut after the segment's end."""
    file = directory.open(segment.name)
    try:
        end = segment.end - segment.base
        return last_byte(file, end, segment.capacity) - end
    finally:
        file.close()


def tail_is_zeros(directory: Directory, segment: Segment) -> bool:
    """Return whether only zeros come after the segment's end."""
    file = directory.open(segment.name)
    try:
        whole = file.size() >= segment.capacity
        return whole and zeros_from(file, segment.end - segment.base, segment.capacity)
    finally:
        file.close()
