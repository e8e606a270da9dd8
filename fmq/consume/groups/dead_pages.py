"""Reading the dead letters of a group, in an engine or in a directory opened read-only."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from fmq.basics.clock import as_datetime
from fmq.basics.message import Message
from fmq.basics.results import DeadLetter
from fmq.errors import Damaged, OffsetGone
from fmq.store.bytes.dead_column import Failure
from fmq.store.bytes.internal import dead_topic
from fmq.tx.ledger.dead_letters import DeadLetterState
from fmq.tx.ledger.ledger import Ledger
from fmq.tx.ledger.queues import Queue
from fmq.tx.looks.messages import Messages

logger = logging.getLogger("fmq")

LETTERS_AT_ONCE = 1000
"""How many dead letters one append moves, at most."""
PAGE_BYTES = 1 << 20
"""About how many bytes of bodies are read at once."""


class Letter(NamedTuple):
    """A dead letter as it lies in its topic."""

    number: int
    offset: int
    message: Message
    failure: Failure


class DeadLetterPages:
    """The dead letters of all groups, as a ledger knows them."""

    def __init__(
        self,
        lock: AbstractContextManager[Any],
        ledger: Ledger,
        messages: Messages,
        catch_up: Callable[[], None],
    ) -> None:
        """`catch_up` waits until what the ledger knows is durable, so that nothing is shown that a
        crash takes away.
        """
        self._lock = lock
        self._ledger = ledger
        self._messages = messages
        self._catch_up = catch_up

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""
        self._catch_up()
        with self._lock:
            return self._ledger.dead_letters_of(group)

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`, as many as one call may read. Damaged
        ones are left out, and a warning is logged.
        """
        return [shown(letter) for letter in self.letters(group, after, limit, leaves_out=True)]

    def replayed(self, group: str, topic: str, after: int, limit: int) -> list[DeadLetter]:
        """Return the dead letters of `topic` that were replayed to `group` and are not acked, as
        many as one call may read. Their numbers are the offsets at which they lie now, all above
        `after`.
        """
        self._catch_up()
        with self._lock:
            name = self._ledger.again.get((group, topic), "")
            ranges = self._ledger.replayed_of(group, topic)
        found: list[DeadLetter] = []
        size = 0
        for first, end in ranges:
            first = max(first, after + 1)
            while first < end and len(found) < limit and size < PAGE_BYTES:
                most = min(end - first, limit - len(found), LETTERS_AT_ONCE)
                try:
                    some = self._read_some(name, first, most)
                except OffsetGone:
                    return found  # the group was deleted, or retention has dropped the letters
                for message, failure in some:
                    found.append(shown(Letter(first, first, message, failure)))
                    size += len(message.body)
                    first += 1
        return found

    def state_of(self, group: str) -> tuple[DeadLetterState | None, Queue | None]:
        """Return the ledger's state of the dead letters of `group`, and their queue. The caller
        holds the engine's lock.
        """
        dead = self._ledger.dead.get(group)
        return dead, None if dead is None else self._ledger.queue(dead.topic, 0)

    def runs(self, group: str) -> list[tuple[int, int, int]]:
        """Return number, offset and count of each run of letters of `group`, sorted by number."""
        self._catch_up()
        with self._lock:
            dead, queue = self.state_of(group)
            return [] if dead is None else dead.runs(queue)

    def letters(
        self,
        group: str,
        after: int,
        limit: int,
        last: int | None = None,
        *,
        leaves_out: bool = False,
    ) -> list[Letter]:
        """Return letters with numbers above `after` and up to `last`: at most `limit`, and about
        PAGE_BYTES.
        """
        while True:
            try:
                return self._letters_now(group, after, limit, last, leaves_out=leaves_out)
            except OffsetGone:
                # Retention has carried the letters forward just now, or the group was deleted. Look
                # again where they are.
                pass

    def _letters_now(
        self, group: str, after: int, limit: int, last: int | None, *, leaves_out: bool
    ) -> list[Letter]:
        letters: list[Letter] = []
        size = 0
        for number, offset, count in self.runs(group):
            if number + count <= after + 1:
                continue
            skip = max(after + 1 - number, 0)
            where = group, number + skip, offset + skip, count - skip
            for letter in self.read(*where, leaves_out=leaves_out):
                if last is not None and letter.number > last:
                    return letters
                letters.append(letter)
                size += len(letter.message.body)
                if len(letters) == limit or size >= PAGE_BYTES:
                    return letters
        return letters

    def read(
        self, group: str, number: int, offset: int, count: int, *, leaves_out: bool = False
    ) -> Iterator[Letter]:
        """Yield the letters of one run. Raises the errors of reading, or with `leaves_out` skips
        damaged ones.
        """
        topic, end = dead_topic(group), offset + count
        at_once = LETTERS_AT_ONCE
        while offset < end:
            behind = min(end, offset + at_once)
            if at_once == 1:
                behind = min(end, self._messages.record_at(topic, 0, offset)[1])
            try:
                found = self._read_some(topic, offset, behind - offset)
            except Damaged as error:
                if not leaves_out:
                    raise
                if at_once > 1:
                    at_once = 1  # read record by record: sound ones may lie before the damaged one
                    continue
                logger.warning(
                    "%d dead letters of the group %r from number %d on are left out: %s",
                    behind - offset, group, number, error,
                )  # fmt: skip
                number, offset = number + behind - offset, behind
                continue
            for message, failure in found:
                yield Letter(number, offset, message, failure)
                number += 1
                offset += 1

    def _read_some(self, topic: str, offset: int, limit: int) -> list[tuple[Message, Failure]]:
        batch = self._messages.batch(topic, 0, offset, limit)
        if batch is None:
            raise OffsetGone(topic, 0, offset, offset + limit)  # the group was deleted meanwhile
        found = []
        failures = self._messages.failures(topic, offset, batch.next)
        for message, failure in zip(batch.messages, failures, strict=True):
            assert failure is not None, "every dead letter says where it failed"
            found.append((message, failure))
        return found


def shown(letter: Letter) -> DeadLetter:
    """Return a letter as callers see it."""
    number, _, message, failure = letter
    _, died_us, attempts, place, origin, reason = failure
    return DeadLetter(
        *(number, message.body, message.key, message.tag),
        headers=None if message.headers is None else dict(message.headers),
        topic=origin.topic,
        queue=origin.queue,
        offset=place,
        time=as_datetime(origin.time_us),
        died_at=as_datetime(died_us),
        attempts=attempts,
        reason=reason,
        tx_id=origin.tx_id,
        producer=origin.producer,
        position=origin.position,
        message_id=message.message_id,
        priority=message.priority,
        expires_at=message.expires_at,
    )
