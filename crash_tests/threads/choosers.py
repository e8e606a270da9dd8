"""Objects that choose the thread that goes on at a seam: by a given schedule, or at random."""

from __future__ import annotations

from random import Random

from crash_tests.threads.schedule import Choice, Schedule
from crash_tests.threads.tracing import Task


class Follow:
    """Follows a schedule. Where the schedule says nothing, the default thread goes on."""

    def __init__(self, schedule: Schedule) -> None:
        self._wanted = {each.seam: each.goes_on for each in schedule.choices}
        self._last = schedule.choices[-1].seam if schedule.choices else None
        self.open: list[Choice] = []  # choices that would have been possible after the last choice

    def choose(self, task: Task, others: list[Task], default: Task) -> Task:
        if self._last is None:
            self.open += [
                Choice(*task.seam, other.name, default is task)
                for other in others
                if other is not default
            ]
        elif task.seam == self._last:
            self._last = None
        wanted = self._wanted.get(task.seam)
        if wanted is None:
            return default
        return next((other for other in others if other.name == wanted), default)


class Chance:
    """Lets the thread of the highest priority go on. A few times it gives a thread the lowest one.

    A bug that needs d such points is met with a chance of at least one in n * k ** (d - 1), for n
    threads and k seams: probabilistic concurrency testing, Burckhardt and others, 2010.
    """

    def __init__(self, random: Random, points: int, seams: int) -> None:
        """`seams` is about the number of choices that there will be."""
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


class Restless:
    """Lets any other thread go on at some of the seams."""

    def __init__(self, random: Random, share: float) -> None:
        """`share` is the share of the seams at which it does that."""
        self._random = random
        self._share = share

    def choose(self, task: Task, others: list[Task], default: Task) -> Task:
        if self._random.random() >= self._share:
            return default
        return self._random.choice([default, *others])
