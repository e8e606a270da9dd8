"""The door of an engine of this process: each call is carried out in the thread that makes it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from threading import get_ident
from typing import Any, TypeVar

from fmq.allocation import Strategy
from fmq.arguments.options import Options
from fmq.arguments.path import MEMORY
from fmq.assembly.background import Background
from fmq.assembly.parts import Parts
from fmq.assembly.shutdown import (
    Closing,
    LastCheckpoint,
    forget,
    free_locks,
    refusals_of_close,
    remember,
    wake_all,
)
from fmq.assembly.stats import Stats
from fmq.basics.clock import Clock
from fmq.basics.lock_owner import is_mine
from fmq.basics.message import Body, Message, MessagePlace, Receipt
from fmq.basics.own_process import here
from fmq.basics.process import Process
from fmq.codecs import Codec
from fmq.consume.administration import group_changes, topic_changes
from fmq.consume.calls.consumer import Consumer
from fmq.consume.calls.thread_member import ThreadMember
from fmq.consume.claims.membership import SKIP, Joining, check_joining
from fmq.copies import Backup, Progress, back_up
from fmq.errors import (
    BadOption,
    Closed,
    EngineFailed,
    FmqError,
    Forked,
    Locked,
    Nested,
    StorageFull,
)
from fmq.faces.producers import Producing, ProducingDoor
from fmq.faces.table import GROUP_CHANGES, IN_STEPS, LOOKS, RECALL
from fmq.feedback.service import Feedback
from fmq.machine.disk import Directory, Disk, free_of, home_of
from fmq.recovery.recover import LockedDirectory
from fmq.server.doors import Reach
from fmq.server.host import Host
from fmq.server.server_handle import Serving, after_fork
from fmq.steps.call_steps import Steps
from fmq.steps.thread_driver import drive
from fmq.store.reading.batch import Batch
from fmq.tx.commands.due import check_due
from fmq.tx.commands.ids import DRAWN_BYTES
from fmq.tx.commands.sender import SendArguments
from fmq.tx.looks.receipts import receipt_of, receipts_of
from fmq.wire.network import public_address
from fmq.wire.processes import absolute, new_member

T = TypeVar("T")


class ThreadDoor(ProducingDoor):
    """An engine of this process. Safe for threads."""

    def __init__(
        self,
        path: str,
        directory: Directory,
        locked: LockedDirectory,
        disk: Disk,
        options: Options,
        clock: Clock,
        *,
        background: bool,
    ) -> None:
        """`locked` is what recovery found in `directory`, which lies on `disk`."""
        drawn = disk.random(DRAWN_BYTES)
        self.path = path
        self.background = background
        self.refusal: FmqError | None = None
        self.serving: Serving | None = None
        self.codecs: dict[str, Codec[Any]] = {}
        self._clock = clock
        self._disk = disk
        self._drawn = drawn
        self._directory = directory
        self._unlock = locked.unlock
        self._report = locked.found.report
        self._closing = Closing()
        self._threads: Background | None = None
        calls = self.check, self.check_readable, self.after
        self.parts = parts = Parts(directory, locked.found, options, clock, drawn, *calls)
        self._lock, self._queue = parts.lock, parts.commit_queue
        self.options = options = parts.options
        self._plan_of = parts.manager.message_ids.planner
        self._looks = {name: look(parts) for name, look in LOOKS.items()}
        self._changes: dict[str, Callable[..., Any]] = {
            **{name: partial(parts.changes.write, make) for name, make in GROUP_CHANGES.items()},
            **{name: partial(self._drive, make(parts)) for name, make in IN_STEPS.items()},
            RECALL: parts.delays.recall,
        }
        what = parts.manager, parts.feedback, parts.questions, options, clock
        self._producing = Producing(self, *what, background=background)
        try:
            parts.manager.joint_decisions.complete()
            parts.store_options()
            topic_changes.grow_topics(parts.changes)
            with suppress(StorageFull):  # a later opening finishes the erasure
                parts.eraser.finish()
            if background:
                self._threads = Background(parts, clock, options)
                self._threads.start()
        except BaseException as error:
            self.refusal = Closed(f"{path}: the engine was not opened: {error}")
            parts.close()
            raise
        remember(self)

    # --- what each call begins and ends with ----------------------------------------------------

    def check(self) -> None:
        """Raise if the engine is closed or has failed."""
        if self.refusal is not None:
            # An old traceback would keep objects of earlier callers alive.
            raise self.refusal.with_traceback(None)
        if self._queue.failure is not None:
            self._queue.check()

    def check_readable(self) -> None:
        """Raise if the engine is closed, so that nothing can be read. A failed engine still shows
        what was visible.
        """
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)
        if self.parts.commit_queue.failure is not None:
            self.parts.check_whole()

    def after(self) -> None:
        """Run chores at the end of a call, if the engine has no thread for them."""
        # Not in the child of a fork: the lock of the chores may be held by a thread that does not
        # exist there.
        if not self.background and self.refusal is None:
            self.parts.chores.attempt()

    # --- calls by name --------------------------------------------------------------------------

    def look(self, name: str, *args: Any) -> Any:
        """Carry out a call of LOOKS, and return its result. Raises Nested if a signal handler calls
        while its thread changes the state.
        """
        if is_mine(self._lock):
            raise Nested
        if self.refusal is not None or self._queue.failure is not None:
            self.check_readable()
        if self._queue.owes:
            self._queue.catch_up()
        try:
            return self._looks[name](*args)
        except OSError:
            self.check_readable()  # another thread may have closed the engine, and its files
            raise

    def change(self, name: str, *args: Any, **named: Any) -> Any:
        """Make a change, and return its result."""
        if self.refusal is not None or self._queue.failure is not None:
            self.check()
        found = self._changes[name](*args, **named)
        if not self.background:
            self.after()
        return found

    def _drive(self, call: Callable[..., Steps[T]], *args: Any, **named: Any) -> T:
        return drive(call(*args, **named), self._queue, self._clock)

    def run(self, steps: Callable[..., Any], *args: Any) -> Any:
        """Return what `steps` returns, a function that makes several looks."""
        return steps(self, *args)

    # --- sending and reading --------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        how: SendArguments,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Receipt:
        """Append one message."""
        if self.refusal is not None:
            self.check()
        parts, due = self.parts, None
        if delay is not None or deliver_at is not None:
            due = check_due(delay, deliver_at, self._clock.time_us())
        sent = parts.sender.one(topic, body, *how, due)
        if due is not None:
            parts.delays.check(sent)
        plan = parts.writer.send if how.message_id is None else self._plan_of(sent)
        self._queue.run(plan, sent, sync)
        if not self.background:
            self.after()
        return receipt_of(sent[-1])

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> list[Receipt]:
        """Append messages, all or none of them."""
        if self.refusal is not None or self._queue.failure is not None:
            self.check()
        timing = check_due(delay, deliver_at, self._clock.time_us())
        sent = self.parts.sender.many(topic, bodies, queue, producer, timing)
        if not sent:
            self._queue.waits(sync)
            return []
        if timing is not None:
            self.parts.delays.check(sent)
        self._queue.run(self._plan_of(sent), sent, sync)
        if not self.background:
            self.after()
        return receipts_of(sent)

    def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, after waiting up to `timeout` seconds for the first one."""
        if is_mine(self._lock):
            raise Nested
        if self.refusal is not None or self._queue.failure is not None:
            self.check_readable()
        if self._queue.owes:
            self._queue.catch_up()
        try:
            found = self.parts.messages.batch(topic, queue, offset, limit)
        except OSError:
            self.check_readable()  # another thread may have closed the engine, and its files
            raise
        if found is not None or timeout <= 0:
            return found
        reading = self.reading(topic, queue, offset, limit, timeout)
        return drive(reading, self._queue, self._clock)

    def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, after waiting up to `timeout` seconds for
        the first one.
        """
        if is_mine(self._lock):
            raise Nested
        return drive(self.waiting(places, timeout), self._queue, self._clock)

    def waiting(self, places: Sequence[MessagePlace], timeout: float) -> Steps[list[MessagePlace]]:
        """Return what `wait` does, for a caller that may not block."""
        self.check_readable()
        if self._queue.owes:
            yield self._queue.catch_up
        return (yield from self.parts.messages.waiting(places, timeout, self.check_readable))

    def reading(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Steps[Batch | None]:
        """Return what `read_batch` does, for a caller that may not block."""
        self.check_readable()
        if self._queue.owes:
            yield self._queue.catch_up
        what = topic, queue, offset, limit, timeout, self.check_readable
        try:
            return (yield from self.parts.messages.reading(*what))
        except OSError:
            self.check_readable()  # another thread may have closed the engine, and its files
            raise

    # --- transactions and consumers -------------------------------------------------------------

    @property
    def feedback(self) -> Feedback:
        return self.parts.feedback

    new_member = staticmethod(new_member)

    def consumer(self, asked: Joining) -> Consumer:
        """Return the consumer that `asked` describes."""
        return Consumer(self.member(asked))

    def member(self, asked: Joining) -> ThreadMember:
        """Return the member of a group that `asked` describes, for a consumer that others make."""
        return self._drive(self.joining, asked)

    def joining(self, asked: Joining) -> Steps[ThreadMember]:
        """Do what `member` does, for a caller that may not block."""
        self.check()
        parts, topics, entry = self.parts, asked.entry.topics, asked.entry
        if entry.process is None:
            entry.process = here()
        what = parts.messages, parts.groups, parts.writer, self.check, entry
        skip = partial(parts.changes.write, group_changes.skip) if asked.damaged == SKIP else None
        rest = asked.lease_seconds, self.after, parts.burying, asked.on_change, skip
        write, join = parts.changes.writing, partial(group_changes.join, parts.changes)
        if not asked.broadcast:
            yield from write(join(asked.group, topics, asked.wanted))
            return ThreadMember(*what, asked.group, *rest)
        with parts.broadcasts.joining(asked.group, entry.name) as own:
            yield from write(join(own, topics, asked.wanted, at_end=True))
            joined = ThreadMember(*what, own, *rest)
        joined.named, joined.leaving_group = asked.group, partial(parts.broadcasts.leaving, own)
        return joined

    def join(
        self,
        topics: str | Iterable[str],
        group: str,
        lease_seconds: float | None,
        member: str | None,
        strategy: str | Strategy | None,
        wanted: str | None,
        *,
        process: Process,
        **how: Any,
    ) -> Steps[ThreadMember]:
        """Return a member of a group, for what a client has said, which runs in `process`."""
        self.check()
        name = new_member() if member is None else member
        what = topics, group, lease_seconds, name, strategy, wanted, self.options
        asked = check_joining(*what, **how)
        asked.entry.process = process
        return self.joining(asked)

    # --- the engine itself ----------------------------------------------------------------------

    def stop(self, seconds: float) -> None:
        """Refuse: a client may stop a process that only serves, but not one that runs a program."""
        raise Locked(self.path, "this process", ends_itself=True)

    def serve(self, reach: Reach) -> Serving:
        """Let other processes use the directory."""
        self.check()
        if not self.background:
            raise BadOption(
                "an engine with background=False has no threads, so it cannot serve. Nothing was "
                "changed; open it with background=True, as it is by default."
            )
        if self.path == MEMORY:
            raise BadOption(
                f"{self.path}: a journal in memory is of its process alone, so it is not served. "
                "Nothing was changed; open a directory."
            )
        if self.serving is None or self.serving.has_ended:
            make = partial(Host, self, incarnation=self._drawn)
            self.serving = Serving(absolute(self.path), make, reach)
            home, where = home_of(self._directory), public_address(self.serving.addresses)
            if home is not None and where is not None:
                self._write_home(lambda: home.publish(where, tls=reach.tls_cert is not None))
        return self.serving

    def beat(self, quiet: float) -> None:
        """Say in the home that this engine is alive, unless something of the last `quiet` seconds
        says so.
        """
        self.check()
        home = home_of(self._directory)
        assert home is not None, "a server asks only engines that have a home"
        self._write_home(lambda: home.beat(quiet))

    def say_that_it_ends(self) -> None:
        """Say in the home that nobody need wait for this engine, which is closed next."""
        self.beat(0.0)  # from now on, closing says so

    def _write_home(self, write: Callable[[], None]) -> None:
        self.parts.refuse_nested()
        try:
            write()
        except (EngineFailed, OSError) as error:
            self._queue.fail_behind(get_ident(), error)
            raise self._queue.failed_error() from error

    def stats(self) -> Stats:
        """Return a snapshot of the engine, also of one that is closed."""
        if isinstance(self.refusal, Forked):
            raise self.refusal.with_traceback(None)
        parts = self.parts
        parts.refuse_nested()
        if self._queue.owes:
            self._queue.catch_up()
        ledger = parts.ledger
        with suppress(FmqError):  # a failed engine also counts appends that were being written
            parts.writer.catch_up(
                max(ledger.changed_at, ledger.decided_at, ledger.timers.changed_at)
            )
        with parts.lock:
            topics = ledger.own_topics()
        spans = [queue.next - queue.first for topic in topics for queue in topic.queues]
        counts = len(spans), sum(spans)
        sent = {topic.name: topic.sent() for topic in topics}
        kept_by, free = parts.chores.retention.kept_by(), free_of(self._directory)
        with parts.lock:
            stats = Stats.of(
                *(self.path, parts.journal, ledger, parts.commit_queue, parts.chores),
                *(self._report, *counts),
                *(parts.counted(sent), kept_by, free),
            )
        home = home_of(self._directory)
        if home is not None:
            stats = replace(stats, home=home.stats())
        databases = self._producing.databases
        if databases is None or stats.trouble is not None:
            return stats
        return replace(stats, trouble=databases.trouble)

    def backup(self, destination: str, progress: Progress | None) -> Backup:
        """Copy to `destination` what the backup there lacks."""
        self.change("checkpoint")  # the checkpoint proves durable what is visible now
        return back_up(self.path, destination, progress, self._disk, self._clock)

    def close(self) -> None:
        """Wait for running calls, write a checkpoint, release the directory."""
        self.parts.refuse_nested()
        with self.parts.lock:
            if self.refusal is None:
                refusal = Closed(
                    f"{self.path}: the engine is closed; fmq.open() opens the directory again"
                )
                self._closing.begin(self._steps_to_close(refusal))
                self.refusal = refusal
        with refusals_of_close(self.path):
            self._closing.go_on()

    def _steps_to_close(self, refusal: Closed) -> list[Callable[[], None]]:
        steps: list[Callable[[], None]] = [] if self.serving is None else [self.serving.close]
        steps += partial(wake_all, self.parts), self._producing.stop
        if self._threads is not None:
            steps += self._threads.stops()
        steps.append(LastCheckpoint(self.parts, refusal).write)
        home = home_of(self._directory)
        if home is not None:
            steps.append(home.end)
        if self._threads is not None:
            steps.append(self._threads.committer.stop)
        return [*steps, *self._releases(), partial(forget, self)]

    def _releases(self) -> tuple[Callable[[], None], ...]:
        return self.parts.close, self._unlock, self._directory.close

    def _release(self) -> None:
        """Close all files, without a checkpoint."""
        for release in self._releases():
            with suppress(Exception):
                release()

    def process_ends(self) -> None:
        """Make durable what no call waits for."""
        with suppress(Closed):  # another thread may have closed the engine
            self._queue.process_ends()

    def forked(self) -> None:
        """End this copy in the child of a fork. The parent's engine goes on."""
        self.refusal = self.parts.commit_queue.failure = Forked(self.path)
        free_locks(self.parts)
        # A thread that was closing the engine does not exist in the child.
        self._closing = Closing()
        self._threads = None
        if self.serving is not None:
            after_fork(self.serving)
        self._release()

    def __del__(self) -> None:
        if getattr(self, "refusal", True) is None and hasattr(self, "_producing"):
            # Only an engine without threads can be dropped: threads hold a reference. What was
            # acknowledged is safe.
            self._release()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        state = "open" if self.refusal is None else type(self.refusal).__name__.lower()
        return f"<Engine {self.path} {state}>"
