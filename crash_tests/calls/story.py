"""One round: callers on one engine, crashes beside them, and what must be there afterwards."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from random import Random
from traceback import format_stack
from typing import Any, NamedTuple

import fmq
from crash_tests.calls.arguments import GROUPS, TOPICS
from crash_tests.calls.caller import Caller, Hands, Promises
from crash_tests.calls.faces import LoopOfThread, Server
from crash_tests.directories import without_derived
from crash_tests.engines import PATH, abandon, let_go
from crash_tests.oracle import Violation
from crash_tests.threads.choosers import Restless
from crash_tests.threads.scheduler import Scheduler
from fmq import Engine, Options
from fmq.errors import NotAStore, UnknownGroup, UnknownTransaction
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.awaited import AwaitedEngine
from fmq.testing.inside import end_as_killed
from fmq.testing.losses import random_loss

MANNERS = "in turns", "clients", "threads"
STEPS = 40  # how many steps all callers of a round make together
PATIENCE_SECONDS = 60.0  # how long one call may take
WAIT_SECONDS_MAX = 10.0  # by the clock of the round; a call asks for one second at most
TURN_SECONDS = 0.001
CRASHES = 3  # how many crashes a round keeps
STEPS_AFTER = 12  # how many steps follow in the next life


class Crash(NamedTuple):
    """A disk that the round has left at some moment, and what was promised by then."""

    disk: CrashDisk
    sent: int
    committed: int
    what: str


class Story:
    """A round, drawn by a seed."""

    def __init__(self, seed: int, manner: str = "") -> None:
        """`manner`, one of MANNERS, is how the callers meet."""
        self.seed = seed
        self.manner = manner = manner or MANNERS[seed % len(MANNERS)]
        self._random = random = Random(f"{seed} {manner}")
        self.options = _options(random)
        self.promises = Promises()
        self.hands = Hands()
        self.crashes: list[Crash] = []
        self._engines: list[Engine] = []
        self._loops: list[LoopOfThread] = []
        self.disk = CrashDisk()
        self.calls = 0
        self.recoveries = 0
        self._failures: list[BaseException] = []
        self._crash_at = {random.randrange(400) for _ in range(CRASHES)}
        self._operations = 0
        self._clock: FakeClock = FakeClock()

    @property
    def keeps_all(self) -> bool:
        """Return whether retention drops nothing."""
        return self.options.retain_bytes is None and self.options.retain_seconds is None

    # --- telling --------------------------------------------------------------------------------

    def tell(self) -> None:
        """Make all calls, and check what is left. Raises Violation."""
        try:
            {"in turns": self._in_turns, "threads": self._as_threads, "clients": self._as_clients}[
                self.manner
            ]()
            for crash in self.crashes:
                self._judge(crash)
        except BaseException:
            for engine in self._engines:
                end_as_killed(engine)
            raise
        finally:
            for loop in self._loops:
                loop.let_go()

    def _open(self, disk: CrashDisk, *, background: bool = False) -> Engine:
        self.recoveries += 1
        engine = fmq.open(PATH, self.options, disk=disk, clock=self._clock, background=background)
        self._engines.append(engine)
        return engine

    def _caller(self, name: str, engine: Any, hands: Hands | None = None) -> Caller:
        return Caller(
            name,
            engine,
            self.hands if hands is None else hands,
            self.promises,
            Random(f"{self.seed} {self.manner} {name}"),
            self._clock.time_us,
            waits=self.options.sync == "always",
            move_clock=self._move_clock,
        )

    def _caller_in_thread(self, name: str, engine: Engine) -> Caller:
        """Return a caller for a thread of its own. The fourth one uses fmq.aio, and what it gets is
        for itself.
        """
        if name != "D":
            return self._caller(name, engine)
        hands = Hands()
        hands.said = self.hands.said
        self._loops.append(loop := LoopOfThread(engine))
        return self._caller(name, loop, hands)

    def _move_clock(self, random: Random) -> None:
        if random.random() < 0.9:
            self._clock.advance(random.choice((0.001, 0.3, 2, 10, 40)))
        else:
            self._clock.set_wall_clock(self._clock.time_us() + random.choice((-9, 9)) * 1_000_000)

    def _note(self, operation: str) -> None:
        """Keep what a crash would leave, before an operation of the disk."""
        self._operations += 1
        if self._operations - 1 in self._crash_at:
            self._crash(f"operation {self._operations - 1}, {operation}")

    def _crash(self, what: str) -> None:
        known = len(self.promises.sent), len(self.promises.committed)
        kill = self.disk.after_kill()
        self.crashes.append(Crash(kill, *known, f"a kill at {what}"))
        losses = [*islice(self.disk.losses(), 2)]
        losses.append(random_loss(self.disk.pending(), self._random))
        for each in losses:
            self.crashes.append(Crash(self.disk.after(each), *known, f"a power cut at {what}"))

    def _end(self, engine: Engine, *, has_threads: bool = False) -> None:
        """Kill or close the engine. Either must leave what was promised."""
        engine.stats()  # raises if the engine has failed
        self.disk.watch(None)
        if self._random.random() < 0.5:
            self._crash("the end")
        if self._random.random() < 0.5 and not has_threads:
            let_go(engine, self.disk)
            return
        engine.close()
        known = len(self.promises.sent), len(self.promises.committed)
        self.crashes.append(Crash(self.disk.after_kill(), *known, "its close"))

    def _work(self, caller: Caller, steps: int) -> None:
        for _ in range(steps):
            if self._failures:
                return
            caller.step()
        self.calls += caller.calls

    def _in_turns(self) -> None:
        """Run the callers as threads of which one runs at a time, in an order that follows from the
        seed.
        """
        random = self._random
        restless = Restless(Random(random.random()), random.choice((0.02, 0.1, 0.4)))
        scheduler = Scheduler(restless, lines=random.random() < 0.4)
        self._clock = scheduler.clock
        engine = self._open(self.disk)
        done = False
        try:
            self._work(self._caller("first", engine), 6)
            self.disk.watch(self._note)
            names = "ABCD"[: random.randint(2, 4)]
            for name in names:
                caller = self._caller(name, engine)
                scheduler.start(name, partial(self._work, caller, STEPS // len(names)))
            scheduler.run()
            scheduler.start("end", partial(self._end, engine))
            scheduler.run()
            done = True
        finally:
            self.disk.watch(None)
            if not done:
                scheduler.abandon()
                self.disk.stop()
                abandon(engine)

    def _as_threads(self) -> None:
        """Run the callers as threads at the same time, so that each run differs."""
        random = self._random
        background = random.random() < 0.3
        engine = self._open(self.disk, background=background)
        self._work(self._caller("first", engine), 6)
        self.disk.watch(self._note)
        names = "ABCD"[: random.randint(2, 4)]
        threads = []
        for name in names:
            caller = self._caller_in_thread(name, engine)
            work = partial(self._guarded, caller, STEPS * 3 // len(names))
            threads.append(threading.Thread(target=work, name=name, daemon=True))
        for thread in threads:
            thread.start()
        said, turns, until = -1, 0, 0.0
        while any(thread.is_alive() for thread in threads):
            self._clock.advance(TURN_SECONDS)  # threads that wait go on
            threads[0].join(TURN_SECONDS / 2)
            threads = [thread for thread in threads if thread.is_alive()]
            if said != len(self.hands.said):  # some call has ended, and another one begins
                said, turns, until = len(self.hands.said), 0, time.monotonic() + PATIENCE_SECONDS
            turns += 1
            # A turn takes long on a busy machine, so a wait of a second may take a minute.
            if turns * TURN_SECONDS > WAIT_SECONDS_MAX and time.monotonic() > until:
                raise Violation("I15", f"these do not end: {_standing(threads)}")
        if self._failures:
            self.disk.watch(None)
            raise self._failures[0]
        self._end(engine, has_threads=background)

    def _guarded(self, caller: Caller, steps: int) -> None:
        try:
            self._work(caller, steps)
        except BaseException as error:
            self._failures.append(error)

    def _as_clients(self) -> None:
        """Run the callers as clients of a server, and one in the server's process, call after
        call.
        """
        random = self._random
        engine = self._open(self.disk)
        self.disk.watch(self._note)
        server = Server(self.disk, self._clock, engine)
        clients: list[Any] = [
            server.begin_client(awaits=random.random() < 0.4) for _ in range(random.randint(1, 3))
        ]
        callers = [self._caller(f"client {n}", each, Hands()) for n, each in enumerate(clients)]
        here: Any = engine
        if random.random() < 0.3:
            here = AwaitedEngine(engine, self._clock, over_frames=False)
        callers.append(self._caller("here", here, Hands()))
        for caller in callers:
            caller._hands.said = self.hands.said
        for _ in range(STEPS * 2):
            random.choice(callers).step()
        self.calls += sum(caller.calls for caller in callers)
        for client in clients:
            client.close()
        server.close()
        self._end(engine)

    # --- what is left ---------------------------------------------------------------------------

    def _judge(self, crash: Crash) -> None:
        try:
            self._check(crash)
        except Violation:
            raise
        except Exception as error:
            raise Violation("I0", f"after {crash.what}: {error!r}") from error

    def _check(self, crash: Crash) -> None:
        disk = crash.disk.after_kill()
        engine = self._open(disk)
        self._check_promises(engine, crash)
        engine.close()
        _check_whole(disk, f"{crash.what}, and a recovery")
        seen = self._seen(disk.after_kill())
        again = self._seen(without_derived(disk))
        if seen != again and self.keeps_all:
            differ = [(a, b) for a, b in zip(seen, again, strict=True) if a != b]
            raise Violation("I9", f"after {crash.what}, without what is derived: {differ}")
        self._live_on(disk, crash.what)

    def _live_on(self, disk: CrashDisk, what: str) -> None:
        """Make a few calls in the next life: what it remembers must be sound, too."""
        engine = self._open(disk)
        caller = self._caller(f"after {what}", engine, Hands())
        caller._promises = Promises()
        caller._hands.said = self.hands.said
        for _ in range(STEPS_AFTER):
            caller.step()
        engine.close()
        _check_whole(disk, f"{what}, and another life")
        self._open(without_derived(disk)).close()

    def _check_promises(self, engine: Engine, crash: Crash) -> None:
        for receipts, bodies in self.promises.sent[: crash.sent]:
            count = sum(each.count for each in receipts)
            found = [body for each in receipts for body in self._found(engine, each, crash.what)]
            if len(found) == count and bodies and tuple(sorted(found)) != bodies:
                raise Violation("I1", f"{receipts} have {found} after {crash.what}, not {bodies}")
        for tx_id in self.promises.committed[: crash.committed]:
            if self.keeps_all and self.options.outcome_window_seconds is None:
                state = engine.outcome(tx_id).state
                if state != "committed":
                    raise Violation("I5", f"{tx_id} is {state} after {crash.what}")

    def _found(self, engine: Engine, receipt: Any, what: str) -> list[bytes]:
        """Return the bodies of a receipt that retention has not dropped."""
        topic, queue, offset = receipt.topic, receipt.queue, receipt.offset
        first = engine.queues(topic)[queue].first
        gone = max(0, min(first - offset, receipt.count))
        if gone and self.keeps_all:
            raise Violation("I1", f"{receipt} is gone after {what}")
        left = receipt.count - gone
        found = engine.read(topic, queue=queue, offset=offset + gone, limit=left) if left else []
        if len(found) != left:
            raise Violation("I1", f"{receipt} has {found} after {what}")
        return [each.body for each in found]

    def _seen(self, disk: CrashDisk) -> list[Any]:
        """Return all that an engine shows, opened on `disk`."""
        engine = self._open(disk)
        try:
            return [*_looked(engine)]
        finally:
            engine.close()


def _standing(threads: list[threading.Thread]) -> str:
    """Return where each thread is in the code."""
    frames = sys._current_frames()
    return "".join(
        f"\n{each.name}\n{''.join(format_stack(frames[each.ident])[-12:])}"
        for each in threads
        if each.ident in frames
    )


def _looked(engine: Engine) -> Any:
    for info in engine.queues():
        yield info
        if info.next > info.first:
            place = {"queue": info.queue, "offset": info.first}
            yield engine.read(info.topic, **place, limit=info.next - info.first)
    yield engine.groups()
    yield engine.undecided()
    yield engine.delayed(limit=999)
    yield engine.marks(prefix="")
    for topic in TOPICS:
        yield engine.find(topic, key="k", limit=99)
    for group in GROUPS:
        yield _or_error(partial(_letters, engine, group))
    for number in range(8):
        yield _or_error(partial(engine.outcome, f"tx {number}"))


def _letters(engine: Engine, group: str) -> Any:
    return engine.dead_letters(group).list(limit=99)


def _or_error(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except (UnknownGroup, UnknownTransaction) as error:
        return str(error)


def _check_whole(disk: CrashDisk, what: str) -> None:
    """Raise Violation if fmq.check finds something."""
    try:
        report = fmq.check(PATH, disk=disk)
    except NotAStore:
        return
    if not report.ok:
        raise Violation("I10", f"after {what}: {'; '.join(map(str, report.problems))}")


def _options(random: Random) -> Options:
    segment_bytes = random.choice((4096, 8192, 16384))
    return Options(
        sync=random.choice(("always", "always", "always", "interval", "never")),
        segment_bytes=segment_bytes,
        checkpoint_bytes=random.choice((1024, 4096, 100_000)),
        reference_bytes_min=random.choice((1, 64, 4096)),
        relocate_bytes=random.choice((2 * segment_bytes, 1 << 20)),
        queues=random.choice((1, 1, 2)),
        topic_queues={"b": 3},
        compress_bytes_min=random.choice((None, None, 50)),
        message_ids_kept=random.choice((3, 1000)),
        message_id_seconds=random.choice((5.0, 86400.0)),
        retain_bytes=random.choice((None, None, 2 * segment_bytes)),
        retain_seconds=random.choice((None, None, 20.0)),
        keep_unread=random.random() < 0.5,
        outcome_window_seconds=random.choice((None, None, 5.0)),
        lease_seconds=random.choice((1.0, 30.0)),
        member_timeout_seconds=random.choice((3.0, 60.0)),
        reclaim_seconds=random.choice((0.0, 2.0)),
        check_after_seconds=random.choice((0.0, 60.0)),
    )
