"""What lies in the directory that an engine has left, looked at from outside."""

from __future__ import annotations

import fmq
from crash_tests.oracle import Violation
from crash_tests.run import PATH
from fmq.disk import Directory
from fmq.errors import NotAStore
from fmq.recovery.checkpoint import SLOTS, decode
from fmq.recovery.layout import QUARANTINE
from fmq.testing import CrashDisk


def check_directory(disk: CrashDisk) -> None:
    """Violation if fmq.check finds something."""
    report = fmq.check(PATH, disk=disk.after_kill())
    if not report.ok:
        raise Violation("I10", "; ".join(map(str, report.problems)))


def check_has_checkpoint(disk: CrashDisk) -> None:
    """Violation if no slot is sound: then all of the journal would have to be replayed."""
    directory = disk.directory(PATH, make=False)
    slots = (contents(directory, name) for name in SLOTS if name in directory.names())
    if not any(decode(slot) for slot in slots):
        raise Violation("I9", "no checkpoint is left")


def check_cut_is_kept(before: CrashDisk, after: CrashDisk) -> None:
    """Violation if bytes of a segment are gone and not in quarantine/."""
    new, old = journal_bytes(after), journal_bytes(before)
    for name in old.keys() & new.keys():
        left, had = new[name].rstrip(b"\0"), old[name].rstrip(b"\0")
        shorter = left != had and had.startswith(left)
        if shorter and not any(is_cut(had, left, kept) for kept in quarantined(after)):
            raise Violation("I11", f"{name} was cut, and nothing keeps what was cut off")


def is_cut(had: bytes, left: bytes, kept: bytes) -> bool:
    """Whether `had` is what is left and, behind its padding, what was kept of it."""
    return bool(kept) and had.endswith(kept) and had[: -len(kept)].rstrip(b"\0") == left


def quarantined(disk: CrashDisk) -> list[bytes]:
    """What recovery has cut so far."""
    directory = disk.directory(PATH, make=False)
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


def journal_bytes(disk: CrashDisk) -> dict[str, bytes]:
    """The bytes of the journal's files; of none, if it was never begun."""
    try:
        directory = disk.directory(PATH, make=False)
    except NotAStore:
        return {}
    found = {}
    for name in directory.names():
        if name.endswith(".seg"):
            found[name] = contents(directory, name)
    return found
