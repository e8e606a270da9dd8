"""An interrupt at the n-th line that a thread runs of fmq, whichever file it stands in.

The fakes of fmq.testing are left out: they are the machine, and what a signal meets in there
shows when the call returns, which is a line of fmq again.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import fmq
import fmq.testing
from tests.store.lines import Tracer

HOME = str(Path(fmq.__file__).parent) + "/"
FAKES = str(Path(fmq.testing.__file__).parent) + "/"
# Nothing but a test that hangs waits so long. On a busy machine a thread may get no processor for
# seconds.
PATIENCE_SECONDS = 60.0


class Interrupt(Tracer):
    """Raises KeyboardInterrupt before line number `at`, counted over all files of fmq."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self._modules = {module.__file__: module for module in list(sys.modules.values())
                         if getattr(module, "__file__", None)}  # fmt: skip

    def watches(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        ours = file.startswith(HOME) and not file.startswith(FAKES)
        # What a destructor raises goes nowhere, and that of an earlier engine may run at any time.
        return ours and frame.f_code.co_name != "__del__"

    def module_of(self, frame: FrameType) -> ModuleType:
        return self._modules[frame.f_code.co_filename]

    def reached(self, frame: FrameType) -> None:
        name = frame.f_code.co_filename.removeprefix(HOME)
        self.met = f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        raise KeyboardInterrupt


def in_thread(work: Callable[[], Any], what: str) -> Any:
    """Return or raise what `work` returns or raises in a thread of its own. Raises AssertionError
    if it hangs.
    """
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
