"""Reports a failure, makes it smaller, and writes it to a file."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path

from crash_tests.explore import Depth
from crash_tests.failure import Failure
from crash_tests.shrink import shrink
from crash_tests.threads import shrink as threads


class Findings:
    """The failures of one run, in one folder."""

    def __init__(self, folder: Path, depth: Depth | None, say: Callable[[str], None]) -> None:
        """`depth` says how much to try while making failures smaller. Without it they are left as
        they are.
        """
        self._folder = folder
        self._depth = depth
        self._say = say
        self.files: dict[str, str] = {}

    def keep(self, failure: Failure) -> None:
        cause = failure.violation.__cause__
        self._say(str(failure))
        if cause is not None:
            self._say("".join(traceback.format_exception(cause, limit=-4)).rstrip())
        if not (failure.workload.steps or failure.workload.threads):
            return  # a real crash: its files are kept in a folder of their own
        smaller = failure
        if self._depth is not None:
            make_small = shrink if failure.schedule is None else threads.shrink
            smaller = make_small(failure, self._depth)
        self._folder.mkdir(exist_ok=True)
        kind = "" if failure.order is None else "-fault"
        file = self._folder / f"{failure.workload.name.replace(' ', '-')}{kind}.json"
        smaller.save(file)
        self.files[str(file)] = str(failure.violation).partition("\n")[0]
        self._say(f"shrunk: {smaller}\n  steps:    {smaller.workload.steps}{_of_threads(smaller)}")
        self._say(f"  again:    python -m crash_tests replay {file}")


def _of_threads(failure: Failure) -> str:
    return "".join(f"\n            {steps}" for steps in failure.workload.threads)
