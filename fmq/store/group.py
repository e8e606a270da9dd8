"""Sharing syncs: one thread writes for all that have planned, and hands the lead on.

Who plans while nobody leads becomes the leader: it takes everything pending, writes and syncs
it, publishes it, and wakes those it has served. If others planned meanwhile it hands the lead
to the committer, a thread that leads until nobody waits, or, where there is none, to one of
them. Each waiter sleeps on a lock of its own, so nobody is woken for nothing; alone, a thread
pays for no switch at all.

From its first write until publication a leader must not fail: whatever exception meets it
there, KeyboardInterrupt included, ends the engine, because the bytes may or may not be on the
disk. Every waiter gets exactly one answer.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from threading import get_ident
from typing import TypeVar

from fmq.errors import Closed, EngineFailed, FmqError, Forked, Nested
from fmq.store.journal import Append, Journal, Pending

T = TypeVar("T")
A = TypeVar("A")
# What a leader takes: its turn, whether a sync was asked for where the mode has none, and what is
# pending.
Taken = tuple[int, bool, Pending]
PENDING_BYTES_MAX = 8 << 20
LOOK_SECONDS = 0.001
PLANNING_SECONDS_MAX = 0.1  # of another thread, for one that does not know whether it plans


class Waiter:
    """One thread that waits for its append to be durable; or the committer, for the lead."""

    __slots__ = ("failed", "leads", "lock", "thread", "turn")

    def __init__(self, thread: int, turn: int) -> None:
        self.lock = threading.Lock()
        self.lock.acquire()
        self.thread = thread
        self.turn = turn  # the write that serves it, or a later one
        self.failed = False
        self.leads = False


class Group:
    """The threads that share one journal's syncs."""

    def __init__(
        self,
        lock: threading.Lock,
        journal: Journal,
        publish: Callable[[list[Append]], None],
        *,
        synced: bool,
    ) -> None:
        """`publish` is called under `lock` with what has become durable; without `synced`,
        with what has been written.
        """
        self.lock = lock
        self._journal = journal
        self._publish = publish
        self._synced = synced
        self._leader = 0  # the thread that leads; 0: none
        self._planner = 0  # the thread that plans, and so has the lock
        self._writing = False  # from taking what is pending until it is published
        self._turn = 0  # the number of the next write
        self._waiters: deque[Waiter] = deque()
        self._sync_wanted = False
        self.committer: Waiter | None = None  # who leads while others wait; None: one of them
        self.syncs = 0
        self.on_pending: Callable[[], None] = lambda: None  # something waits for the next sync
        self.on_failure: Callable[[], None] = lambda: None  # called once, under the lock
        self.failure: BaseException | None = None

    def idle(self) -> bool:
        """Whether nothing is planned or being written. Under the lock."""
        return not self._leader and not self._journal.is_pending

    def run(self, plan: Callable[[A], T], what: A, *, wait: bool = True, force: bool = False) -> T:
        """Call `plan(what)` under the lock; return what it returns once all it planned is durable.

        Without `wait` it returns at once, and what was planned becomes durable with the next
        sync. `force` syncs in an engine whose mode does not. An FmqError of `plan` means that
        it changed nothing.
        """
        me = get_ident()
        if self._leader == me or self._planner == me:
            self._refuse_inside(me)
        waiter = taken = None
        try:
            with self.lock:
                # Python looks for signals behind calls: none comes between this and the lock.
                self._planner = me
                if self.failure is not None:
                    self.check()
                result = self._call(plan, what)
                if force:
                    self._sync_wanted = True
                if not wait and self._journal.pending_bytes < PENDING_BYTES_MAX:
                    self.on_pending()
                    self._planner = 0
                    return result
                if self._leader:
                    waiter = Waiter(me, self._turn)
                    self._waiters.append(waiter)
                else:
                    taken = self._take(me)
                self._planner = 0
            if waiter is not None:
                waiter.lock.acquire()
                if waiter.leads:
                    with self.lock:
                        self.check()
                        taken = self._take(me)
                elif waiter.failed:
                    raise self.failed_error() from self.failure
            if taken is not None:
                self._lead(me, taken)
        except BaseException as error:
            self._leave(me, waiter, error)
            # Not only the failure itself: when a disk dies, others may have met it before.
            if isinstance(error, OSError) and not isinstance(error, FmqError):
                raise self.failed_error() from error
            raise
        return result

    def _refuse_inside(self, me: int) -> None:
        """Nested; but not if thread `me` plans no more, and an interrupt kept it from saying so."""
        if self._leader == me or not becomes_free(self.lock, PLANNING_SECONDS_MAX):
            raise Nested

    def refuse_inside(self) -> None:
        """Nested, if a signal handler makes the call in the middle of a write of its thread."""
        me = get_ident()
        if self._leader == me or self._planner == me:
            self._refuse_inside(me)

    def needs(self, me: int) -> bool:
        """Whether thread `me` plans, leads, or waits and may be given the lead: asked by itself,
        that is by a signal handler, nobody goes on before that returns.
        """
        if self._leader == me or self._planner == me:
            return True
        return self.committer is None and any(each.thread == me for each in [*self._waiters])

    def _leave(self, me: int, waiter: Waiter | None, error: BaseException) -> None:
        """A thread stops before its time. A lead that it has goes to the next one, unless it was
        writing: then the engine is done.
        """
        with self.lock:
            if self._planner == me:
                self._planner = 0
            if self._leader == me:
                if self._writing:
                    self._fail(error)
                else:
                    self._hand_on()
            elif waiter is not None and waiter in self._waiters:
                self._waiters.remove(waiter)
            if self._journal.is_pending:
                self.on_pending()  # this thread may have planned it, and nobody waits for it now

    def _call(self, plan: Callable[[A], T], what: A) -> T:
        try:
            return plan(what)
        except BaseException as error:
            # Refused before anything was changed; any other may have come in between, as may what a
            # signal handler was told.
            if not isinstance(error, FmqError) or isinstance(error, Nested):
                self._fail(error)
            raise

    def check(self) -> None:
        """Raise if the engine has failed or is closed. Under the lock."""
        if self.failure is not None:
            raise self.failed_error() if self.broken() else self.failure.with_traceback(None)

    def close(self, refusal: Closed) -> None:
        """Refuse everything from now on, with `refusal`. Under the lock."""
        assert self.idle()
        self.failure = refusal

    def broken(self) -> bool:
        """Whether a write or sync has failed, so that nothing may be believed of the disk."""
        return self.failure is not None and not isinstance(self.failure, (Closed, Forked))

    def failed_error(self) -> EngineFailed:
        return EngineFailed(
            f"the engine stopped at an error while writing ({said(self.failure)}) and takes "
            "nothing more. What had been acknowledged is safe; the outcome of calls that were "
            "running is unknown. Close it and open the directory again: recovery finds the truth, "
            "and engine.outcome(tx_id) tells what became of a transaction."
        )

    def flush(self, *, force: bool = False) -> None:
        """Make everything planned so far durable."""
        self.run(_nothing, None, force=force)

    def _hand_on(self) -> None:
        """Give the lead to the committer or, without one, to who has waited longest; if nobody
        waits, to nobody. Under the lock.
        """
        if not self._waiters:
            self._leader = 0
            return
        heir = self.committer or self._waiters[0]
        heir.leads = True
        wake(heir)
        # In this order, so that after an interrupt on the way it can be done once more.
        self._leader = heir.thread
        if heir is not self.committer:
            self._waiters.popleft()

    def _take(self, me: int) -> Taken:
        """Become the leader, of everything that is pending. Under the lock."""
        self._leader = me
        self._writing = True
        turn, force = self._turn, self._sync_wanted
        self._turn = turn + 1
        self._sync_wanted = False
        return turn, force, self._journal.take_pending()

    def lead_for_others(self, me: int) -> None:
        """The committer was woken: write what is pending, if it was given the lead."""
        with self.lock:
            if self._leader != me:
                return  # an interrupted leader has woken it twice
            taken = self._take(me)
        self._lead(me, taken)

    def _lead(self, me: int, taken: Taken) -> None:
        """Write what was taken, publish it, wake those it served, and hand the lead on."""
        turn, force, pending = taken
        journal, synced, publish = self._journal, self._synced, self._publish
        try:
            journal.write(pending, sync=synced)
            if force and not synced:
                journal.sync()
            with self.lock:
                appends, _, segment, _, end, _, chain = pending
                if synced or force:
                    self.syncs += 1
                    journal.durable_to = end
                elif segment.base > journal.durable_to:
                    journal.durable_to = segment.base  # what is sealed was synced
                journal.written_to, journal.written_chain = end, chain
                if appends:
                    publish(appends)
                self._writing = False
                if self._waiters:
                    self._wake_served(turn)
                    self._hand_on()
                else:
                    self._leader = 0
        except BaseException as error:
            # `run` does the same once more, for an interrupt that comes in here.
            self._leave(me, None, error)
            raise

    def _wake_served(self, turn: int) -> None:
        """Wake those that planned before the write of `turn` began. Under the lock."""
        waiters = self._waiters
        while waiters and waiters[0].turn <= turn:
            wake(waiters[0])
            waiters.popleft()

    def _fail(self, error: BaseException) -> None:
        """The engine is done: nothing is planned or written any more. Under the lock."""
        first = self.failure is None
        if self.failure is None:
            self.failure = error
        for waiter in self._waiters:
            waiter.failed = True
        self._wake_served(self._turn)
        self._leader = 0
        if first:
            self.on_failure()

    def fail(self, error: BaseException) -> None:
        """Stop the engine because of `error`, met outside of a write. Under the lock."""
        self._fail(error)


def said(error: BaseException | None) -> str:
    """The error in a word and its text, which of an OSError names the file."""
    return f"{type(error).__name__}: {error}" if isinstance(error, OSError) else repr(error)


def _nothing(what: None) -> None:
    """A plan that plans nothing."""


def becomes_free(lock: threading.Lock, seconds: float) -> bool:
    """Whether nobody has `lock` at some moment of the next `seconds`. It is looked at and not
    taken: an interrupt would leave it so for ever.
    """
    pause = threading.Lock()
    pause.acquire()
    for _ in range(int(seconds / LOOK_SECONDS)):
        if not lock.locked():
            return True
        pause.acquire(timeout=LOOK_SECONDS)
    return not lock.locked()


def wake(waiter: Waiter) -> None:
    """Wake it; one that was woken before, and then interrupted, sleeps no more. Never by two at
    once: under the lock, or once no leader knows of it any more.
    """
    if waiter.lock.locked():
        waiter.lock.release()
