"""The requests of one client that wait for their answers.

Each request keeps its bytes until its answer has come, so that it can be sent again over another
connection. A request that writes has a sequence number. By that the engine process knows the
requests that it has carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock, RLock
from typing import NamedTuple, NoReturn

from fmq.basics.clock import Clock
from fmq.errors import TooLarge
from fmq.tx.ledger.done_requests import FORGOTTEN_AFTER_US
from fmq.wire.frames import HEAD, HELLO_BYTES_MAX, ONCE, VALUES_BYTES_MAX, WRITES, Op, frame

REPEATED_US_MAX = FORGOTTEN_AFTER_US - 60 * 1_000_000
"""How long a request may be sent again. The engine process may have forgotten it after that."""

Answered = Callable[[bytes, Exception | None], None]
"""Called once, by the thread that reads: with the answer, or with an error."""


class ToAsk(NamedTuple):
    """A request that was not sent yet. `Link.write` explains the fields."""

    op: Op
    encode: Callable[..., Iterable[bytes]]
    what: tuple[object, ...]
    handle: int
    patience: float
    then: Answered


class Asked:
    """A request that was sent and waits for its answer."""

    __slots__ = (
        *("answer", "error", "frame", "is_done", "number", "op", "patience", "sequence"),
        *("since", "since_us", "then", "wake"),
    )

    def __init__(
        self,
        op: int,
        number: int,
        sequence: int,
        frame: bytes,
        since_us: int,
        since: float,
        patience: float,
        then: Answered | None,
    ) -> None:
        self.op = op
        self.then = then
        self.number = number
        self.sequence = sequence  # the number of a request that is carried out only once; else -1
        self.frame = frame
        # When the request was made, by the clock on the wall, which goes on while the machine
        # sleeps.
        self.since_us = since_us
        self.since = since  # when the request was made, by the clock that never goes back
        self.patience = patience  # how long the answer may take, in seconds
        self.answer = b""
        self.error: Exception | None = None
        self.is_done = False
        # The caller's thread sleeps on this lock while another thread reads.
        self.wake: Lock | None = None


class OpenRequests:
    """The requests without an answer, in the order in which they were sent."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # Held only for a moment. So the thread that reads never waits for one that sends: an engine
        # process may read no more until its answers are read. An RLock, because that knows its
        # owner.
        self.lock = RLock()
        self.waiting: dict[int, Asked] = {}  # requests without an answer, by their numbers
        self._writing: dict[int, None] = {}  # the sequence numbers without an answer
        self._next_request = 1  # begins at 1: a JOIN that is repeated has the number 0
        self._next_sequence = 0
        self.append_bytes_max = 0  # the largest append that the engine process takes

    def note(
        self,
        op: Op,
        encode: Callable[..., Iterable[bytes]],
        what: Iterable[object],
        handle: int,
        patience: float,
        then: Answered | None = None,
    ) -> Asked:
        """Return a new request. From now on it waits for its answer.

        Raises TooLarge if it is larger than the engine process accepts. The caller sees to it that
        no other request is noted meanwhile.
        """
        number = self._next_request
        sequence = waiting = -1
        of_append = self.append_bytes_max + HELLO_BYTES_MAX
        limit = of_append if op in WRITES else min(VALUES_BYTES_MAX, of_append)
        if op in ONCE:
            sequence = self._next_sequence
            with self.lock:
                waiting = sequence - next(iter(self._writing), sequence)
        parts = encode(sequence, waiting, *what)  # raises if `what` cannot be encoded
        data = frame(op, number, *parts, handle=handle)
        if len(data) > limit + HEAD.size:
            _refuse_size(len(data) - HEAD.size, limit)
        now_us, now = self._clock.time_us(), self._clock.monotonic()
        asked = Asked(op, number, sequence, data, now_us, now, patience, then)
        with self.lock:
            self._next_request = number % 0xFFFF_FFFF + 1
            self.waiting[number] = asked
            if sequence >= 0:
                self._next_sequence = sequence + 1
                self._writing[sequence] = None
        return asked

    def forget(self, asked: Asked) -> None:
        """Forget a request whose caller has stopped waiting."""
        with self.lock:
            self.waiting.pop(asked.number, None)
            self._writing.pop(asked.sequence, None)

    def end(self, asked: Asked, answer: bytes, error: Exception | None) -> None:
        """Hand an answer, or an error, to the thread that waits for it."""
        with self.lock:
            self.waiting.pop(asked.number, None)
            self._writing.pop(asked.sequence, None)
            asked.answer, asked.error, asked.is_done = answer, error, True
            if asked.wake is not None and asked.wake.locked():
                asked.wake.release()
        if asked.then is not None:
            asked.then(answer, error)

    def is_one_late(self) -> bool:
        """Return whether a request should have had its answer by now."""
        now = self._clock.monotonic()
        with self.lock:
            waiting = [*self.waiting.values()]
        return any(now - each.since > each.patience for each in waiting)

    def too_old(self) -> list[Asked]:
        """Return the requests that may not be repeated: the engine process may have forgotten them.

        The age of a request is the larger one of two clocks. One clock stops while the machine
        sleeps, and the other one may be set back.
        """
        oldest_us = self._clock.time_us() - REPEATED_US_MAX
        oldest = self._clock.monotonic() - REPEATED_US_MAX / 1e6
        with self.lock:
            waiting = [*self.waiting.values()]
        once = [each for each in waiting if each.op in ONCE]
        return [each for each in once if each.since_us < oldest_us or each.since < oldest]


def _refuse_size(size: int, limit: int) -> NoReturn:
    """Raise TooLarge for a request that the engine process would not accept."""
    option = "fixed by the protocol" if limit == VALUES_BYTES_MAX else "segment_bytes"
    raise TooLarge("a request in bytes", size, limit, option)
