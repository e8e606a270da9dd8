"""A call that waits on a loop: it gets exactly one answer, and a cancellation loses none.

A call that is cancelled before it has begun is taken back. A call that is on its way to the disk,
or to the engine process, cannot be taken back. Its coroutine waits for the answer all the same,
which takes a sync. Then CancelledError is raised, with a note that says what became of the call.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, CancelledError, Future
from collections.abc import Callable
from typing import Any

from fmq.errors.notes import add_note, note_carried_out


class Call:
    """A call of a coroutine that waits for its answer. Only the thread of the loop touches it."""

    __slots__ = ("error", "future", "has_begun", "is_settled", "result")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.future: Future[Any] = loop.create_future()
        self.has_begun = False
        """Whether it is on its way, so that it will have an answer."""
        self.is_settled = False
        self.result: Any = None
        self.error: BaseException | None = None

    def settle(self, result: Any, error: BaseException | None = None) -> None:
        """Set the answer of the call: a result or an error."""
        if self.is_settled:
            return
        self.is_settled = True
        self.result, self.error = result, error
        future = self.future
        if future.done():
            return  # the coroutine was cancelled, and has not run since
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def ignore(self) -> None:
        """Say that no coroutine will read the answer. Otherwise the loop would log an error that
        was never retrieved.
        """
        self.future.add_done_callback(_heard)


def _heard(future: Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


async def end_of(
    call: Call, cancelled: CancelledError, note: Callable[[Call], str] | None = None
) -> None:
    """Wait for the answer of a cancelled call, if the call has begun. Then raise `cancelled`."""
    if not call.has_begun:
        call.future.cancel()
        raise cancelled
    await settled(call)
    if call.error is None:
        note_carried_out(cancelled)
    if note is not None:
        add_note(cancelled, note(call))
    raise cancelled from call.error


async def settled(call: Call) -> None:
    """Wait for the answer of a call that has begun, even if the task is cancelled meanwhile."""
    while not call.is_settled:
        call.future = call.future.get_loop().create_future()
        try:
            await call.future
        except CancelledError:
            continue  # anyio cancels again at each await
        except BaseException:
            break


def written(call: Call) -> str:
    """Return a text that says whether the append of a cancelled call was written."""
    came = "The cancellation came while this call wrote, which cannot be taken back: "
    if call.error is None:
        return f"{came}it is done ({call.result!r:.300})."
    return f"{came}it raised {type(call.error).__name__}, as is said above."


def ended(call: Call) -> str:
    """Return a text that says what became of a cancelled call that a thread has carried out."""
    came = "The cancellation came while this call was carried out, which goes on to its end: "
    return came + ("it is done." if call.error is None else f"{type(call.error).__name__}.")
