"""The reports of `crash`: what was tried, or the story of a crash that broke the program."""

from __future__ import annotations

import linecache
import os
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fmq.testing.crash_states import ENDED, CrashState
from fmq.testing.recorder import Place

LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)

TOLD_MAX = 5  # lines told before the crash that a story shows, at most


@dataclass(frozen=True, slots=True)
class CrashReport:
    """How much a run of `crash` has tried."""

    points: int
    """At how many instants of the program it crashed, those inside of `recover` included."""
    states: int
    """How many different worlds these crashes left; each was recovered and checked."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.points:,} crash points, {self.states:,} distinct states, {self.seconds:.1f} s"
        )


class CrashFailure(AssertionError):
    """The story of a crash after which `recover` or `check` failed. Its cause is their exception.

    `only` names the crash for `crash(..., only=...)`, and `report` says what was tried before.
    """

    def __init__(
        self,
        path: Sequence[CrashState],
        trouble: str,
        error: BaseException,
        report: CrashReport,
        kept: Path | None,
    ) -> None:
        self.only = " > ".join(state.name for state in path)
        self.report = report
        when = "without any crash" if path[0].how == ENDED else "after a crash"
        [said, *_] = str(error).splitlines() or [""]
        lines = [f"{when} {trouble}: {type(error).__name__}: {said}"]
        for state in path:
            lines += tell_state(state)
        lines.append(f"  told    {tell_told(path[-1].point.told)}")
        lines.append(f"  tried   {report}")
        lines.append(f"  again   crash(..., only={self.only!r})")
        if kept is not None:
            lines.append(f"  kept    {kept}")
        super().__init__("\n".join(lines))


def tell_state(state: CrashState) -> list[str]:
    """Return where the program was, with the lines of its source, and what the crash does."""
    if state.how == ENDED:
        return []
    point = state.point
    places = [place for place in point.stack if not place.file.startswith(LIBRARIES)]
    where = [tell_place(place) for place in places or point.stack[-1:]]
    if not where:
        where = ["before its first call" if point.number == 0 else "no more: it had ended"]
    lines = [f"  {'' if i else 'running':7} {line}" for i, line in enumerate(where)]
    if point.operation is not None:
        lines.append(f"  at      the disk's operation {point.operation}")
    elif point.stack:
        lines.append("  after   that call, before the next")
    return [*lines, f"  then    {state.tell()}"]


def tell_place(place: Place) -> str:
    source = linecache.getline(place.file, place.line).strip()
    file = os.path.relpath(place.file)
    file = place.file if file.startswith("..") else file
    return f"{file}:{place.line} in {place.function}" + (f": {source}" if source else "")


def tell_told(told: tuple[object, ...]) -> str:
    shown = ", ".join(map(repr, told[-TOLD_MAX:])) or "nothing"
    return shown if len(told) <= TOLD_MAX else f"{len(told):,} things, the last ones {shown}"
