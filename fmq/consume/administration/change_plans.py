"""How a change of groups, topics, schedules or options is written: one append for each.

A change is a function. It checks its arguments, and returns its *plan*: a function that returns the
records to write, none if there is nothing to change. The plan refuses what the state does not
allow.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import Any

from fmq.arguments.names import check_count, no_queue
from fmq.basics.clock import as_us
from fmq.consume.groups.burial import Burying
from fmq.consume.groups.groups import Groups
from fmq.errors import BadOption, OffsetBeyond, StillUndecided, UnknownGroup, UnknownTopic
from fmq.steps.call_steps import Durable, Steps, all_shown
from fmq.store.bytes.extension import Request, extension_of
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import Changed, ChangeKind
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.queues import Queue, Topic
from fmq.tx.looks.messages import Messages
from fmq.tx.schedules.schedules import Schedules

EARLIEST, LATEST = "earliest", "latest"
MOVES = frozenset((ChangeKind.SEEK, ChangeKind.DELETE_GROUP, ChangeKind.DELETE_TOPIC))
At = str | int | datetime
Plan = Callable[[], list[Any]]


class Changes:
    """Writes changes, and gives their plans the state that they look at."""

    def __init__(
        self,
        writer: Writer,
        messages: Messages,
        schedules: Schedules,
        groups: Groups,
        burying: Burying,
    ) -> None:
        self.writer = writer
        self.rooms, self.holds = groups.rooms, groups.holds
        self.burying = burying
        self.ledger = writer.ledger
        self.messages = messages
        self.schedules = schedules

    def write(self, change: Callable[..., Plan], *args: Any, **named: Any) -> None:
        """Write what `change` plans. The append is durable on return."""
        step = self._step_of(change(self, *args, **named), b"")
        if step is not None:
            self.writer.commit_queue.run(step.plan, step.what, step.sync)

    def writing(self, plan: Plan, request: Request | None = None) -> Steps[None]:
        """Do what `write` does, for a caller that may not block. With `request`, the journal names
        the request of a client that asks for the change.
        """
        step = self._step_of(plan, b"" if request is None else extension_of(request))
        if step is not None:
            yield step

    def _step_of(self, plan: Plan, extension: bytes) -> Durable | None:
        """Return the step that writes what `plan` returns. If there is nothing to change, as for
        almost every new consumer, return the step that waits for the last change.
        """
        writer = self.writer

        # `plan` is called twice: here, to find out whether there is anything to write, and in the
        # step, where others may have changed something meanwhile. So it must change nothing.
        def plan_changes(_: None) -> None:
            writer.release_dropped()
            changes = plan()
            if changes:
                changes[0].extension = extension
                writer.send(changes)
                asked = {each.asked for each in changes if isinstance(each, Changed)}
                writer.moves += not asked.isdisjoint(MOVES)

        with writer.commit_queue.lock:
            writer.commit_queue.check()
            is_needed = plan()
        if is_needed:
            return Durable(plan_changes, None, True)
        is_shown = self.ledger.changed_at < self.ledger.shown_to
        return None if is_shown else all_shown(writer.commit_queue)

    # --- what plans look at ---------------------------------------------------------------------

    def topic(self, topic: str) -> Topic:
        """Return the topic of this name. Raises UnknownTopic."""
        known = self.ledger.topics.get(topic)
        if known is None or not known.has_record or is_internal(topic):
            raise UnknownTopic(topic)
        return known

    def finder(self, topic: str, at: At) -> Callable[[Queue], int]:
        """Return a function that finds the offset for `at` in a queue. Plans call the function,
        under the engine's lock.

        Raises TypeError or BadOption.
        """
        if at == EARLIEST:
            return lambda queue: queue.first
        if at == LATEST:
            return lambda queue: queue.end
        if isinstance(at, datetime):
            known = self.ledger.topics.get(topic)
            time_us = as_us(at)
            found = {
                queue.number: self.messages.offset_at(topic, queue.number, time_us)
                for queue in (() if known is None else known.queues)
            }
            return lambda queue: max(found.get(queue.number, 0), queue.first)
        if isinstance(at, str):
            raise BadOption(
                f"{at!r}: a group begins at {EARLIEST!r}, {LATEST!r}, an offset or a time. "
                "Nothing was changed."
            )
        offset = check_count("offset", at, 0)

        def exactly(queue: Queue) -> int:
            check_end(queue, offset)
            return max(offset, queue.first)

        return exactly

    def queues(self, topic: str, number: int | None = None) -> list[Queue]:
        """Return one queue of `topic`, or all of them; an empty list if the topic does not exist.
        Raises BadName.
        """
        known = self.ledger.topics.get(topic)
        queues = [] if known is None else known.queues
        if number is None:
            return queues
        if number >= len(queues):
            raise no_queue(topic, number, len(queues))
        return [queues[number]]

    def queues_with(self, topic: str, number: int | None, at: At) -> list[Queue]:
        """Return the queues that a change at the place `at` is about. Raises BadOption if `at` is
        an offset and there are several queues.
        """
        queues = self.queues(topic, number)
        if type(at) is int and len(queues) > 1:
            raise BadOption(
                f"offset={at}: the topic {topic!r} has {len(queues)} queues, and each has "
                "offsets of its own. Nothing was changed; name one of them with queue=."
            )
        return queues

    def check_group(self, group: str, topic: str | None = None) -> None:
        """Raise UnknownGroup unless `group` takes from `topic`; without a topic, from any."""
        topics = self.ledger.subscriptions.topics_of(group)
        if not topics or topic not in (None, *topics):
            raise UnknownGroup(group, topic or "", topics)

    def check_decided(
        self,
        group: str,
        topic: str = "",
        number: int | None = None,
        first: int = 0,
        end: float = inf,
    ) -> None:
        """Raise StillUndecided if an undecided transaction acks messages in this range."""
        for entry in self.ledger.undecided.values():
            prepare = entry.prepare
            for ack in prepare.acks:
                is_there = topic in ("", ack.topic) and number in (None, ack.queue)
                if ack.group == group and is_there and ack.first < end and first < ack.end:
                    raise StillUndecided(prepare.tx_id, group, ack.topic, ack.queue)


def check_end(queue: Queue, offset: int) -> None:
    """Raise OffsetBeyond if `offset` is after the end of `queue`."""
    if offset > queue.end:
        raise OffsetBeyond(queue.topic, queue.number, offset, queue.end)
