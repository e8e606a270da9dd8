"""Errors of calls with wrong arguments, or at the wrong time. Those about groups are in
group_errors.py.
"""

from __future__ import annotations

from fmq.errors.base import FmqError


class UsageError(FmqError):
    """The call cannot be carried out as it was made. Nothing was changed."""


class Closed(UsageError):
    """The engine, transaction or consumer has been closed."""


class Forked(UsageError):
    """This process is a fork of the one that opened the engine."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path}: opened before a fork, and this is the child. The parent's engine is not "
            "touched. Open engines after forking, one process writing to each directory."
        )


class ReadOnly(UsageError):
    """The engine was opened with read_only=True."""


class Nested(UsageError):
    """A signal handler made the call in the middle of another call of the same thread."""

    def __init__(self) -> None:
        super().__init__(
            "called from a signal handler inside of a call of the same thread, which cannot go on "
            "before the handler returns. Nothing was done by it. Set a flag there, raise "
            "SystemExit, or make the call in another thread."
        )


class BadName(UsageError, ValueError):
    """The text cannot be the name of a topic, queue, group, producer or transaction."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if "Nothing was" in text else f"{text}. Nothing was changed."


class BadOption(UsageError, ValueError):
    """A value of Options, or of an argument, is not allowed."""


class BadAllocation(UsageError, ValueError):
    """The queues cannot be shared among the members as asked, or the strategy returned a wrong
    result.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return text if "Nothing was" in text else f"{text} Nothing was changed."


class BadBody(UsageError, ValueError):
    """The codec of a topic refuses a value that is sent, or the body of a message that was read."""

    def __init__(
        self,
        text: str,
        topic: str,
        codec: str,
        field: str | None,
        place: tuple[int | None, int | None] | None = None,
    ) -> None:
        """`field` is the path in the value, if the codec says it. `place` is the queue and the
        offset of the message; None for a value that was to be sent.
        """
        super().__init__(text)
        self.topic = topic
        self.codec = codec
        self.field = field
        self.place = place


EXCERPT_CHARACTERS = 30  # characters to show on each side of the error


class BadFilter(UsageError, ValueError):
    """The text of a filter cannot be read. `column`, counted from 1, says where."""

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(
            f"the filter cannot be read at column {column}: {reason}. Nothing was changed.\n"
            f"{_excerpt(text, column)}"
        )
        self.text = text
        self.column = column
        self.reason = reason


def _excerpt(text: str, column: int) -> str:
    """Return the part of `text` around `column`, and a second line with a caret below the
    column.
    """
    start = max(0, column - 1 - EXCERPT_CHARACTERS)
    shown = text[start : column + EXCERPT_CHARACTERS]
    # A line break would put the caret below another line.
    line = "".join(each if each.isprintable() else " " for each in shown)
    return f"    {line}\n    {' ' * (column - 1 - start)}^"


class TooLarge(UsageError):
    """A message, batch or transaction is larger than a limit allows."""

    def __init__(
        self, what: str, size: int, limit: int, option: str, instead: str = "make it shorter"
    ) -> None:
        """`option` is the name of the option with the limit, or a text "fixed by ..."; `instead`
        says what to do then.
        """
        if option.startswith("fixed"):
            advice = f"No option raises this limit: {instead}."
        else:
            advice = f"Send less at once, or allow more by `fmq config DIR {option}=...`."
        super().__init__(
            f"{what} has {size:,} and the limit is {limit:,} ({option}). Nothing was written. "
            f"{advice}"
        )
        self.size = size
        self.limit = limit


class TooMany(UsageError):
    """There are more transactions, or more parts of one, than the options allow."""

    def __init__(self, what: str, count: int, limit: int, option: str, instead: str = "") -> None:
        """`instead` says what to do, and names what sets the limit if no option does."""
        if instead:
            advice = f"No option raises this limit: {instead}."
        else:
            advice = "Decide some (`engine.undecided()` lists them)"
            if option == "transaction_messages_max":
                advice = "Send less in one transaction"
            advice += f", or allow more by `fmq config DIR {option}=...`."
        super().__init__(
            f"{what}: {count:,}, and the limit is {limit:,} ({option}). Nothing was written. "
            f"{advice}"
        )
        self.count = count
        self.limit = limit


class ExtraMissing(UsageError):
    """The call needs an extra of fmq that is not installed where it is carried out."""

    def __init__(
        self,
        what: str,
        module: str,
        extra: str,
        where: str = "this process",
    ) -> None:
        super().__init__(
            f"{what} needs {module}, which {where} does not find: pip install "
            f"'fmq-engine[{extra}]' there. Nothing was changed."
        )
        self.extra = extra


class UnknownSchedule(UsageError):
    """There is no schedule of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there is no schedule named {name!r}. Nothing was changed; engine.schedules() lists "
            "those that there are."
        )
        self.name = name


class ScheduleDiffers(UsageError):
    """There is another schedule of this name."""

    def __init__(self, name: str, what: str, brings: object, has: object) -> None:
        super().__init__(
            f"the schedule named {name!r} has the {what} {has!r:.80}, and this call brings "
            f"{brings!r:.80}. Nothing was changed; replace=True replaces it."
        )
        self.name = name


class EraseRefused(UsageError):
    """A message cannot be erased as it is now."""

    def __init__(self, topic: str, what: str, advice: str) -> None:
        super().__init__(f"{topic}: {what}. Nothing was erased by this step; {advice}.")
        self.topic = topic


class OffsetGone(UsageError):
    """Retention has dropped the messages below `first`."""

    def __init__(self, topic: str, queue: int, offset: int, first: int) -> None:
        super().__init__(
            f"{topic}/{queue}: offset {offset} is below what retention kept; the first message "
            f"there is {first}. Read from {first}, or keep more (retain_bytes, retain_seconds)."
        )
        self.topic = topic
        self.queue = queue
        self.offset = offset
        self.first = first


class PositionGone(UsageError):
    """Retention has dropped appends after a position that `engine.tail` returned."""

    def __init__(self, position: int, first: int) -> None:
        super().__init__(
            f"position {position} is below what retention kept: the journal begins at {first} now, "
            "and what was between is gone. Position 0 goes on with the first append that is left; "
            "a group that acks what was copied would have held it."
        )
        self.position = position
        self.first = first


class OffsetBeyond(UsageError):
    """No message has this offset yet."""

    def __init__(self, topic: str, queue: int, offset: int, after: int) -> None:
        super().__init__(
            f"{topic}/{queue}: offset {offset} is beyond the end; the next message there gets "
            f'{after}. Nothing was changed; "latest" stands for the end.'
        )
        self.topic = topic
        self.queue = queue
        self.offset = offset
        self.after = after
