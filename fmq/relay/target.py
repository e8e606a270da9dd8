"""The interface of the system into which a relay copies."""

from __future__ import annotations

import json
from typing import NamedTuple, Protocol

from fmq.basics.message import Message


class RelayPlace(NamedTuple):
    """How far a target is: it has the journal up to `position`, and this is its last message."""

    store: str
    """The id of the directory."""
    position: int
    topic: str
    queue: int
    offset: int
    time_us: int
    """When the message was published, in microseconds since 1970."""

    def text(self) -> str:
        """Return the place as text, for a target to keep."""
        return json.dumps(self)

    @classmethod
    def of_text(cls, text: str) -> RelayPlace:
        """Return the place of which `text` was made."""
        return cls(*json.loads(text))


PARKED = "fmq-parked"
"""The header of a stub. It says why the message was refused."""


class ParkedStub(Message):
    """Stands at the place of a message that the target has refused: without its body, key and
    headers, but with the header `fmq-parked`.
    """

    __slots__ = ()


class RelayBatch(NamedTuple):
    """Whole appends, in the order of the journal."""

    messages: list[Message]
    place: RelayPlace
    """How far the target is once it has them."""


def fmq_id(message: Message, store: str) -> str:
    """Return the id of a message, by which a reader can drop what it has seen."""
    return f"{store}/{message.topic}/{message.queue}/{message.offset}"


class RelayTarget(Protocol):
    """A system that messages are copied into. Only one relay of a name may write to it."""

    atomic: bool
    """Whether a batch and its place appear together, or not at all. If not, a batch may be there
    twice after a crash."""

    def claim(self) -> RelayPlace | None:
        """Shut out any other relay of this name. Only then return the place that the target has;
        None if it has none yet.

        Raises Unsure if it is not known whether the other one is shut out.
        """

    def deliver(self, batch: RelayBatch) -> None:
        """Store the messages and the place of `batch`, durably on return.

        Raises RelayTakenOver if another relay has claimed the target, Unsure if it is not known
        what was stored, and MessageRefused for a message that it will never take.
        """

    def status(self) -> RelayPlace | None:
        """Return the place that the target has, without shutting out another relay."""

    def close(self) -> None:
        """Close the connection."""
