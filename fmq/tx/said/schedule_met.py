"""A schedule, as the journal has it: a message, and the cron expression that says when it is
published, again and again.

In a SCHEDULE, and in what a checkpoint or STATE carries, it is JSON. The expression itself means
nothing here: each record says when the schedule is due next, so a replay needs no cron.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, NamedTuple

from fmq.tx.said.pauses import PauseMet

NEVER = 0
"""As the time when a schedule is due next: its expression names no time that is left."""
TIME_US_MAX = 1 << 62
MISSED = ("once", "skip")
"""What becomes of the times that passed while no engine ran: one message for all, or none."""


class ScheduleMet(NamedTuple):
    """One schedule. A change puts another one in its place."""

    name: str
    topic: str
    cron: str
    timezone: str
    missed: str
    body: bytes
    key: str | None
    tag: str | None
    headers: Mapping[str, str]
    by: str
    paused: PauseMet | None = None
    next_us: int = NEVER
    last_us: int = 0  # the last due time that was published

    def text(self) -> str:
        """Return what a SCHEDULE has as its text, as JSON. Its own fields have topic and times."""
        said = self._asdict() | {"body": b64encode(self.body).decode()}
        for name in ("topic", "next_us", "last_us"):
            del said[name]
        return json.dumps(said, separators=(",", ":"))

    def carried(self) -> list[Any]:
        """Return the arguments of `schedule_in` for JSON."""
        return [self.topic, self.text(), self.next_us, self.last_us]

    def asked(self) -> tuple[Any, ...]:
        """Return the arguments that describe it."""
        what = self.name, self.cron, self.topic, self.body, self.timezone
        return (*what, self.key, self.tag, dict(self.headers), self.missed, self.by)

    def is_due(self, now_us: int) -> bool:
        return self.paused is None and NEVER < self.next_us <= now_us


def schedule_in(topic: Any, text: Any, next_us: Any, last_us: Any) -> ScheduleMet:
    """Return the schedule in the text of a SCHEDULE. Raises ValueError if it is none."""
    try:
        said = json.loads(text)
        name, cron, timezone, missed, by = map(
            said.__getitem__, ("name", "cron", "timezone", "missed", "by")
        )
        key, tag, headers, paused = map(said.__getitem__, ("key", "tag", "headers", "paused"))
        body = b64decode(said["body"], validate=True)
        pause = None if paused is None else PauseMet(*paused)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"a schedule that cannot be read: {error!r:.80}") from None
    texts = [topic, name, cron, timezone, by, *headers, *(pause or ())[:2]]
    texts += headers.values() if type(headers) is dict else [None]
    texts += [each for each in (key, tag) if each is not None]
    times = [next_us, last_us, *(pause or ())[2:]]
    if not (
        all(type(each) is str for each in texts)
        and name
        and missed in MISSED
        and all(type(each) is int and 0 <= each < TIME_US_MAX for each in times)
    ):
        raise ValueError(f"a schedule is {text:.80}")
    what = cron, timezone, missed, body, key, tag, headers, by
    return ScheduleMet(name, topic, *what, pause, next_us, last_us)
