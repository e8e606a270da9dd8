"""The timers that a checkpoint names, and the files that hold them.

The files are derived: if one is missing or not sound, a replay of all segments finds the timers.
"""

from __future__ import annotations

from typing import Any

from fmq.machine.disk import Directory
from fmq.store.index.due_runs import ENTRY_BYTES, SUFFIX, BadRun, DueRun
from fmq.store.journal.segment import base_of, belongs
from fmq.tx.ledger.carryover import check_list, check_number, check_text
from fmq.tx.ledger.timers import Timers


def check_timers(noted: Any) -> None:
    """Raise ValueError or TypeError unless `noted` has the shape that `Timers.noted` makes."""
    if type(noted) is not dict:
        raise ValueError(f"timers are {str(noted)[:40]}")
    for each in check_list("runs", noted.get("runs")):
        name, at, crc = check_list("a run", each, 3)
        check_number("where a run is", at)
        check_number("a checksum", crc, 0, 1 << 32)
        if not is_due_file(check_text("the name of a run", name)):
            raise ValueError(f"a run has the name {name[:40]!r}")
    for what, size in (("near", ENTRY_BYTES), ("gone", 8)):
        if type(noted.get(what)) is not str or len(bytes.fromhex(noted[what])) % size:
            raise ValueError(f"{what} are {str(noted.get(what))[:40]}")
    for count in check_list("counts", noted.get("counts"), 4):
        check_number("a count", count)


def is_due_file(name: str) -> bool:
    """Return whether `name` is the name of a file of timers."""
    return belongs(name) and name[20:] == SUFFIX


def carry_timers(
    timers: Timers, noted: dict[str, Any] | None, directory: Directory, store: bytes
) -> bool:
    """Restore `timers` from a checkpoint. Return False if a file of timers is not sound."""
    if noted is None:
        return True  # an fmq without timers wrote the directory
    runs: list[DueRun] = []
    try:
        for name, at, crc in noted["runs"]:
            runs.append(DueRun.open(directory, name, store, at, crc))
    except (OSError, BadRun):
        for run in runs:
            run.close()
        return False
    timers.carry(noted, runs)
    return True


def number_files(timers: Timers, directory: Directory) -> None:
    """Let new timer files get names that are not in use."""
    names = [name for name in directory.names() if is_due_file(name)]
    timers.next_name = max([timers.next_name, *(base_of(name) + 1 for name in names)])


def remove_unnamed(timers: Timers, directory: Directory) -> None:
    """Remove the timer files that no run uses. An engine ended before a checkpoint named them, or
    only an older checkpoint named them.
    """
    used = {run.name for run in (*timers.view().runs, *timers.obsolete)}
    for name in directory.names():
        if is_due_file(name) and name not in used:
            directory.remove(name)
