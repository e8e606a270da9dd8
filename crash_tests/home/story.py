"""Machines that share one home. This one sends, prepares, decides and drops what is old. Others
take over in the middle of its calls, or it works on in the middle of their take-over. Answers of
the home are lost, and so are machines.

At each operation of the local disk and at each call to the home this machine may be lost. What is
left is judged twice: another engine opens the home with what the crash has left of the directory,
and one opens it with an empty directory. Both must show the same: all that was acknowledged, once,
in order, nothing by halves, and nothing of which a caller was told that it was not sent.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random
from threading import Event, Thread
from time import sleep
from typing import NamedTuple

import fmq
from crash_tests.engines import PATH, let_go
from crash_tests.oracle import Violation
from fmq.errors import EngineFailed, TakenOver
from fmq.home.home_calls import slot_key
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.home.home_owner import HomeOwner
from fmq.machine.disk import home_of
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fake_home import FakeObjects

KINDS = (
    *("send", "send", "send", "commit", "prepare", "decide", "fill", "checkpoint", "checkpoint"),
    *("reopen", "rival", "rival", "overtaken", "overtaken", "lose", "wait", "both", "both"),
)
STEPS = 16
RETAIN_SECONDS = 100
OBJECT_BYTES = 400  # so that larger appends have several entries
LOST_ANSWERS = 0.05  # the share of the calls to the home whose answer, or which, is lost
RIVAL_CALLS = 70  # a rival takes over within so many calls to the home
OWNER_CALLS = 20  # the old owner works before one of so many calls of a take-over


class WatchedDisk(CrashDisk):
    """A CrashDisk whose watcher can also be called by the story."""

    def watch(self, watcher: Callable[[str], None] | None) -> None:
        self.watcher = watcher
        super().watch(watcher)

    watcher: Callable[[str], None] | None = None


class Seen(NamedTuple):
    """What an engine shows."""

    bodies: tuple[bytes, ...]
    undecided: tuple[str, ...]
    first: int


class Story:
    """The home, this machine, and what was promised so far by all machines."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.clock = FakeClock()
        self.home_clock = FakeClock()  # passes while a thread waits for an answer of the home
        self.options = fmq.Options(
            segment_bytes=4096,
            checkpoint_bytes=3000,
            topic_queues={"t": 1},
            relocate_bytes=6000,
            retain_seconds=RETAIN_SECONDS,
        )
        self.home: dict[str, bytes] = {}
        self.disk = WatchedDisk()
        self.machines = 0
        self.acked: list[bytes] = []  # bodies, in the order in which they were acknowledged
        # The moments at which a call with this body was begun last, and was answered.
        self.begun: dict[bytes, int] = {}
        self.answered: dict[bytes, int] = {}
        self.moment = 0
        self.young_from = 0  # how many of them retention may have dropped
        self.doubtful: set[bytes] = set()
        self.refused: set[bytes] = set()
        self.together: list[tuple[bytes, ...]] = []  # bodies that are there all or not at all
        self.prepared: dict[str, bytes] = {}
        self.undecided: set[str] = set()  # those that must be undecided
        self.unsure: set[str] = set()  # those of which no call has said what they are
        self.numbers = 0
        self.depth = 0
        self.rival_at = 0
        self.engine = self._opened(self.disk, self._watched())
        with suppress(EngineFailed):
            self.engine.create_topic("t")

    # --- machines -------------------------------------------------------------------------------

    def _objects(self) -> FakeObjects:
        """Return a machine's own way to the home, on which answers are lost."""
        objects = FakeObjects(self.home, object_bytes_max=OBJECT_BYTES)
        for number in range(2000):
            if self.random.random() < LOST_ANSWERS:
                lost = objects.lost_answers if self.random.random() < 0.5 else objects.lost_calls
                lost.add(number)
        return objects

    def _watched(self) -> FakeObjects:
        self.objects = objects = self._objects()

        def before(what: str) -> None:
            if self.rival_at:
                self.rival_at -= 1
                if not self.rival_at:
                    self._another_takes_over()
            if self.disk.watcher is not None:
                self.disk.watcher(what)

        objects.before = before
        return objects

    def _opened(self, disk: CrashDisk, objects: FakeObjects) -> fmq.Engine:
        while True:
            self.machines += 1
            number, drawn = self.machines, Random(self.machines)
            what = drawn.randbytes, self.home_clock, {"host": f"machine {number}", "pid": number}
            log = HomeLog(objects, *what, retry_seconds=30, floor_slots=1)
            home = HomeDisk(disk, log)
            with suppress(TakenOver):  # another one has taken over at the same moment
                return fmq.open(PATH, self.options, disk=home, clock=self.clock, background=False)

    def _another_takes_over(self) -> None:
        """Let another machine take over, work and end, at this very call of a machine."""
        self.depth += 1
        watcher, self.disk.watcher = self.disk.watcher, None
        self._take_over(CrashDisk(), self._met_by_a_third())
        self.disk.watcher = watcher
        self.depth -= 1

    def _met_by_a_third(self) -> FakeObjects:
        objects = self._objects()
        if self.depth < 3 and self.random.random() < 0.4:
            # A third machine takes over in the middle of the second one.
            at = [self.random.randrange(40)]

            def before(_: str) -> None:
                at[0] -= 1
                if at[0] == 0:
                    self._another_takes_over()

            objects.before = before
        return objects

    def _take_over(self, disk: CrashDisk, objects: FakeObjects) -> None:
        engine = self._opened(disk, objects)
        for _ in range(self.random.randrange(4)):
            kind = self.random.choice(("send", "commit", "fill", "checkpoint"))
            with suppress(EngineFailed):
                getattr(self, f"_{kind}")(engine)
        with suppress(EngineFailed):
            engine.close()

    # --- the steps ------------------------------------------------------------------------------

    def tell(self) -> None:
        """Make all steps. An engine that another machine has fenced is opened again."""
        for kind in self.random.choices(KINDS, k=STEPS):
            try:
                getattr(self, f"_{kind}")(self.engine)
            except EngineFailed:
                self._again(self.disk)
        self.rival_at = 0
        self._again(self.disk)
        self._check(seen_in(self.engine), "at the end")
        self.engine.close()

    def _again(self, disk: CrashDisk) -> None:
        with suppress(EngineFailed):
            self.engine.close()
        self.engine = self._opened(disk, self._watched())

    def _body(self, *, small: bool = False) -> bytes:
        self.numbers += 1
        size = 9 if small else self.random.choice((9, 300, 900))
        return b"%d " % self.numbers + self.random.randbytes(size)

    def _promised(self, bodies: tuple[bytes, ...], call: Callable[[], object]) -> None:
        """Make a call that publishes `bodies`, and note what became of it."""
        self.together.append(bodies)
        self.doubtful.update(bodies)
        self.moment += 1
        self.begun.update(dict.fromkeys(bodies, self.moment))
        try:
            call()
        except TakenOver:
            self.doubtful.difference_update(bodies)
            self.refused.update(bodies)
            raise
        self.doubtful.difference_update(bodies)
        self.acked.extend(bodies)
        self.moment += 1
        self.answered.update(dict.fromkeys(bodies, self.moment))

    def _send(self, engine: fmq.Engine, *, small: bool = False) -> None:
        body = self._body(small=small)
        self._promised((body,), lambda: engine.send("t", body))

    def _both(self, engine: fmq.Engine) -> None:
        """Send two at once: the entry of the second is in the home while that of the first is on
        its way. Then another machine may take over, which puts its own in the place of the first.
        """
        if not engine._door.parts.journal.fits(1000):
            return  # a roll waits for what is on its way
        objects, failed, landed = self.objects, list[BaseException](), Event()
        owner = home_of_engine(engine)
        keys = [f"create {slot_key(owner.history.next + each)}" for each in (0, 1)]
        before, after = objects.before, objects.after
        is_overtaken = self.random.random() < 0.3

        def send() -> None:
            try:
                self._send(engine, small=True)
            except BaseException as error:
                failed.append(error)
                landed.set()

        other = Thread(target=send)

        def first_begins(what: str) -> None:
            before(what)
            if what == keys[0] and other.ident is None:
                other.start()
                self._until(landed.is_set)
                if is_overtaken:
                    self._another_takes_over()

        objects.before = first_begins
        objects.after = lambda what: landed.set() if what == keys[1] else None
        try:
            self._send(engine, small=True)
        finally:
            objects.before, objects.after = before, after
            if other.ident is not None:
                self._until(lambda: not other.is_alive())
        if failed:
            raise failed[0]

    def _until(self, done: Callable[[], bool]) -> None:
        """Let time pass for another thread, which waits for a home without an answer."""
        while not done():
            sleep(0.0005)
            self.home_clock.advance(0.01)

    def _commit(self, engine: fmq.Engine) -> None:
        bodies = self._body(), self._body()

        def call() -> None:
            with engine.transaction() as tx:
                for body in bodies:
                    tx.send("t", body)

        self._promised(bodies, call)

    def _prepare(self, engine: fmq.Engine) -> None:
        body, tx_id = self._body(), f"T{self.numbers}"
        self.prepared[tx_id] = body
        self.unsure.add(tx_id)
        tx = engine.transaction(tx_id=tx_id)
        tx.send("t", body)
        tx.prepare()
        self.unsure.discard(tx_id)
        self.undecided.add(tx_id)

    def _decide(self, engine: fmq.Engine) -> None:
        for each in engine.undecided()[:1]:
            tx_id, body = each.tx_id, self.prepared[each.tx_id]
            self.undecided.discard(tx_id)
            self.unsure.add(tx_id)
            if self.random.random() < 0.5:
                engine.decide(tx_id, "rollback")
            else:
                try:
                    self._promised((body,), partial(engine.decide, tx_id, "commit"))
                except TakenOver:
                    # The decision was not written, so a later one may commit.
                    self.refused.discard(body)
                    self.undecided.add(tx_id)
                    self.unsure.discard(tx_id)
                    raise
            self.unsure.discard(tx_id)

    def _fill(self, engine: fmq.Engine) -> None:
        engine.send_many("others", [bytes(900)] * 3)

    def _checkpoint(self, engine: fmq.Engine) -> None:
        engine.checkpoint()

    def _reopen(self, _: fmq.Engine) -> None:
        self._again(self.disk)

    def _rival(self, _: fmq.Engine) -> None:
        """Let another machine take over at some later call to the home."""
        self.rival_at = self.random.randrange(1, RIVAL_CALLS)

    def _overtaken(self, engine: fmq.Engine) -> None:
        """Let another machine take over, and this one work on in the middle of that."""
        objects, at = self._objects(), [self.random.randrange(OWNER_CALLS)]

        def before(_: str) -> None:
            at[0] -= 1
            if at[0] == 0:
                with suppress(EngineFailed):
                    for kind in self.random.choices(("send", "commit", "fill", "checkpoint"), k=3):
                        getattr(self, f"_{kind}")(engine)

        objects.before = before
        self._take_over(CrashDisk(), objects)

    def _lose(self, _: fmq.Engine) -> None:
        """Lose this machine: another one goes on, with an empty directory."""
        watcher, self.disk.watcher = self.disk.watcher, None
        self.disk.watch(None)
        let_go(self.engine, self.disk)
        self.disk = WatchedDisk()
        self.disk.watch(watcher)
        self.engine = self._opened(self.disk, self._watched())

    def _wait(self, engine: fmq.Engine) -> None:
        """Let everything become old, and let retention drop what it may."""
        self.young_from = len(self.acked)
        self.clock.advance(2 * RETAIN_SECONDS)
        self._fill(engine)

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless machines that open the home now show what was promised."""
        here = self._look(disk, self.home, full=full)
        elsewhere = self._look(CrashDisk(), self.home, full=False)
        if not full and here != elsewhere:
            raise Violation("I10", "a directory and an empty one show different states of the home")

    def _look(self, disk: CrashDisk, home: dict[str, bytes], *, full: bool) -> Seen:
        machines, objects = self.machines, FakeObjects(dict(home), object_bytes_max=OBJECT_BYTES)
        try:
            with self._opened(disk, objects) as engine:
                seen = seen_in(engine)
                self._check(seen, "after a crash")
                if full:
                    engine.send("t", b"more")
                    engine.checkpoint()
            if full:
                with self._opened(CrashDisk(), FakeObjects(objects.objects)) as engine:
                    if seen_in(engine).bodies[-1] != b"more":
                        raise Violation("I1", "what was sent after a crash is lost")
        finally:
            self.machines = machines
        return seen

    def _check(self, seen: Seen, when: str) -> None:
        """Raise Violation unless `seen` is all that was promised."""
        bodies = [each for each in seen.bodies if each != b"more"]
        there = set(bodies)
        if len(there) < len(bodies):
            raise Violation("I1", f"{when}: a message is there twice")
        if lost := [each for each in self.acked[self.young_from :] if each not in there]:
            raise Violation("I1", f"{when}: message {lost[0][:4]!r} was acknowledged, and is lost")
        if found := there & self.refused:
            raise Violation("I1", f"{when}: {min(found)[:4]!r} is there, and was refused")
        known = {*self.acked, *self.doubtful, *self.prepared.values()}
        if strange := there - known:
            raise Violation("I3", f"{when}: {min(strange)[:4]!r} was never sent")
        old = {*self.acked[: self.young_from]}
        for group in self.together:
            some = there & {*group}
            if some and some != {*group} and not old & {*group}:
                raise Violation("I2", f"{when}: {group[0][:4]!r} is there by halves")
        latest = 0
        for each in bodies:
            # A call that another machine has interrupted may be answered late, and rightly so.
            if self.answered.get(each, self.moment) < latest:
                raise Violation("I1", f"{when}: {each[:4]!r} comes after what was sent after it")
            latest = max(latest, self.begun.get(each, 0))
        undecided = {*seen.undecided}
        if lost_ids := self.undecided - undecided:
            raise Violation("I4", f"{when}: {min(lost_ids)} was prepared, and is not undecided")
        if strange_ids := undecided - self.undecided - self.unsure:
            raise Violation("I5", f"{when}: {min(strange_ids)} was decided, and is undecided")


def home_of_engine(engine: fmq.Engine) -> HomeOwner:
    home = home_of(engine._door._directory)
    assert isinstance(home, HomeOwner)
    return home


def seen_in(engine: fmq.Engine) -> Seen:
    queues = engine.queues("t")
    first = queues[0].first if queues else 0
    found = engine.read("t", offset=first, limit=9999) if queues else []
    undecided = tuple(each.tx_id for each in engine.undecided())
    return Seen(tuple(bytes(each.body) for each in found), undecided, first)
