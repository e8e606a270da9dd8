"""How often a message is tried, and how long it waits between two attempts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import random
from typing import Any

from fmq.arguments.names import check_count, check_seconds
from fmq.errors import BadOption
from fmq.tx.ledger.attempts import ATTEMPTS_MAX

DELAY_SECONDS_MAX = 10 * 366 * 86400.0
BACKOFF_SECONDS_MAX = 600.0  # the longest delay, unless the caller sets another
DELAYS_MAX = 1000


def check_delay(delay: float) -> float:
    """Return `delay` as a float. Raises TypeError, or BadOption if it is beyond ten years."""
    delay = check_seconds("delay", delay)
    if not 0 <= delay <= DELAY_SECONDS_MAX:
        raise BadOption(
            f"delay={delay:g}: is in seconds, from 0 to ten years. Nothing was changed; name a "
            "time within that, and release again then."
        )
    return delay


@dataclass(frozen=True, slots=True)
class Retry:
    """How often a consumer tries a message, and how long it waits after an attempt that failed."""

    attempts: int | None = None
    """How often, until it is a dead letter; None: for ever."""
    backoff: float | Sequence[float] = field(default=1.0, kw_only=True)
    """The delay after the first attempt in seconds, doubled after each further one, up to ten
    minutes. Or the delays themselves, of which the last one is repeated."""
    jitter: float = field(default=0.0, kw_only=True)
    """The share by which a delay is shortened at random, at most, so that messages that failed
    together are not tried together."""

    def __post_init__(self) -> None:
        if self.attempts is not None and check_count("attempts", self.attempts) > ATTEMPTS_MAX:
            raise BadOption(
                f"attempts={self.attempts}: at most {ATTEMPTS_MAX:,}, and None is for ever. "
                "Nothing was changed."
            )
        backoff = self.backoff
        if isinstance(backoff, Sequence) and not isinstance(backoff, (str, bytes)):
            if not 0 < len(backoff) <= DELAYS_MAX:
                raise BadOption(
                    f"backoff: {len(backoff)} delays, and there must be 1 to {DELAYS_MAX}. "
                    "Nothing was changed."
                )
            object.__setattr__(self, "backoff", tuple(check_delay(each) for each in backoff))
        else:
            object.__setattr__(self, "backoff", check_delay(backoff))  # type: ignore[arg-type]
        object.__setattr__(self, "jitter", check_seconds("jitter", self.jitter))
        if not 0 <= self.jitter <= 1:
            raise BadOption(
                f"jitter={self.jitter:g}: is the share of a delay that may be left out, from 0 to "
                "1. Nothing was changed."
            )

    def delay(self, count: int, draw: Callable[[], float] = random) -> float:
        """Return how many seconds to wait after attempt number `count` has failed."""
        if isinstance(self.backoff, Sequence):
            delay = self.backoff[min(count, len(self.backoff)) - 1] if count else 0.0
        else:
            delay = min(self.backoff * 2.0 ** min(max(count, 1) - 1, 64), self.longest)
        return delay * (1 - self.jitter * draw()) if self.jitter and delay else delay

    @property
    def longest(self) -> float:
        """The longest delay in seconds. If the delays are a list, this is the largest of them.
        Otherwise it is ten minutes, or `backoff` if that is longer.
        """
        if isinstance(self.backoff, Sequence):
            return max(self.backoff) or BACKOFF_SECONDS_MAX
        return max(BACKOFF_SECONDS_MAX, self.backoff)

    def is_last(self, count: int) -> bool:
        """Return whether attempt number `count` is the last one."""
        return self.attempts is not None and count >= self.attempts

    def said(self) -> list[Any]:
        """Return the retry as plain values, to be sent to another process."""
        backoff = [*self.backoff] if isinstance(self.backoff, Sequence) else self.backoff
        return [self.attempts, backoff, self.jitter]


def retry_said(said: Any) -> Retry | None:
    """Return the Retry that another process sent as plain values. Raises TypeError or BadOption."""
    if said is None:
        return None
    attempts, backoff, jitter = said
    return Retry(attempts, backoff=backoff, jitter=jitter)


DEFAULT = Retry(backoff=(0.0, *(2.0**n for n in range(10)), BACKOFF_SECONDS_MAX))
"""For a consumer that says nothing: for ever, after 0 s, 1 s, 2 s and so on up to ten minutes."""
