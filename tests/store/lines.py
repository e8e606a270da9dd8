"""Doing something at the n-th line that a thread runs of a module: an interrupt, or a pause.

A signal may arrive between any two lines, so a test that tries them all needs no luck.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from types import FrameType, ModuleType
from typing import Any


class Lines:
    """Counts the lines of `module` that this thread runs, and calls `act` before number `at`.

    Leaving a `with` block is no such line: CPython looks for signals when a call has returned,
    which is still inside of the block, and after it has been left; never just before.
    """

    def __init__(self, module: ModuleType, at: int, act: Callable[[], None]) -> None:
        self.count = 0
        self.line = ""
        self._file = module.__file__
        self._blocks = with_lines(module)
        self._source = inspect.getsource(module).splitlines()
        self._at = at
        self._act = act
        self._inside: set[tuple[int, int]] = set()

    def run(self, work: Callable[[], object]) -> object:
        """What `work` returns; it is watched in this thread and in no other."""
        sys.settrace(self._call)
        try:
            return work()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if frame.f_code.co_filename == self._file else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not self._leaves_block(frame):
            number, self.count = self.count, self.count + 1
            if number == self._at:
                self.line = f"line {frame.f_lineno}: {self._source[frame.f_lineno - 1].strip()}"
                self._act()
        return self._step

    def _leaves_block(self, frame: FrameType) -> bool:
        if frame.f_lineno not in self._blocks:
            return False
        block = id(frame), frame.f_lineno
        if block in self._inside:
            self._inside.remove(block)
            return True
        self._inside.add(block)
        return False


@cache
def with_lines(module: ModuleType) -> frozenset[int]:
    """The lines of `module` on which a `with` block begins."""
    tree = ast.parse(inspect.getsource(module))
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.With))
