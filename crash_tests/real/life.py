"""One life of a store, as its killer sees it: begin a process, listen, end it, and check.

The processes come from a fork server, which has imported everything once and runs no threads:
a fresh interpreter for each would cost more than all that is tried.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import fmq
from crash_tests.oracle import Lane, Place, Violation
from crash_tests.real import load
from crash_tests.real.load import Life
from crash_tests.real.promises import Promises
from fmq.errors import Locked, OffsetGone

SECONDS_MAX = 60.0  # how long a life may report nothing
LOOK_BACK = 30  # how many messages a look from outside reads back

processes = multiprocessing.get_context("forkserver")
# By name, because this file imports none of them. One that cannot be imported is left out.
PRELOAD = ("crash_tests.bound.producer", "crash_tests.bound.postgres")
processes.set_forkserver_preload([load.__name__, *PRELOAD])


@dataclass(frozen=True, slots=True)
class Moment:
    """When a life ends: after some time, after some acknowledgements, or after the first
    acknowledgement from a new segment.
    """

    seconds: float
    events: int = 0
    rolled: bool = False

    def __str__(self) -> str:
        after = f"{self.events} acknowledgements" if self.events else "its beginning"
        return f"{self.seconds * 1000:.1f} ms after {'a roll' if self.rolled else after}"


NEVER = Moment(0, 1 << 60)


def some_moment(random: Random, events_max: int) -> Moment:
    """Return a moment within recovery, right after its report, right after a roll, or anywhere
    under load.
    """
    soon = random.choice((0.0, random.expovariate(500)))
    choice = random.random()
    if choice < 0.15:
        return Moment(random.uniform(0, 0.15))
    if choice < 0.4:
        return Moment(soon, rolled=True)
    return Moment(soon, random.choice((1, random.randint(1, events_max))))


def spend(
    life: Life,
    moment: Moment,
    promises: Promises,
    end: Callable[[], float] | None = None,
    *,
    linger: bool = False,
    watched: bool = False,
) -> bool:
    """Let `life` go on until `moment`. Return whether it had closed its store by then.

    `end` is what happens to the store at that moment, and returns the time.monotonic() at which it
    began: a call that returned later is in doubt. Then the process is killed, or, to `linger`, must
    find out and end by itself. If it is `watched`, another process looks in just before. Violation
    if what was seen breaks a promise.
    """
    reader, writer = processes.Pipe(duplex=False)
    process = processes.Process(target=load.main, args=(life, writer))
    process.start()
    writer.close()
    ear = Ear(reader, life, promises)
    try:
        ear.listen_until(moment)
        if watched:
            ear.look_in()
        if end is not None:
            ear.listen_to_what_was_said()
            ear.ended = True
            ear.cut_at = end()
        ear.ended = True
        if not linger:
            process.kill()
        ear.listen_to_the_end()
        if end is None and not linger:
            process.join()  # until then it may have the page, or take it away
            ear.look_again()
        return ear.closed
    finally:
        process.kill()
        process.join()
        process.close()
        reader.close()


class Ear:
    """Takes the reports of a life, and compares them with what was promised."""

    def __init__(self, pipe: Connection, life: Life, promises: Promises) -> None:
        self._pipe = pipe
        self._life = life
        self._promises = promises
        self._over = False
        self._shown: dict[Lane, int] = {}  # the last offset of each queue that a reader was shown
        self.heard = 0
        self.closed = False
        self.ended = False  # from now on an engine may fail
        self.cut_at = float("inf")  # when a power cut began

    def listen_until(self, moment: Moment) -> None:
        segment = self._segment()
        while not self._over and (
            self.heard < moment.events or (moment.rolled and self._segment() == segment)
        ):
            self._listen(SECONDS_MAX)
        until = time.monotonic() + moment.seconds
        while not self._over and (left := until - time.monotonic()) > 0 and self._pipe.poll(left):
            self._listen(0)

    def _segment(self) -> int:
        return self._promises.reach // self._life.options.segment_bytes

    def look_in(self) -> None:
        """Check that another process cannot write, may read, and is shown only what is promised
        from then on.
        """
        if self._over or not self.heard:
            return
        shown = look_from_outside(self._life.path)
        self._shown = {}
        for (topic, queue, offset), _ in shown:
            self._shown[topic, queue] = offset
        self.listen_to_what_was_said()
        for place, body in shown:
            self._promises.shown(place, body)

    def look_again(self) -> None:
        """Check that a new reader is shown everything that a reader was shown before the kill."""
        if not self._shown:
            return
        with fmq.open(self._life.path, read_only=True) as engine:
            now = {(each.topic, each.queue): each.next for each in engine.queues()}
        for lane, offset in self._shown.items():
            if now.get(lane, 0) <= offset:
                what = f"of {lane} {offset} was shown before the kill, and then {now.get(lane)}"
                raise Violation("I21", what)

    def listen_to_what_was_said(self) -> None:
        while not self._over and self._pipe.poll(0):
            self._listen(0)

    def listen_to_the_end(self) -> None:
        while not self._over:
            self._listen(SECONDS_MAX)
        if not (self.closed or self.ended):
            raise Violation("alive", "the process ended, and nothing had happened to it")

    def _listen(self, seconds: float) -> None:
        if not self._pipe.poll(seconds):
            raise Violation("alive", f"nothing was heard for {seconds} seconds")
        try:
            event = self._pipe.recv()
        except (EOFError, OSError):  # the latter in the middle of a word
            self._over = True
        else:
            self._take(*event)

    def _take(self, at: float, what: str, *said: Any) -> None:
        """Take an event that was reported at the time `at`, after the call that it is about."""
        self.heard += 1
        self._promises.in_doubt = at >= self.cut_at
        match what:
            case "seen":
                self._promises.check(*said)
                self._promises.begin(self._life.number, self._life.threads)
            case "did" | "acks" | "deciding" | "decided":
                getattr(self._promises, what)(*said)
            case "closed":
                self.closed = not self.ended
            case "failed" if self.ended:
                pass
            case "failed":
                raise Violation("alive", f"{said[0]}, and nothing had happened to it")
            case "broke":
                raise Violation(*said)


def look_from_outside(path: str) -> list[tuple[Place, bytes]]:
    """Return what a reader sees last of each queue, in a store that a living process writes."""
    try:
        fmq.open(path).close()
    except Locked:
        pass
    else:
        raise Violation("alone", "a second process could open it for writing")
    shown = []
    with fmq.open(path, read_only=True) as engine:
        for each in engine.queues():
            start = max(each.first, each.next - LOOK_BACK)
            with suppress(OffsetGone):
                for message in engine.read(each.topic, queue=each.queue, offset=start):
                    assert message.offset is not None
                    place = each.topic, each.queue, message.offset
                    shown.append((place, bytes(message.body)))
    return shown
