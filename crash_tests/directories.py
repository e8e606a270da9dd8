"""What lies in the directory that an engine has left, looked at from outside."""

from __future__ import annotations

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.disk import Directory
from fmq.recovery.checkpoint import SLOTS, decode
from fmq.recovery.layout import QUARANTINE
from fmq.store.segment import is_segment
from fmq.testing import CrashDisk


def check_directory(disk: CrashDisk) -> None:
    """Violation if fmq.check finds something."""
    report = fmq.check(PATH, disk=disk.after_kill())
    if not report.ok:
        raise Violation("I10", "; ".join(map(str, report.problems)))


def check_has_checkpoint(disk: CrashDisk, sound: dict[bytes, bool]) -> None:
    """Violation if no slot is sound: then all of the journal would have to be replayed.

    `sound` says, and is told, whether a slot with this digest is.
    """
    digests = disk.digests(PATH)
    slots = {name: digests[name] for name in SLOTS if name in digests}
    if not all(digest in sound for digest in slots.values()):
        directory = disk.directory(PATH, make=False)
        for name, digest in slots.items():
            sound[digest] = decode(contents(directory, name)) is not None
    if not any(sound[digest] for digest in slots.values()):
        raise Violation("I9", "no checkpoint is left")


def check_cut_is_kept(before: CrashDisk, after: CrashDisk) -> None:
    """Violation if bytes of a segment are gone and not in quarantine/."""
    then, now = before.digests(PATH), after.digests(PATH)
    changed = [name for name in then if now.get(name, then[name]) != then[name]]
    for name in filter(is_segment, changed):
        left, had = (contents(_directory(disk), name).rstrip(b"\0") for disk in (after, before))
        shorter = left != had and had.startswith(left)
        if shorter and not any(is_cut(had, left, kept) for kept in quarantined(after)):
            raise Violation("I11", f"{name} was cut, and nothing keeps what was cut off")


def _directory(disk: CrashDisk) -> Directory:
    """The directory on a disk that may have been stopped."""
    return disk.after_kill().directory(PATH, make=False)


def is_cut(had: bytes, left: bytes, kept: bytes) -> bool:
    """Whether `had` is what is left and, behind its padding, what was kept of it."""
    return bool(kept) and had.endswith(kept) and had[: -len(kept)].rstrip(b"\0") == left


def quarantined(disk: CrashDisk) -> list[bytes]:
    """What recovery has cut so far."""
    directory = _directory(disk)
    if QUARANTINE not in directory.names():
        return []
    folder = directory.subdirectory(QUARANTINE, make=False)
    return [contents(folder, name) for name in folder.names()]


def contents(directory: Directory, name: str) -> bytes:
    file = directory.open(name)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


INDEXES = (".idx", ".part")


def without_derived(
    disk: CrashDisk, endings: tuple[str, ...] = (*INDEXES, ".0", ".1")
) -> CrashDisk:
    """A copy of the disk without indexes, and by default without checkpoints."""
    copy = disk.after_kill()
    directory = copy.directory(PATH, make=False)
    for name in directory.names():
        if name.endswith(endings):
            directory.remove(name)
    directory.sync()
    return copy


def journal(disk: CrashDisk) -> dict[str, bytes]:
    """A digest of each of the journal's files; of none, if it was never begun."""
    return {name: digest for name, digest in disk.digests(PATH).items() if is_segment(name)}
