"""How many Python calls lie between a public call and the disk: `python -m benchmarks.hops`.

For each public call: the calls of fmq's functions that it makes in the caller's thread, in how many
files they stand, and how deep the write lies below the public call. The figures come from a trace
of one call on a warm engine, so they are the same on every machine.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import fmq
from fmq.posix import RealFile

HOME = str(Path(fmq.__file__).parent) + "/"
WRITE = RealFile.write.__code__


class Trace:
    """Counts the calls of fmq's functions, and how deep a write lies below the first."""

    def __init__(self) -> None:
        self.calls = 0
        self.files: set[str] = set()
        self.depth = 0
        self._at = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if not frame.f_code.co_filename.startswith(HOME):
            return
        if event == "call":
            self._at += 1
            self.calls += 1
            self.files.add(frame.f_code.co_filename)
            if frame.f_code is WRITE:
                self.depth = max(self.depth, self._at)
        elif event == "return":
            self._at -= 1


def trace(*calls: Callable[[], object]) -> Trace:
    """Return the trace of `calls` together."""
    found = Trace()
    for call in calls:
        sys.setprofile(found)
        try:
            call()
        finally:
            sys.setprofile(None)
    return found


def public_calls(engine: fmq.Engine) -> dict[str, Callable[[], Trace]]:
    """Return what is traced, by its name."""
    consumer = engine.consumer("a", group="g")

    def one_phase() -> None:
        with engine.transaction() as tx:
            tx.send("a", b"1")
            tx.send("b", b"2")

    def poll_and_ack() -> None:
        consumer.poll(limit=1)[0].ack()

    def two_phases() -> Trace:
        tx = engine.transaction()
        tx.send("a", b"1")
        tx.send("b", b"2")
        return trace(tx.prepare, tx.commit)

    return {
        "send": lambda: trace(lambda: engine.send("a", b"1")),
        "a transaction of two messages": lambda: trace(one_phase),
        "prepare and commit": two_phases,
        "poll and ack of one": lambda: trace(poll_and_ack),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, fmq.open(f"{folder}/d") as engine:
        for name, traced in public_calls(engine).items():
            for _ in range(3):  # names are encoded once, and topics made
                found = traced()
            print(
                f"{name:32} {found.calls:4} calls in {len(found.files):2} files, "
                f"{found.depth:2} deep at the write"
            )


if __name__ == "__main__":
    main()
