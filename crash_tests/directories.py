"""Checks of the files that an engine has left in its directory."""

from __future__ import annotations

from collections.abc import Iterator

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.recovery.checkpoint import SLOTS, decode
from fmq.recovery.layout import QUARANTINE
from fmq.store.journal.segment import is_segment
from fmq.testing import CrashDisk
from fmq.testing.image import Image

Files = dict[str, Image]


def check_directory(disk: CrashDisk) -> None:
    """Raise Violation if fmq.check finds a problem."""
    report = fmq.check(PATH, disk=disk.after_kill())
    if not report.ok:
        raise Violation("I10", "; ".join(map(str, report.problems)))


def check_has_checkpoint(files: Files, sound: dict[bytes, bool]) -> None:
    """Raise Violation if no slot is sound: then all of the journal would have to be replayed.

    `sound` says, and is told, whether a slot with this digest is.
    """
    slots = [files[name] for name in SLOTS if name in files]
    for slot in slots:
        if slot.digest() not in sound:
            sound[slot.digest()] = decode(slot.content()) is not None
    if not any(sound[slot.digest()] for slot in slots):
        raise Violation("I9", "no checkpoint is left")


def check_cut_is_kept(before: Files, after: CrashDisk) -> None:
    """Raise Violation if bytes of a segment are gone and are not in quarantine/."""
    now = after.files(PATH)
    for name, file in before.items():
        if name not in now or now[name].digest() == file.digest() or not is_segment(name):
            continue
        left, had = (each.content().rstrip(b"\0") for each in (now[name], file))
        shorter = left != had and had.startswith(left)
        if shorter and not any(is_cut(had, left, kept) for kept in quarantined(after)):
            raise Violation("I11", f"{name} was cut, and nothing keeps what was cut off")


def is_cut(had: bytes, left: bytes, kept: bytes) -> bool:
    """Return whether `had` is `left` followed, after its padding, by what was kept of the cut
    bytes.
    """
    return bool(kept) and had.endswith(kept) and had[: -len(kept)].rstrip(b"\0") == left


def quarantined(disk: CrashDisk) -> list[bytes]:
    """Return the bytes that recovery has cut so far."""
    return [file.content() for file in disk.files(f"{PATH}/{QUARANTINE}").values()]


INDEXES = (".idx", ".part")


def without_derived(
    disk: CrashDisk, endings: tuple[str, ...] = (*INDEXES, ".0", ".1")
) -> CrashDisk:
    """Return a copy of the disk without indexes, and by default without checkpoints."""
    copy = disk.after_kill()
    directory = copy.directory(PATH, make=False)
    for name in directory.names():
        if name.endswith(endings):
            directory.remove(name)
    directory.sync()
    return copy


def with_lost_slots(disk: CrashDisk) -> Iterator[CrashDisk]:
    """Yield copies of the disk in which both checkpoints, or one of them, are gone or have a wrong
    bit.
    """
    yield without_derived(disk, SLOTS)
    for names in (SLOTS, SLOTS[:1], SLOTS[1:]):
        copy = disk.after_kill()
        directory = copy.directory(PATH, make=False)
        for name in set(directory.names()) & set(names):
            file = directory.open(name, write=True)
            middle = file.size() // 2
            (byte,) = file.read(middle, 1)
            file.write(middle, (bytes([byte ^ 1]),), sync=True)
        yield copy


def journal(disk: CrashDisk) -> dict[str, bytes]:
    """Return a digest of each of the journal's files; none if no journal was begun."""
    return {name: file.digest() for name, file in disk.files(PATH).items() if is_segment(name)}
