"""The door of a directory that is only read: it takes no lock, and follows a live engine.

It shows what is proven durable: up to where the page of an open engine says, to the checkpoint, to
the end of a sealed segment, to the durable_to of the last sound record, or to a STATE after one of
its segments was dropped. Without a page it may lag by the last appends, until the next record,
roll, checkpoint or clean close.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any, NoReturn, TypeVar

from fmq.arguments.names import (
    check_tx_id,
)
from fmq.arguments.options import Options
from fmq.arguments.stored_options import Setting, settings, with_stored
from fmq.assembly.shutdown import forget, refusals_of_close, remember
from fmq.assembly.stats import Stats
from fmq.basics.clock import Clock, as_datetime, sleep
from fmq.basics.message import DelayedReceipt, MessagePlace
from fmq.basics.results import Outcome, UndecidedTransaction
from fmq.consume.groups.dead_pages import DeadLetterPages
from fmq.consume.groups.filter_counts import passing
from fmq.copies import Backup, Progress, back_up
from fmq.errors import (
    Closed,
    Damaged,
    FmqError,
    Forked,
    NotAStore,
    ReadOnly,
    UnknownGroup,
    UnknownTopic,
    Unreadable,
)
from fmq.errors.storage_errors import unreadable_within
from fmq.machine.disk import Directory, Disk, free_of
from fmq.recovery import checkpoint as checkpoints
from fmq.recovery.follow import ATTEMPTS, Follower
from fmq.recovery.layout import look
from fmq.recovery.recover import RecoveryReport
from fmq.store.journal.spares import is_spare
from fmq.store.reading.batch import Batch
from fmq.store.reading.key_marks import KeyMarks
from fmq.store.reading.reader import Reader
from fmq.tx.commands.due import delayed_receipt
from fmq.tx.looks.find import Finder
from fmq.tx.looks.journal_tail import JournalTail
from fmq.tx.looks.messages import Messages
from fmq.tx.looks.outcomes import Outcomes, undecided_outcome, undecided_view
from fmq.tx.looks.schedule_list import schedule_list

T = TypeVar("T")
LOOK_SECONDS = 0.05  # how long a waiting reader sleeps between two looks at the directory
GLANCE_SECONDS = 0.002  # seconds of sleep between two looks at the page


PUBLIC_NAMES = {
    "delete_group": "delete",
    "delete_topic": "delete",
    "purge_dead": "purge",
    "replay_dead": "replay",
}
"""The names that programs know changes by, where those are others."""


def refuse(path: str, name: str) -> NoReturn:
    """Raise ReadOnly for the call `name`."""
    raise ReadOnly(
        f"{path}: opened with read_only=True, so there is no {name}(); open it without read_only "
        "to write. Nothing was changed."
    )


class ReadOnlyDoor:
    """A directory that is followed. Safe for threads."""

    def __init__(
        self, path: str, directory: Directory, disk: Disk, options: Options, clock: Clock
    ) -> None:
        self.path = path
        self._disk = disk
        self._directory = directory
        self._opened_with = options
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
        reader = Reader(files, follower.seed, self._opened_with.read_ahead_bytes)
        self._messages = Messages(self._lock, ledger, catalog, reader, self._clock)
        self._outcomes = Outcomes(
            self._lock, follower, ledger, catalog, reader, self._clock, self.options, lags=True
        )
        marks = KeyMarks(self._directory, follower.store, catalog, reader, writes=False)
        messages, finder = self._messages, Finder(self._messages, catalog, reader, marks)
        pages = DeadLetterPages(self._lock, ledger, messages, lambda: None)
        self._whole_looks: dict[str, Callable[..., Any]] = {
            "appended": JournalTail(messages, catalog, reader).look,
            "check_group": self._check_group,
            "check_topic": self._check_topic,
            "codec_of": messages.codec_of,
            "groups": messages.groups,
            "mark": messages.mark,
            "marks": messages.marks,
            "passing": partial(passing, messages),
            "places_of": finder.places,
            "queues": messages.queues,
            "schedules": partial(schedule_list, messages),
            "settings": self._settings,
            "replayed": pages.replayed,
            "unacked": messages.unacked,
        }
        self._looks: dict[str, Callable[..., Any]] = {
            "clients": lambda: self._not_in_files("its clients"),
            "count_dead": pages.count,
            "delayed": self._delayed,
            "in_hand": lambda group, *_: self._not_in_files(f"what {group!r} has in hand"),
            "members": lambda group: self._not_in_files(f"the members of {group!r}"),
            "former_members": lambda group: self._not_in_files(f"who was a member of {group!r}"),
            "offset_at": messages.offset_at,
            "outcome": self._outcome,
            "page_of_dead": pages.page,
            "undecided": self._undecided,
        }
        self._built_from = ledger

    @property
    def options(self) -> Options:
        """Return the options that hold for readers: of the opening, and stored ones."""
        return with_stored(self._opened_with, self._follower.ledger.options)

    def refresh(self) -> None:
        """Apply what has become durable since the last refresh. Every call that reads does this by
        itself.
        """
        self.check_readable()
        with self._refreshing:
            self.check_readable()
            with unreadable_within(self.path):
                self._follower.refresh()
            if self._follower.ledger is not self._built_from:
                self._build()

    def check_readable(self) -> None:
        """Raise if the reader is closed, so that nothing can be read."""
        if self._refusal is not None:
            # An old traceback would keep objects of earlier callers alive.
            raise self._refusal.with_traceback(None)
        self._follower.check()

    @property
    def damage(self) -> Damaged | None:
        """Return the damage that stopped following, if any. What comes before it can be read."""
        return self._follower.damage

    @property
    def visible_to(self) -> int:
        """Return the position up to which everything is shown."""
        return self._follower.ledger.shown_to

    def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, after waiting up to `timeout` seconds for the first one."""
        look = partial(self._look_for, topic, queue, offset, limit)
        return self._looked_for(look, timeout)

    def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, after waiting up to `timeout` seconds for
        the first one.
        """
        return self._looked_for(partial(self._reached, places), timeout)

    def _reached(self, places: Sequence[MessagePlace]) -> list[MessagePlace]:
        self.check_readable()
        found: list[MessagePlace] = self._refreshed(lambda: self._messages.reached(places))
        return found

    def _looked_for(self, look: Callable[[], T], timeout: float) -> T:
        """Return what `look` finds, once it finds something or `timeout` seconds have passed."""
        deadline = self._clock.monotonic() + timeout
        while True:
            found = look()
            left = deadline - self._clock.monotonic()
            if found or left <= 0:
                return found
            self._wait(min(left, LOOK_SECONDS))

    def _wait(self, seconds: float) -> None:
        """Wait until an engine reports more, or until `seconds` have passed. Another process cannot
        wake this reader, so it sleeps and looks again.
        """
        ends = self._clock.monotonic() + seconds
        while not self._follower.has_more() and (left := ends - self._clock.monotonic()) > 0:
            sleep(self._clock, min(left, GLANCE_SECONDS))

    def _look_for(self, topic: str, queue: int, offset: int, limit: int) -> Batch | None:
        self.check_readable()
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
            unknown = known is None and (made is None or not made.has_record)
            if hidden is not None and (unknown or (known is not None and offset < known.first)):
                # It is not known whether retention has dropped the messages.
                raise hidden.with_traceback(None)
        return self._messages.batch(topic, queue, offset, limit)

    def _check_whole(self) -> None:
        """Raise Damaged if older segments may be missing because of damage."""
        with self._lock:
            hidden = self._follower.hidden()
        if hidden is not None:
            raise hidden.with_traceback(None)

    def _undecided(self) -> list[UndecidedTransaction]:
        """Return the undecided transactions. Raises Damaged if damage hides some of them, or
        decisions of them.
        """
        if self._follower.damage is not None:
            raise self._follower.damage.with_traceback(None)
        with self._lock:
            # Sorted by number, because the ledger has relocated transactions last.
            undecided = sorted(self._follower.ledger.undecided.items())
            return [undecided_view(entry) for _, entry in undecided]

    def undecided_on_the_disk(self) -> list[UndecidedTransaction]:
        """Return the transactions that are undecided by everything that can be read, proven durable
        or not.
        """
        self.check_readable()
        with unreadable_within(self.path):
            ledger = self._follower.all_on_the_disk()
        return [undecided_view(entry) for _, entry in sorted(ledger.undecided.items())]

    def retained_seconds(self) -> dict[str, float]:
        """Return the seconds of each topic that has a limit of its own."""
        self.refresh()
        with self._lock:
            topics = self._follower.ledger.made_topics()
            return {each.name: each.retain_ms / 1000 for each in topics if each.retain_ms}

    def _outcome(self, tx_id: str) -> Outcome:
        """Return the outcome of a transaction, as far as it is proven durable. Raises Damaged if
        damage may hide it.
        """
        check_tx_id(tx_id)
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
        """Refresh, and return what `look` returns. If it meets damage, look once more, because the
        writer may have dropped a segment meanwhile.
        """
        left = ATTEMPTS
        while True:
            self.refresh()
            try:
                with unreadable_within(self.path):
                    return look()
            except (Damaged, Unreadable):
                self.check_readable()  # another thread may have closed the reader, and its files
                left -= 1
                if not left:
                    raise

    # --- calls by name --------------------------------------------------------------------------

    def look(self, name: str, *args: Any) -> Any:
        """Carry out a call of LOOKS on what is proven durable. Raises Damaged if damage may hide a
        part of its result.
        """
        return self._refreshed(lambda: self._looked(name, *args))

    def _looked(self, name: str, *args: Any) -> Any:
        if name in self._whole_looks:
            self._check_whole()
            return self._whole_looks[name](*args)
        return self._looks[name](*args)

    def change(self, name: str, *args: Any, **named: Any) -> NoReturn:
        """Raise ReadOnly."""
        refuse(self.path, PUBLIC_NAMES.get(name, name))

    def run(self, steps: Callable[..., T], *args: Any) -> T:
        """Return what `steps` returns, a function that makes several looks."""
        return steps(self, *args)

    def _not_in_files(self, what: str) -> NoReturn:
        """Raise ReadOnly: the journal does not say `what`."""
        raise ReadOnly(
            f"{self.path}: opened with read_only=True, and only the process that has the "
            f"directory open knows {what}: ask with fmq.connect(path)."
        )

    def _settings(self) -> list[Setting]:
        stored = self._follower.ledger.options
        counts = with_stored(self._opened_with, stored)
        return settings(self._opened_with, counts, stored)

    def _check_topic(self, name: str) -> None:
        if not self._messages.queues(name):
            raise UnknownTopic(name)

    def _check_group(self, name: str) -> None:
        with self._lock:
            if not self._follower.ledger.subscriptions.topics_of(name):
                raise UnknownGroup(name)

    def _delayed(self, topic: str | None, limit: int) -> list[DelayedReceipt]:
        reader = Reader(
            self._follower.files, self._follower.seed, self._opened_with.read_ahead_bytes
        )
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

    def stats(self) -> Stats:
        """Return a snapshot of what is shown. Numbers that only the writing engine knows, such as
        its syncs, are 0 or None. `trouble` is the damage that stopped following.
        """
        return self._refreshed(self._stats)

    def _stats(self) -> Stats:
        follower = self._follower
        queues = self._messages.queues(None)
        with follower.with_timers() as timed:
            delayed, next_due_us = timed.timers.messages, timed.timers.next_due_us()
        slot = checkpoints.read(self._directory, follower.store)
        with self._lock:
            ledger, segments = follower.ledger, len(follower.segments)
            damage = follower.damage
            undecided = [each.prepare for _, each in sorted(ledger.undecided.items())]
            return Stats(
                path=self.path,
                first_position=follower.segments[0].base,
                position=ledger.shown_to,
                durable_to=ledger.shown_to,
                applied_upto=ledger.shown_to,
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
                kept_by=(),
                free_bytes=free_of(self._directory),
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

    def backup(self, destination: str, progress: Progress | None) -> Backup:
        """Copy to `destination` what the backup there lacks of what is proven durable."""
        self.check_readable()
        return back_up(self.path, destination, progress, self._disk, self._clock)

    def close(self) -> None:
        """Close the files. Raises StorageError if the machine refuses to close a file."""
        with self._refreshing:  # a refresh may be using the files
            if self._refusal is None:
                self._refusal = Closed(
                    f"{self.path}: closed; fmq.open(path, read_only=True) opens it again"
                )
            # After an interrupt, close may be called again and repeats each step.
            forget(self)
            with refusals_of_close(self.path), ExitStack() as stack:
                stack.callback(self._directory.close)
                stack.callback(self._follower.close)

    def forked(self) -> None:
        """End this copy in the child of a fork. It gets new locks, because threads that held the
        old ones do not exist there.
        """
        self._refusal = Forked(self.path)
        self._refreshing, self._lock = threading.Lock(), threading.RLock()
        self._follower.forked()
        self._release()

    def process_ends(self) -> None:
        """Do nothing: a reader has nothing to sync."""

    def _release(self) -> None:
        for release in (self._follower.close, self._directory.close):
            with suppress(Exception):
                release()

    def __del__(self) -> None:
        if getattr(self, "_refusal", True) is None and hasattr(self, "_built_from"):
            self._release()
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"<ReadOnlyEngine {self.path}, visible to {self.visible_to}>"
