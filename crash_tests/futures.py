"""Puts a segment in its place in a copy of the directory to which an engine has written something
else.

Its records are sound, it has the same name and the same store, and even the positions of its
records may be the same. Only the chain tells it from ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from crash_tests.directories import without_derived
from crash_tests.engines import PATH, abandon, open_engine
from crash_tests.oracle import Violation
from crash_tests.run import Run
from fmq.arguments.options import Options
from fmq.errors import Damaged
from fmq.store.journal.segment import is_segment
from fmq.testing import CrashDisk

OTHER_STEPS = 50  # bodies are named after the numbers of steps, with as many bytes


def check_futures(start: Callable[[], Run]) -> None:
    """Raise Violation if a sealed segment of one run can take its place in another run's
    journal.
    """
    ours, theirs = _end(start(), 0), _end(start(), OTHER_STEPS)
    options = start().options
    others = theirs.files(PATH)
    files = ours.files(PATH)
    *sealed, _ = sorted(filter(is_segment, files))
    for name in sealed:
        if name in others and others[name].digest() != files[name].digest():
            what = "I20", f"{name} of another future was taken for ours"
            check_refused(ours, name, others[name].content(), options, what)


def _end(run: Run, first_step: int) -> CrashDisk:
    run.first_step = first_step
    run.go()
    run.close()
    return run.disk


def check_refused(
    ours: CrashDisk, name: str, content: bytes, options: Options, what: tuple[str, str]
) -> None:
    """Raise the Violation `what` if recovery takes the segment `name` with another `content`."""
    # A checkpoint would spare recovery the look at it, or say how long the journal was.
    disk = without_derived(ours)
    file = disk.directory(PATH, make=False).open(name, write=True)
    file.write(0, (content,), sync=True)
    file.close()
    with suppress(Damaged):
        abandon(open_engine(disk, options))
        raise Violation(*what)
