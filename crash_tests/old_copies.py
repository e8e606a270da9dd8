"""Puts back the last segment as it was before, after a kill: an old copy, or a disk that has lost a
write.

Nothing in it tells that there was more. The page of the killed engine does, and says how far.
"""

from __future__ import annotations

from collections.abc import Callable

from crash_tests.engines import PATH, abandon
from crash_tests.futures import check_refused
from crash_tests.run import Run
from fmq.store.journal.segment import base_of, is_segment
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
            what = "I23", f"{name} as it was before was taken for all that there was"
            check_refused(killed, name, old, run.options, what)
