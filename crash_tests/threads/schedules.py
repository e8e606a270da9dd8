"""Who decides at a seam: a list of choices, or chance.

By default a thread goes on until it must wait, or ends. A choice says that at its n-th seam
another one goes on instead; so a schedule is written down as the few choices in which it differs
from the default. One that stops a thread which could have gone on is a preemption.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from crash_tests.threads.scheduler import Task


@dataclass(frozen=True, slots=True)
class Choice:
    """The thread `stopped`, at its seam number `seam`, lets `goes_on` go on; "" is none."""

    stopped: str
    seam: int
    goes_on: str
    preempts: bool = True

    def as_json(self) -> list[Any]:
        return [self.stopped, self.seam, self.goes_on, self.preempts]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The choices, and which seams they count."""

    lines: bool  # whether each line where threads meet is one
    choices: tuple[Choice, ...] = ()

    @property
    def preemptions(self) -> int:
        return sum(choice.preempts for choice in self.choices)

    def but(self, dropped: Iterable[Choice]) -> Schedule:
        gone = set(dropped)
        return Schedule(self.lines, tuple(each for each in self.choices if each not in gone))

    def as_json(self) -> dict[str, Any]:
        return {"lines": self.lines, "choices": [each.as_json() for each in self.choices]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Self:
        return cls(data["lines"], tuple(Choice(*each) for each in data["choices"]))


class Follow:
    """Follows a schedule; what it does not say is as by default."""

    def __init__(self, schedule: Schedule) -> None:
        self._wanted = {(each.stopped, each.seam): each.goes_on for each in schedule.choices}
        self._last = (schedule.choices[-1].stopped, schedule.choices[-1].seam, ) if schedule.choices else None
        self.open: list[Choice] = []  # what could have been chosen behind the last choice

    def choose(self, task: Task, others: list[Task], default: Task) -> Task:
        key = task.name, task.seams
        wanted = self._wanted.get(key)
        if self._last is None:
            for other in others:
                if other is not default:
                    preempts = default is task
                    self.open.append(Choice(*key, other.name, preempts))
        elif key == self._last:
            self._last = None
        if wanted is None:
            return default
        return next((other for other in others if other.name == wanted), default)


class Chance:
    """The thread of the highest priority goes on, and a few times it gets the lowest one.

    A bug that needs d such points is met with a chance of at least one in n * k ** (d - 1), for n
    threads and k seams: probabilistic concurrency testing, Burckhardt and others, 2010.
    """

    def __init__(self, random: Random, points: int, seams: int) -> None:
        """`seams` is about how many choices there will be."""
        self._random = random
        self._points = {random.randrange(max(1, seams)) for _ in range(points)}
        self._priorities: dict[str, float] = {}
        self.asked = 0

    def choose(self, task: Task, others: list[Task], default: Task) -> Task:
        if self.asked in self._points and default is task:
            self._priorities[task.name] = -self.asked - 1.0
        self.asked += 1
        return max([default, *others], key=self._priority)

    def _priority(self, task: Task) -> float:
        if task.name not in self._priorities:
            self._priorities[task.name] = self._random.random()
        return self._priorities[task.name]
