"""Errors of a call that cannot be served as it was made. Those about groups are in groups.py."""

from __future__ import annotations

from fmq.errors.base import FmqError


class UsageError(FmqError):
    """The call cannot be served as it was made. Nothing was changed."""


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
    """A signal handler made the call in the middle of another one of the same thread."""

    def __init__(self) -> None:
        super().__init__(
            "called from a signal handler inside of a call of the same thread, which cannot go on "
            "before the handler returns. Nothing was done by it. Set a flag there, raise "
            "SystemExit, or make the call in another thread."
        )


class BadName(UsageError, ValueError):
    """A name of a topic, queue, group, producer or transaction that cannot be one."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if "Nothing was" in text else f"{text}. Nothing was changed."


class BadOption(UsageError, ValueError):
    """A value of Options, or of an argument, that cannot work."""


class BadAllocation(UsageError, ValueError):
    """Queues and members that cannot be shared as asked, or a strategy that cannot share them."""

    def __str__(self) -> str:
        text = super().__str__()
        return text if "Nothing was" in text else f"{text} Nothing was changed."


EXCERPT_CHARACTERS = 30  # shown on each side of the place


class BadFilter(UsageError, ValueError):
    """The text of a filter that cannot be read; `column`, from 1, is where."""

    def __init__(self, text: str, column: int, reason: str) -> None:
        super().__init__(
            f"the filter cannot be read at column {column}: {reason}. Nothing was changed.\n"
            f"{_excerpt(text, column)}"
        )
        self.text = text
        self.column = column
        self.reason = reason


def _excerpt(text: str, column: int) -> str:
    """Return the part of `text` around `column`, and a line with a caret below it."""
    start = max(0, column - 1 - EXCERPT_CHARACTERS)
    shown = text[start : column + EXCERPT_CHARACTERS]
    # A line break would move the caret to another line's text.
    line = "".join(each if each.isprintable() else " " for each in shown)
    return f"    {line}\n    {' ' * (column - 1 - start)}^"


class TooLarge(UsageError):
    """A message, batch or transaction over a limit."""

    def __init__(
        self, what: str, size: int, limit: int, option: str, instead: str = "make it shorter"
    ) -> None:
        """`option` names the option of the limit, or begins with "fixed" and says by what. Then
        `instead` says what to do.
        """
        if option.startswith("fixed"):
            advice = f"No option raises this limit: {instead}."
        else:
            advice = f"Send less at once, or open the engine with a larger {option}."
        super().__init__(
            f"{what} has {size:,} and the limit is {limit:,} ({option}). Nothing was written. "
            f"{advice}"
        )
        self.size = size
        self.limit = limit


class TooMany(UsageError):
    """More open transactions, or more in them, than the options allow."""

    def __init__(self, what: str, count: int, limit: int, option: str, instead: str = "") -> None:
        """`instead` says what to do where `option` is none, and names what has fixed the limit."""
        if instead:
            advice = f"No option raises this limit: {instead}."
        else:
            advice = "Decide some (`engine.undecided()` lists them)"
            if option == "transaction_messages_max":
                advice = "Send less in one transaction"
            advice += f", or open the engine with a larger {option}."
        super().__init__(
            f"{what}: {count:,}, and the limit is {limit:,} ({option}). Nothing was written. "
            f"{advice}"
        )
        self.count = count
        self.limit = limit


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


class OffsetBeyond(UsageError):
    """There is no such offset yet."""

    def __init__(self, topic: str, queue: int, offset: int, after: int) -> None:
        super().__init__(
            f"{topic}/{queue}: offset {offset} is beyond the end; the next message there gets "
            f'{after}. Nothing was changed; "latest" stands for the end.'
        )
        self.topic = topic
        self.queue = queue
        self.offset = offset
        self.after = after
