"""What a crash at one point may leave: a killed process, or one of several power cuts.

Each state has a name that finds it again, in whatever order the states are tried:
`7 kill`, `7 power 12,14`, `7 power 12 torn 14@512 zeros`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random

from fmq.errors import BadOption
from fmq.testing.changes import Tear
from fmq.testing.crash_disk import CrashDisk
from fmq.testing.losses import Loss, Torn
from fmq.testing.recorder import Point

ENDED, KILL, UNWRITTEN, POWER = "end", "kill", "kill unwritten", "power"
LOSSES_MAX = 200  # losses of one point, from which some are chosen
NOTHING = Loss()

TEARS = {
    Tear.SHORT: "of {} its first {} bytes",
    Tear.ZEROS: "of {} its first {} bytes, then zeros",
    Tear.GARBAGE: "of {} its first {} bytes, then garbage",
    Tear.TAIL: "of {} all but its first {} bytes",
    Tear.HOLE: "of {} all but the sector behind its first {} bytes",
}
NAME = re.compile(
    r"(\d+) (end|kill unwritten|kill|power (-|\d+(?:,\d+)*)"
    rf"(?: torn (\d+)@(\d+) ({'|'.join(Tear)}))?)"
)


@dataclass(frozen=True, slots=True)
class CrashState:
    """One disk that a crash at `point` may leave. The other files are as at the point."""

    point: Point
    how: str  # the kind of crash: ENDED, KILL, UNWRITTEN or POWER
    disk: CrashDisk
    loss: Loss = NOTHING

    @property
    def name(self) -> str:
        """Return the name of the state, as `crash(..., only=...)` takes it."""
        if self.how != POWER:
            return f"{self.point.number} {self.how}"
        text = f"{self.point.number} power {','.join(map(str, sorted(self.loss.kept))) or '-'}"
        torn = self.loss.torn
        return text if torn is None else f"{text} torn {torn.number}@{torn.cut} {torn.tear.value}"

    def tell(self) -> str:
        """Return the crash in words."""
        if self.how == ENDED:
            return "nothing crashes"
        if self.how == UNWRITTEN:
            return "the process is killed before the write"
        if self.how == KILL:
            when = "after the write, before its sync" if self.point.unwritten else "there"
            return f"the process is killed {when}"
        name_of = self.point.history.name_of
        left = [name_of(number) for number in sorted(self.loss.kept)]
        torn = self.loss.torn
        if torn is not None:
            left.append(TEARS[torn.tear].format(name_of(torn.number), f"{torn.cut:,}"))
        return f"the power fails and leaves of what was not synced: {'; '.join(left) or 'nothing'}"


def states(point: Point, count: int, seed: int) -> Iterator[CrashState]:
    """Yield the disk that a kill leaves, and the disks of up to `count` power cuts chosen by
    `seed`. The first of these is the power cut that loses most.
    """
    yield CrashState(point, KILL, point.disk)
    if point.unwritten is not None:
        yield CrashState(point, UNWRITTEN, point.unwritten)
    losses = list(islice(point.disk.losses(seed), LOSSES_MAX))
    if len(losses) > count:
        chosen = Random(f"{seed} {point.number}").sample(losses[1:], max(0, count - 1))
        losses = [*losses[:1], *chosen][:count]
    for loss in losses:
        yield CrashState(point, POWER, point.disk.after(loss), loss)


def find(points: list[Point], name: str) -> CrashState:
    """Return the state called `name`. Raises BadOption if the program does not reach its point."""
    found = NAME.fullmatch(name)
    if found is None:
        raise BadOption(f"only={name!r}: not the name of a state; a CrashFailure gives one")
    number, how, kept, torn, cut, tear = found.groups()
    if int(number) >= len(points):
        raise BadOption(
            f"only={name!r}: the program has {len(points)} crash points this time, so it does "
            "not do the same in every run; see whether it uses random numbers or threads"
        )
    point = points[int(number)]
    if kept is None:
        unwritten = point.unwritten if how == UNWRITTEN else None
        return CrashState(point, how, unwritten or point.disk)
    numbers = frozenset(int(each) for each in kept.split(",") if each != "-")
    loss = Loss(numbers, Torn(int(torn), int(cut), Tear(tear)) if torn else None)
    return CrashState(point, POWER, point.disk.after(loss), loss)
