"""The one way in for everything that is written, and how its callers share syncs.

A command is planned under the lock and becomes durable with a later write. Its caller waits for
that in one of three ways: `run` is for a thread, which sleeps; `submit` is for an event loop or a
server, which is called back; `post` is for what needs no sync of its own (posts.py). Nothing else
in fmq knows how a caller waits.

One thread at a time leads: it takes everything that is pending, writes and syncs it, publishes it,
and serves those who wait for it. A thread that plans while no thread leads becomes the leader. If
others have planned meanwhile, it hands the lead to the committer, a thread that leads until no
caller waits, or, without a committer, to one of the waiting threads. Each waiting thread sleeps on
a lock of its own, so it is woken only when it is served or leads.

From the first change that a plan makes until the lead is handed on, a thread is inside of an
append. Any exception there, KeyboardInterrupt included, ends the engine, because memory may be
half changed, and the bytes may or may not be on the disk (section.py). Every caller that waits
gets exactly one answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import RLock, get_ident
from typing import Protocol, TypeVar

from fmq.errors import Closed, EngineFailed, FmqError, Forked, Nested
from fmq.store.journal import Ahead, Append, Journal, Pending
from fmq.store.page import AGAIN, DURABLE_TO
from fmq.store.posts import Posts
from fmq.store.section import Section, is_mine

T = TypeVar("T")
A = TypeVar("A")
# What a leader takes: the number of its write, whether a call has asked for a sync in a mode
# without one, and what is pending.
Taken = tuple[int, bool, Pending]
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


class Callback:
    """A caller that is called once its append is durable, or the engine has failed."""

    __slots__ = ("_then", "turn")

    def __init__(self, then: Callable[[BaseException | None], None], turn: int) -> None:
        self._then: Callable[[BaseException | None], None] | None = then
        self.turn = turn

    def serve(self, failure: BaseException | None) -> None:
        """Call it, once. Under the engine's lock."""
        then, self._then = self._then, None
        if then is not None:
            then(failure)


class Waiter:
    """A thread that waits for its append to be durable; or the committer, which waits to lead."""

    __slots__ = ("failed", "leads", "lock", "thread", "turn")

    def __init__(self, thread: int, turn: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread = thread
        self.turn = turn  # the write that serves it, or a later one
        self.failed = False
        self.leads = False

    def serve(self, failure: BaseException | None) -> None:
        """Wake it, with what became of its append. Under the engine's lock."""
        self.failed = failure is not None
        self.thread = 0  # it may call again before it is taken out of the queue
        wake(self)


class Suspends(Protocol):
    """A call that is suspended where it would wait, so that its thread goes on: of an event
    loop.
    """

    def until_called(
        self, begin: Callable[[Callable[[BaseException | None], None]], T]
    ) -> tuple[T, BaseException | None]:
        """Call `begin` with a callback, and wait for that. Return what both were given."""


class CommitQueue:
    """Plans appends to one journal, has them written, and serves the callers that wait."""

    def __init__(
        self,
        lock: RLock,
        journal: Journal,
        publish: Callable[[list[Append]], None],
        *,
        synced: bool,
        waits: bool = True,
    ) -> None:
        """`publish` is called under `lock` with appends that are durable; without `synced`, with
        appends that are written. `waits` says whether a call without `sync=` waits for that.
        """
        self.lock = lock
        self.changing = Section(self.fail)
        self._journal = journal
        self._publish = publish
        self._synced = synced
        self._waits = waits
        self._leader = 0  # the thread that leads; 0: none
        self._writing = False  # from taking what is pending until it is published
        self._turn = 0  # the number of the next write, which takes all that is planned until then
        self._waiters: deque[Waiter | Callback] = deque()
        self._sync_wanted = False
        self._is_noted = False  # whether `on_pending` was called for what is pending
        self._ends = False  # the process ends, so every call has to wait for its own sync
        self.posts = Posts()
        self.owes = False  # whether something was posted and is not published yet
        self.committer: Waiter | None = None  # leads while callers wait; None: one of them leads
        self.syncs = 0
        self.on_pending: Callable[[], None] = lambda: (
            None
        )  # called when an append waits for a later write
        self.on_failure: Callable[[], None] = lambda: None  # called once, under the lock
        self.on_published: Callable[[Pending], None] | None = None  # for tests
        self.failure: BaseException | None = None
        self.suspending: dict[int, Suspends] = {}  # by thread: what runs there and must not block

    def idle(self) -> bool:
        """Return whether nothing is planned or being written. Under the lock."""
        return not self._leader and not self._journal.is_pending

    @property
    def is_led(self) -> bool:
        """Return whether a thread leads, so that a call would wait for its write."""
        return self._leader != 0

    def submit(
        self,
        plan: Callable[[A], T],
        what: A,
        then: Callable[[BaseException | None], None],
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
                self._waiters.append(Callback(then, self._turn))
                if not self._leader:
                    if here:
                        taken = self._take(me)
                    else:
                        self._hand_on()
            if taken is not None:
                self._lead(me, taken)
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
                posts, heir = self.posts, self.committer
                posts.add(self._turn)
                self.owes = self._is_noted = True
                if is_awaited() or self._journal.pending_bytes >= PENDING_BYTES_MAX:
                    self.hurry()
                elif not posts.are_watched and heir is not None:
                    posts.are_watched = True
                    wake(heir)
        except BaseException as error:
            self._stop(me, None, error)
            raise
        if self._ends:
            self.flush()
        return result

    def hurry(self) -> None:
        """Have what was posted written now, as somebody waits for it. Under the lock."""
        if self.posts.hurry(self._turn):
            self._waiters.append(Callback(_nothing, self._turn))
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
            self._sync_wanted = True
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
        thread leads, it is durable. If not `here`, the committer writes. Raises what `plan` refuses
        with, and EngineFailed if the append could not be made durable.
        """
        me = get_ident()
        self.refuse_nested(me)
        if wait is None:
            wait = self._waits if sync is None else self.waits(sync)
        if self.suspending and wait and (suspending := self.suspending.get(me)):
            return self._run_suspended(suspending, plan, what, sync)
        waiter = taken = written = None
        try:
            with self.lock, self.changing:
                result = self._plan(plan, what, sync)
                if not (wait or self._ends) and self._journal.pending_bytes < PENDING_BYTES_MAX:
                    if not self._is_noted:
                        self._is_noted = True
                        self.on_pending()
                    return result
                if self._leader or not (here or self.committer is None):
                    waiter = Waiter(me, self._turn)
                    self._waiters.append(waiter)
                    if not self._leader:
                        self._hand_on()
                elif ahead and self._synced:
                    written = self._journal.look_ahead()
                    if written is None:
                        taken = self._take(me)
                    else:
                        self._leader, self._writing = me, True
                else:
                    taken = self._take(me)
            if waiter is not None:
                taken = self._wait(waiter)
            elif written is not None:
                self._write_ahead(written)
            if taken is not None:
                self._lead(me, taken)
        except BaseException as error:
            self._stop(me, waiter, error)
            # Not only the failure itself: when a disk dies, others may have met it before.
            if isinstance(error, OSError) and not isinstance(error, FmqError):
                raise self.failed_error() from error
            raise
        return result

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
        if is_mine(self.lock) or self._leader == me:
            raise Nested
        if self.committer is None:
            for each in [*self._waiters]:
                if isinstance(each, Waiter) and each.thread == me:
                    raise Nested

    def _wait(self, waiter: Waiter) -> Taken | None:
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
            if waiter is not None and waiter in self._waiters:
                self._waiters.remove(waiter)
            if self._leader == me:
                if self._writing:
                    self.fail(error)
                else:
                    self._hand_on()
            if self._journal.is_pending:
                self.on_pending()  # maybe this thread's append, for which no caller waits now

    def check(self) -> None:
        """Raise if the engine has failed or is closed. Under the lock."""
        if self.failure is not None:
            raise self.failed_error() if self.broken() else self.failure.with_traceback(None)

    def close(self, refusal: Closed) -> None:
        """Refuse everything from now on, with `refusal`. Under the lock."""
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
            ahead = self._journal.is_ahead and not (self._is_noted or self._leader)
            idle = ahead or self.idle()
        if not idle:
            self.flush()

    def _hand_on(self) -> None:
        """Give the lead to the committer or, without one, to the thread that has waited longest; to
        none if no caller waits. Under the lock.
        """
        heir = self.committer
        if not self._waiters:
            heir = None
        elif heir is None:
            threads = (each for each in self._waiters if isinstance(each, Waiter))
            heir = next(threads, None)
            if heir is None:
                self.on_pending()  # only callbacks wait, and they cannot write
        if heir is None:
            self._leader = 0
            return
        heir.leads = True
        self._leader = heir.thread
        wake(heir)
        if heir is not self.committer:
            self._waiters.remove(heir)

    def _take(self, me: int) -> Taken:
        """Make thread `me` the leader; return what it has to write. Under the lock."""
        self._leader = me
        self._writing = True
        turn, force = self._turn, self._sync_wanted
        self._turn = turn + 1
        self._sync_wanted = self._is_noted = False
        return turn, force, self._journal.take_pending()

    def lead_for_others(self, me: int) -> None:
        """Write what is pending, if the committer, thread `me`, was given the lead, or if what was
        posted has waited for long enough.
        """
        with self.lock, self.changing:
            if self._leader != me and not self._is_due():
                return  # it was woken to end, or for nothing
            taken = self._take(me)
        self._lead(me, taken)

    def _is_due(self) -> bool:
        """Return whether the committer takes the lead for what was posted. Under the lock."""
        if self._leader or self.failure is not None:
            return False  # a write that is under way may be that of what was posted
        return self.posts.is_due(self._turn)

    def _lead(self, me: int, taken: Taken) -> None:
        """Write what was taken, publish it, wake those it served, and hand the lead on."""
        turn, force, pending = taken
        journal = self._journal
        try:
            journal.write(pending, sync=self._synced)
            if force and not self._synced:
                journal.sync()
            with self.lock, self.changing:
                appends, _, segment, _, end, _, chain = pending
                if self._synced or force:
                    self.syncs += 1
                    journal.durable_to = end
                elif segment.base > journal.durable_to:
                    journal.durable_to = segment.base  # what is sealed was synced
                page = journal.page
                page[DURABLE_TO] = page[AGAIN] = journal.durable_to
                journal.written_to, journal.written_chain = end, chain
                if appends:
                    self._publish(appends)
                if self.on_published is not None:
                    self.on_published(pending)
                self._writing = False
                if self.owes and self.posts.are_done(turn):
                    self.owes = False
                if self._waiters:
                    self._serve(turn)
                    self._hand_on()
                else:
                    self._leader = 0
        except BaseException as error:
            # `run` does the same once more, for an interrupt that meets it in here.
            self._stop(me, None, error)
            raise

    def _write_ahead(self, ahead: Ahead) -> None:
        """Write `ahead` without a sync, and hand the lead on."""
        if ahead.start < ahead.end:
            self._journal.write_ahead(ahead)
        with self.lock, self.changing:
            self._journal.note_ahead(ahead)
            self._writing = False
            self._hand_on()

    def _serve(self, turn: int) -> None:
        """Serve those that planned before the write of `turn` began. Under the lock."""
        waiters = self._waiters
        while waiters and waiters[0].turn <= turn:
            waiters[0].serve(self.failure)
            waiters.popleft()  # after it was served, so that `fail` leaves out no caller

    def fail(self, error: BaseException) -> None:
        """Refuse all calls from now on, because of `error`, and answer those that wait. Under the
        lock.
        """
        first = self.failure is None
        if first:
            self.failure = error
        self.owes = self.posts.are_watched = False  # nothing becomes visible any more
        self._serve(self._turn)
        self._leader = 0
        if first:
            self.on_failure()


def _nothing(what: BaseException | None) -> None:
    """Plan nothing; or tell nobody."""


def wake(waiter: Waiter) -> None:
    """Wake `waiter`, unless it was woken before. Under the lock."""
    if waiter.lock.locked():
        waiter.lock.release()
