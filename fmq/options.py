"""The settings of an engine: one frozen dataclass, checked when it is made.

Sizes are in bytes and times in seconds, and the name says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, get_args

from fmq.errors import BadOption

SyncMode = Literal["always", "interval", "never"]
OnUndecided = Literal["ask", "park", "rollback"]

KIB = 1024
MIB = 1024 * KIB

SEGMENT_BYTES_MIN = 2 * 1024  # what a decision may take fits it, and a message beside it
SEGMENT_BYTES_MAX = 1024 << 20
QUEUES_MAX = 4096
SECONDS_MAX = 100 * 365 * 86400  # a wait of three times as long is more than Python's locks take


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How an engine works; the defaults are meant to be right."""

    sync: SyncMode = "always"
    """`always`: what returned is durable. `interval`: durable within `sync_interval_seconds`,
    and shown to readers only then. `never`: the operating system decides; what was shown may
    be gone after a power cut."""
    sync_interval_seconds: float = 0.05

    segment_bytes: int = 16 * MIB
    """The size of a file of the journal; no message, batch or transaction can be larger."""
    checkpoint_bytes: int = 2 * MIB
    """How much of the journal may have to be replayed after a crash."""
    checkpoint_idle_seconds: float = 1.0

    queues: int = 1
    """How many queues a topic gets when its first message makes it."""
    topic_queues: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The same for single topics, by name."""
    compress_bytes_min: int | None = None
    """Bodies of at least so many bytes, a batch counted as a whole, are compressed with lz4 if
    that makes them smaller; None: never. It buys space, not time."""
    reference_bytes_min: int = 4 * KIB
    """Prepared bodies of at least so many bytes are referred to by the commit, smaller copied."""

    message_bytes_max: int = 4 * MIB
    transactions_max: int = 10_000
    """How many transactions may be undecided at once, with how many messages and bytes together;
    those of one producer below."""
    undecided_messages_max: int = 10_000_000
    undecided_bytes_max: int = 1024 * MIB
    producer_transactions_max: int = 10_000
    producer_undecided_messages_max: int = 10_000_000
    producer_undecided_bytes_max: int = 1024 * MIB
    transaction_messages_max: int = 1_000_000
    relocate_bytes: int = 64 * MIB
    """An undecided transaction further behind than this, and twice the room that all undecided
    ones take, is written again at the end."""

    retain_bytes: int | None = None
    """Drop the oldest segments while all together are larger than this; None: keep."""
    retain_seconds: float | None = None
    """Drop segments whose newest message is older than this; None: keep."""
    keep_unread: bool = True
    """Whether retention spares what a group has not yet acked."""
    outcome_window_seconds: float | None = None
    """How long an outcome can be asked for; None: as long as its segment is kept."""

    check_after_seconds: float = 60.0
    """How long after its prepare nobody is asked about a transaction that names no time itself."""
    check_lease_seconds: float = 30.0
    """How long a question is one asker's before it is asked again."""
    check_backoff_seconds: float = 60.0
    """How long until the next question after the first that nobody could answer; doubled each
    time, up to `check_backoff_max_seconds`, and shortened at random by up to a half."""
    check_backoff_max_seconds: float = 600.0
    on_undecided: OnUndecided = "ask"
    """What follows when `check_answers_max` answers were "unknown": ask for ever, ask no more
    until a person decides, or roll back."""
    check_answers_max: int = 15
    checker_threads: int = 2
    """How many threads ask the checkers registered in this process."""
    strict_bind: bool = False
    """Refuse to bind a database that may lose what it has committed, rather than warn."""

    lease_seconds: float = 30.0
    """How long a delivery is its consumer's before it is handed out again."""
    read_ahead_bytes: int = 1 * MIB
    hold_gil: bool = False
    """Keep the interpreter's lock while the disk syncs: sends beside a thread that computes are
    many times faster, and every other Python thread waits for the disk."""
    allow_remote: bool = False
    """Open for writing also where another machine serves the files (NFS, SMB and the like)."""
    file_mode: int = 0o600
    """The permissions of each file that the engine makes, whatever the umask. A directory that it
    makes has them, too, and may be entered by whom its files may be read by."""

    def __post_init__(self) -> None:
        for option in fields(self):
            name, value = option.name, getattr(self, option.name)
            kind, _, none = str(option.type).partition(" | ")
            if none and value is None:
                continue
            good, wanted = KINDS[kind]
            _check(name, value, good(value), f"{wanted} or None" if none else wanted)
            if name in MAY_BE_ZERO:
                _check(name, value, value >= 0, "0 or more")
            elif kind in ("int", "float"):
                _check(name, value, value > 0, "more than 0")
        size = self.segment_bytes
        _check(
            "segment_bytes",
            size,
            SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX and size % 8 == 0,
            f"a multiple of 8 from {SEGMENT_BYTES_MIN:,} to {SEGMENT_BYTES_MAX:,}",
        )
        _check(
            "file_mode",
            self.file_mode,
            self.file_mode & ~0o066 == 0o600,
            "read and write for the owner, 0o600, and any of them for others, such as 0o640",
        )
        _check("queues", self.queues, self.queues <= QUEUES_MAX, f"from 1 to {QUEUES_MAX} queues")
        # A copy: what was checked is what the engine will look at, whatever the caller adds.
        queues_of: Mapping[Any, Any] = dict(self.topic_queues)
        object.__setattr__(self, "topic_queues", queues_of)
        for topic, count in queues_of.items():
            known = isinstance(topic, str) and _is_int(count) and 1 <= count <= QUEUES_MAX
            wanted = f"names of topics, each with its number of queues, from 1 to {QUEUES_MAX}"
            _check("topic_queues", {topic: count}, known, wanted)

    def queues_of(self, topic: str) -> int:
        """How many queues the topic gets when it is made."""
        return self.topic_queues.get(topic, self.queues)


def _check(name: str, value: object, good: bool, wanted: str) -> None:
    if not good:
        raise BadOption(f"Options({name}={value!r}): must be {wanted}. Nothing was opened.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    # A NaN compares as False with everything.
    return (_is_int(value) or isinstance(value, float)) and abs(value) <= SECONDS_MAX


def _one_of(names: Any) -> tuple[Callable[[Any], bool], str]:
    known = get_args(names)
    return lambda value: isinstance(value, str) and value in known, f"one of {', '.join(known)}"


# What a field may hold, by the type that it is declared with; None besides, where that says so.
KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_int, "a whole number, an int"),
    "float": (_is_time, "a number of seconds, an int or a float, and at most a hundred years"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "SyncMode": _one_of(SyncMode),
    "OnUndecided": _one_of(OnUndecided),
    "Mapping[str, int]": (lambda value: isinstance(value, Mapping), "a mapping of str to int"),
}
# Other numbers are more than that.
MAY_BE_ZERO = (
    "compress_bytes_min",
    "reference_bytes_min",
    "check_after_seconds",
    "checker_threads",
)
