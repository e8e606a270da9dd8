"""An opened directory: the public calls, each a short story told by the layers below.

`open` gives a writing Engine, or a ReadOnlyEngine that follows one. Everything in memory is
guarded by one lock; the disk is written outside it, by one thread for all that wait.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Literal, Protocol, overload

from fmq.clock import Clock, SystemClock
from fmq.consume.consumer import Consumer
from fmq.consume.groups import Groups
from fmq.disk import Directory, Disk, RealDisk, after_fork_in_child
from fmq.errors import BadOption, Closed, FmqError, Forked
from fmq.housekeeping import Housekeeping, HousekeepingThread
from fmq.message import (
    Body,
    Decision,
    Message,
    Outcome,
    QueueInfo,
    Receipt,
    UndecidedTransaction,
)
from fmq.options import Options
from fmq.readonly import ReadOnlyEngine
from fmq.recovery.checkpoint import CheckpointWriter
from fmq.recovery.layout import LOCK, look
from fmq.recovery.recover import Recovered, begin_new, recover
from fmq.recovery.replay import rebuild_index
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.store.catalog import Catalog
from fmq.store.columns import as_bytes, encode_bodies, encode_messages, encode_one, split_bodies
from fmq.store.files import Files
from fmq.store.group import Group
from fmq.store.index import SegmentIndex
from fmq.store.journal import Journal
from fmq.store.kinds import Record, Run
from fmq.store.reader import Reader
from fmq.store.segment import STORE_BYTES, segment_name
from fmq.store.spares import Spares
from fmq.tx.apply import apply
from fmq.tx.manager import TransactionManager
from fmq.tx.messages import Messages
from fmq.tx.names import DRAWN_BYTES, check_name
from fmq.tx.outcomes import Outcomes
from fmq.tx.transaction import Transaction
from fmq.tx.writer import Writer, message_run


class PathLike(Protocol):
    """A path that is not a str, such as pathlib's."""

    def __fspath__(self) -> str: ...


class Engine:
    """A directory opened for writing; made by `fmq.open`. Safe for threads."""

    def __init__(
        self,
        path: str,
        directory: Directory,
        options: Options,
        clock: Clock,
        disk: Disk,
        *,
        background: bool,
    ) -> None:
        self._path = path
        self._directory = directory
        self._options = options
        self._refusal: FmqError | None = None
        self._background = background
        self._thread: HousekeepingThread | None = None
        look(directory)
        self._unlock = directory.lock(LOCK)
        try:
            layout = look(directory)
            if layout.fresh:
                store = disk.random(STORE_BYTES)
                found = begin_new(directory, store, options.segment_bytes)
            else:
                found = recover(directory)
            self._build(found, clock, disk)
        except BaseException:
            self._unlock()
            raise
        _engines.add(self)

    def _build(self, found: Recovered, clock: Clock, disk: Disk) -> None:
        directory, options = self._directory, self._options
        store, ledger = found.store, found.ledger
        lock = threading.Lock()
        spares = Spares(directory, options.segment_bytes)
        spares.adopt(directory.names())
        files = Files(directory)
        journal = Journal(directory, store, found.segments, spares, files, options.segment_bytes)
        self._lock, self._journal, self._ledger, self._store = lock, journal, ledger, store
        self._group = Group(lock, journal, self._publish, synced=options.sync != "never")
        self._limit = journal.segment_of(ledger.index.base).limit  # type: ignore[union-attr]
        writer = Writer(lock, journal, self._group, ledger, clock, options)
        catalog = Catalog(directory, store, self._rebuild)
        in_memory = {index.base for index in (ledger.index, *ledger.sealed)}
        for segment in found.segments:
            if segment.base not in in_memory and segment.base < ledger.index.base:
                catalog.add(segment.base)
        reader = Reader(files, journal.seed, options.read_ahead_bytes)
        outcomes = Outcomes(lock, journal, ledger, catalog, reader, clock, options)
        drawn = disk.random(DRAWN_BYTES)
        self._manager = TransactionManager(writer, outcomes, drawn, self._after)
        self._messages = Messages(lock, ledger, catalog, reader, clock)
        self._groups = Groups(ledger)
        checkpoint = found.checkpoint
        self._chores = Housekeeping(
            directory,
            store,
            writer,
            self._manager,
            catalog,
            CheckpointWriter(directory, checkpoint.generation if checkpoint else 0),
            checkpoint.applied_upto if checkpoint else -1,
            found.part_size,
        )
        self._writer, self._catalog, self._report = writer, catalog, found.report
        if self._background:
            self._thread = HousekeepingThread(self._chores, clock, options)
            self._group.on_pending = self._thread.kick_if_due
            self._thread.start()

    def _rebuild(self, base: int) -> SegmentIndex:
        """The index of a sealed segment whose file is missing or not sound."""
        segment = self._journal.segment_of(base)
        if segment is None:
            raise FileNotFoundError(segment_name(base))
        return rebuild_index(self._directory, segment, self._store)

    # --- sending --------------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        *,
        key: str | None = None,
        tag: str | None = None,
        headers: Mapping[str, str] | None = None,
        queue: int | None = None,
        producer: str | None = None,
        sync: bool | None = None,
    ) -> Receipt:
        """Append one message; it is durable and visible on return.

        With `sync=False` it becomes both with the next sync of anybody.
        """
        if self._refusal is not None:
            raise self._refusal
        writer = self._writer
        number = writer.choose_queue(topic, key, queue)
        if key is None and tag is None and not headers:
            content = encode_one(body, self._options.compress_bytes_min)
        else:
            message = Message(body, key, tag, headers)
            content = encode_messages((message,), self._options.compress_bytes_min)
        writer.check_size(content.raw_bytes)
        if producer:
            check_name("producer", producer)
        receipt = writer.send([message_run(topic, number, content, producer or "")], sync)[0]
        if not self._background:
            self._chores.round()
        return receipt

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        *,
        queue: int | None = None,
        producer: str | None = None,
        sync: bool | None = None,
    ) -> list[Receipt]:
        """Append bodies or Messages, all or none of them; one receipt for each run in a queue."""
        self._check()
        items, plain = split_bodies(bodies)
        if not items:
            check_name("topic", topic)
            return []
        if producer:
            check_name("producer", producer)
        runs = self._plain_runs(topic, items, queue) if plain else self._runs(topic, items, queue)
        for run in runs:
            run.producer = producer or ""
        receipts = self._writer.send(runs, sync)
        self._after()
        return receipts

    def _plain_runs(self, topic: str, bodies: list[bytes], queue: int | None) -> list[Run]:
        writer = self._writer
        writer.check_size(max(map(len, bodies)))
        number = writer.choose_queue(topic, None, queue)
        content = encode_bodies(bodies, self._options.compress_bytes_min)
        return [message_run(topic, number, content)]

    def _runs(self, topic: str, items: Iterable[object], queue: int | None) -> list[Run]:
        writer = self._writer
        lanes: dict[int, list[Message]] = {}
        for item in items:
            message = item if isinstance(item, Message) else Message(as_bytes(item))
            writer.check_size(len(message.body))
            number = writer.choose_queue(topic, message.key, queue)
            lanes.setdefault(number, []).append(message)
        compress = self._options.compress_bytes_min
        return [
            message_run(topic, number, encode_messages(messages, compress))
            for number, messages in lanes.items()
        ]

    # --- transactions ---------------------------------------------------------------------------

    def transaction(
        self,
        *,
        tx_id: str | None = None,
        producer: str | None = None,
        check_after: float | None = None,
    ) -> Transaction:
        """A new transaction over any topics; as a `with` block it commits at its end.

        `check_after` is for how many seconds after prepare nobody is asked about it.
        """
        self._check()
        return self._manager.begin(tx_id, producer, check_after)

    def outcome(self, tx_id: str) -> Outcome:
        """What became of a transaction: undecided, committed or rolled back, when and by whom."""
        self._check_open()
        return self._manager.outcome(tx_id)

    def undecided(self) -> list[UndecidedTransaction]:
        """The sealed transactions that wait for their decision, the oldest first."""
        self._check_open()
        return self._manager.undecided()

    def decide(
        self,
        tx_id: str,
        decision: Decision,
        *,
        reason: str | None = None,
        decided_by: str | None = None,
        seal: str | None = None,
    ) -> Outcome:
        """Commit or roll back an undecided transaction, in its producer's place.

        The same decision again is a success; the opposite one is AlreadyDecided. With `seal`
        the decision reaches exactly the transaction that has it, or none.
        """
        self._check()
        outcome = self._manager.decide(
            tx_id, decision, reason=reason or "", decided_by=decided_by or "", seal=seal
        )
        self._after()
        return outcome

    # --- reading --------------------------------------------------------------------------------

    def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """The messages of `queue` from `offset` on, at most `limit`; empty if there are none."""
        found: list[Message] = []
        while len(found) < limit:
            batch = self.read_batch(
                topic,
                queue=queue,
                offset=offset + len(found),
                limit=limit - len(found),
                timeout=0.0 if found else timeout,
            )
            if batch is None:
                break
            found += batch.messages
        return found

    def read_batch(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int = 0,
        limit: int = 1000,
        timeout: float = 0.0,
    ) -> Batch | None:
        """The same as one Batch: bodies at once, messages when asked; None if there are none yet.

        It may have fewer than `limit` although there are more; go on from `batch.next`.
        """
        self._check_open()
        if limit < 1 or offset < 0:
            raise BadOption(f"offset={offset}, limit={limit}: must be at least 0 and 1")
        return self._messages.batch_within(topic, queue, offset, limit, timeout, self._check_open)

    def consumer(
        self, topics: str | Iterable[str], *, group: str, lease_seconds: float | None = None
    ) -> Consumer:
        """A member of `group`, which shares the messages of `topics`; a new one starts earliest."""
        self._check()
        names = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
        for name in names:
            check_name("topic", name)
        check_name("group", group)
        lease = self._options.lease_seconds if lease_seconds is None else lease_seconds
        return Consumer(
            self._messages,
            self._groups,
            self._writer,
            self._check,
            names,
            group,
            lease,
            self._after,
        )

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """All queues, or those of one topic, with the offsets they hold at this instant."""
        self._check_open()
        return self._messages.queues(topic)

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        return self._path

    @property
    def options(self) -> Options:
        return self._options

    def sync(self) -> None:
        """Make everything sent so far durable, whatever the mode."""
        self._check()
        self._group.flush(force=True)
        self._after()

    def checkpoint(self) -> None:
        """Save where recovery can start; it happens by itself, too."""
        self._check()
        self._group.flush(force=True)
        self._chores.checkpoint()

    def stats(self) -> Stats:
        """A snapshot of what the engine knows of itself."""
        if isinstance(self._refusal, Forked):
            raise self._refusal
        with self._lock:
            return Stats.of(
                self._path, self._journal, self._ledger, self._group, self._chores, self._report
            )

    def _publish(self, appends: list[list[Record]]) -> None:
        """What is durable now becomes visible, all of it at one instant. Under the lock."""
        ledger = self._ledger
        for append in appends:
            position = append[0].position
            if position >= self._limit:
                segment = self._journal.segment_of(position)
                assert segment is not None
                ledger.enter_segment(segment.base)
                self._limit = segment.limit
            apply(ledger, append)
        if ledger.arrived:
            self._messages.wake()
        if self._thread is not None:
            self._thread.kick_if_due()

    def _check(self) -> None:
        """Raise if the engine takes nothing any more."""
        if self._refusal is not None:
            raise self._refusal
        if self._group.failure is not None:
            self._group.check()

    def _check_open(self) -> None:
        """Raise if nothing can be read any more; a failed engine still shows what was visible."""
        if self._refusal is not None:
            raise self._refusal

    def _after(self) -> None:
        if not self._background:
            self._chores.round()

    def close(self) -> None:
        """Wait for running calls, write a checkpoint, let go of the directory.

        What is undecided stays undecided.
        """
        with self._lock:
            if self._refusal is not None:
                return
            self._refusal = refusal = Closed(
                f"{self._path}: the engine is closed; fmq.open() opens the directory again"
            )
            self._messages.wake_all()
        _engines.discard(self)
        if self._thread is not None:
            self._thread.stop()
        try:
            if self._drain(refusal):
                with suppress(OSError):
                    # It is a hint: without it the next open replays a little more.
                    self._chores.checkpoint(clean=True)
        finally:
            self._journal.close()
            self._unlock()
            self._directory.close()

    def _drain(self, refusal: Closed) -> bool:
        """Let all that was planned become durable, and refuse the rest; False if it failed."""
        while True:
            with self._lock:
                if self._group.broken():
                    return False
                # With sync="never" an idle engine may have written what it has not synced.
                if self._group.idle() and self._journal.durable_to == self._journal.position:
                    self._group.close(refusal)
                    return True
            with suppress(FmqError):
                self._group.flush(force=True)

    def _forked(self) -> None:
        """This is the child of a fork: the engine is the parent's, and this copy is dead."""
        self._refusal = self._group.dead = Forked(self._path)
        self._thread = None
        with suppress(Exception):
            self._journal.close()
            self._unlock()
            self._directory.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_refusal", True) is None and hasattr(self, "_journal"):
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "open" if self._refusal is None else type(self._refusal).__name__.lower()
        return f"<Engine {self._path} {state}>"


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


def _after_fork() -> None:
    for engine in list(_engines):
        engine._forked()


after_fork_in_child(_after_fork)


@overload
def open(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    read_only: Literal[False] = ...,
    disk: Disk | None = ...,
    clock: Clock | None = ...,
    background: bool = ...,
) -> Engine: ...
@overload
def open(
    path: str | PathLike,
    options: Options | None = ...,
    *,
    read_only: Literal[True],
    disk: Disk | None = ...,
    clock: Clock | None = ...,
    background: bool = ...,
) -> ReadOnlyEngine: ...
def open(
    path: str | PathLike,
    options: Options | None = None,
    *,
    read_only: bool = False,
    disk: Disk | None = None,
    clock: Clock | None = None,
    background: bool = True,
) -> Engine | ReadOnlyEngine:
    """Open the directory at `path`, made if it is not there; recovery needs no other call.

    One engine writes at a time: a second one gets Locked. With `read_only` it takes no lock,
    writes nothing, and follows a live engine up to what is durable. `disk` and `clock` are the
    doors to the machine; tests hand in others. Without `background` the engine has no thread
    and does its housekeeping at the end of its calls.
    """
    options = options or Options()
    where = path if isinstance(path, str) else path.__fspath__()
    disk = disk or RealDisk(hold_gil=options.hold_gil)
    clock = clock or SystemClock()
    directory = disk.directory(where, make=not read_only)
    try:
        if read_only:
            return ReadOnlyEngine(where, directory, options, clock)
        return Engine(where, directory, options, clock, disk, background=background)
    except BaseException:
        directory.close()
        raise
