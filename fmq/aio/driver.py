"""Carries out the steps of calls on a loop. A thread helps only where a step has to wait for the
disk.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections.abc import Callable
from typing import Any, TypeVar

from fmq.aio.call import Call, end_of, written
from fmq.aio.loop_turn import AioTurn
from fmq.aio.threads import Threads
from fmq.loops.event_loop import notifier
from fmq.loops.wake_ups import Waits
from fmq.loops.watch import LoopWatch
from fmq.steps.call_steps import Apart, Arrival, Durable, Steps
from fmq.store.journal.commit_queue import CommitQueue

T = TypeVar("T")


class LoopDriver:
    """Carries out the steps of the calls of one loop."""

    def __init__(
        self,
        loop: AbstractEventLoop,
        queue: CommitQueue,
        turn: AioTurn,
        threads: Threads,
        monotonic: Callable[[], float],
    ) -> None:
        self.loop = loop
        self._queue = queue
        self._turn = turn
        self._threads = threads
        self.monotonic = monotonic
        self.waits = Waits(loop, queue, monotonic)

    async def drive(self, call: Steps[T]) -> T:
        """Carry out the steps of `call`, and return its result. A call that is cancelled gets the
        CancelledError where it waits.
        """
        watch: AwaitedWatch | None = None
        step: Callable[[Any], Any] = call.send
        answer: Any = None
        try:
            while True:
                want = step(answer)
                step, answer = call.send, None
                try:
                    if type(want) is Durable:
                        if want.ahead and not self._queue.is_led:
                            answer = self._queue.run(want.plan, want.what, wait=True, ahead=True)
                        else:
                            answer = await (self._ahead if want.ahead else self._durable)(want)
                    elif type(want) is Arrival:
                        watch = watch or AwaitedWatch(self.loop, self.waits)
                        await watch.keep(want)
                    elif type(want) is Apart:
                        answer = await self._threads.long(want.work)
                    else:
                        answer = await self._threads.read(want)
                except BaseException as error:
                    step, answer = call.throw, error
        except StopIteration as done:
            if watch is not None:
                watch.end(found=bool(done.value))
            return done.value  # type: ignore[no-any-return]
        except BaseException:
            if watch is not None:
                watch.end(found=True)
            raise
        finally:
            # An error in `answer` would keep this frame alive, and the frame would keep the error.
            answer = None

    async def _durable(self, want: Durable) -> Any:
        """Have the append of a step written together with the other orders of this turn of the
        loop.
        """
        answers: list[Any] = []

        def plan(what: Any) -> None:
            answers.append(want.plan(what))

        order = self._turn.order(plan, want.what, _nothing, want.sync, is_apart=True)
        try:
            await order.future
        except CancelledError as cancelled:
            await end_of(order, cancelled, written)
        return answers[0]

    async def _ahead(self, want: Durable) -> Any:
        """Have the append of a step written by the thread that writes now. If the loop waited for
        that thread, all other calls would wait, too.
        """
        call = Call(self.loop)
        call.has_begun = True

        failures: list[BaseException] = []

        def settle() -> None:
            call.settle(None, self._queue.failed_error() if failures else None)

        # Made in the thread of the loop, which `notifier` has to know.
        notify = notifier(self.loop, settle)

        def then(failure: BaseException | None) -> None:
            if failure is not None:
                failures.append(failure)
            notify()

        answer = self._queue.submit(want.plan, want.what, then, want.sync, ahead=True)
        await call.future
        return answer


class AwaitedWatch(LoopWatch):
    """The arrivals that a coroutine waits for."""

    def __init__(self, loop: AbstractEventLoop, waits: Waits) -> None:
        super().__init__(waits, self._set)
        self._new_future = loop.create_future
        self._future: Future[None]

    async def keep(self, arrival: Arrival) -> None:
        """Begin to listen and return. If the watch listens already, wait until it is called."""
        if not self.listens:
            self._future = self._new_future()
            self.listen(arrival)
            return
        self.begin_to_wait()
        try:
            await self._future
        finally:
            self.stop()

    def _set(self) -> None:
        if not self._future.done():
            self._future.set_result(None)


def _nothing() -> None:
    pass
