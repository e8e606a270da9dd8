"""The calls to the storage of a home, each repeated until there is an answer.

No answer is never "no": what is found under a key is compared with what was to be made there.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from errno import ETIMEDOUT
from functools import partial
from typing import TypeVar

from fmq.basics.clock import Clock, sleep
from fmq.errors import Damaged
from fmq.home.home_floor import decode_floor, pieces_of_floor
from fmq.home.home_history import HomeHistory
from fmq.home.objects import KeyTaken, NoAnswer, Objects

T = TypeVar("T")
FIRST_PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.01, 0.5
PIECES_AT_ONCE = 8


class HomeCalls:
    """Asks one storage, for `seconds` at most. Any thread may call."""

    def __init__(self, objects: Objects, clock: Clock, seconds: float) -> None:
        self.objects = objects
        self.clock = clock
        self.seconds = seconds
        # The last floor in pieces: what its key has, and all of it.
        self._floor = b"", b""

    @property
    def address(self) -> str:
        return self.objects.address

    def fill(self, n: int, entry: bytes) -> bytes | None:
        """Create slot `n`. Return None if it has `entry` now, or else what it has.

        Raises OSError if the home gives no answer for so long that this engine must end.
        """
        key = slot_key(n)
        again = _Retries(self)
        while True:
            error: Exception
            try:
                self.objects.create(key, entry)
                return None
            except (KeyTaken, NoAnswer) as told:
                error = told
            # Never take "it exists" for "another machine has it": an earlier try may have made it.
            with suppress(NoAnswer):
                found = self.objects.read(key)
                if found is not None:
                    return None if found == entry else found
            again.wait(error)

    def asked(self, call: Callable[[], T]) -> T:
        """Return the result of `call`, which may be made again. Raises OSError if there is no
        answer.
        """
        again = _Retries(self)
        while True:
            try:
                return call()
            except NoAnswer as error:
                again.wait(error)

    def put(self, key: str, data: bytes) -> None:
        """Make an object whose key says what it has. Raises NoAnswer."""
        with suppress(KeyTaken):  # an earlier try has made it, with the same bytes
            self.objects.create(key, data)

    def floor(self) -> HomeHistory | None:
        """Return the newest floor; None if there is none."""
        lacking = ""
        while True:
            names = self.asked(lambda: self.objects.names("floors"))
            if not names:
                return None
            key = f"floors/{names[-1]}"
            data = self.asked(partial(self.objects.read, key))
            if data is not None and (whole := self._whole(data, key)) is not None:
                return decode_floor(whole, key)
            # It was removed, or pieces of it were, because there is a newer floor.
            if data is not None and key == lacking:
                raise Damaged(key, 0, f"{self.address} lacks a piece of this floor")
            lacking = key

    def _whole(self, data: bytes, key: str) -> bytes | None:
        """Return all of the floor of which `data` is under its key; None if a piece is missing."""
        known, whole = self._floor
        if known == data:
            return whole
        keys, pieces = pieces_of_floor(data, key), list[bytes]()
        if not keys:
            return data
        for at in range(0, len(keys), PIECES_AT_ONCE):
            some = keys[at : at + PIECES_AT_ONCE]
            pieces += self.asked(partial(self.objects.read_run, some))
        if len(pieces) < len(keys):
            return None
        whole = b"".join(pieces)
        self._floor = data, whole
        return whole  # and not what is kept, which another thread may have replaced by an older one


class _Retries:
    """Waits before the next try, ever longer, until it has been for too long."""

    def __init__(self, calls: HomeCalls) -> None:
        self._calls = calls
        self._until = calls.clock.monotonic() + calls.seconds
        self._pause = FIRST_PAUSE_SECONDS

    def wait(self, error: Exception) -> None:
        """Raises OSError with `error` once there is no more time."""
        calls = self._calls
        if calls.clock.monotonic() >= self._until:
            text = f"no answer in {calls.seconds:g} s ({error})"
            raise OSError(ETIMEDOUT, text, calls.address) from error
        sleep(calls.clock, self._pause)
        self._pause = min(self._pause * 2, PAUSE_SECONDS_MAX)


def slot_key(n: int) -> str:
    return f"slots/{n:020d}"
