"""The orders to write that coroutines of a loop have given, and their answers.

An order does not know how it is carried out. Its `work` is for the side that does it: for an engine
of this process a plan with its argument (loop_turn.py), for a connection a request
(link_writer.py).
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from fmq.aio.call import Call
from fmq.basics.message import made_receipt
from fmq.errors import OutcomeUnknown
from fmq.steps.call_steps import Command

T = TypeVar("T")

JOINED_BYTES_MAX = 256 << 10  # limit for the bodies of a record that several sends share
MakeError = Callable[[], BaseException]
Undo = Callable[[BaseException | None], BaseException | None]
Target = tuple[str, int, str]
"""Topic, queue and producer of a message."""
RecordPlace = tuple[int, int, int]
"""Queue, offset and position of a record."""


def _unread(error: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"what this call wrote is durable, but its answer cannot be read ({error!r}). Look at it "
        "with engine.read."
    )


class AioOrder(Call):
    """A call of a coroutine that writes."""

    __slots__ = ("done", "patience", "refusal", "size", "sync", "undo", "work")

    def __init__(
        self,
        loop: AbstractEventLoop,
        work: Any,
        done: Callable[..., Any],
        sync: bool | None = None,
        size: int = 0,
        undo: Undo | None = None,
    ) -> None:
        """`done` makes the result of the call from the result of the work. If the work fails,
        `undo` gets the error, and returns the error for the caller. If the call was cancelled
        before it began, `undo` gets None.
        """
        super().__init__(loop)
        self.work = work
        self.done = done
        self.sync = sync
        self.size = size
        self.undo = undo
        self.patience = 0.0  # seconds that the answer to the request may take
        self.refusal: Exception | None = None

    def begin(self) -> bool:
        """Note that the order begins. Return False if its call was cancelled before."""
        if self.future.cancelled():
            if self.undo is not None:
                self.undo(None)
            return False
        self.has_begun = True
        return True

    def finish(self, *found: Any) -> None:
        """Give the caller its answer, made from the result of the work."""
        try:
            result = self.done(*found)
        except Exception as error:
            self.settle(None, error)
        else:
            self.settle(result)

    def fail(self, make: MakeError) -> None:
        """Give the caller the error that `make` makes."""
        error = make()
        self.settle(None, error if self.undo is None else self.undo(error) or error)


class LateOrder(AioOrder):
    """An order whose command is made at the end of the turn.

    So the commands of a turn are made one after the other, and no code of the coroutines runs in
    between. A processor runs code much faster if it has just run it.
    """

    __slots__ = ("_make", "_what")

    def __init__(
        self,
        loop: AbstractEventLoop,
        make: Callable[[T], Command[Any]],
        what: T,
        sync: bool | None,
        size: int,
    ) -> None:
        """`make(what)` returns the command, or raises the error that refuses the call."""
        super().__init__(loop, None, _nothing, sync, size)
        self._make: Callable[[Any], Command[Any]] = make
        self._what = what

    def begin(self) -> bool:
        """Make the command. Return False if the call was cancelled before, or is refused."""
        if not super().begin():
            return False
        try:
            *work, self.done = self._make(self._what)
        except Exception as error:
            self.settle(None, error)
            return False
        self.work = tuple(work)
        return True


def _nothing() -> None:
    pass


class SentCall(Call):
    """One message of a record that several sends share."""

    __slots__ = ("body",)

    def __init__(self, loop: AbstractEventLoop, body: bytes) -> None:
        super().__init__(loop)
        self.body = body


class Joined:
    """Sends of one turn to one queue, which become one record."""

    __slots__ = ("_make", "_place_of", "calls", "refusal", "size", "sync", "target", "work")
    patience = 0.0

    def __init__(
        self,
        make: Callable[[Target, list[bytes], bool | None], Any],
        place_of: Callable[..., RecordPlace],
        target: Target,
        sync: bool | None,
    ) -> None:
        """`make` makes the work. `place_of` gets the work and its result, and returns the place of
        the record.
        """
        self._make = make
        self._place_of = place_of
        self.target = target
        self.sync = sync
        self.calls: list[SentCall] = []
        self.size = 0
        self.refusal: Exception | None = None
        self.work: Any = None

    def begin(self) -> bool:
        """Make the record. Return False if all sends were cancelled, so that there is no record."""
        calls = self.calls
        for call in calls:
            if call.future.cancelled():
                self.calls = calls = [each for each in calls if not each.future.cancelled()]
                break
        if not calls:
            return False
        for call in calls:
            call.has_begun = True
        self.work = self._make(self.target, [call.body for call in calls], self.sync)
        return True

    def finish(self, *found: Any) -> None:
        """Give each caller its receipt."""
        topic = self.target[0]
        try:
            queue, offset, position = self._place_of(self.work, *found)
        except Exception as error:
            self.fail(partial(_unread, error))
            return
        for number, call in enumerate(self.calls, offset):
            call.result = receipt = made_receipt((topic, queue, number, position, 1))
            call.is_settled = True
            if not call.future.done():
                call.future.set_result(receipt)

    def fail(self, make: MakeError) -> None:
        """Give each caller an error of its own. A shared error would collect the tracebacks of all
        callers.
        """
        for call in self.calls:
            call.settle(None, make())


class TurnBatch:
    """The orders that one turn of a loop has written."""

    __slots__ = ("failure", "left", "orders", "size")

    def __init__(self, orders: list[AioOrder | Joined]) -> None:
        self.size = sum([order.size for order in orders])
        self.orders = [order for order in orders if order.begin()]
        self.left = len(self.orders)  # orders without an answer
        self.failure: BaseException | None = None
