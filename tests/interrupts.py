"""An interrupt at the n-th line that a thread runs of fmq, whichever file it stands in.

The fakes of fmq.testing are left out: they are the machine, and what a signal meets in there
shows when the call returns, which is a line of fmq again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import fmq
import fmq.testing
from tests.store.lines import with_lines

HOME = str(Path(fmq.__file__).parent) + "/"
FAKES = str(Path(fmq.testing.__file__).parent) + "/"
PATIENCE_SECONDS = 5.0  # only a test that fails waits so long


class Interrupt:
    """Raises KeyboardInterrupt before line number `at`, counted over all files of fmq.

    Leaving a `with` block is no such line, as tests/store/lines.py explains.
    """

    def __init__(self, at: int) -> None:
        self.count = 0
        self.met = ""
        self._at = at
        self._modules = {module.__file__: module for module in list(sys.modules.values())
                         if getattr(module, "__file__", None)}  # fmt: skip
        self._inside: set[tuple[int, int]] = set()

    def run(self, work: Callable[[], object]) -> object:
        """What `work` returns; it is watched in this thread and in no other."""
        sys.settrace(self._call)
        try:
            return work()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        ours = file.startswith(HOME) and not file.startswith(FAKES)
        # What a destructor raises goes nowhere, and that of an earlier engine may run at any time.
        return self._step if ours and frame.f_code.co_name != "__del__" else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self._leaves_block(frame):
            number, self.count = self.count, self.count + 1
            if number == self._at:
                name = frame.f_code.co_filename.removeprefix(HOME)
                self.met = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
                raise KeyboardInterrupt
        return self._step

    def _leaves_block(self, frame: FrameType) -> bool:
        module = self._modules[frame.f_code.co_filename]
        if frame.f_lineno not in with_lines(module):
            return False
        block = id(frame), frame.f_lineno
        if block in self._inside:
            self._inside.remove(block)
            return True
        self._inside.add(block)
        return False


def in_thread(work: Callable[[], Any], what: str) -> Any:
    """What `work` returns or raises in a thread of its own; an AssertionError if it hangs."""
    answer: list[Any] = []

    def run() -> None:
        try:
            answer.append((work(), None))
        except BaseException as error:
            answer.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE_SECONDS)
    assert answer, f"{what} hangs"
    result, error = answer[0]
    if error is not None:
        raise error
    return result
