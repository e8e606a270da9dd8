"""What a call answers when it cannot be carried out: a code of RocketMQ and a text.

A text of fmq says what happened, what became of the data and what to do next, so it goes to the
client as it is.
"""

from __future__ import annotations

import fmq
from fmq_rocketmq.protocol import Code, Status

OK = Status(code=Code.OK, message="OK")
TEXT_CHARACTERS_MAX = 1000


class Refused(Exception):
    """The request cannot be carried out, and nothing was changed by it."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


# The first row that fits counts, so narrow errors stand before wide ones.
CODES: tuple[tuple[type[Exception], int], ...] = (
    (fmq.TooLarge, Code.MESSAGE_BODY_TOO_LARGE),
    (fmq.TooMany, Code.TOO_MANY_REQUESTS),
    (fmq.BadFilter, Code.ILLEGAL_FILTER_EXPRESSION),
    (fmq.FilterDiffers, Code.ILLEGAL_FILTER_EXPRESSION),
    (fmq.BadName, Code.ILLEGAL_TOPIC),
    (fmq.UnknownTopic, Code.TOPIC_NOT_FOUND),
    (fmq.UnknownGroup, Code.CONSUMER_GROUP_NOT_FOUND),
    (fmq.LeaseLost, Code.INVALID_RECEIPT_HANDLE),
    (fmq.MessageIdUndecided, Code.ILLEGAL_MESSAGE_ID),
    # The opposite of a decision that is durable, an id that was never prepared, or a wrong step.
    (fmq.TransactionError, Code.INVALID_TRANSACTION_ID),
    (fmq.Closed, Code.INTERNAL_SERVER_ERROR),
    (fmq.UsageError, Code.BAD_REQUEST),
    (fmq.FmqError, Code.INTERNAL_SERVER_ERROR),
)


def status_of(error: Exception) -> object:
    """Return the Status that tells a client about `error`."""
    if isinstance(error, Refused):
        code = error.code
    else:
        code = next((code for kind, code in CODES if isinstance(error, kind)), 0)
    if not code:
        # A defect of this server. Its log has the traceback, and the client gets the kind.
        return Status(code=Code.INTERNAL_SERVER_ERROR, message=type(error).__name__)
    return Status(code=code, message=str(error)[:TEXT_CHARACTERS_MAX])
