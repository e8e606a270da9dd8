"""A consumer of an engine of this process."""

from __future__ import annotations

from typing import Any

from fmq.consume.calls.any_consumer import AnyConsumer
from fmq.consume.calls.thread_member import ThreadMember


class Consumer(AnyConsumer):
    """A member of a group of an engine of this process. Safe for threads."""


def member_of(consumer: Any) -> ThreadMember:
    """Return the member of the group that carries out the calls of `consumer`. A server has only
    the member, and passes that.
    """
    door = consumer if isinstance(consumer, ThreadMember) else consumer._door
    member: ThreadMember = door.blocking
    return member


def leave(consumer: Any, *, counts: bool) -> None:
    """Close `consumer`. Without `counts` the attempts of what is in hand do not count."""
    member_of(consumer).close(counts=counts)
