"""Doing something at the n-th line that a thread runs of a module: an interrupt, or a pause.

A signal may arrive between any two lines, so a test that tries them all needs no luck.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FrameType, ModuleType
from typing import Any, TypeVar

from tests.budget import BUDGET, SEED


class Tracer:
    """Counts the lines that this thread runs, of the frames watched, and stops at number `at`.

    Leaving a `with` block is no such line: CPython looks for signals when a call has returned,
    which is still inside of the block, and after it has been left; never just before. Nor does
    CPython look for signals at a bare `try:`, where it does nothing.
    """

    def __init__(self, at: int) -> None:
        self.count = 0
        self.met = ""  # what stands in line number `at`, once it was reached
        self._at = at
        self._inside: dict[tuple[int, int], set[int]] = {}  # by frame and its code

    def watches(self, frame: FrameType) -> bool:
        """Return whether the lines of `frame` count."""
        raise NotImplementedError

    def module_of(self, frame: FrameType) -> ModuleType:
        """The module whose source `frame` runs."""
        raise NotImplementedError

    def reached(self, frame: FrameType) -> None:
        """Act before line number `at`."""
        raise NotImplementedError

    def run(self, work: Callable[[], object]) -> object:
        """Return what `work` returns. Only this thread is watched."""
        sys.settrace(self._call)
        try:
            return work()
        finally:
            sys.settrace(None)

    def _call(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._step if self.watches(frame) else None

    def _step(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line" and not (self._leaves_block(frame) or self._only_tries(frame)):
            number, self.count = self.count, self.count + 1
            if number == self._at:
                self.reached(frame)
        return self._step

    def _only_tries(self, frame: FrameType) -> bool:
        return frame.f_lineno in try_lines(self.module_of(frame))

    def _leaves_block(self, frame: FrameType) -> bool:
        number, blocks = frame.f_lineno, with_blocks(self.module_of(frame))
        mine = self._inside.setdefault((id(frame), id(frame.f_code)), set())
        mine -= {first for first in mine if not first <= number <= blocks[first]}
        # Of `with a, b:` the line may be met once for each of the two that are left.
        leaves = number in mine
        if number in blocks:
            mine.add(number)
        return leaves


def interrupt() -> None:
    """Do what Ctrl-C does."""
    raise KeyboardInterrupt


AnyTracer = TypeVar("AnyTracer", bound=Tracer)
LINES_MAX = 5000


def at_each_line(make: Callable[[int], AnyTracer], every: int = 1) -> Iterator[AnyTracer]:
    """Yield `make(0)`, `make(1)` and so on, up to the first that has met no line any more. With
    `every`, only one line of so many, which FMQ_SEED chooses; FMQ_BUDGET has more of them.
    """
    every = max(1, round(every / BUDGET))
    for at in range(SEED % every, LINES_MAX, every):
        tracer = make(at)
        yield tracer
        if not tracer.met:
            return
    raise AssertionError(f"more than {LINES_MAX} lines")


class Lines(Tracer):
    """All lines of one `module`, or of one function of it; `act` is called before number `at`."""

    def __init__(
        self,
        module: ModuleType,
        at: int,
        act: Callable[[], object] = interrupt,
        function: CodeType | None = None,
    ) -> None:
        super().__init__(at)
        self._module = module
        self._source = inspect.getsource(module).splitlines()
        self.act = act
        self._function = function

    def watches(self, frame: FrameType) -> bool:
        code = frame.f_code
        if self._function is not None:
            return code is self._function
        return code.co_filename == self._module.__file__

    def module_of(self, frame: FrameType) -> ModuleType:
        return self._module

    def reached(self, frame: FrameType) -> None:
        self.met = f"line {frame.f_lineno}: {self._source[frame.f_lineno - 1].strip()}"
        self.act()


@cache
def with_blocks(module: ModuleType) -> dict[int, int]:
    """Return the first line of each `with` block of `module`, with its last line."""
    tree = ast.parse(inspect.getsource(module))
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.With))
    return {node.lineno: node.end_lineno or node.lineno for node in blocks}


@cache
def try_lines(module: ModuleType) -> frozenset[int]:
    """Return the lines of `module` on which `try:` is."""
    tree = ast.parse(inspect.getsource(module))
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, ast.Try))
