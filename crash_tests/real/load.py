"""One life of a store: a process that recovers it, reports what it sees, and works until it ends.

It says on a pipe what it is told to be done, after the call has returned; and of acks and
decisions, which depend on what it meets, also what it is about to do. Whoever kills it learns
from the pipe what was acknowledged, and the pipe outlives the file system.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import fmq
from crash_tests.look import deliveries, outcome_of, read_lanes
from crash_tests.oracle import Fate, Place, Seen, Violation
from crash_tests.real.lies import SAID_TOO_EARLY, disk_that
from crash_tests.real.plan import ACK_KINDS, CONSUMER, Unit, transforming, units
from crash_tests.real.promises import Told
from fmq.errors import FmqError, Forked, NotAStore, OffsetGone

GROUP = "g"
READ = ["orders", "mails"]
OUTLIVES_SECONDS = 0.3


@dataclass(frozen=True, slots=True)
class Life:
    """What a process needs to know to run one life."""

    path: str
    options: fmq.Options
    seed: int
    number: int
    threads: int
    units_max: int  # how many units each thread makes; then the store is closed
    asked: list[str]  # the transactions whose outcomes this process reports
    forks: bool
    background: bool
    lie: str  # in a control, the name of the fault that is simulated; else ""


def main(life: Life, pipe: Connection) -> None:
    """Run the whole process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has started it will kill it
    teller = Teller(pipe)
    try:
        live(life, teller)
    except Violation as violation:
        teller.tell("broke", violation.invariant, violation.what)
    except FmqError as error:
        teller.tell("failed", "".join(traceback.format_exception(error)))
    except BaseException:
        teller.tell("broke", "I0", traceback.format_exc())
    # At once, as a crash would: nothing of the interpreter's own end is of interest here.
    os._exit(0)


class Teller:
    """The end of the pipe to which several threads write."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def close(self) -> None:
        self._pipe.close()

    def tell(self, *event: Any) -> None:
        now = time.monotonic()  # the same clock in all processes
        try:
            with self._lock:
                self._pipe.send((now, *event))
        except BrokenPipeError:
            os._exit(0)  # the process that listens is gone


def live(life: Life, teller: Teller) -> None:
    """Recover, report what is there, let threads decide, send and consume at once, and close."""
    with suppress(NotAStore):  # no journal was begun in an earlier life
        problems = fmq.check(life.path).problems
        # A kill inside of the first checkpoint leaves its part and no slot, like the removal of a
        # slot.
        problems = tuple(each for each in problems if not each.file.startswith("checkpoint."))
        if problems:
            raise Violation("I10", "; ".join(map(str, problems)))
    disk = disk_that(life.lie)
    with fmq.open(life.path, life.options, disk=disk, background=life.background) as engine:
        teller.tell("seen", see(engine, life.asked))
        check_deleted(life)
        if life.forks:
            fork(engine, teller)
        job = Hasty if life.lie == SAID_TOO_EARLY else Job
        jobs = [job(engine, life, teller, thread) for thread in range(life.threads)]
        works = [job.produce for job in jobs] + [jobs[0].consume, jobs[0].decide]
        threads = [threading.Thread(target=guarded, args=(work, teller)) for work in works]
        for thread in threads:
            thread.start()
        for thread in (*threads[:-2], threads[-1]):
            thread.join()
        jobs[0].over.set()
        threads[-2].join()
        check_deleted(life)
    if left := open_below(life.path):
        raise Violation("I17", f"a closed engine has open {left}")
    teller.tell("closed")


def open_below(path: str) -> list[str]:
    """Return the files below `path` that this process has open."""
    top, found = os.path.realpath(path), []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor with which the folder was listed
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return sorted(each for each in found if each.startswith(top))


def check_deleted(life: Life) -> None:
    """Raise Violation if a deleted file is open. With a thread for chores one may be open for an
    instant.
    """
    deleted = [each for each in open_below(life.path) if each.endswith(" (deleted)")]
    if deleted and not life.background:
        raise Violation("I17", f"deleted and still open: {deleted}")


def fork(engine: fmq.Engine, teller: Teller) -> None:
    """Fork a child that outlives this process. It may not touch the engine, nor keep the lock from
    others.
    """
    if os.fork():
        return
    try:
        engine.send("orders", b"by a child")
        teller.tell("broke", "alone", "the child of a fork could send")
    except Forked:
        pass
    teller.close()
    time.sleep(OUTLIVES_SECONDS)
    os._exit(0)


def guarded(work: Callable[[], None], teller: Teller) -> None:
    """Run a thread's work. If the engine has failed, report that and end the thread. No other error
    may end it.
    """
    try:
        work()
    except FmqError as error:
        teller.tell("failed", "".join(traceback.format_exception(error)))
    except BaseException:
        teller.tell("broke", "typed errors", traceback.format_exc())


def see(engine: fmq.Engine, asked: list[str]) -> Seen:
    """Return everything that is there at one instant. If retention was at work meanwhile,
    look again.
    """
    while True:
        before = engine.queues()
        with suppress(OffsetGone):
            lanes = read_lanes(engine)
            undecided = {tx.tx_id: tx.messages for tx in engine.undecided()}
            outcomes = {name: outcome_of(engine, name, lanes) for name in asked}
            delivered = {GROUP: deliveries(engine, GROUP, READ, lanes)}
            if engine.queues() == before:
                return Seen(lanes, undecided, outcomes, delivered)


class Job:
    """The work of one thread: one that sends, or one of the two that consume and decide."""

    def __init__(self, engine: fmq.Engine, life: Life, teller: Teller, thread: int) -> None:
        self._engine = engine
        self._life = life
        self._teller = teller
        self._thread = thread
        self._random = Random(f"{life.seed} {life.number} {thread} consumes")
        self.over = threading.Event()

    # --- sending --------------------------------------------------------------------------------

    def produce(self) -> None:
        plan = units(self._life.seed, self._life.number, self._thread)
        for _, unit in zip(range(self._life.units_max), plan, strict=False):
            self.do(unit)
        self._engine.sync()

    def do(self, unit: Unit) -> None:
        if unit.is_tx:
            self._transact(unit, self._engine.transaction(tx_id=unit.name))
            return
        (((topic, queue), bodies),) = unit.bodies.items()
        if unit.kind == "send many":
            receipts = self._engine.send_many(topic, bodies, queue=queue)
        else:
            sync = False if unit.kind == "send later" else None
            receipts = [self._engine.send(topic, bodies[0], queue=queue, sync=sync)]
        self.did(unit.name, receipts)

    def _transact(self, unit: Unit, tx: fmq.Transaction) -> None:
        for (topic, queue), bodies in unit.bodies.items():
            tx.send_many(topic, bodies, queue=queue)
        if unit.kind != "commit at once":
            tx.prepare()
            self.did(unit.name)
        if unit.kind in ("commit", "commit at once"):
            self.did(unit.name, tx.commit())
        elif unit.kind == "roll back":
            tx.rollback()
            self.did(unit.name)

    def did(self, name: str, receipts: Iterable[fmq.Receipt] = ()) -> None:
        self._teller.tell("did", name, told(receipts))

    # --- consuming ------------------------------------------------------------------------------

    def consume(self) -> None:
        """Take batches, and ack them alone or with a message that was made of them, until all have
        sent.
        """
        number = 0
        with self._engine.consumer(READ, group=GROUP) as consumer:
            while not self.over.is_set():
                batch = consumer.poll_batch(limit=self._random.randint(1, 60), timeout=0.05)
                if batch is None:
                    continue
                kind = self._random.choice(ACK_KINDS)
                name = f"{self._life.number}.{CONSUMER}.{number}"
                number += 1
                self._teller.tell("acks", name, kind, places_of(batch))
                self._finish(name, kind, batch)

    def _finish(self, name: str, kind: str, batch: fmq.DeliveryBatch) -> None:
        if kind == "ack":
            batch.ack()
            self.did(name)
            return
        tx = self._engine.transaction(tx_id=name)
        tx.ack(batch)
        self._transact(transforming(self._life.seed, name, kind), tx)

    # --- deciding -------------------------------------------------------------------------------

    def decide(self) -> None:
        """Decide most of what earlier lives left undecided."""
        for waiting in self._engine.undecided():
            mine = waiting.tx_id.startswith(f"{self._life.number}.")
            if mine or self._random.random() < 0.2:
                continue
            commit = self._random.random() < 0.5
            fate = Fate.VISIBLE if commit else Fate.ROLLED_BACK
            self._teller.tell("deciding", waiting.tx_id, fate)
            outcome = self._engine.decide(
                waiting.tx_id, "commit" if commit else "rollback", seal=waiting.seal
            )
            self._teller.tell("decided", waiting.tx_id, told(outcome.receipts))


class Hasty(Job):
    """A control: it reports messages as sent before it sends them, five at a time."""

    def __init__(self, engine: fmq.Engine, life: Life, teller: Teller, thread: int) -> None:
        super().__init__(engine, life, teller, thread)
        self._late: list[Unit] = []

    def do(self, unit: Unit) -> None:
        if unit.kind != "send":
            super().do(unit)
            return
        self.did(unit.name)
        self._late.append(unit)
        if len(self._late) == 5:
            for each in self._late:
                (((topic, queue), bodies),) = each.bodies.items()
                self._engine.send(topic, bodies[0], queue=queue)
            self._late.clear()


def told(receipts: Iterable[fmq.Receipt]) -> list[Told]:
    return [((each.topic, each.queue), each.offset, each.count, each.position) for each in receipts]


def places_of(batch: fmq.DeliveryBatch) -> list[Place]:
    return [(batch.topic, batch.queue, batch.offset + i) for i in range(len(batch))]
