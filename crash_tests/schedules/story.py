"""Makes, replaces, pauses, resumes, runs and removes schedules, while clocks are set, engines are
closed, and retention drops segments.

The model finds due times by itself: it looks at each second of a clock on the wall, in a time zone
that is set forward and back in the story. A crash is judged in two steps. The engine that is opened
must show what the calls that returned have said, or that with the call that was running. Then some
time passes, and each due time must have been published once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from random import Random
from typing import NamedTuple
from zoneinfo import ZoneInfo

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.errors import UsageError
from fmq.faces.blocking.handles import ScheduleHandle
from fmq.testing import CrashDisk, FakeClock

OPTIONS = fmq.Options(
    segment_bytes=4096, checkpoint_bytes=1024, retain_bytes=8192, keep_unread=True
)
ZONE = "Europe/Berlin"
# The clocks of the zone are set back and forward some minutes after these.
STARTS = datetime(2026, 10, 25, 0, 40, tzinfo=UTC), datetime(2026, 3, 29, 0, 40, tzinfo=UTC)
GRACE_SECONDS = 60
KINDS = (
    *("wait", "wait", "wait", "wait", "moment", "moment", "sleep", "back", "forward"),
    *("make", "make", "replace", "pause", "resume", "resume", "at_once", "remove"),
    *("take", "take", "fill", "fill", "fill", "checkpoint", "reopen", "drop"),
)
STEPS = 24


class Cron(NamedTuple):
    """A cron expression, and a function that tells whether it names a time of the wall clock."""

    text: str
    names: Callable[[datetime], bool]
    is_fixed: bool = False  # a fixed time: not twice in the hour that comes twice


CRONS = (
    Cron("* * * * *", lambda at: not at.second),
    Cron("*/10 * * * *", lambda at: not at.second and not at.minute % 10),
    Cron("30 2 * * *", lambda at: (at.hour, at.minute, at.second) == (2, 30, 0), True),
    Cron("*/20 * * * * *", lambda at: not at.second % 20),
    Cron("15 30 1 * * *", lambda at: (at.hour, at.minute, at.second) == (1, 30, 15)),
)


def first_after(cron: Cron, after: datetime) -> datetime:
    """Return the first time after `after` that `cron` names in ZONE."""
    at = after.replace(microsecond=0)
    while True:
        at += timedelta(seconds=1)
        local = at.astimezone(ZoneInfo(ZONE))
        if cron.names(local) and not (cron.is_fixed and local.fold):
            return at
        if cron.is_fixed and skipped(cron, at):
            return at


def skipped(cron: Cron, at: datetime) -> bool:
    """Return whether `at` is the end of a gap of the clock that holds a time of `cron`."""
    zone = ZoneInfo(ZONE)
    local, before = at.astimezone(zone), (at - timedelta(seconds=1)).astimezone(zone)
    gap = local.replace(tzinfo=None) - before.replace(tzinfo=None) - timedelta(seconds=1)
    missing = before.replace(tzinfo=None)
    return gap > timedelta(0) and any(
        cron.names(missing + timedelta(seconds=each)) for each in range(1, int(gap.seconds) + 1)
    )


class Plan:
    """One schedule, as the model knows it."""

    def __init__(self, cron: Cron, topic: str, missed: str, body: bytes, at: datetime) -> None:
        self.cron = cron
        self.topic = topic
        self.missed = missed
        self.body = body
        self.next = first_after(cron, at)
        self.last: datetime | None = None
        self.paused = ""

    def due(self, now: datetime) -> Iterator[datetime]:
        """Yield the due times that are published by `now`, and move on."""
        while not self.paused and self.next <= now:
            at = self.next
            if now - at > timedelta(seconds=GRACE_SECONDS):
                self.next = first_after(
                    self.cron, now - timedelta(seconds=GRACE_SECONDS, microseconds=1)
                )
                if self.missed == "skip":
                    continue
            else:
                self.next = first_after(self.cron, at)
            self.last = at
            yield at

    def shown(self) -> tuple[object, ...]:
        return self.cron.text, self.topic, self.missed, self.body, self.next, self.last, self.paused


Published = tuple[str, str, bytes]
"""A message: its topic, its due time, its body."""


class State:
    """What must be there: the schedules, and the messages that they have published."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}
        self.published: list[Published] = []

    def publish(self, now: datetime) -> None:
        """Publish what is due, in the order in which it became due."""
        due = [(at, plan) for plan in self.plans.values() for at in plan.due(now)]
        for at, plan in sorted(due, key=itemgetter(0)):
            self.published.append((plan.topic, text(at), plan.body))

    def forget(self, topic: str) -> None:
        self.plans = {name: each for name, each in self.plans.items() if each.topic != topic}
        self.published = [each for each in self.published if each[0] != topic]


def text(at: datetime) -> str:
    return f"{at:%Y-%m-%dT%H:%M:%SZ}"


class Story:
    """An engine, the calls that it gets, and what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        start = STARTS[seed % len(STARTS)]
        self.disk, self.clock = CrashDisk(), FakeClock(round(start.timestamp()) * 1_000_000)
        self.done = State()
        self.going = self.done  # with the call that is running
        self.number = 0
        self.taken: list[Published] = []
        self.engine = self._opened(self.disk, self.clock)
        for topic in ("t", "u"):
            self.engine.consumer(topic, group="g").close()

    def _opened(self, disk: CrashDisk, clock: FakeClock) -> fmq.Engine:
        return fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False)

    def _now(self, clock: FakeClock | None = None) -> datetime:
        seconds = (clock or self.clock).time_us() / 1_000_000
        return datetime.fromtimestamp(seconds, UTC)

    def tell(self) -> None:
        """Make all steps."""
        for kind in ["make", "make", *self.random.choices(KINDS, k=STEPS)]:
            getattr(self, f"_{kind}")()
            problem = self._problem(self.engine, self.done)
            if problem:
                raise Violation("I1", f"after {kind}: {problem}")
        self.engine.close()

    def _call(self, call: Callable[[], object], change: Callable[[State], object]) -> None:
        """Make a call that changes what must be there. Everything that is due is published
        after it.
        """
        going = deepcopy(self.done)
        change(going)
        going.publish(self._now())
        self.going = going
        call()
        self.engine.sync()
        self.done = going

    def _any(self) -> str:
        return self.random.choice(sorted(self.done.plans) or ["nobody"])

    # --- the steps ------------------------------------------------------------------------------

    def _make(self) -> None:
        self._made(f"s{self.random.randrange(3)}", replace=False)

    def _replace(self) -> None:
        self._made(self._any(), replace=True)

    def _made(self, name: str, *, replace: bool) -> None:
        known = self.done.plans.get(name)
        if known is not None and not replace:
            return
        self.number += 1
        cron, missed = self.random.choice(CRONS), self.random.choice(("once", "skip"))
        topic, body = self.random.choice("tu"), b"%d" % self.number
        zone = {"timezone": ZONE, "missed": missed, "replace": replace}

        def change(state: State) -> None:
            at = self._now() if known is None else max(self._now(), known.last or self._now())
            plan = state.plans[name] = Plan(cron, topic, missed, body, at)
            if known is not None:
                plan.last, plan.paused = known.last, known.paused

        self._call(lambda: self.engine.schedule(name, cron.text, topic, body, **zone), change)  # type: ignore[arg-type]

    def _pause(self) -> None:
        name, self.number = self._any(), self.number + 1
        reason = f"r{self.number}"

        def change(state: State) -> None:
            state.plans[name].paused = reason

        self._changed(name, lambda handle: handle.pause(reason=reason), change)

    def _resume(self) -> None:
        paused = [name for name, each in sorted(self.done.plans.items()) if each.paused]
        name = self.random.choice(paused or ["nobody"])

        def change(state: State) -> None:
            plan = state.plans[name]
            plan.paused = ""
            plan.next = first_after(plan.cron, max(self._now(), plan.last or self._now()))

        self._changed(name, lambda handle: handle.resume(), change)

    def _at_once(self) -> None:
        name = self._any()

        def change(state: State) -> None:
            plan = state.plans[name]
            state.published.append((plan.topic, text(self._now()), plan.body))

        self._changed(name, lambda handle: handle.run_now(), change)

    def _remove(self) -> None:
        name = self._any()
        self._changed(name, lambda handle: handle.remove(), lambda state: state.plans.pop(name))

    def _changed(
        self,
        name: str,
        call: Callable[[ScheduleHandle], object],
        change: Callable[[State], object],
    ) -> None:
        if name in self.done.plans:
            handle = self.engine.scheduled(name)
            self._call(lambda: call(handle), change)

    def _wait(self) -> None:
        self._passes(self.random.choice((20, 59, 60)))

    def _moment(self) -> None:
        self._passes(self.random.choice((0.5, 5)))

    def _sleep(self) -> None:
        self._passes(self.random.choice((61, 600, 2400)))

    def _passes(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._call(lambda: None, lambda _: None)

    def _back(self) -> None:
        self.clock.set_wall_clock(self.clock.time_us() - 90_000_000)
        self._call(lambda: None, lambda _: None)

    def _forward(self) -> None:
        self.clock.set_wall_clock(self.clock.time_us() + 1_800_000_000)
        self._call(lambda: None, lambda _: None)

    def _take(self) -> None:
        for topic in ("t", "u"):
            with self.engine.consumer(topic, group="g") as consumer:
                for each in consumer.poll(limit=5):
                    each.ack()

    def _fill(self) -> None:
        with suppress(UsageError):
            self.engine.send("f", bytes(1800))

    def _checkpoint(self) -> None:
        self.engine.checkpoint()

    def _reopen(self) -> None:
        self.engine.close()
        self.engine = self._opened(self.disk, self.clock)
        self._call(lambda: None, lambda _: None)

    def _drop(self) -> None:
        if self.random.random() < 0.3:
            with suppress(UsageError):
                self._call(self.engine.topic("u").delete, lambda state: state.forget("u"))

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows what must be there."""
        clock = FakeClock(self.clock.time_us())
        engine = self._opened(disk, clock)
        try:
            engine.sync()
            problems = []
            for state in (self.done, self.going):
                state = deepcopy(state)
                state.publish(self._now(clock))
                problem = self._problem(engine, state)
                if not problem:
                    break
                problems.append(problem)
            else:
                raise Violation("I1", " - and not - ".join(problems))
            if full:
                clock.advance(3600)
                state.publish(self._now(clock))
                engine.sync()
                if problem := self._problem(engine, state):
                    raise Violation("I1", f"an hour later: {problem}")
        finally:
            engine.close()
        if full and (found := fmq.check(PATH, disk=disk).problems):
            raise Violation("I0", f"{found}")

    def _problem(self, engine: fmq.Engine, state: State) -> str:
        """Return what differs from `state`; "" if nothing does."""
        shown = {
            each.name: (
                *(each.cron, each.topic, each.missed, each.body, each.next, each.last),
                each.paused.reason if each.paused else "",
            )
            for each in engine.schedules()
        }
        wanted = {name: plan.shown() for name, plan in state.plans.items()}
        if shown != wanted:
            return f"schedules are {shown}, and not {wanted}"
        for topic in ("t", "u"):
            found = published(engine, topic)
            mine = [each for each in state.published if each[0] == topic]
            # Retention may have dropped the first ones. Of several that were due at one time, it
            # may have dropped any.
            kept = mine[len(mine) - len(found) :]
            is_kept = sorted(map(itemgetter(1), found)) == sorted(map(itemgetter(1), kept))
            if found and (not is_kept or Counter(found) - Counter(mine)):
                return f"published are {found}, and not {mine}"
            if len(mine) != sum(each.next for each in engine.queues(topic)):
                return f"{topic} had {sum(each.next for each in engine.queues(topic))}, not {mine}"
        return ""


def published(engine: fmq.Engine, topic: str) -> list[Published]:
    """Return what schedules have published, as far as it is kept."""
    found = []
    for queue in engine.queues(topic):
        for each in engine.read(topic, queue=queue.queue, offset=queue.first, limit=9999):
            found.append((topic, (each.headers or {})["fmq-due"], bytes(each.body)))
    return found
