"""Every error that fmq raises on purpose, as one tree.

    FmqError
    ├── StorageError            the directory, its files, the machine under them
    │   ├── NotAStore           a directory that is not fmq's, or none at all
    │   ├── RemoteFileSystem    another machine serves the files
    │   ├── UnsupportedSystem   not Linux: macOS only reads, Windows does not even read
    │   ├── Locked              another engine has the directory open
    │   ├── Damaged             bytes that had been durable are wrong now
    │   ├── CheckpointLost      a reader cannot know how much of the end was durable
    │   ├── NewerFormat         written by a newer fmq
    │   ├── Unreadable          a file that the machine does not let us open or read
    │   ├── NotServed           no engine process answers
    │   ├── OutcomeUnknown      an engine process has ended, and a call's outcome with it
    │   ├── NotAllowed          an engine process does not serve this client, or not in this way
    │   ├── ProtocolError       an engine process and its client do not understand each other
    │   ├── StorageFull         no room: refused whole, before a byte was written
    │   └── EngineFailed        a write or sync failed: open the directory again
    ├── UsageError              the call cannot be served, and nothing was changed
    │   ├── Closed  Forked  ReadOnly  Nested
    │   ├── BadName  BadOption  BadAllocation  BadFilter  TooLarge  TooMany
    │   ├── OffsetGone          retention has dropped what was asked for
    │   ├── OffsetBeyond        nothing is there yet
    │   ├── GroupExists  UnknownGroup  StillUndecided  UnknownDeadLetter
    │   ├── TopicExists  TopicInUse  UnknownTopic
    │   └── FilterDiffers  StrategyDiffers  TopicsDiffer  MemberReplaced
    ├── TransactionError        what may follow what in a transaction
    │   ├── UnknownTransaction  TxIdInUse  AlreadyDecided  WrongState  MarkMoved
    │   ├── MessageIdUndecided     an undecided transaction holds the id
    │   └── RollBack            raised by a program: its own part did not happen
    └── LeaseLost               the lease of a delivery or a question has ended

An error says what happened, where, what became of the data, and what to do next. What a
program may want to branch on is an attribute, too.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fmq.message import Mark
    from fmq.results import Outcome
from fmq.clock import as_text


class FmqError(Exception):
    """Anything that fmq raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Many are made of other arguments than their text. A pool of processes that cannot build
        # the error of a worker again breaks, or waits for ever.
        return _again, (type(self), self.args), self.__dict__


def _again(kind: type[FmqError], args: tuple[object, ...]) -> FmqError:
    """Return an error with the text `args`. Unpickling sets its attributes afterwards."""
    error = kind.__new__(kind)
    error.args = args
    return error


class StorageError(FmqError):
    """The directory, one of its files, or the machine under them is at fault."""


class NotAStore(StorageError):
    """The path has files that fmq did not make, or no journal where one is needed."""


def no_directory(path: str, error: OSError) -> NotAStore:
    """Return the error for a `path` where the machine finds no directory."""
    advice = "Look whether the path is right; a directory that is opened for writing is made."
    if isinstance(error, NotADirectoryError):
        advice = "Name a directory of fmq's, or a new one: it keeps its files in one of their own."
    return NotAStore(f"{path}: {error.strerror}. Nothing was changed. {advice}")


def no_parent(path: str) -> NotAStore:
    """Return the error for a `path` whose parent directory does not exist."""
    return NotAStore(
        f"{path}: its parent directory does not exist, or is no directory. Nothing was changed. "
        "Look whether the path is right, or make the parent first: only the last part is made."
    )


class RemoteFileSystem(StorageError):
    """The directory lies on a file system whose locks and syncs another machine promises."""

    def __init__(self, path: str, kind: str) -> None:
        super().__init__(
            f"{path}: lies on {kind}, which another machine serves, so nothing here can promise "
            "that a sync is durable or that one engine writes at a time. Nothing was written. "
            "Name a directory on a local disk, look with fmq.open(path, read_only=True), or take "
            "the risk with Options(allow_remote=True)."
        )
        self.path = path
        self.kind = kind


class UnsupportedSystem(StorageError):
    """The operating system is not Linux, so a directory cannot be written, or not even read."""

    def __init__(self, system: str, *, can_read: bool = False) -> None:
        here = "Here only `import fmq` works; run the program on Linux."
        if can_read:
            here = "Here journals can be read, with fmq.open(path, read_only=True) or fmq.check."
        super().__init__(
            f"fmq writes on Linux only, and this is {system}. Nothing was changed. {here}"
        )
        self.system = system


DROPPED = " One that was dropped without close() has it until its process ends."


class Locked(StorageError):
    """Another engine, here or in another process, has this directory open."""

    def __init__(
        self,
        path: str,
        holder: str,
        *,
        here: bool = False,
        closed: bool = False,
        served: bool | None = None,
    ) -> None:
        """`here` says that the holder is the process itself, `closed` that it had the directory
        open while it was read, and has no longer, `served=False` that a client wants to connect.
        """
        who = f"this process ({holder})" if here else holder
        if closed:
            text = (
                f"{path}: {who} had it open for writing while it was read, so what was read proves "
                "nothing. Nothing was changed. Call again while no engine has it open, or for a "
                "copy."
            )
        elif served is False:
            text = (
                f"{path}: {who} has it open and lets no other process in. Nothing was changed. "
                "Call engine.serve() there, or use fmq.connect there, too: then any number of "
                "processes can share the directory."
            )
        else:
            text = (
                f"{path}: already open for writing by {who}. One engine writes at a time, and "
                "nothing was changed. Use fmq.connect(path) in both processes to share it, close "
                "the other one, wait for it with fmq.open(path, timeout=10), or look with "
                f"fmq.open(path, read_only=True).{DROPPED if here else ''}"
            )
        super().__init__(text)
        self.path = path
        self.holder = holder


class Damaged(StorageError):
    """Bytes that had been durable are missing or wrong; nothing was changed."""

    def __init__(self, file: str, position: int, reason: str) -> None:
        super().__init__(
            f"{file}, position {position}: {reason}. Nothing was changed. "
            "`fmq verify DIR` lists everything that is wrong, and `fmq records DIR` shows what is "
            "sound; restore the file from a backup, or read with fmq.open(path, read_only=True) as "
            "far as that goes."
        )
        self.file = file
        self.position = position
        self.reason = reason


class CheckpointLost(StorageError):
    """A checkpoint that may have proven more of the journal durable cannot be read.

    No engine has the directory open. So a reader cannot know how much it may show.
    """

    def __init__(self, path: str, slots: dict[str, str], proven_to: int, sound_to: int) -> None:
        """`slots` has the names of the checkpoints, each with what is wrong with it."""
        self.path = path
        self.slots = tuple(slots)
        self.position = proven_to
        self.sound_to = sound_to
        self.reason = (
            "; ".join(f"{path}/{name}: {trouble}" for name, trouble in slots.items())
            + f". So nothing proves that the sound appends from position {proven_to} up to "
            f"{sound_to} were durable"
        )
        super().__init__(
            f"{self.reason}, and no engine that would know has the directory open. Nothing was "
            "changed, and no reader leaves them out in silence. Opening it for writing once "
            "repairs this: fmq.open(path).close(). If a slot may not be read, allow it instead."
        )


class NewerFormat(StorageError):
    """The bytes are sound and were written by a newer fmq; nothing was changed."""

    def __init__(self, file: str, position: int, what: str) -> None:
        super().__init__(
            f"{file}, position {position}: {what} is newer than this fmq understands. "
            "Nothing was changed. Open the directory with the fmq that wrote it, or a later one."
        )
        self.file = file
        self.position = position
        self.what = what
        self.reason = f"{what} is newer than this fmq understands"


class Unreadable(StorageError, OSError):
    """The machine refused to open or read a file, or to make a new journal.

    Nothing was changed, except that a new journal may be half made.
    """

    def __init__(self, path: str, error: OSError, *, begun: bool = False) -> None:
        """`begun` says that a new journal was being made in `path` when it was refused."""
        file = error.filename or path
        advice = ADVICE_BY_ERRNO.get(
            error.errno or 0,
            "If it is no file, or not yours to open, put that right and open the directory again.",
        )
        left = f"Nothing was changed in {path}."
        if begun:
            left = (
                f"{path} was to get a new journal and may hold a half-made one, which the next "
                "opening makes anew; no message was in it."
            )
            advice = ADVICE_ON_NEW.get(advice, advice)
        super().__init__(f"{file}: {error.strerror or error}. {left} {advice}")
        self.file = str(file)
        self.errno = error.errno

    def __reduce__(self) -> tuple[Any, ...]:
        again, args, state = super().__reduce__()
        return again, args, {**state, "errno": self.errno}  # which an OSError keeps elsewhere


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception of the user's, if it takes one."""
    with suppress(Exception):
        error.add_note(f"fmq: {note}")


@contextmanager
def unreadable_within(path: str) -> Iterator[None]:
    """Raise Unreadable for an OSError of the block, with its own file or else with `path`."""
    try:
        yield
    except Unreadable:
        raise
    except OSError as error:
        raise Unreadable(path, error) from error


BROKEN_DISK = (
    "The disk under it fails: the system's log says more. Copy what can be read to another disk, "
    "and restore the rest from a backup."
)
ONLY_READ = "It may only be read there: look with fmq.open(path, read_only=True)."
TOO_MANY_FILES = "Close some files, or raise the limit (`ulimit -n`), and call again."
ADVICE_BY_ERRNO = {
    errno.EIO: BROKEN_DISK,
    errno.EUCLEAN: BROKEN_DISK,
    errno.EROFS: ONLY_READ,
    errno.EMFILE: TOO_MANY_FILES,
    errno.ENFILE: TOO_MANY_FILES,
}
ADVICE_ON_NEW = {  # for a new journal: there is nothing yet to copy or to read
    BROKEN_DISK: "The disk under it fails: the system's log says more. Take another disk.",
    ONLY_READ: "It may only be read there: take another place.",
}


class NotServed(StorageError):
    """No process serves the directory, or none could be started."""


class OutcomeUnknown(StorageError):
    """The engine process ended before it answered, and no other one answered in time."""


class NotAllowed(StorageError):
    """An engine process may not serve this client: another user, another token, or no TLS."""


class ProtocolError(StorageError):
    """An engine process and its client do not understand each other: another version of the
    protocol, or bytes that break its rules.
    """


class StorageFull(StorageError):
    """There is no room. The call was refused before a byte of it was written."""


class EngineFailed(StorageError):
    """A write or sync failed, so the engine takes no calls until the directory is opened again.

    If this call was waiting for that write, all of it happened or nothing. Opening the directory
    again shows which.
    """


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


class UnknownDeadLetter(UsageError):
    """The group has no dead letter of this number."""

    def __init__(self, group: str, number: int) -> None:
        super().__init__(
            f"the group {group!r} has no dead letter {number}: there was none, or it was replayed "
            "or purged. Nothing was changed; list() says which there are."
        )
        self.group = group
        self.number = number


class GroupExists(UsageError):
    """The group takes from the topic already."""

    def __init__(self, group: str, topic: str) -> None:
        super().__init__(
            f"the group {group!r} of the topic {topic!r} exists already. Nothing was changed; "
            "engine.group(...).seek(...) moves it."
        )
        self.group = group
        self.topic = topic


class TopicExists(UsageError):
    """The topic was made before."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"the topic {topic!r} exists already. Nothing was changed; engine.topic({topic!r}) "
            "shows and changes it."
        )
        self.topic = topic


class TopicInUse(UsageError):
    """An undecided transaction writes to the topic."""

    def __init__(self, topic: str, tx_id: str) -> None:
        super().__init__(
            f"the undecided transaction {tx_id!r} writes to the topic {topic!r}, which cannot be "
            "deleted meanwhile. Nothing was changed; decide that one first."
        )
        self.topic = topic
        self.tx_id = tx_id


class UnknownTopic(UsageError):
    """There is no such topic."""

    def __init__(self, topic: str) -> None:
        super().__init__(
            f"there is no topic {topic!r}. Nothing was changed; its first message makes it, or "
            "engine.create_topic(...) does."
        )
        self.topic = topic


class UnknownGroup(UsageError):
    """There is no such group, or it does not take from the topic."""

    def __init__(
        self, group: str, topic: str = "", topics: Sequence[str] = (), *, was_deleted: bool = False
    ) -> None:
        if was_deleted:
            what = f"the group {group!r} was deleted"
        elif topics:
            what = f"the group {group!r} takes from {', '.join(topics)}, and not from {topic}"
        else:
            what = f"there is no group {group!r}"
        super().__init__(
            f"{what}. Nothing was changed; engine.consumer(...) or engine.create_group(...) makes "
            "it."
        )
        self.group = group
        self.topic = topic


class StillUndecided(UsageError):
    """An undecided transaction stands in the way."""

    def __init__(self, tx_id: str, group: str, topic: str, queue: int) -> None:
        super().__init__(
            f"the undecided transaction {tx_id!r} acks messages of {topic}/{queue} for the group "
            f"{group!r}, which cannot be moved or deleted meanwhile. Nothing was changed; decide "
            "that one first."
        )
        self.tx_id = tx_id


class StrategyDiffers(UsageError):
    """The other members of the group share its queues by another strategy."""

    def __init__(self, group: str, brings: str, has: str) -> None:
        super().__init__(
            f"the members of the group {group!r} share its queues by {has}, and this "
            f"one brings {brings}. Nothing was changed; give all of them the same, or "
            "close the others first."
        )
        self.group = group


class TopicsDiffer(UsageError):
    """A member that is strict, or joins one that is, reads other topics than the others."""

    def __init__(
        self, group: str, member: str, topics: Sequence[str], other: str, others: Sequence[str]
    ) -> None:
        super().__init__(
            f"in the group {group!r} the member {member!r} reads {', '.join(topics)} and "
            f"{other!r} reads {', '.join(others)}, which strict=True refuses. Nothing was changed; "
            "give both the same topics, or leave out strict=True."
        )
        self.group = group


class FilterDiffers(UsageError):
    """The group wants other messages of the topic than this member."""

    def __init__(self, group: str, topic: str, brings: str, has: str) -> None:
        super().__init__(
            f"the group {group!r} wants of the topic {topic!r} {_wanted(has)}, and this member "
            f"{_wanted(brings)}. Nothing was changed; leave out filter=, or change it for all with "
            f"engine.group({group!r}).set_filter({topic!r}, ...)."
        )
        self.group = group
        self.topic = topic
        self.brings = brings
        self.has = has


def _wanted(text: str) -> str:
    return text or "all messages"


class MemberReplaced(UsageError):
    """Another consumer has taken the name of this member."""

    def __init__(self, group: str, member: str) -> None:
        super().__init__(
            f"another consumer is now the member {member!r} of the group {group!r}, and this one "
            "is out: what it held was redelivered. Close it, or give each consumer a name of its "
            "own."
        )
        self.group = group
        self.member = member


class TransactionError(FmqError):
    """The transaction cannot do this now. Nothing was changed."""


class UnknownTransaction(TransactionError):
    """No transaction of this id is undecided or was decided within the window."""


class TxIdInUse(TransactionError):
    """A transaction of this id is open, or was decided within the window."""


class WrongState(TransactionError):
    """The step does not follow from where the transaction is."""


class MarkMoved(TransactionError):
    """A mark has another value than the caller expects, or another transaction changes it."""

    def __init__(
        self,
        name: str,
        expected: int | None = None,
        found: Mark | None = None,
        *,
        undecided: str | None = None,
    ) -> None:
        self.name, self.expected, self.found, self.undecided = name, expected, found, undecided
        if undecided is not None:
            what = f"the undecided transaction {undecided!r} changes it. Decide that one first"
        else:
            value = "is not there" if found is None else f"has the value {found.value}"
            what = f"it {value}, and {expected} was expected. Read it and begin again from there"
        super().__init__(f"the mark {name!r} was not changed: {what}. Nothing was written.")


class MessageIdUndecided(TransactionError):
    """An undecided transaction holds the id of a message: whether it was sent is not known yet."""

    def __init__(self, message_id: str, topic: str, tx_id: str) -> None:
        self.message_id, self.topic, self.tx_id = message_id, topic, tx_id
        super().__init__(
            f"the message {message_id!r} of the topic {topic!r} is part of the undecided "
            f"transaction {tx_id!r}, which may still send it. Nothing was sent; decide that one "
            f"first: engine.decide({tx_id!r}, 'commit' or 'rollback')."
        )


class RollBack(TransactionError):
    """For programs to raise: their own part did not happen, so the transaction is rolled back."""


class AlreadyDecided(TransactionError):
    """The opposite decision is durable, and is in `outcome`."""

    def __init__(self, outcome: Outcome) -> None:
        at, by = outcome.decided_at, outcome.decided_by
        super().__init__(
            f"transaction {outcome.tx_id!r} was {outcome.state}"
            f"{f' at {as_text(at)}' if at else ''}"
            f"{f' by {by}' if by else ''}; the first durable decision stands and nothing was "
            "changed. Have your own side follow it: `error.outcome` has what was decided."
        )
        self.outcome = outcome


class LeaseLost(FmqError):
    """The lease of the delivery or question ended, and another caller may have it now."""
