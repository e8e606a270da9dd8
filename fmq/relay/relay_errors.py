"""The errors that end a relay, or make it begin again."""

from __future__ import annotations

from fmq.basics.message import Message
from fmq.errors import FmqError


class RelayError(FmqError):
    """A relay cannot go on as it is."""


class RelayTakenOver(RelayError):
    """Another relay of the same name has claimed the target. This one must end."""


class Unsure(RelayError):
    """It is not known whether the target has stored a batch. The relay claims the target again, and
    asks.
    """


class MessageRefused(RelayError):
    """The target will never take this message."""

    def __init__(self, message: Message, reason: str) -> None:
        super().__init__(
            f"{message.topic}/{message.queue} offset {message.offset} is refused by the target: "
            f"{reason}. Nothing of its batch is there, or a part if the target is not atomic. Let "
            "the target take it, or let the relay go on without it: "
            'on_refused="park", on the command line --on-refused park.'
        )
        self.message = message
        self.reason = reason


class StoreDiffers(RelayError):
    """The target has copies from another directory, or from another history of this one. A person
    has to decide.
    """
