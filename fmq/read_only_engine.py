"""Reading a directory without a lock and without writing, and following a live engine.

It shows what is proven durable: up to where the page of an open engine says, to the checkpoint, to
the end of a sealed segment, to the durable_to of the last sound record, or to a STATE after one of
its segments was dropped. Without a page it may lag by the last appends, until the next record,
roll, checkpoint or clean close.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TypeVar

from fmq.clock import Clock, as_datetime, as_us, sleep
from fmq.consume.dead_letter import DeadLetters
from fmq.consume.dead_pages import DeadLetterPages
from fmq.consume.group import Group
from fmq.consume.looking import LettersToLookAt, NoChanges, refuse
from fmq.consume.topic import TopicHandle
from fmq.consume.unread import messages_of
from fmq.disk import Directory
from fmq.errors import (
    Closed,
    Damaged,
    FmqError,
    Forked,
    NotAStore,
    UnknownGroup,
    UnknownTopic,
    Unreadable,
)
from fmq.errors.storage import unreadable_within
from fmq.message import DelayedReceipt, Mark, Message
from fmq.options import Options
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.follow import ATTEMPTS, Follower
from fmq.recovery.layout import look
from fmq.recovery.recover import RecoveryReport
from fmq.results import GroupInfo, Outcome, QueueInfo, UndecidedTransaction
from fmq.shutdown import forget, refusals_of_close, remember
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.store.key_marks import KeyMarks
from fmq.store.reader import Reader
from fmq.store.spares import is_spare
from fmq.tx.due import delayed_receipt
from fmq.tx.find import Finder, check_find, read_places
from fmq.tx.messages import Messages, read_in_batches
from fmq.tx.names import (
    check_count,
    check_marks,
    check_place,
    check_seconds,
    check_text,
    check_texts,
    check_time,
    check_tx_id,
)
from fmq.tx.outcomes import Outcomes, undecided_outcome, undecided_view

T = TypeVar("T")
LOOK_SECONDS = 0.05  # how long a waiting reader sleeps between two looks at the directory
GLANCE_SECONDS = 0.002  # and at the page


class ReadOnlyEngine:
    """A directory opened with read_only=True, made by `fmq.open`. Safe for threads."""

    def __init__(self, path: str, directory: Directory, options: Options, clock: Clock) -> None:
        self._path = path
        self._directory = directory
        self._options = options
        self._clock = clock
        self._refusal: FmqError | None = None
        self._refreshing = threading.Lock()
        if look(directory).fresh:
            raise NotAStore(
                f"{path}: no journal was ever begun here, so there is nothing to read. Nothing was "
                "changed. Look whether the path is right, or open it for writing first."
            )
        self._lock = threading.RLock()
        self._follower = Follower(directory, self._lock)
        self._build()
        remember(self)

    def _build(self) -> None:
        follower = self._follower
        ledger, files, catalog = follower.ledger, follower.files, follower.catalog
        reader = Reader(files, follower.seed, self._options.read_ahead_bytes)
        self._messages = Messages(self._lock, ledger, catalog, reader, self._clock)
        self._outcomes = Outcomes(
            self._lock, follower, ledger, catalog, reader, self._clock, self._options, lags=True
        )
        marks = KeyMarks(self._directory, follower.store, catalog, reader, writes=False)
        self._finder = Finder(self._messages, catalog, reader, marks)
        self._built_from = ledger

    def refresh(self) -> None:
        """Apply what has become durable since. Every call that reads does this by itself."""
        self._check_open()
        with self._refreshing:
            self._check_open()
            with unreadable_within(self._path):
                self._follower.refresh()
            if self._follower.ledger is not self._built_from:
                self._build()

    def _check_open(self) -> None:
        if self._refusal is not None:
            # An earlier traceback would keep the objects of its callers alive.
            raise self._refusal.with_traceback(None)
        self._follower.check()

    @property
    def path(self) -> str:
        return self._path

    @property
    def damage(self) -> Damaged | None:
        """Return the damage that stopped following, if any. What comes before it can be read."""
        return self._follower.damage

    @property
    def visible_to(self) -> int:
        """Return the position up to which everything is shown."""
        return self._follower.ledger.applied_upto

    def read(
        self, topic: str, *, queue: int = 0, offset: int = 0, limit: int = 100, timeout: float = 0.0
    ) -> list[Message]:
        """Return the messages of `queue` from `offset`, at most `limit`; wait `timeout` seconds.

        Raises Damaged or Unreadable if one of them is; `read_batch` returns those before it.
        """
        self._check_open()
        return read_in_batches(self.read_batch, topic, queue, offset, limit, timeout)

    def read_batch(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int = 0,
        limit: int = 1000,
        timeout: float = 0.0,
    ) -> Batch | None:
        """Return the same as one Batch; None if there are no messages."""
        queue, offset, limit = check_place(topic, queue, offset, limit)
        deadline = self._clock.monotonic() + check_seconds("timeout", timeout)
        while True:
            found = self._look_for(topic, queue, offset, limit)
            left = deadline - self._clock.monotonic()
            if found is not None or left <= 0:
                return found
            self._wait(min(left, LOOK_SECONDS))

    def find(self, topic: str, *, key: str, limit: int = 100) -> list[Message]:
        """Return up to `limit` messages of `topic` with this key, the newest first.

        Marks of keys that an engine has not written yet are made, and kept in memory only.
        """
        topic, key, limit = check_find(topic, key, limit)

        def find() -> list[Message]:
            self._check_whole()
            places = self._finder.places(topic, key, limit)
            return read_places(self._messages.batch, topic, key, places)

        return self._refreshed(find)

    def _wait(self, seconds: float) -> None:
        """Return when an engine tells of more, or after `seconds`. Another process cannot wake this
        reader, so it sleeps and looks again.
        """
        ends = self._clock.monotonic() + seconds
        while not self._follower.has_more() and (left := ends - self._clock.monotonic()) > 0:
            sleep(self._clock, min(left, GLANCE_SECONDS))

    def _look_for(self, topic: str, queue: int, offset: int, limit: int) -> Batch | None:
        self._check_open()
        # A refresh costs more than a read, so try without one first.
        with suppress(FmqError, OSError):
            if (
                self._follower.ledger is self._built_from
                and (found := self._messages.batch(topic, queue, offset, limit)) is not None
            ):
                return found
        return self._refreshed(lambda: self._batch(topic, queue, offset, limit))

    def _batch(self, topic: str, queue: int, offset: int, limit: int) -> Batch | None:
        with self._lock:
            hidden = self._follower.hidden()
            made = self._follower.ledger.topics.get(topic)
            known = self._follower.ledger.queue(topic, queue)
            unknown = known is None and (made is None or not made.made)
            if hidden is not None and (unknown or (known is not None and offset < known.first)):
                raise hidden.with_traceback(None)  # it is not known whether retention dropped it
        return self._messages.batch(topic, queue, offset, limit)

    def _check_whole(self) -> None:
        """Raise Damaged if older segments may be missing by damage."""
        with self._lock:
            hidden = self._follower.hidden()
        if hidden is not None:
            raise hidden.with_traceback(None)

    def mark(self, name: str) -> Mark | None:
        """Return the mark that a committed transaction has set under `name`; None without one."""
        check_text("mark", name)
        self.refresh()
        self._check_whole()
        return self._messages.mark(name)

    def marks(self, *names: str, prefix: str | None = None) -> dict[str, Mark]:
        """Return those of the marks `names` that are set, and all whose name begins with `prefix`,
        as they are at one instant.
        """
        wanted = check_marks(names, prefix)
        self.refresh()
        self._check_whole()
        return self._messages.marks(*wanted)

    def queues(self, topic: str | None = None) -> list[QueueInfo]:
        """Return all queues, or those of one topic, with their offsets.

        Raises Damaged if older segments are missing that would name them.
        """
        if topic is not None:
            check_text("topic", topic)
        self.refresh()
        self._check_whole()
        return self._messages.queues(topic)

    def groups(self, group: str | None = None) -> list[GroupInfo]:
        """Return how far each group is, or one group, in each queue of the topics it has acked.

        Raises Damaged if older segments are missing that would name them.
        """
        if group is not None:
            check_text("group", group)
        self.refresh()
        self._check_whole()
        return self._messages.groups(group)

    def undecided(self) -> list[UndecidedTransaction]:
        """Return the sealed transactions that wait for their decision, the oldest first.

        Raises Damaged if damage hides some of them, or hides decisions.
        """
        self.refresh()
        if self._follower.damage is not None:
            raise self._follower.damage.with_traceback(None)
        with self._lock:
            # By number: the ledger has relocated ones last.
            undecided = sorted(self._follower.ledger.undecided.items())
            return [undecided_view(entry) for _, entry in undecided]

    def _undecided_on_the_disk(self) -> list[UndecidedTransaction]:
        """Return what is undecided by all that can be read, whether or not it is proven durable."""
        self._check_open()
        with unreadable_within(self._path):
            ledger = self._follower.all_on_the_disk()
        return [undecided_view(entry) for _, entry in sorted(ledger.undecided.items())]

    def outcome(self, tx_id: str) -> Outcome:
        """Return what became of a transaction, as far as it is proven durable.

        Raises Damaged if damage may hide it.
        """
        check_tx_id(tx_id)
        return self._refreshed(lambda: self._outcome(tx_id))

    def _outcome(self, tx_id: str) -> Outcome:
        damage = self._follower.damage
        with self._lock:
            entry = self._follower.ledger.by_tx_id.get(tx_id)
            if entry is not None and damage is None:
                return undecided_outcome(entry)
        decided = self._outcomes.find(tx_id) if entry is None else None
        if decided is None:
            raise damage.with_traceback(None) if damage else self._outcomes.unknown(tx_id)
        return self._outcomes.outcome(decided)

    def _refreshed(self, look: Callable[[], T]) -> T:
        """Refresh, and return what `look` returns. Damage counts only if it is found again: the
        writer may drop a segment between the two.
        """
        left = ATTEMPTS
        while True:
            self.refresh()
            try:
                with unreadable_within(self._path):
                    return look()
            except (Damaged, Unreadable):
                self._check_open()  # another thread may have closed it, and its files
                left -= 1
                if not left:
                    raise

    # --- groups and topics ----------------------------------------------------------------------

    def topic(self, name: str) -> TopicHandle:
        """Return a topic, to look at it; raise UnknownTopic. What would change it is ReadOnly."""
        if not self.queues(check_text("topic", name)):
            raise UnknownTopic(name)
        return TopicHandle(name, NoChanges(self._path), self.queues)

    def group(self, name: str) -> Group:
        """Return a group, to look at it; raise UnknownGroup. What would change it is ReadOnly, and
        so are its members, whom only the engine knows.
        """
        self._check_group(name)
        changes = NoChanges(self._path)
        return Group(name, changes, self.groups, changes.members)

    def dead_letters(self, group: str) -> DeadLetters:
        """Return the dead letters of a group, to look at them; raise UnknownGroup."""
        self._check_group(group)
        return DeadLetters(group, LettersToLookAt(self._path, self._pages))

    def _check_group(self, name: str) -> None:
        check_text("group", name)
        self.refresh()
        self._check_whole()
        with self._lock:
            if not any(group == name for group, _ in self._follower.ledger.subscriptions):
                raise UnknownGroup(name)

    def _pages(self) -> DeadLetterPages:
        self.refresh()
        ledger, messages = self._follower.ledger, self._messages
        return DeadLetterPages(self._lock, ledger, messages, lambda: None)

    def unread(self, group: str, topic: str, *, limit: int = 100) -> list[Message]:
        """Return messages that `group` has not acked, at most `limit`, the oldest first."""
        limit = check_count("limit", limit)
        check_texts(group, topic)
        self.refresh()
        self._check_whole()
        ranges = self._messages.unacked(group, topic, limit)
        replayed = partial(self._pages().replayed, group, topic)
        return messages_of(ranges, topic, limit, self.read, replayed)

    def offset_at(self, topic: str, queue: int, time: datetime) -> int:
        """Return the offset of the first message of a queue that was sent at `time` or later; the
        next one to be given if there is none.
        """
        queue, _, _ = check_place(topic, queue, 0, 1)
        time_us = as_us(check_time("time", time))
        return self._refreshed(lambda: self._messages.offset_at(topic, queue, time_us))

    def delayed(self, topic: str | None = None, *, limit: int = 100) -> list[DelayedReceipt]:
        """Return the receipts of up to `limit` records that wait, of all topics or of one, in the
        order in which they are due. It reads the journal from the checkpoint on, for that alone.
        """
        if topic is not None:
            check_text("topic", topic)
        limit = check_count("limit", limit)
        return self._refreshed(lambda: self._delayed(topic, limit))

    def _delayed(self, topic: str | None, limit: int) -> list[DelayedReceipt]:
        reader = Reader(self._follower.files, self._follower.seed, self._options.read_ahead_bytes)
        found: list[DelayedReceipt] = []
        with self._follower.with_timers() as ledger:
            for due in ledger.timers.after(b"", ledger.timers.waiting):
                segment = self._follower.segment_of(due.position)
                if len(found) == limit or segment is None:
                    break
                run, _ = reader.head(segment.base, due.position - segment.base)
                if topic in (None, run.topic) and not ledger.is_deleted(run.topic, due.number):
                    found.append(delayed_receipt(due, run))
        return found

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def options(self) -> Options:
        """Return a copy of the options that it was opened with."""
        return replace(self._options)

    def stats(self) -> Stats:
        """Return a snapshot of what is shown. What only the engine that writes knows, such as its
        syncs, is 0 or None, and `trouble` is the damage that stopped following.
        """
        return self._refreshed(self._stats)

    def _stats(self) -> Stats:
        follower = self._follower
        queues = self.queues()
        with follower.with_timers() as timed:
            delayed, next_due_us = timed.timers.messages, timed.timers.next_due_us()
        slot = checkpoints.read(self._directory, follower.store)
        with self._lock:
            ledger, segments = follower.ledger, len(follower.segments)
            damage = follower.damage
            undecided = [each.prepare for _, each in sorted(ledger.undecided.items())]
            return Stats(
                path=self._path,
                first_position=follower.segments[0].base,
                position=ledger.applied_upto,
                durable_to=ledger.applied_upto,
                applied_upto=ledger.applied_upto,
                segments=segments,
                topics=len(ledger.own_topics()),
                queues=len(queues),
                messages=sum(each.next - each.first for each in queues),
                groups=len({group for group, _ in ledger.subscriptions}),
                dead_letters=sum(map(ledger.dead_letters_of, ledger.dead)),
                replayed=ledger.replayed(),
                undecided=len(undecided),
                undecided_bytes=sum(each.bytes for each in undecided),
                oldest_undecided=undecided[0].tx_id if undecided else None,
                delayed=delayed,
                next_due=None if next_due_us is None else as_datetime(next_due_us),
                syncs=0,
                checkpoints=0,
                checkpointed_upto=0 if slot is None else slot.applied_upto,
                spares=sum(map(is_spare, self._directory.names())),
                spares_reserved=0,
                kept=None,
                trouble=None if damage is None else str(damage),
                failure=None,
                recovery=RecoveryReport(
                    clean=slot is not None and slot.clean and damage is None,
                    replayed_bytes=0,
                    undecided=len(undecided),
                    cut_bytes=0,
                    copied=False,
                ),
            )

    def __getattr__(self, name: str) -> object:
        if name in WRITING:
            refuse(self._path, name)
        raise AttributeError(name)

    def close(self) -> None:
        """Close the files. Raises StorageError if the machine refuses to close one."""
        with self._refreshing:  # a refresh uses the files
            if self._refusal is None:
                self._refusal = Closed(
                    f"{self._path}: closed; fmq.open(path, read_only=True) opens it again"
                )
            # After an interrupt each step may be taken again.
            forget(self)
            with refusals_of_close(self._path), ExitStack() as stack:
                stack.callback(self._directory.close)
                stack.callback(self._follower.close)

    def _forked(self) -> None:
        """End this copy in the child of a fork, with new locks: their holders are missing here."""
        self._refusal = Forked(self._path)
        self._refreshing, self._lock = threading.Lock(), threading.RLock()
        self._follower.forked()
        self._release()

    def _process_ends(self) -> None:
        """There is nothing to sync."""

    def _release(self) -> None:
        for release in (self._follower.close, self._directory.close):
            with suppress(Exception):
                release()

    def __enter__(self) -> ReadOnlyEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_refusal", True) is None and hasattr(self, "_built_from"):
            self._release()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<ReadOnlyEngine {self._path}, visible to {self.visible_to}>"


SENDING = "send", "send_many", "recall", "transaction", "send_in_transaction", "sync", "checkpoint"
DECIDING = "decide", "feedback", "checker", "settle"
WRITING = frozenset(
    (*SENDING, *DECIDING, "consumer", "create_topic", "create_group", "serve"),
)
