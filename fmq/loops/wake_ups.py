"""Polls that wait for messages of a group: a message wakes only polls that may find it.

If a thousand members wait and one message comes, one of them gets it. Waking all would cost the
sender their time. So all polls of a loop that wait for the same group and topics share one
listener.

If members compete, the listener wakes the poll that has waited longest. If that poll finds
something, it wakes the next one, because there may be more; likewise if it ends without a look. The
first poll that finds nothing waits again, and the listener listens again.

    message --> listener --> poll 1 finds it --> poll 2 finds nothing, and listens again
                             poll 3 ... poll 1000 sleep on

If each member has its own queues (a strategy), the listener wakes the polls of those members whose
queues have a message. A member that drains has all its polls woken, whose turn it is or not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, NamedTuple

from fmq.consume.calls.member import GroupMember
from fmq.consume.claims.membership import Member
from fmq.loops.event_loop import DAY, Loop, Timer, notifier
from fmq.steps.call_steps import Arrival, Notify
from fmq.store.journal.commit_queue import CommitQueue


class GroupWaits:
    """The polls of one loop that wait for one group. Only the loop's thread uses it."""

    def __init__(
        self,
        loop: Loop,
        commit_queue: CommitQueue,
        monotonic: Callable[[], float],
        *,
        compete: bool,
    ) -> None:
        """`compete` says that any member may get a message, because the group has no strategy."""
        self._loop = loop
        # Any thread may call this, under the engine's lock.
        self._fired = notifier(loop, self._wake)
        self._commit_queue = commit_queue
        self._monotonic = monotonic
        self._compete = compete
        # The callbacks of waiting polls, with their members. The one that has waited longest is
        # first.
        self._waiting: dict[Notify, GroupMember] = {}
        self._stirred: set[Member] = set()  # members whose queues may have a message
        self._listens: GroupMember | None = None  # the member that listens for all waiting polls
        self._timer: Timer | None = None

    def listen(self, member: GroupMember, notify: Notify) -> float:
        """Have `notify` called when the poll of `member` should look. Return the time at which it
        should look even if it was not called.
        """
        entry = member.entry
        with self._commit_queue.lock:
            entry.waiting.add(notify)  # a member with a waiting poll is not taken for silent
            entry.on_stir = self._stir if self._compete else self._stirred.add
        self._waiting[notify] = member
        if self._listens is None:
            self._begin(member)
        return inf if self._compete else member.looks_anyway_at()

    def stop(self, member: GroupMember, notify: Notify) -> None:
        """Do not call `notify` any more."""
        with self._commit_queue.lock:
            member.entry.end_wait(notify, self._monotonic())
        self._waiting.pop(notify, None)
        if member is self._listens or not self._waiting:
            self._end()
            for other in self._waiting.values():
                self._begin(other)
                break

    def wake_next(self) -> None:
        """Wake the poll that has waited longest. A poll that was woken calls this when it has found
        something, or when it ends without a look.
        """
        if self._compete:
            for notify in self._waiting:
                del self._waiting[notify]
                notify()
                break

    def _stir(self, member: Member) -> None:
        """Wake all polls of `member`, which drains. This works also while one poll looks, and so
        none listens. The caller holds the engine's lock.
        """
        self._stirred.add(member)
        self._fired()

    def _wake_stirred(self) -> None:
        """Wake the polls of members that drain, or whose queues may have a message."""
        while self._stirred:
            woken: list[Any] = [*self._stirred.pop().waiting]
            for notify in woken:
                if self._waiting.pop(notify, None) is not None:
                    notify()

    def _wake_owners(self) -> None:
        """Wake the polls whose members may find something in their queues."""
        if not self._waiting:
            return
        first = next(iter(self._waiting.values()))
        self._begin(first)  # listen before the look: the next message may come meanwhile
        if first.all_may_find():
            for notify in [*self._waiting]:
                del self._waiting[notify]
                notify()
        self._wake_stirred()
        if first is self._listens and not self._waiting:
            self._end()

    def _begin(self, member: GroupMember) -> None:
        self._listens = member
        until = member.listen(self._fired)
        if self._compete:
            later = max(until - self._monotonic(), 0.0)
            self._timer = self._loop.call_later(min(later, DAY), self._wake)

    def _end(self) -> None:
        member, self._listens = self._listens, None
        if member is not None:
            member.stop_listening(self._fired)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _wake(self) -> None:
        self._end()
        if self._compete:
            self._wake_stirred()
            self.wake_next()
        else:
            self._wake_owners()


class Listening(NamedTuple):
    """How one call of a loop listens."""

    group: GroupWaits | None
    listen: Callable[[Notify], float]
    stop: Callable[[Notify], None]


class Waits:
    """All waiting polls of one loop, by group."""

    def __init__(
        self, loop: Loop, commit_queue: CommitQueue, monotonic: Callable[[], float]
    ) -> None:
        self.loop = loop
        self.monotonic = monotonic
        self._what = loop, commit_queue, monotonic
        self._of: dict[tuple[str, tuple[str, ...], bool], GroupWaits] = {}

    def of(self, member: GroupMember) -> GroupWaits:
        """Return the polls that wait for the same messages as those of `member`."""
        compete = member.entry.strategy is None
        key = member.group, member.topics, compete
        waits = self._of.get(key)
        if waits is None:
            waits = self._of[key] = GroupWaits(*self._what, compete=compete)
        return waits

    def listening(self, arrival: Arrival) -> Listening:
        """Return how a call listens for `arrival`: with its group, if a member looks."""
        member = arrival.member
        if member is None:
            return Listening(None, arrival.listen, arrival.stop)
        group = self.of(member)
        return Listening(group, partial(group.listen, member), partial(group.stop, member))
