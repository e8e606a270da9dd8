"""The commit queue: the one way in for everything that is written, and how callers share syncs.

A command is planned under the engine's lock: its append gets a place, changes the ledger, and joins
the bytes that are *pending*. It becomes durable with a later write. The caller waits for that in
one of three ways:

    run       a thread sleeps until its append is durable
    submit    a callback is called; for event loops and servers
    post      nobody waits; the append takes no sync of its own

One thread at a time *leads*. The leader takes everything that is pending, writes and syncs it
without the lock, shows it, serves the callers that wait for it, and hands the lead on. What others
plan meanwhile joins the next write. So the longer a sync takes, the more appends share it:

    thread A    plan a · lead: write and sync a ......... · serve a · hand on
    thread B        plan b · sleep ...................................... · return
    thread C            plan c · sleep .................................. · return
    committer                                            · lead: write and sync b, c · serve b, c

An example: a sync takes 1 ms, and 16 threads send all the time. While one write is synced, the
others plan, so each write holds about 15 appends: some 15,000 sends a second instead of 1,000.

Who leads: a thread that plans while no thread leads becomes the leader. If others have planned
meanwhile, it hands the lead to the committer, a thread that leads until no caller waits
(committer.py). Without a committer, the thread that has waited longest leads next. Each waiting
thread sleeps on a lock of its own, so it is woken only when it is served or gets the lead.

The order of things for one append is always: planned · taken · written · synced · shown · its
caller is served. Appends become durable and visible in the order in which they were planned.

A disk whose writes take long (with a home) may have two of them on their way. As soon as the place
of the first one is fixed, the lead is free again. A second committer begins the next write once so
many wait for it as are half of the callers seen at one time. Sent at once, it would hold only the
few that were quickest, and all others would wait for the one after it.

From the first change that a plan makes until the lead is handed on, a thread is inside of an
append. Any exception there, KeyboardInterrupt included, ends the engine: memory may be half
changed, and the bytes may or may not be on the disk (section.py). Every waiting caller gets exactly
one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from threading import RLock, get_ident
from typing import TypeVar

from fmq.arguments.names import waits
from fmq.basics.counts import new_buckets
from fmq.basics.lock_owner import is_mine
from fmq.errors import Closed, EngineFailed, FmqError, Forked, Nested
from fmq.store.journal.callers import Callback, Suspends, Then, Waiter
from fmq.store.journal.journal import Journal
from fmq.store.journal.journal_write import JournalWrite
from fmq.store.journal.section import Section

T = TypeVar("T")
A = TypeVar("A")
PENDING_BYTES_MAX = 8 << 20
AWAY = -1  # in place of a leader: no thread leads, and a write is on its way
AWAY_MAX = 2


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
        ticks: Callable[[], int] = lambda: 0,
    ) -> None:
        """`show` is called under `lock` with the position below which everything is durable
        (without `synced`: written). `waits` says whether a call without `sync=` waits until its
        append is durable. `ticks` returns nanoseconds, which measure the writes.
        """
        self.lock = lock
        self._is_mine: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]
        self.changing = Section(self.fail)
        self._journal = journal
        self._is_far = journal.is_far
        self._show = show
        self._synced = synced
        self._waits = waits
        self._leader = 0  # the thread that leads; 0 if there is none
        # The write of the leader, from taking it until it is shown.
        self._running: JournalWrite | None = None
        # The writes that are on their way, in order, and how many callers they had lately.
        self._away: list[JournalWrite] = []
        self._crowd = 0
        self._posted: JournalWrite | None = None  # the write that holds what was posted last
        # What `_posted` was when the committer's last pause ended.
        self._seen: JournalWrite | None = None
        # True once the process ends. Then every call has to wait for its own sync.
        self._ends = False
        # True while a posted append is not shown.
        self.owes = False
        # True if the committer looks for posted appends after each pause.
        self.watches_posts = False
        # Leads while callers wait. None: one of the waiting threads leads.
        self.committer: Waiter | None = None
        # The other committer, while the write of this one is on its way.
        self.relief: Waiter | None = None
        # For each thread that writes to a home by itself, a lock that it holds meanwhile. Its
        # signal handlers cannot write.
        self.writing_apart: Mapping[int, RLock] = {}
        # How long each write took, by `bit_length()` of its nanoseconds.
        self.written = new_buckets()
        self._ticks = ticks
        self._forced = 0  # syncs that calls have asked for in a mode without syncs
        # Called when an append waits for a later write.
        self.on_pending: Callable[[], None] = lambda: None
        self.on_failure: Callable[[], None] = lambda: None  # called once, under the engine's lock
        self.failure: BaseException | None = None
        # For each thread, the call that runs in it and must not block it.
        self.suspending: dict[int, Suspends] = {}

    @property
    def syncs(self) -> int:
        """Return how many writes were synced."""
        return sum(self.written) if self._synced else self._forced

    def idle(self) -> bool:
        """Return whether nothing is planned or being written. The caller holds the engine's
        lock.
        """
        return not self._leader and not self._journal.is_pending

    @property
    def is_led(self) -> bool:
        """Return whether a thread leads. Then a call would have to wait for that thread's write."""
        return self._leader != 0

    def submit(
        self,
        plan: Callable[[A], T],
        what: A,
        then: Then,
        sync: bool | None = None,
        *,
        ahead: bool = False,
    ) -> T:
        """Call `plan(what)` under the lock and return its result, without waiting.

        `then` is called once, under the lock and by the thread that writes: with None when what
        was planned is durable, or with the error that ended the engine. It must not wait, call the
        engine or raise. The committer writes; without one the next `flush` does. With `ahead`, if
        nothing was planned, `then` is called at once.
        """
        me = get_ident()
        self.refuse_nested(me)
        try:
            with self.lock, self.changing:
                before = self._journal.position
                result = self._plan(plan, what, sync)
                if ahead and self._journal.position == before:
                    then(None)
                    return result
                self._journal.pending.waiters.append(Callback(then))
                if self._leader <= 0:
                    self._hand_on()
        except BaseException as error:
            self._stop(me, None, error)
            raise
        if self._ends:
            self.flush()
        return result

    def post(self, plan: Callable[[A], T], what: A, is_awaited: Callable[[], bool]) -> T:
        """Call `plan(what)` under the lock and return its result, without waiting.

        The append becomes durable with the next write. If no other call causes one, the committer
        writes after a short pause. It writes at once if `is_awaited()` is true, which is called
        under the lock, or when a reader looks. Without a committer the call waits, as `run` does.
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
        """Have posted appends written now, because a caller waits for them. The caller holds the
        engine's lock.
        """
        pending = self._journal.pending
        if self._posted is pending and not pending.is_hurried:
            pending.is_hurried = True
            pending.waiters.append(Callback(_nothing))
            if self._leader <= 0:
                self._hand_on()

    def catch_up(self) -> None:
        """Wait until the appends that were posted before are visible. Raises nothing. If the engine
        has failed, or a signal handler calls this while its own thread writes, it returns at
        once, and the caller sees what is visible by then. The committer writes, so an interrupt
        of this wait does not break an append.
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
        """Call `plan(what)` under the lock. Return its result once its append is durable.

        With `sync=False` the call does not wait, unless PENDING_BYTES_MAX are pending, and the
        append becomes durable with the next sync.
        With `sync=True` it is synced even if the engine's mode does not sync. `wait` overrides
        whether the call waits.

        With `ahead` the append is only written on return, not synced, so it survives a kill. If
        another thread leads, the append is durable on return; if `plan` planned nothing, there is
        no wait. With `here=False` the committer writes, not this thread.

        Raises the refusal of `plan`, and EngineFailed if the append could not be made durable.
        """
        me = get_ident()
        if self._leader == me or self._is_far or self.committer is None or self._is_mine():
            self.refuse_nested(me)
        if wait is None:
            wait = self._waits if sync is None else self.waits(sync)
        if self.suspending and wait and (suspending := self.suspending.get(me)):
            return self._run_suspended(suspending, plan, what, sync)
        waiter = taken = None
        journal, changing = self._journal, self.changing
        try:
            with self.lock:
                changing.changed = False
                try:
                    if self.failure is not None:
                        self.check()
                    before = journal.position
                    result = plan(what)
                    if sync:
                        journal.pending.is_forced = True
                    if ahead and journal.position == before:
                        return result
                    if not (wait or self._ends) and journal.pending_bytes < PENDING_BYTES_MAX:
                        self._note()
                        return result
                    if not self._leader and (here or self.committer is None):
                        taken = self._take(me, ahead=ahead)
                    else:
                        waiter = Waiter(me)
                        journal.pending.waiters.append(waiter)
                        if self._leader <= 0:
                            self._hand_on()
                except BaseException as error:
                    changing.ended_by(error)
                    raise
            if waiter is not None:
                taken = self._wait(waiter)
            if taken is not None:
                self._drive(me, taken)
        except BaseException as error:
            self._stop(me, waiter, error)
            # Any error of the disk is reported as the failed engine: when a disk fails, several
            # calls may meet errors, and only the first of them is `failure`.
            if isinstance(error, OSError) and not isinstance(error, FmqError):
                raise self.failed_error() from error
            raise
        return result

    def _note(self) -> None:
        """Call `on_pending`, once for each write, because an append waits for a later one. The
        caller holds the engine's lock.
        """
        pending = self._journal.pending
        if not pending.is_noted:
            pending.is_noted = True
            self.on_pending()

    def _run_suspended(
        self, suspending: Suspends, plan: Callable[[A], T], what: A, sync: bool | None
    ) -> T:
        """Do what `run` does, for a call that must not block its thread."""
        result, failure = suspending.until_called(lambda then: self.submit(plan, what, then, sync))
        if failure is not None:
            raise self.failed_error() from failure
        return result

    def waits(self, sync: bool | None) -> bool:
        """Return whether a call that was given this `sync` waits until what it wrote is durable."""
        return waits(sync, by_default=self._waits)

    def refuse_nested(self, me: int) -> None:
        """Raise Nested if a signal handler makes this call inside of another call of thread `me`:
        one that holds the lock, leads, has a write on its way, or waits and may be given the lead.
        """
        if self._leader == me or self._is_mine():
            raise Nested
        if (apart := self.writing_apart.get(me)) is not None and is_mine(apart):
            raise Nested
        if self._away and any(write.thread == me for write in [*self._away]):
            raise Nested
        if self.committer is None:
            for write in self._writes():
                for each in [*write.waiters]:
                    if isinstance(each, Waiter) and each.thread == me:
                        raise Nested

    def _writes(self) -> list[JournalWrite]:
        """Return the writes that callers may wait for."""
        # Read `_running` once: the leader may set it to None meanwhile.
        running, pending = self._running, self._journal.pending
        return [*self._away, pending] if running is None else [*self._away, running, pending]

    def _wait(self, waiter: Waiter) -> JournalWrite | None:
        """Sleep until `waiter` is served. If it gets the lead instead, return the write to do."""
        waiter.lock.acquire()
        if waiter.failed:
            raise self.failed_error() from self.failure
        if not waiter.leads:
            return None
        with self.lock, self.changing:
            self.check()
            return self._take(waiter.thread)

    def _stop(self, me: int, waiter: Waiter | None, error: BaseException) -> None:
        """Take thread `me`, which met `error`, out of the queue. Its append stays planned.

        If the thread has the lead but has taken no write, hand the lead on. If it was writing, the
        engine fails.
        """
        with self.lock:
            for write in self._writes():
                if waiter is not None and waiter in write.waiters:
                    write.waiters.remove(waiter)
            mine = [write for write in self._away if write.thread == me]
            if mine or (self._leader == me and self._running is not None):
                self.fail(error)
            elif self._leader == me:
                self._hand_on()
            for write in mine:
                self._away.remove(write)
            if self._journal.is_pending:
                # Perhaps the append of thread `me` is pending, and the thread does not wait for it
                # any more.
                self.on_pending()

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
        """Return the error that says why the engine accepts no more calls."""
        error = self.failure
        if isinstance(error, EngineFailed):  # the disk itself says why, as that of a home does
            return copy(error).with_traceback(None)
        if isinstance(error, OSError):  # the text of an OSError names the file
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
        """Write everything that is planned. The appends are durable then if the mode syncs, or with
        `force`.
        """
        self.run(_nothing, None, True if force else None, wait=True)

    def process_ends(self) -> None:
        """Make everything durable that is planned, because the process ends. From now on every call
        waits for its own sync, because there may be no later one.
        """
        with self.lock:
            if self.failure is not None:
                return
            self._ends = True
            # Bytes that were written ahead of their sync need to survive only the end of the
            # process.
            ahead = self._journal.is_ahead and not (self._journal.pending.is_noted or self._leader)
            idle = ahead or self.idle()
        if not idle:
            self.flush()

    def _hand_on(self) -> None:
        """Give the lead to the committer, or without one to the thread that has waited longest. If
        no caller waits, or too few while a write is on its way, no thread leads. The caller holds
        the engine's lock.
        """
        heir, waiters, away = self.committer, self._journal.pending.waiters, self._away
        if not waiters or (away and (len(away) == AWAY_MAX or 2 * len(waiters) < self._crowd)):
            heir = None
        elif heir is None:
            heir = next((each for each in waiters if isinstance(each, Waiter)), None)
            if heir is None:
                self.on_pending()  # only callbacks wait, and a callback cannot write
        if heir is None:
            self._leader = AWAY if away and self.failure is None else 0
            return
        heir.leads = True
        self._leader = heir.thread
        heir.wake()
        if heir is not self.committer:
            waiters.remove(heir)

    def _take(self, me: int, *, ahead: bool = False) -> JournalWrite:
        """Make thread `me` the leader, and return its write. With `ahead`, the bytes stay pending
        if they are so few that they need no sync now, and no caller waits for one. The caller holds
        the engine's lock.
        """
        self._leader = me
        is_enough = ahead and self._synced and not self._journal.pending.waiters
        taken = self._journal.look_ahead() if is_enough else None
        # In one line: an interrupt between taking the bytes and noting that would lose them.
        self._running = taken = taken or self._journal.take_pending()
        return taken

    def lead_for_others(self, me: int) -> None:
        """Write what is pending, if the committer (thread `me`) was given the lead, or if posted
        appends have waited for long enough.
        """
        with self.lock, self.changing:
            if self._leader != me and not self._is_due():
                return  # the engine closes, or another write has taken the posted appends
            taken = self._take(me)
        self._drive(me, taken)

    def _is_due(self) -> bool:
        """Return whether the committer should write posted appends. The caller holds the engine's
        lock.
        """
        if self._leader or self.failure is not None:
            return False  # the write that is running may hold the posted appends
        posted, seen = self._posted, self._seen
        self._seen = posted
        if posted is seen:
            self.watches_posts = False  # nothing was posted during the last pause
        return posted is seen is self._journal.pending

    def _drive(self, me: int, taken: JournalWrite) -> None:
        """Write `taken`, show it, serve the callers that wait for it, and hand the lead on."""
        journal = self._journal
        try:
            if journal.is_far and self._synced:
                if taken.buffers and not (taken.ahead or taken.rolls):
                    self._send_away(me, taken)
                    return
                self._await_those_before(me, None)
            if taken.ahead:
                journal.write_ahead(taken)
            else:
                began = self._ticks()
                journal.write(taken, sync=self._synced)
                if taken.is_forced and not self._synced:
                    journal.sync()
                    self._forced += 1
                self.written[(self._ticks() - began).bit_length()] += 1
            with self.lock:
                try:
                    if taken.ahead:
                        journal.wrote_ahead(taken)
                    else:
                        journal.wrote(taken, is_durable=self._synced or taken.is_forced)
                        if taken.buffers or taken.rolls:
                            self._show(taken.end)
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
                    # Fail before other threads look: perhaps only a part of the write is shown.
                    self.fail(error)
                    raise
        except BaseException as error:
            # If an interrupt comes during this call of `_stop`, `run` calls it once more.
            self._stop(me, None, error)
            raise

    def _send_away(self, me: int, taken: JournalWrite) -> None:
        """Write `taken`, and let a later write begin meanwhile. Then show both in order."""
        taken.thread = me
        began = self._ticks()
        try:
            write = self._journal.begin(taken)
        except Exception:
            self._await_those_before(me, taken)
            raise
        with self.lock:
            # In one line: an interrupt between the two would lose the write.
            self._running = self._away.append(taken)  # type: ignore[func-returns-value]
            callers = sum(max(len(each.waiters), 1) for each in self._away)
            self._crowd = max(callers, self._crowd * 7 // 8)
            if self.relief is not None and self.committer and self.committer.thread == me:
                self.committer, self.relief = self.relief, self.committer
            self._hand_on()
        try:
            write()
        except Exception:
            # What was before it may be there: its callers are told so, and not of this error.
            self._await_those_before(me, taken)
            raise
        with self.lock:
            try:
                self.written[(self._ticks() - began).bit_length()] += 1
                if self.failure is not None:  # nothing becomes visible any more
                    raise self.failed_error() from self.failure
                while taken in self._away:  # the write before it is durable, too
                    first = self._away[0]
                    self._journal.wrote(first, is_durable=True)
                    self._show(first.end)
                    if self.owes and self._posted not in self._writes()[1:]:
                        self.owes = False
                    self._serve(first.waiters)
                    del self._away[0]  # last: if any of this fails, its callers are told so
                if self._leader <= 0:
                    self._hand_on()
            except BaseException as error:
                self.fail(error)
                raise

    def _await_those_before(self, me: int, taken: JournalWrite | None) -> None:
        """Wait until the writes that were begun before `taken` are shown or have failed. With None
        wait for all, and raise if one has failed.
        """
        away = self._away
        with self.lock:
            waiter = self._waiter_of(me, away[: away.index(taken)] if taken in away else away)
        waiter.lock.acquire()
        if waiter.failed and taken is None:
            raise self.failed_error() from self.failure

    def _waiter_of(self, me: int, writes: list[JournalWrite]) -> Waiter:
        """Return what is served with the last of `writes`. The caller holds the engine's lock."""
        waiter = Waiter(me)
        if writes and self.failure is None:
            writes[-1].waiters.append(waiter)
        else:
            waiter.serve(self.failure if writes else None)  # as all callers were
        return waiter

    def fail_behind(self, me: int, error: BaseException) -> None:
        """Fail because of `error`, which says nothing about what is being written: that comes
        first.
        """
        with self.lock:
            running = [each for each in self._writes()[:-1] if not each.ahead]
            waiter = self._waiter_of(me, running)
        waiter.lock.acquire()
        with self.lock:
            self.fail(error)

    def _serve(self, waiters: list[Waiter | Callback]) -> None:
        """Serve the callers that waited for a write. The caller holds the engine's lock."""
        served = 0
        try:
            for waiter in waiters:
                waiter.serve(self.failure)
                served += 1
        finally:
            # If `serve` raises, its caller is still there: `fail` serves it again.
            del waiters[:served]

    def fail(self, error: BaseException) -> None:
        """Refuse all calls from now on because of `error`, and serve the waiting callers. The
        caller holds the engine's lock.
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
    """Do nothing: as a plan, or as the callback of an append that no caller waits for."""
