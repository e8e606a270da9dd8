"""The one way in for everything that is written, and how its callers share syncs.

A command is planned under the lock and becomes durable with a later write. Its caller waits for
that in one of three ways: `run` is for a thread, which sleeps; `submit` is for an event loop or a
server, which is called back; `post` is for what needs no sync of its own. Nothing else in
fmq knows how a caller waits.

One thread at a time leads: it takes everything that is pending, writes and syncs it, shows it, and
serves those who wait for it. A thread that plans while no thread leads becomes the leader. If
others have planned meanwhile, it hands the lead to the committer, a thread that leads until no
caller waits, or, without a committer, to one of the waiting threads. Each waiting thread sleeps on
a lock of its own, so it is woken only when it is served or leads.

From the first change that a plan makes until the lead is handed on, a thread is inside of an
append. Any exception there, KeyboardInterrupt included, ends the engine, because memory may be
half changed, and the bytes may or may not be on the disk (section.py). Every caller that waits
gets exactly one answer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, get_ident
from typing import TypeVar

from fmq.errors import Closed, EngineFailed, FmqError, Forked, Nested
from fmq.store.journal.callers import Callback, Suspends, Then, Waiter
from fmq.store.journal.journal import Journal
from fmq.store.journal.journal_write import JournalWrite
from fmq.store.journal.section import Section

T = TypeVar("T")
A = TypeVar("A")
PENDING_BYTES_MAX = 8 << 20


def waits(sync: bool | None, *, by_default: bool) -> bool:
    """Return whether a call that was given this `sync` waits; raise TypeError."""
    if sync is None:
        return by_default
    if sync is True or sync is False:
        return sync
    raise TypeError(
        f"sync={sync!r}: is True, False or None, and a mode is for Options. Nothing was changed."
    )


class CommitQueue:
    """Plans appends to one journal, has them written, and serves the callers that wait."""

    def __init__(
        self,
        lock: RLock,
        journal: Journal,
        show: Callable[[int], None],
        *,
        synced: bool,
        waits: bool = True,
    ) -> None:
        """`show` is called under `lock` with the position up to which all is durable; without
        `synced`, written. `waits` says whether a call without `sync=` waits for that.
        """
        self.lock = lock
        self._is_mine: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]
        self.changing = Section(self.fail)
        self._journal = journal
        self._show = show
        self._synced = synced
        self._waits = waits
        self._leader = 0  # the thread that leads; 0: none
        self._running: JournalWrite | None = None  # from taking it until it is shown
        self._posted: JournalWrite | None = None  # which takes along what was posted last
        self._seen: JournalWrite | None = None  # what that was after the last pause
        self._ends = False  # the process ends, so every call has to wait for its own sync
        self.owes = False  # whether something was posted and is not shown yet
        self.watches_posts = False  # whether the committer looks after each pause
        self.committer: Waiter | None = None  # leads while callers wait; None: one of them leads
        self.syncs = 0
        # Called when an append waits for a later write.
        self.on_pending: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None  # called once, under the lock
        self.on_shown: Callable[[JournalWrite], None] | None = None  # for tests
        self.failure: BaseException | None = None
        self.suspending: dict[int, Suspends] = {}  # by thread: what runs there and must not block

    def idle(self) -> bool:
        """Return whether nothing is planned or being written. The caller holds the engine's
        lock.
        """
        return not self._leader and not self._journal.is_pending

    @property
    def is_led(self) -> bool:
        """Return whether a thread leads, so that a call would wait for its write."""
        return self._leader != 0

    def submit(
        self,
        plan: Callable[[A], T],
        what: A,
        then: Then,
        sync: bool | None = None,
        *,
        here: bool = False,
    ) -> T:
        """Call `plan(what)` under the lock and return what it returns, without waiting.

        `then` is called once, under the lock and by the thread that writes: with None when what
        was planned is durable, or with the error that ended the engine. It must not wait, call the
        engine or raise. The committer writes; without one the next `flush` does. With `here` this
        thread writes, if no other one leads: then it waits for that one write.
        """
        me = get_ident()
        self.refuse_nested(me)
        taken = None
        try:
            with self.lock, self.changing:
                result = self._plan(plan, what, sync)
                self._journal.pending.waiters.append(Callback(then))
                if not self._leader:
                    if here:
                        taken = self._take(me)
                    else:
                        self._hand_on()
            if taken is not None:
                self._drive(me, taken)
        except BaseException as error:
            self._stop(me, None, error)
            if taken is None or not isinstance(error, Exception):
                raise
            # The engine has failed, and `then` knows.
        if self._ends:
            self.flush()
        return result

    def post(self, plan: Callable[[A], T], what: A, is_awaited: Callable[[], bool]) -> T:
        """Call `plan(what)` under the lock and return what it returns, without waiting.

        What was planned becomes durable with the next write, or in a moment by the committer; at
        once if `is_awaited`, called under the lock, says so, or if a reader looks. Without a
        committer the call waits, as `run` does.
        """
        if self.committer is None or not self._waits:
            return self.run(plan, what)
        me = get_ident()
        self.refuse_nested(me)
        try:
            with self.lock, self.changing:
                result = self._plan(plan, what, None)
                self._posted = pending = self._journal.pending
                self.owes = pending.is_noted = True
                if is_awaited() or self._journal.pending_bytes >= PENDING_BYTES_MAX:
                    self.hurry()
                elif not self.watches_posts and self.committer is not None:
                    self.watches_posts = True
                    self.committer.wake()
        except BaseException as error:
            self._stop(me, None, error)
            raise
        if self._ends:
            self.flush()
        return result

    def hurry(self) -> None:
        """Have what was posted written now, as somebody waits for it. The caller holds the engine's
        lock.
        """
        pending = self._journal.pending
        if self._posted is pending and not pending.is_hurried:
            pending.is_hurried = True
            pending.waiters.append(Callback(_nothing))
            if not self._leader:
                self._hand_on()

    def catch_up(self) -> None:
        """Wait until what was posted before is visible. Raises nothing: who looks when the engine
        has failed, or from a signal handler while its thread writes, sees what is visible. The
        committer writes, so an interrupt of the look ends no append.
        """
        if self.owes:
            with suppress(FmqError):
                self.run(_nothing, None, wait=True, here=False)

    def _plan(self, plan: Callable[[A], T], what: A, sync: bool | None) -> T:
        if self.failure is not None:
            self.check()
        result = plan(what)
        if sync:
            self._journal.pending.is_forced = True
        return result

    def run(
        self,
        plan: Callable[[A], T],
        what: A,
        sync: bool | None = None,
        *,
        wait: bool | None = None,
        ahead: bool = False,
        here: bool = True,
    ) -> T:
        """Call `plan(what)` under the lock; return what it returns once all it planned is durable.

        With `sync=False` it returns at once, and what was planned becomes durable with the next
        sync; `sync=True` syncs in an engine whose mode does not. `wait` overrides whether it waits.
        With `ahead` what was planned is only written on return, so it survives a kill; if another
        thread leads, it is durable; if nothing was planned, there is no wait. If not `here`, the
        committer writes. Raises what `plan` refuses with, and EngineFailed if the append could not
        be made durable.
        """
        me = get_ident()
        self.refuse_nested(me)
        if wait is None:
            wait = self._waits if sync is None else self.waits(sync)
        if self.suspending and wait and (suspending := self.suspending.get(me)):
            return self._run_suspended(suspending, plan, what, sync)
        waiter = taken = None
        try:
            with self.lock, self.changing:
                before = self._journal.position
                result = self._plan(plan, what, sync)
                if ahead and self._journal.position == before:
                    return result
                if not (wait or self._ends) and self._journal.pending_bytes < PENDING_BYTES_MAX:
                    self._note()
                    return result
                if not self._leader and (here or self.committer is None):
                    taken = self._take(me, ahead=ahead and self._synced)
                else:
                    waiter = Waiter(me)
                    self._journal.pending.waiters.append(waiter)
                    if not self._leader:
                        self._hand_on()
            if waiter is not None:
                taken = self._wait(waiter)
            if taken is not None:
                self._drive(me, taken)
        except BaseException as error:
            self._stop(me, waiter, error)
            # Not only the failure itself: when a disk dies, others may have met it before.
            if isinstance(error, OSError) and not isinstance(error, FmqError):
                raise self.failed_error() from error
            raise
        return result

    def _note(self) -> None:
        """Tell that an append waits for a later write, once for each write. The caller holds the
        engine's lock.
        """
        pending = self._journal.pending
        if not pending.is_noted:
            pending.is_noted = True
            self.on_pending()

    def _run_suspended(
        self, suspending: Suspends, plan: Callable[[A], T], what: A, sync: bool | None
    ) -> T:
        """Do what `run` does for a call that must not block its thread."""
        result, failure = suspending.until_called(lambda then: self.submit(plan, what, then, sync))
        if failure is not None:
            raise self.failed_error() from failure
        return result

    def waits(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` waits until what it wrote is durable."""
        return waits(sync, by_default=self._waits)

    def refuse_nested(self, me: int) -> None:
        """Raise Nested if a signal handler makes this call inside of another one of the thread
        `me`: one that holds the lock, leads, or waits and may be given the lead.
        """
        if self._leader == me or self._is_mine():
            raise Nested
        if self.committer is None:
            for write in self._writes():
                for each in [*write.waiters]:
                    if isinstance(each, Waiter) and each.thread == me:
                        raise Nested

    def _writes(self) -> list[JournalWrite]:
        """Return the writes that callers may wait for."""
        running, pending = self._running, self._journal.pending  # it may end meanwhile
        return [pending] if running is None else [running, pending]

    def _wait(self, waiter: Waiter) -> JournalWrite | None:
        """Sleep until `waiter` is served; return what to write if it was given the lead."""
        waiter.lock.acquire()
        if waiter.failed:
            raise self.failed_error() from self.failure
        if not waiter.leads:
            return None
        with self.lock, self.changing:
            self.check()
            return self._take(waiter.thread)

    def _stop(self, me: int, waiter: Waiter | None, error: BaseException) -> None:
        """Take thread `me`, which was interrupted by `error`, out of the queue. Its append stays.

        If it was given the lead, hand that on. If it was writing, the engine fails.
        """
        with self.lock:
            for write in self._writes():
                if waiter is not None and waiter in write.waiters:
                    write.waiters.remove(waiter)
            if self._leader == me:
                if self._running is not None:
                    self.fail(error)
                else:
                    self._hand_on()
            if self._journal.is_pending:
                self.on_pending()  # maybe this thread's append, for which no caller waits now

    def check(self) -> None:
        """Raise if the engine has failed or is closed. The caller holds the engine's lock."""
        if self.failure is not None:
            raise self.failed_error() if self.broken() else self.failure.with_traceback(None)

    def close(self, refusal: Closed) -> None:
        """Refuse everything from now on, with `refusal`. The caller holds the engine's lock."""
        assert self.idle()
        self.failure = refusal

    def broken(self) -> bool:
        """Return whether the engine has failed: the outcome of running calls is unknown."""
        return self.failure is not None and not isinstance(self.failure, (Closed, Forked))

    def failed_error(self) -> EngineFailed:
        """Return the error that says why the engine takes nothing any more."""
        error = self.failure
        if isinstance(error, OSError):  # its text names the file
            what = f"stopped at an error while writing ({type(error).__name__}: {error})"
        elif isinstance(error, Exception):
            what = f"stopped at an error in the middle of an append ({error!r})"
        else:
            what = f"was interrupted in the middle of an append ({error!r})"
        return EngineFailed(
            f"the engine {what} and takes nothing more. What had been acknowledged is safe; the "
            "outcome of calls that were running is unknown. Close it and open the directory again: "
            "recovery finds the truth, and engine.outcome(tx_id) tells what became of a "
            "transaction."
        )

    def flush(self, *, force: bool = False) -> None:
        """Write all that is planned. It is durable then if the mode syncs, or with `force`."""
        self.run(_nothing, None, True if force else None, wait=True)

    def process_ends(self) -> None:
        """Make all that is planned durable, because the process ends. From now on every call
        waits for its own sync: there may be no later one.
        """
        with self.lock:
            if self.failure is not None:
                return
            self._ends = True
            # What is written ahead is not promised to survive more than this.
            ahead = self._journal.is_ahead and not (self._journal.pending.is_noted or self._leader)
            idle = ahead or self.idle()
        if not idle:
            self.flush()

    def _hand_on(self) -> None:
        """Give the lead to the committer or, without one, to the thread that has waited longest; to
        none if no caller waits. The caller holds the engine's lock.
        """
        heir, waiters = self.committer, self._journal.pending.waiters
        if not waiters:
            heir = None
        elif heir is None:
            heir = next((each for each in waiters if isinstance(each, Waiter)), None)
            if heir is None:
                self.on_pending()  # only callbacks wait, and they cannot write
        if heir is None:
            self._leader = 0
            return
        heir.leads = True
        self._leader = heir.thread
        heir.wake()
        if heir is not self.committer:
            waiters.remove(heir)

    def _take(self, me: int, *, ahead: bool = False) -> JournalWrite:
        """Make thread `me` the leader; return what it has to write. With `ahead` that stays
        pending, if it is so little that it need not be synced now. The caller holds the engine's
        lock.
        """
        journal = self._journal
        taken = journal.look_ahead() if ahead else None
        self._leader = me
        self._running = taken = taken or journal.take_pending()
        return taken

    def lead_for_others(self, me: int) -> None:
        """Write what is pending, if the committer, thread `me`, was given the lead, or if what was
        posted has waited for long enough.
        """
        with self.lock, self.changing:
            if self._leader != me and not self._is_due():
                return  # it was woken to end, or for nothing
            taken = self._take(me)
        self._drive(me, taken)

    def _is_due(self) -> bool:
        """Return whether the committer takes the lead for what was posted. The caller holds the
        engine's lock.
        """
        if self._leader or self.failure is not None:
            return False  # a write that is under way may be that of what was posted
        posted, seen = self._posted, self._seen
        self._seen = posted
        if posted is seen:
            self.watches_posts = False  # nothing was posted for later writes
        return posted is seen is self._journal.pending

    def _drive(self, me: int, taken: JournalWrite) -> None:
        """Write what was taken, show it, serve those who waited for it, and hand the lead on."""
        journal = self._journal
        try:
            if taken.ahead_of_sync:
                journal.write_ahead(taken)
            else:
                journal.write(taken, sync=self._synced)
                if taken.is_forced and not self._synced:
                    journal.sync()
            with self.lock:
                self._written(taken)
        except BaseException as error:
            # `run` does the same once more, for an interrupt that meets it in here.
            self._stop(me, None, error)
            raise

    def _written(self, taken: JournalWrite) -> None:
        """Show what was written, serve those who waited for it, and hand the lead on. The caller
        holds the engine's lock.
        """
        journal = self._journal
        try:
            if taken.ahead_of_sync:
                journal.wrote_ahead(taken)
            else:
                is_durable = self._synced or taken.is_forced
                self.syncs += is_durable
                journal.wrote(taken, is_durable=is_durable)
                if taken.buffers or taken.rolls:
                    self._show(taken.end)
                if self.on_shown is not None:
                    self.on_shown(taken)
                if self.owes and self._posted is not journal.pending:
                    self.owes = False
                if taken.waiters:
                    self._serve(taken.waiters)
            self._running = None
            if journal.pending.waiters:
                self._hand_on()
            else:
                self._leader = 0
        except BaseException as error:
            self.fail(error)  # before another thread may look: a part may be shown
            raise

    def _serve(self, waiters: deque[Waiter | Callback]) -> None:
        """Serve those that waited for a write. The caller holds the engine's lock."""
        while waiters:
            waiters[0].serve(self.failure)
            waiters.popleft()  # after it was served, so that `fail` leaves out no caller

    def fail(self, error: BaseException) -> None:
        """Refuse all calls from now on, because of `error`, and answer those that wait. The caller
        holds the engine's lock.
        """
        first = self.failure is None
        if first:
            self.failure = error
        self.owes = self.watches_posts = False  # nothing becomes visible any more
        for write in self._writes():
            self._serve(write.waiters)
        self._leader = 0
        if first:
            self.on_failure()


def _nothing(what: BaseException | None) -> None:
    """Plan nothing; or tell nobody."""
