"""A story: tasks write the rows of jobs, and committers commit or abort them.

A task may have a twin, or die in the middle. A driver may die, and another one does its job again;
or it aborts its attempt, and commits it nevertheless. The model knows nothing of the engine. It has
the rows that the last call has left, and those that the running call leads to: a crash must leave
one of the two. Then the job that was interrupted is done again, and must be there once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.errors import AlreadyDecided
from fmq.intake import JobPart, ManySent, WriteJob
from fmq.testing import CrashDisk, FakeClock

MARKS = "a", "b"
KINDS = (
    *("task", "task", "task", "twin", "dead_task", "commit", "commit", "commit_again"),
    *("late_task", "abort", "abort_and_commit", "driver", "others", "checkpoint", "reopen"),
)
STEPS = 24
HOLD_BYTES = 60
PART_BYTES = 400


class State(NamedTuple):
    """What is committed, as a user knows it."""

    rows: tuple[bytes, ...] = ()
    values: tuple[int, ...] = (-1,) * len(MARKS)


class Died(Exception):
    """A task dies."""


class Open:
    """A job that is not committed yet."""

    def __init__(self, number: int, value: int, attempt: str) -> None:
        self.number = number
        self.value = value
        self.attempt = attempt
        self.rows: list[tuple[bytes, ...]] = []
        self.parts: list[JobPart] = []


class Story:
    """An engine with what it does, and what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.options = fmq.Options(
            segment_bytes=16384, first_segment_bytes=4096, topic_queues={"t": 1}
        )
        self.engine = self._opened(self.disk)
        self.engine.create_topic("t")
        self.now = self.running = State()
        self.attempts = self.numbers = 0
        self.jobs = [self._begun(number, 0) for number in range(len(MARKS))]

    def _opened(self, disk: CrashDisk) -> fmq.Engine:
        return fmq.open(PATH, self.options, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps."""
        for kind in self.random.choices(KINDS, k=STEPS):
            getattr(self, f"_{kind}")(self.random.choice(self.jobs))
        self.engine.close()

    def _begun(self, number: int, value: int) -> Open:
        self.attempts += 1
        return Open(number, value, f"attempt-{self.attempts}")

    def _writer(self, job: Open) -> WriteJob:
        self.numbers += 1
        mark = MARKS[job.number]
        return WriteJob(self.engine, mark, job.value, job.attempt, str(self.numbers))

    # --- the steps ------------------------------------------------------------------------------

    def _new_rows(self, job: Open) -> tuple[bytes, ...]:
        size = self.random.choice((1, 3, 3, 40))
        self.numbers += 1
        name = b"%s-%d-%d" % (MARKS[job.number].encode(), job.value, self.numbers)
        return tuple(b"%s-%d" % (name, row) for row in range(size))

    def _task(self, job: Open) -> None:
        rows = self._new_rows(job)
        job.parts.append(written(self._writer(job), sent(rows)))
        job.rows.append(rows)

    def _twin(self, job: Open) -> None:
        """Another task writes the rows of one, and nobody hears of it."""
        if job.rows:
            written(self._writer(job), sent(self.random.choice(job.rows)))

    def _dead_task(self, job: Open) -> None:
        with suppress(Died):
            written(self._writer(job), sent(self._new_rows(job), dies=True))

    def _late_task(self, job: Open) -> None:
        """A task of the job that was committed before."""
        if job.value:
            late = Open(job.number, job.value - 1, "late")
            part = written(self._writer(late), sent(self._new_rows(late)))
            if part != JobPart(skipped=True):
                raise Violation("I2", f"a late task has written {part}")

    def _commit(self, job: Open) -> None:
        values = [*self.now.values]
        values[job.number] = job.value
        rows = tuple(row for part in job.rows for row in part)
        self.running = State(self.now.rows + rows, tuple(values))
        if not self._writer(job).commit(job.parts):
            raise Violation("I1", f"job {job.value} was there before its commit")
        self.now = self.running
        self.jobs[job.number] = self._begun(job.number, job.value + 1)

    def _commit_again(self, job: Open) -> None:
        """A committer died behind its decision, so Spark aborts the job and does it again."""
        if job.value:
            before = Open(job.number, job.value - 1, "again")
            self._writer(before).abort([])
            if self._writer(before).commit([JobPart(skipped=True)]):
                raise Violation("I5", f"job {before.value} was committed again")

    def _abort(self, job: Open) -> None:
        self._writer(job).abort(job.parts)
        self.jobs[job.number] = self._begun(job.number, job.value)

    def _abort_and_commit(self, job: Open) -> None:
        """A committer that was taken for dead comes after the abort."""
        if any(part.prepared for part in job.parts):
            self._writer(job).abort(job.parts)
            try:
                self._writer(job).commit(job.parts)
            except AlreadyDecided:
                self.jobs[job.number] = self._begun(job.number, job.value)
            else:
                raise Violation("I5", f"an attempt at job {job.value} came back")

    def _driver(self, job: Open) -> None:
        """The driver dies, and the next one knows nothing of its tasks."""
        self.jobs[job.number] = self._begun(job.number, job.value)

    def _others(self, job: Open) -> None:
        self.engine.send_many("others", [bytes(900)] * 3)

    def _checkpoint(self, job: Open) -> None:
        self.engine.checkpoint()

    def _reopen(self, job: Open) -> None:
        self.engine.close()
        self.engine = self._opened(self.disk)

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows one of the allowed states, and each job that is
        done again is there once.
        """
        with self._opened(disk) as engine:
            state = shown(engine)
            if state not in (self.now, self.running):
                raise Violation("I2", f"{state}, and neither {self.now} nor {self.running}")
            if full:
                for number, mark in enumerate(MARKS):
                    value = self.jobs[number].value
                    rows = (b"again-%d" % number,) * 50
                    job = WriteJob(engine, mark, value, f"after the crash {mark}")
                    done = job.commit([written(job, sent(rows))])
                    if done == (state.values[number] == value):
                        raise Violation("I2", f"job {value} of {mark} was done: {done}")
                    state = state._replace(rows=state.rows + rows) if done else state
                if shown(engine).rows != state.rows:
                    raise Violation("I2", "a job that was done again is not there once")
                if left := engine.undecided():
                    raise Violation("I6", f"left behind: {left}")
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I10", f"{problems}")


def sent(rows: tuple[bytes, ...], *, dies: bool = False) -> Iterator[tuple[ManySent, int]]:
    """Yield rows as a task gets them, ten at a time."""
    for start in range(0, len(rows), 10):
        some = [*rows[start : start + 10]]
        yield ManySent("t", some), sum(map(len, some))
    if dies:
        raise Died


def written(job: WriteJob, rows: Iterator[tuple[ManySent, int]]) -> JobPart:
    return job.write_sent(rows, hold_bytes=HOLD_BYTES, part_bytes=PART_BYTES)


def shown(engine: fmq.Engine) -> State:
    """Return what an engine shows."""
    found = engine.read("t", limit=9999) if engine.queues("t") else []
    marks = [engine.mark(name) for name in MARKS]
    values = tuple(-1 if mark is None else mark.value for mark in marks)
    return State(tuple(message.body for message in found), values)
