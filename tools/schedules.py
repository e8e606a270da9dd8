#!/usr/bin/env python3
"""Schedules that two processes say, while both are killed and their clock is set.

    python tools/schedules.py DIR --seed 7 --minutes 3

Two processes say the same schedules. One of them has the directory open, and the other one takes
over when that is killed. Every few seconds one is killed with SIGKILL, or the clock of both is set
forward or back by up to ten minutes. Their time passes 60 times as fast as that of the machine, and
begins some minutes before the clocks of Berlin go back. In the end the messages are compared with
all minutes of the clock on the wall: each due time is there once, or it was late by more than a
minute, and then an earlier one stands for it.
"""

from __future__ import annotations

import argparse
import mmap
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

sys.path.insert(0, str(Path(__file__).parent.parent))

import fmq
from fmq.basics.clock import Waitable, as_datetime, as_us
from fmq.errors import FmqError, Locked

SPEED = 60.0
ZONE = "Europe/Berlin"
START = datetime(2026, 10, 24, 23, 50, tzinfo=UTC)  # it is 1:50 in Berlin
MINUTE = timedelta(minutes=1)
JUMP_SECONDS = 600.0
WORKERS = 2
SETTLING_SECONDS = 60.0  # at most, on a busy machine
TOPIC = "ticks"


class Cron(NamedTuple):
    """A cron expression, and whether it names a minute of the wall clock."""

    text: str
    names: Callable[[datetime], bool]


# A fixed time comes once in the night in which its hour comes twice.
CRONS = {
    "each": Cron("* * * * *", lambda at: True),
    "fifth": Cron("*/5 * * * *", lambda at: at.minute % 5 == 0),
    "fixed": Cron("30 2 * * *", lambda at: (at.hour, at.minute, at.fold) == (2, 30, 0)),
}


class FastClock:
    """A clock that runs fast, and that all processes which have its file see set at once."""

    def __init__(self, file: Path, zero: float) -> None:
        """`zero` is when it was at START, by the monotonic clock of the machine."""
        self._zero = zero
        with file.open("r+b") as opened:
            self._set = mmap.mmap(opened.fileno(), 8)

    def set_by(self, seconds: float) -> None:
        """Set it forward, or back."""
        set_us = int.from_bytes(self._set[:8], "little", signed=True) + round(seconds * 1_000_000)
        self._set[:8] = set_us.to_bytes(8, "little", signed=True)

    def time_us(self) -> int:
        passed = (time.monotonic() - self._zero) * SPEED
        set_us = int.from_bytes(self._set[:8], "little", signed=True)
        return as_us(START) + round(passed * 1_000_000) + set_us

    def monotonic(self) -> float:
        return time.monotonic() * SPEED

    def wait(self, lock: Waitable, timeout: float | None) -> bool:
        return lock.acquire() if timeout is None else lock.acquire(True, timeout / SPEED)


def work(directory: str, clock: FastClock) -> None:
    """Say the schedules, and publish them while the directory is ours, until we are killed."""

    def say(engine: fmq.WritingEngine) -> None:
        for name, cron in CRONS.items():
            engine.schedule(name, cron.text, TOPIC, b"", timezone=ZONE)

    while True:
        with suppress(Locked), fmq.open(directory, clock=clock) as engine, engine.serve():
            say(engine)
            while True:
                time.sleep(1.0)
        with suppress(FmqError), fmq.connect(directory, start=False, retry_for=0.0) as client:
            say(client)
        time.sleep(0.05)


class Tick(NamedTuple):
    """A message of a schedule: the time that was due, and when it was published."""

    due: datetime
    published: datetime


def ticks_of(directory: Path) -> dict[str, list[Tick]]:
    """Return what each schedule has published, in the order of the topic."""
    found: dict[str, list[Tick]] = {name: [] for name in CRONS}
    with fmq.open(directory, read_only=True) as engine:
        for each in engine.read(TOPIC, limit=1 << 20):
            assert each.headers is not None
            assert each.time is not None
            due = datetime.fromisoformat(each.headers["fmq-due"])
            found[each.headers["fmq-schedule"]].append(Tick(due, each.time))
    return found


def settle(directory: Path, wanted: Callable[[], datetime]) -> None:
    """Wait until each minute up to `wanted` is published."""
    deadline = time.monotonic() + SETTLING_SECONDS
    while time.monotonic() < deadline:
        with suppress(FmqError, OSError):
            if (ticks := ticks_of(directory)["each"]) and ticks[-1].due >= wanted():
                return
        time.sleep(0.5)


def wrong(cron: Cron, ticks: list[Tick], until: datetime) -> Iterator[str]:
    """Yield what is wrong with the messages of a schedule: each due time is to be there once, up to
    the last one before `until`, when all that is due was published.
    """
    dues = [each.due for each in ticks]
    if dues != sorted(set(dues)):
        yield "a due time comes twice, or before an earlier one"
    zone = ZoneInfo(ZONE)
    for at in dues:
        if at.second or at.microsecond or not cron.names(at.astimezone(zone)):
            yield f"{at} is published, and is none of its times"
    for one, other in pairwise(ticks):
        at = one.due + MINUTE
        while at < other.due:
            # Of what was missed, the first is published, and stands for the rest.
            was_late = one.published - at > MINUTE
            if cron.names(at.astimezone(zone)) and not was_late:
                yield f"{at} is missing, and was not late"
            at += MINUTE
    at = (dues[-1] if dues else START + 39 * MINUTE) + MINUTE
    while at < until:
        if cron.names(at.astimezone(zone)):
            yield f"{at} is missing, and so is all behind it"
            return
        at += MINUTE


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", metavar="DIR", type=Path, help="must not exist")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--every", type=float, default=4.0, help="seconds from kill to kill")
    parser.add_argument("--zero", type=float, help=argparse.SUPPRESS)
    args = parser.parse_args()
    file = args.directory.with_suffix(".clock")
    if args.zero is not None:
        work(str(args.directory), FastClock(file, args.zero))
    file.write_bytes(bytes(8))
    zero, rng = time.monotonic(), random.Random(args.seed)
    clock = FastClock(file, zero)
    command = [sys.executable, __file__, str(args.directory), "--zero", str(zero)]
    workers = [subprocess.Popen(command) for _ in range(WORKERS)]
    kills = jumps = 0
    try:
        settle(args.directory, lambda: START)  # each schedule is said before its first time
        while time.monotonic() < zero + args.minutes * 60:
            time.sleep(rng.uniform(0.5, 1.5) * args.every)
            if rng.random() < 0.4:
                jumps += 1
                clock.set_by(rng.uniform(-JUMP_SECONDS, JUMP_SECONDS))
                continue
            kills += 1
            number = rng.randrange(WORKERS)
            workers[number].send_signal(signal.SIGKILL)
            workers[number].wait()
            workers[number] = subprocess.Popen(command)
        settle(args.directory, lambda: as_datetime(clock.time_us()) - 3 * MINUTE)
        now = as_datetime(clock.time_us())
    finally:
        for each in workers:
            each.kill()
            each.wait()
    found, problems = ticks_of(args.directory), 0
    for name, cron in CRONS.items():
        for said in wrong(cron, found[name], now - 5 * MINUTE):
            problems += 1
            print(f"{name}: {said}")
    many = ", ".join(f"{len(ticks):,} of {name}" for name, ticks in found.items())
    said = f"{kills} kills, the clock set {jumps} times, {problems} problems, until {now:%H:%M} UTC"
    print(f"seed {args.seed}: {many}; {said}")
    return int(problems > 0 or not found["each"])


if __name__ == "__main__":
    sys.exit(main())
