"""A consumer of an engine of this process."""

from __future__ import annotations

from typing import Any

from fmq.consume.calls.any_consumer import AnyConsumer
from fmq.consume.calls.thread_member import ThreadMember


class Consumer(AnyConsumer):
    """A consumer: a member of a group. Its engine is in this process. Safe for threads."""


def member_of(consumer: Any) -> ThreadMember:
    """Return the member of the group that carries out the calls of `consumer`."""
    member: ThreadMember = consumer._door.blocking
    return member
