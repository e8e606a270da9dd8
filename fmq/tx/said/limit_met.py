"""What a group may be handed at most, as the journal has it.

In a LIMIT, and in what a checkpoint or STATE carries, it is JSON.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

COUNT_MAX = 1 << 31
RATE_MIN, RATE_MAX = 1e-6, 1e9  # messages a second; the lowest is one in eleven days
TIME_US_MAX = 1 << 62


class LimitMet(NamedTuple):
    """The limit of one group. A change puts another one in its place. None: it limits nothing."""

    concurrency: int | None = None
    rate: float | None = None
    concurrency_by_key: int | None = None
    rate_by_key: float | None = None
    fair: bool = False
    by: str = ""
    reason: str = ""
    time_us: int = 0

    @property
    def is_empty(self) -> bool:
        """Return whether it limits nothing."""
        return not any(self[:5])

    @property
    def is_by_key(self) -> bool:
        """Return whether keys take turns: with a limit by key they do, too."""
        return bool(self.fair or self.concurrency_by_key or self.rate_by_key)

    def text(self) -> str:
        """Return what a LIMIT has as its text, as JSON. The record itself has the time."""
        said = self._asdict()
        del said["time_us"]
        return json.dumps(said, separators=(",", ":"))


def limit_in(text: Any, time_us: Any) -> LimitMet:
    """Return the limit in the text of a LIMIT. Raises ValueError if it is none."""
    try:
        found = LimitMet(**json.loads(text), time_us=time_us)
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"a limit that cannot be read: {error!r:.80}") from None
    values: tuple[Any, ...] = found
    concurrency, rate, by_key, rate_by_key, fair, by, reason, _ = values
    counts, rates = (concurrency, by_key), (rate, rate_by_key)
    if not (
        all(each is None or (type(each) is int and 0 < each <= COUNT_MAX) for each in counts)
        and all(
            each is None or (type(each) in (int, float) and RATE_MIN <= each <= RATE_MAX)
            for each in rates
        )
        and type(fair) is bool
        and type(by) is str
        and type(reason) is str
        and type(time_us) is int
        and abs(time_us) < TIME_US_MAX
    ):
        raise ValueError(f"a limit is {text:.80}")
    return found
