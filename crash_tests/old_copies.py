"""Puts back the last segment as it was before, after a kill: an old copy, or a disk that has lost a
write.

Nothing in it tells that there was more. The page of the killed engine does, and says how far.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from crash_tests.directories import without_derived
from crash_tests.engines import PATH, abandon, open_engine
from crash_tests.oracle import Violation
from crash_tests.run import Run
from fmq.errors import Damaged
from fmq.store.journal.segment import base_of, is_segment
from fmq.testing import CrashDisk
from fmq.testing.inside import inside


def check_old_copies(start: Callable[[], Run]) -> None:
    """Raise Violation if an engine takes an earlier copy of the last segment for the whole
    journal.
    """
    copies: dict[str, set[bytes]] = {}

    def note(run: Run) -> None:
        files = run.disk.files(PATH)
        for name in sorted(filter(is_segment, files))[-1:]:
            copies.setdefault(name, set()).add(files[name].content())

    run = start()
    run.watch(note)
    run.go()
    if run.engine is None:
        return
    name = max(filter(is_segment, run.disk.files(PATH)))
    told = inside(run.engine).journal.durable_to - base_of(name)
    killed = run.disk.after_kill()
    whole = killed.files(PATH)[name].content()
    run.disk.stop()
    abandon(run.engine)
    for old in copies.get(name, ()):
        if old[:told] != whole[:told]:
            _check_refused(killed, name, old, run)


def _check_refused(killed: CrashDisk, name: str, old: bytes, run: Run) -> None:
    disk = without_derived(killed)  # a checkpoint would say how long the journal was
    file = disk.directory(PATH, make=False).open(name, write=True)
    file.write(0, (old,), sync=True)
    file.close()
    with suppress(Damaged):
        abandon(open_engine(disk, run.options))
        raise Violation("I23", f"{name} as it was before was taken for all that there was")
