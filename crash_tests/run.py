"""Running a workload on a disk, and telling the oracle what was tried and what was promised.

A run ends with its steps, or when the power fails. On a disk that has faults it carries on as
an application would: a refused call is refused, after an unknown one the engine is opened
again, as a new process finds the disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import fmq
from crash_tests.look import look, read_lanes
from crash_tests.oracle import Fate, Lane, Oracle, Rules, Seen, Unit, Violation
from crash_tests.workload import GROUPS, Step, Workload
from fmq.consume.consumer import Consumer, Delivery, DeliveryBatch
from fmq.disk import Disk, File
from fmq.engine import Engine
from fmq.errors import (
    Damaged,
    FmqError,
    LeaseLost,
    NewerFormat,
    StorageError,
    StorageFull,
    UnknownTransaction,
    UsageError,
    WrongState,
)
from fmq.message import Receipt
from fmq.options import Options
from fmq.store.segment import is_segment
from fmq.testing import CrashDisk, FakeClock, PowerLoss
from fmq.testing.changes import Write
from fmq.tx.transaction import Transaction

PATH = "data"
Refused = (StorageFull, UsageError, LeaseLost, WrongState)
Unknown = (StorageError, OSError)  # but for those above, which are asked for first
OPEN_AGAIN_MAX = 3
NO_SEAL = "00" * 16


def options_of(workload: Workload) -> Options:
    return Options(**workload.all_options())


def rules_of(workload: Workload) -> Rules:
    options = workload.all_options()
    return Rules(
        options.get("retain_bytes"),
        options["segment_bytes"],
        options.get("sync") != "never",
        {group: topics for group, topics in GROUPS.items() if group in workload.groups()},
    )


def open_engine(disk: Disk, options: Options, clock: FakeClock | None = None) -> Engine:
    """An engine whose every step is deterministic."""
    return fmq.open(PATH, options, disk=disk, clock=clock or FakeClock(), background=False)


def abandon(engine: Engine | None) -> None:
    """Let go of an engine whose process is thought dead; what it still does does not count.

    Where it need not do anything any more, its disk is stopped before.
    """
    if engine is not None:
        with contextlib.suppress(PowerLoss, FmqError, OSError):
            engine.close()


def last_write(disk: CrashDisk) -> Write:
    """The write that the power failed in."""
    change = disk.pending()[-1]
    assert isinstance(change, Write)
    return change


class Run:
    """One workload on one disk, or on several: each kill leaves a new one."""

    def __init__(
        self,
        workload: Workload,
        disk: CrashDisk,
        oracle: Oracle | None = None,
        crash_at: int | None = None,
    ) -> None:
        """`crash_at` is where `disk` loses its power; after a kill its successor does."""
        self.workload = workload
        self._crash_at = crash_at
        self._watcher: Callable[[Run, CrashDisk], None] | None = None
        self.options = options_of(workload)
        self.oracle = oracle or Oracle(rules_of(workload))
        self.disk = disk
        self.door: Disk = disk
        self.clock = FakeClock()
        self.engine: Engine | None = None
        self.at = -1  # the step that is running
        self.first_step = 0  # its number; bodies are named after it
        self.survives = False  # whether it carries on after errors
        self.refused = 0  # calls that were refused
        self.unknown = 0  # calls whose outcome was unknown
        self.operations_before = 0  # on disks before a kill
        self._waits = workload.all_options().get("sync") in (None, "always")
        self._was_refused = False  # what the last call about a unit met
        self._transactions: dict[str, Transaction] = {}
        self._consumers: dict[str, Consumer] = {}
        self._exported = ""  # the segment that an export is reading
        self._pin: File | None = None

    @property
    def operations(self) -> int:
        return self.operations_before + self.disk.operations

    def watch(self, watcher: Callable[[Run, CrashDisk], None]) -> None:
        """Before each operation show `watcher` the disk as it were if the power failed there."""
        self._watcher = watcher
        self.disk.watch(lambda stopped: watcher(self, stopped))

    def go(self, between: Callable[[Run], None] | None = None) -> bool:
        """Run to the end, or until the power fails; whether it reached the end."""
        try:
            self.open()
            for at, step in enumerate(self.workload.steps, self.first_step):
                self.at = at
                self._step(step)
                if between is not None:
                    between(self)
        except PowerLoss:
            return False
        except StorageFull:
            # The application cannot open the directory, and goes away.
            if not self.survives or self.engine is not None:
                raise
            return False
        finally:
            if self.engine is not None and not self._is_live():
                abandon(self.engine)
        return True

    def close(self) -> None:
        """Close what is open when all steps are done; the power may still fail."""
        assert self.engine is not None
        try:
            self.engine.close()
        except PowerLoss:
            return
        self.oracle.synced()

    def _is_live(self) -> bool:
        try:
            self.disk.directory(PATH, make=False)
        except (PowerLoss, FmqError):
            return False
        return True

    def open(self) -> None:
        """Open the directory, again where a fault that happens only once prevents it."""
        self._transactions, self._consumers = {}, {}
        self.engine = None
        for attempt in range(OPEN_AGAIN_MAX):
            try:
                self.engine = open_engine(self.door, self.options, self.clock)
                return
            except (OSError, StorageError) as error:
                lasting = isinstance(error, (Damaged, NewerFormat))
                if not self.survives or lasting or attempt == OPEN_AGAIN_MAX - 1:
                    raise

    def restart(self, name: str = "") -> None:
        """After an error whose outcome, and that of the unit `name`, is unknown: the engine is
        done; a new process opens.
        """
        self.unknown += 1
        assert self.engine is not None
        self._use_what_failed(self.engine, name)
        abandon(self.engine)
        self.open()
        self._look_again()

    def _use_what_failed(self, engine: Engine, failed: str) -> None:
        """Whatever an engine shows and takes after an error is a promise like any other.

        One that still takes something says that the call that failed has changed nothing.
        """
        try:
            for lane, (first, bodies) in read_lanes(engine).items():
                for offset, body in enumerate(bodies, first):
                    self.oracle.shown(lane, offset, body)
        except Unknown as error:
            if isinstance(error, Damaged):
                raise
        name, body = f"late {self.unknown}", b"late %d:" % self.unknown
        self.oracle.trying(Unit(name, {("a", 0): [body]}))
        try:
            engine.send("a", body, queue=0)
        except (*Refused, *Unknown):
            self.oracle.refused(name)
        else:
            if failed:
                self.oracle.refused(failed)
            self.oracle.returned(name, durable=self._waits)

    def _step(self, step: Step) -> None:
        STEPS[step[0]](self, *step[1:])

    def _call(self, name: str, call: Callable[[], Any], *, durable: bool | None = None) -> Any:
        """Make the call about the unit `name`, which is being tried; None if it did not return."""
        self._was_refused = False
        try:
            result = call()
        except Refused:
            self.oracle.refused(name)
            self._was_refused = True
            self.refused += 1
            return None
        except Unknown:
            if not self.survives:
                raise
            self.restart(name)
            return None
        self.oracle.returned(name, durable=self._waits if durable is None else durable)
        return result if result is not None else True

    def _plain(self, call: Callable[[], object]) -> bool:
        """A call that promises nothing new."""
        try:
            call()
        except Unknown:
            if not self.survives:
                raise
            self.restart()
            return False
        except Refused:
            return False
        return True

    def _told(self, name: str, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            lane = receipt.topic, receipt.queue
            self.oracle.told(name, lane, receipt.offset, receipt.position)

    # --- sending ------------------------------------------------------------------------------

    def _body(self, number: int, size: int) -> bytes:
        name = b"%d.%d:" % (self.at, number)
        return name + (b"0123456789abcdef" * (size // 16 + 1))[: max(0, size - len(name))]

    def _send(self, topic: str, queue: int, size: int, *, sync: bool | None = None) -> None:
        name, body = f"send {self.at}", self._body(0, size)
        self.oracle.trying(Unit(name, {(topic, queue): [body]}))
        assert self.engine is not None
        engine = self.engine
        receipt = self._call(
            name,
            lambda: engine.send(topic, body, queue=queue, sync=sync),
            durable=sync,
        )
        if receipt is not None:
            self._told(name, [receipt])

    def _lazy(self, topic: str, queue: int, size: int) -> None:
        self._send(topic, queue, size, sync=False)

    def _many(self, topic: str, queue: int, count: int, size: int) -> None:
        name = f"many {self.at}"
        bodies = [self._body(i, size) for i in range(count)]
        self.oracle.trying(Unit(name, {(topic, queue): bodies}))
        assert self.engine is not None
        engine = self.engine
        receipts = self._call(name, lambda: engine.send_many(topic, bodies, queue=queue))
        if receipts is not None:
            self._told(name, receipts)

    # --- transactions -------------------------------------------------------------------------

    def _begin(
        self, name: str, runs: list[list[Any]], group: str | None
    ) -> tuple[Unit, Transaction] | None:
        oracle, engine = self.oracle, self.engine
        assert engine is not None
        if name in oracle.units and oracle.fate(name) is not Fate.ABSENT:
            return None
        bodies: dict[Lane, list[bytes]] = {}
        acks: list[tuple[str, tuple[str, int, int]]] = []
        try:
            tx = engine.transaction(tx_id=name)
            number = 0
            for topic, queue, count, size in runs:
                for _ in range(count):
                    body = self._body(number, size)
                    tx.send(topic, body, queue=queue)
                    bodies.setdefault((topic, queue), []).append(body)
                    number += 1
            for each in self._poll(group, 2) if group else []:
                tx.ack(each)
                acks.append((str(group), (each.topic, each.queue, each.offset)))
        except Refused:
            self.refused += 1
            return None
        except Unknown:
            if not self.survives:
                raise
            self.restart()
            return None
        return Unit(name, bodies, tuple(acks), is_tx=True), tx

    def _tx(self, name: str, runs: list[list[Any]], group: str | None) -> None:
        begun = self._begin(name, runs, group)
        if begun is None:
            return
        unit, tx = begun
        self.oracle.trying(unit)
        receipts = self._call(name, tx.commit)
        if receipts is not None and receipts is not True:
            self._told(name, receipts)
        elif self._was_refused:
            tx.rollback()

    def _prepare(self, name: str, runs: list[list[Any]], group: str | None) -> None:
        begun = self._begin(name, runs, group)
        if begun is None:
            return
        unit, tx = begun
        self.oracle.trying_prepare(unit)
        if self._call(name, tx.prepare, durable=True) is not None:
            self._transactions[name] = tx
        elif self._was_refused:
            tx.rollback()

    def _decide(self, name: str, decision: str, tx: Transaction | None = None) -> None:
        oracle, engine = self.oracle, self.engine
        assert engine is not None
        unit = oracle.units.get(name)
        if unit is None or not self._may_decide(name):
            return
        oracle.trying_decision(name, decision)
        if tx is None:
            with contextlib.suppress(UnknownTransaction, *Unknown):
                engine.decide(name, decision, seal=NO_SEAL)  # type: ignore[arg-type]
                raise Violation("I4", f"{name} was decided by who meant another one")
            outcome = self._call(name, lambda: engine.decide(name, decision))  # type: ignore[arg-type]
            receipts = [] if outcome is None else list(outcome.receipts)
        elif decision == "commit":
            receipts = self._call(name, tx.commit)
        else:
            self._call(name, tx.rollback)
            return
        if receipts:
            self._told(name, receipts)

    def _may_decide(self, name: str) -> bool:
        """Whether it is undecided; where that is unknown, as an application would, ask."""
        fate = self.oracle.fate(name)
        if fate is not None:
            return fate is Fate.UNDECIDED
        assert self.engine is not None
        unit = self.oracle.units[name]
        return Fate.UNDECIDED in unit.fates and name in {tx.tx_id for tx in self.engine.undecided()}

    def _commit(self, name: str) -> None:
        self._decide(name, "commit", self._transactions.pop(name, None))

    def _rollback(self, name: str) -> None:
        self._decide(name, "rollback", self._transactions.pop(name, None))

    # --- consuming ----------------------------------------------------------------------------

    def _consumer(self, group: str) -> Consumer:
        if group not in self._consumers:
            assert self.engine is not None
            self._consumers[group] = self.engine.consumer(GROUPS[group], group=group)
        return self._consumers[group]

    def _poll(self, group: str, limit: int) -> list[Delivery]:
        found = self._consumer(group).poll(limit=limit)
        for each in found:
            self.oracle.shown((each.topic, each.queue), each.offset, each.body, to=group)
        return found

    def _consume(self, group: str, limit: int, acks: int) -> None:
        found: list[Delivery] = []
        if not self._plain(lambda: found.extend(self._poll(group, limit))):
            return
        for i, each in enumerate(found[:acks]):
            place = each.topic, each.queue, each.offset
            if not self._ack(f"ack {self.at}.{i}", group, [place], each):
                return

    def _ack(
        self,
        name: str,
        group: str,
        places: list[tuple[str, int, int]],
        lease: Delivery | DeliveryBatch,
    ) -> bool:
        self.oracle.trying(Unit(name, {}, tuple((group, place) for place in places)))
        return self._call(name, lease.ack) is not None

    def _batch(self, group: str, limit: int) -> None:
        found: list[DeliveryBatch] = []

        def poll() -> None:
            batch = self._consumer(group).poll_batch(limit=limit)
            if batch is not None:
                for offset, body in enumerate(batch.bodies, batch.offset):
                    self.oracle.shown((batch.topic, batch.queue), offset, body, to=group)
                found.append(batch)

        if self._plain(poll) and found:
            batch = found[0]
            places = [(batch.topic, batch.queue, batch.offset + i) for i in range(len(batch))]
            self._ack(f"ack {self.at}", group, places, batch)

    def _read(self, topic: str, queue: int) -> None:
        def read() -> None:
            assert self.engine is not None
            known = {(each.topic, each.queue): each for each in self.engine.queues()}
            lane = known.get((topic, queue))
            if lane is None:
                return
            for message in self.engine.read(topic, queue=queue, offset=lane.first):
                assert message.offset is not None
                self.oracle.shown((topic, queue), message.offset, bytes(message.body))

        self._plain(read)

    # --- an export ----------------------------------------------------------------------------

    def _export(self) -> None:
        """Some other process begins to read the oldest segment."""
        directory = self.disk.directory(PATH, make=False)
        self._exported = min(filter(is_segment, directory.names()))
        self._pin = directory.open(self._exported)
        assert self._pin.pin(exclusive=False)

    def _end_export(self) -> None:
        if self._pin is None:
            return
        if self._exported not in self.disk.directory(PATH, make=False).names():
            raise Violation("I12", f"{self._exported} was removed while an export read it")
        self._pin.close()
        self._pin = None

    # --- the engine ---------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        assert self.engine is not None
        if self._plain(self.engine.checkpoint):
            self.oracle.synced()

    def _sync(self) -> None:
        assert self.engine is not None
        if self._plain(self.engine.sync):
            self.oracle.synced()

    def _clock(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def _reopen(self) -> None:
        assert self.engine is not None
        self._plain(self.engine.close)
        if not self.survives:
            self.oracle.synced()
        self.open()

    def _kill(self) -> None:
        old, self.operations_before = self.disk, self.operations
        left = None if self._crash_at is None else self._crash_at - self.operations_before
        self.disk = old.after_kill(crash_at=left)
        if self._watcher is not None:
            self.watch(self._watcher)
            old.stop()
        if self.door is old:
            self.door = self.disk
        else:
            self.door.disk = self.disk  # type: ignore[attr-defined]
        abandon(self.engine)
        self.open()
        self._look_again()

    def _look_again(self) -> None:
        """After a process has died: what it had not said is what is there."""
        assert self.engine is not None
        try:
            seen = self._look()
        except (OSError, StorageError) as error:
            if not self.survives or isinstance(error, Damaged):
                raise
            seen = self._look()  # a fault happens only once
        self.oracle.check(seen)

    def _look(self) -> Seen:
        assert self.engine is not None
        return look(self.engine, self.oracle.tx_names(), self.oracle.rules.groups)


def violation_of(error: BaseException) -> Violation:
    """Any error where none may be, as the broken invariant that it is."""
    if isinstance(error, Violation):
        return error
    return Violation("I0", f"{type(error).__name__}: {error}")


STEPS: dict[str, Callable[..., None]] = {
    "send": Run._send,
    "lazy": Run._lazy,
    "many": Run._many,
    "tx": Run._tx,
    "prepare": Run._prepare,
    "commit": Run._commit,
    "rollback": Run._rollback,
    "decide": Run._decide,
    "consume": Run._consume,
    "batch": Run._batch,
    "read": Run._read,
    "export": Run._export,
    "end export": Run._end_export,
    "checkpoint": Run._checkpoint,
    "sync": Run._sync,
    "clock": Run._clock,
    "reopen": Run._reopen,
    "kill": Run._kill,
}
