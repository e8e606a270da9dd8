"""The driver of polls on a loop: it waits without a thread, except for the disk (see poll.py)."""

from __future__ import annotations

from asyncio import AbstractEventLoop, Future, TimerHandle
from collections.abc import Callable
from typing import Any

from fmq.aio.loop_turn import AioTurn
from fmq.aio.threads import Threads
from fmq.consume.calls.member import GroupMember
from fmq.consume.claims.poll import ARRIVAL, LOOK, Poll, Taken
from fmq.server.wake_ups import DAY, GroupWaits, Waits
from fmq.store.journal.commit_queue import CommitQueue


class Polls:
    """The polls of one loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        queue: CommitQueue,
        turn: AioTurn,
        threads: Threads,
        monotonic: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._queue = queue
        self._turn = turn
        self._threads = threads
        self._monotonic = monotonic
        self._waits = Waits(loop, queue, monotonic)

    async def find(self, member: GroupMember, poll: Poll) -> Taken:
        """Drive `poll` on the loop, as `member.find` does in a thread. A cancelled poll holds
        nothing.
        """
        waits = self._waits.of(member)
        arrival = Arrival(self._loop, waits, member, poll, self._monotonic)
        call = member.taking(poll)
        step: Callable[[Any], Any] = call.send
        answer: Any = None
        try:
            while True:
                want = step(answer)
                try:
                    if want is LOOK:
                        answer = await self._look(member, poll)
                    elif want is ARRIVAL:
                        await arrival.wait()
                    else:
                        answer = await self._threads.read(want)
                    step = call.send
                except BaseException as error:
                    step, answer = call.throw, error
        except StopIteration as done:
            if done.value is not None:
                waits.wake_next()  # more messages may be there for another poll
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            waits.wake_next()  # the message may have woken only this poll, which ends: wake another
            raise
        finally:
            answer = None  # an error that is kept here would refer to this frame
            arrival.stop()

    async def _look(self, member: GroupMember, poll: Poll) -> object:
        if not self._queue.is_led:
            return self._queue.run(member.plan_look, poll, wait=True, ahead=True)
        found = self._queue.run(member.plan_look, poll, wait=False)
        if poll.is_counted:
            # Another thread is writing. Waiting for it here would hold up the loop.
            await self._turn.order(_nothing, None, _done, True, is_apart=True).future
        return found


class Arrival:
    """Waits until a poll may find something."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        waits: GroupWaits,
        member: GroupMember,
        poll: Poll,
        monotonic: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._waits = waits
        self._member = member
        self._poll = poll
        self._monotonic = monotonic
        self._future: Future[None] | None = None
        self._timer: TimerHandle | None = None

    async def wait(self) -> None:
        """The first call only listens and returns: a message may have come just before. Each next
        call waits.
        """
        if self._future is not None:
            try:
                await self._future
            finally:
                self.stop()
            return
        self._future = self._loop.create_future()
        until = min(self._waits.listen(self._member, self._notify), self._poll.deadline)
        later = max(until - self._monotonic(), 0.0)
        self._timer = self._loop.call_later(min(later, DAY), self._notify)

    def _notify(self) -> None:
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def stop(self) -> None:
        """Stop listening."""
        if self._timer is not None:
            self._timer.cancel()
        if self._future is not None:
            self._future = None
            self._waits.stop(self._member, self._notify)


def _nothing(what: None) -> None:
    """Plan nothing."""


def _done() -> None:
    pass
