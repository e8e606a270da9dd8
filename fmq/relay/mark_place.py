"""The place of a target that keeps none itself: the mark `relay-NAME` of the directory.

A relay that dies behind a batch and before the mark sends the batch again. A claim raises the mark,
and each batch states it. So an older relay sends one more batch at most.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from typing import Any

from fmq.basics.message import Mark
from fmq.errors import MarkMoved, OutcomeUnknown
from fmq.relay.relay_errors import RelayTakenOver, Unsure
from fmq.relay.target import RelayPlace

PLACE = Struct(">QIQQ8s")
"""Position, queue, offset, time, and a digest of the topic: a mark has 64 bytes at most."""


class MarkPlace:
    """How far the relay `name` of `engine` is."""

    def __init__(self, engine: Any, name: str) -> None:
        self._engine = engine
        self._mark = f"relay-{name}"
        self._value = -1

    def claim(self) -> RelayPlace | None:
        """Raise the mark, and return the place that it has."""
        while True:
            mark = self._engine.mark(self._mark)
            self._value = -1 if mark is None else mark.value
            try:
                self._keep(b"" if mark is None else mark.data)
            except (MarkMoved, OutcomeUnknown):
                continue
            return self._place_of(mark)

    def _keep(self, place: bytes) -> None:
        """Write the place, if no other relay has raised the mark."""
        with self._engine.transaction() as tx:
            tx.mark(self._mark, self._value + 1, place, expect=self._value)
        self._value += 1

    def keep(self, place: RelayPlace) -> None:
        """Note that all up to `place` is there. Raises RelayTakenOver, and Unsure."""
        try:
            _, position, topic, *where = place
            self._keep(PLACE.pack(position, *where, _digest(topic)))
        except MarkMoved as error:
            raise RelayTakenOver(
                f"another relay has claimed {self._mark!r}. It sends the last batch of this one "
                "again."
            ) from error
        except OutcomeUnknown as error:
            raise Unsure(f"it is not known whether the place was kept: {error}") from error

    def status(self) -> RelayPlace | None:
        """Return the place that the mark has."""
        return self._place_of(self._engine.mark(self._mark))

    def _place_of(self, mark: Mark | None) -> RelayPlace | None:
        if mark is None or not mark.data:
            return None
        position, queue, offset, time_us, digest = PLACE.unpack(mark.data)
        # The topic of the last message may have been deleted.
        topics = {_digest(info.topic): info.topic for info in self._engine.queues()}
        topic = topics.get(digest, f"deleted-{digest.hex()}")
        return RelayPlace(self._engine.feedback.store, position, topic, queue, offset, time_us)


def _digest(topic: str) -> bytes:
    return blake2b(topic.encode(), digest_size=8).digest()
