"""The settings of an engine: one frozen dataclass, checked when it is made.

Sizes are in bytes and times in seconds, and the name says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self, get_args

from fmq.errors import BadOption

SyncMode = Literal["always", "interval", "never"]
OnUndecided = Literal["ask", "park", "rollback"]

KIB = 1024
MIB = 1024 * KIB

SEGMENT_BYTES_MIN = 2 * 1024  # room for the largest decision and a message
SEGMENT_BYTES_MAX = 1024 << 20
QUEUES_MAX = 4096
SECONDS_MAX = 100 * 365 * 86400  # Python's locks refuse a wait of three times as long


class _Given:
    """Knows which options a program has named. A default that it names counts as named, too."""

    __slots__ = ("given",)
    given: frozenset[str]

    def __new__(cls, **given: object) -> Self:
        made = super().__new__(cls)
        object.__setattr__(made, "given", frozenset(given))
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(_Given):
    """The settings of an engine. The defaults are right for most programs.

    Each option says who needs another value. Some belong to the directory, and hold for all who use
    it: see `fmq/arguments/stored_options.py`.
    """

    # --- durability -----------------------------------------------------------------------------

    sync: SyncMode = "always"
    """When a call returns. `always`: once it is durable. `interval`: at once, and it is durable,
    and visible to readers, within `sync_interval_seconds`. `never`: at once, and the operating
    system decides; a power cut may take back what readers saw. For programs that can repeat what
    they sent, and need more calls in a second than the disk has syncs."""
    sync_interval_seconds: float = 0.05
    """With `sync="interval"`: how much time of work a crash may take back. For programs that can
    lose more, and want fewer syncs."""

    # --- the journal ----------------------------------------------------------------------------

    segment_bytes: int = 16 * MIB
    """The size of each file of the journal. No message, batch or transaction can be larger, so
    programs with larger ones need more. Retention drops whole segments, so one that keeps little
    needs less."""
    first_segment_bytes: int = 256 * KIB
    """The size of the first file of a journal, if that is less. Each later one is about as large as
    all before it, up to `segment_bytes`. For programs that begin with much, and want fewer files;
    or with very little, and have little room."""
    checkpoint_bytes: int = 2 * MIB
    """How much of the journal has to be replayed after a crash, at most. For programs that must
    open faster, or that write so much that checkpoints cost time."""
    checkpoint_idle_seconds: float = 1.0
    """How long nothing is appended before a checkpoint is written. For programs that send a little
    all the time, and want fewer writes."""
    relocate_bytes: int = 64 * MIB
    """How far back an undecided transaction may be, besides twice the room of all undecided ones,
    before it is written again at the end. It keeps the segments in between. For programs with
    little disk."""
    reference_bytes_min: int = 4 * KIB
    """From which size on a commit refers to a prepared body. Smaller ones are copied. For programs
    that prepare large bodies and seldom read them."""

    # --- topics and bodies ----------------------------------------------------------------------

    queues: int = 1
    """How many queues a topic gets when its first message makes it. For programs whose consumers
    share a topic and want the order within each key only."""
    topic_queues: Mapping[str, int] = field(default_factory=dict, hash=False)
    """The same for single topics, by name. For programs whose topics differ in load."""
    compress_bytes_min: int | None = None
    """Bodies of at least so many bytes, a batch counted as a whole, are compressed with lz4 if
    that makes them smaller. None: never. For programs that need room more than time."""

    # --- limits ---------------------------------------------------------------------------------

    message_bytes_max: int = 4 * MIB
    """The size of a body, at most. For programs whose consumers cannot take larger ones."""
    transaction_messages_max: int = 1_000_000
    """How many messages a transaction may have. For programs with larger transactions, or with
    little memory."""
    transactions_max: int = 10_000
    """How many transactions may be undecided at once. Each takes memory, and room reserved on the
    disk. For programs with a database that is away for hours."""
    undecided_messages_max: int = 10_000_000
    """How many messages they may hold together. For the same programs."""
    undecided_bytes_max: int = 1024 * MIB
    """How many bytes they may hold together. For the same programs, and for small disks."""
    producer_share: float = 1.0
    """The share of these three limits that one producer may take. For directories that several
    producers share: one that never decides leaves room to the others."""

    # --- message ids ----------------------------------------------------------------------------

    message_ids_kept: int = 100_000
    """How many message ids are remembered, of all topics together: the newest. Each takes some 270
    bytes of memory once ids are used, and 46 bytes of an index file, which retention writes again
    when it drops the message. For programs that send more between a failure and the repeat."""
    message_id_seconds: float = 86_400.0
    """How old a message id may be to be remembered. For programs that repeat what they sent after
    more than a day, or whose ids may be used again after less."""

    # --- retention ------------------------------------------------------------------------------

    retain_acked_bytes: int | None = 32 * MIB
    """Drop the oldest segments that every group has acked while all together are larger than this.
    A topic without groups is kept. It counts only while neither of the next two is set. None: keep
    all. For programs that read again what was acked, which need more."""
    retain_bytes: int | None = None
    """Drop the oldest segments while all together are larger than this, those of topics without
    groups included. None: no such limit. For logs that nobody acks, as is the next."""
    retain_seconds: float | None = None
    """Drop segments whose newest message is older than this. None: no such limit."""
    keep_unread: bool = True
    """Whether retention keeps what a group has not yet acked. False is for programs that would
    lose messages rather than fill the disk."""
    outcome_window_seconds: float | None = None
    """How long an outcome can be asked for. None: as long as its segment is kept. For programs that
    use a `tx_id` again, such as the name of a daily job."""

    # --- asking about the undecided -------------------------------------------------------------

    check_after_seconds: float = 60.0
    """How long after its prepare a transaction is not asked about, unless it names a time itself.
    For programs whose database commits take longer, or that must find lost ones sooner."""
    check_lease_seconds: float = 30.0
    """How long one asker has a question before it is asked again. For checkers that need longer."""
    check_backoff_seconds: float = 60.0
    """How long until the next question after the first answer "unknown". It is doubled each time,
    up to ten times as long, and shortened at random by up to a half. For programs with a database
    that is often away, or that may not be asked often."""
    on_undecided: OnUndecided = "ask"
    """What follows when `check_answers_max` answers were "unknown": ask for ever, ask no more
    until an operator decides, or roll back. For programs with an operator; rolling back is for
    those where a lost message harms less than one that waits."""
    check_answers_max: int = 15
    """How many answers that is."""
    checker_threads: int = 2
    """How many threads ask the checkers registered in this process. For programs whose databases
    are slow; 0 for those that call `settle` themselves."""
    strict_bind: bool = False
    """Refuse to bind a database that may lose what it has committed, rather than warn. For programs
    that would rather stop than send what their database forgets."""

    # --- reading --------------------------------------------------------------------------------

    lease_seconds: float = 30.0
    """How long a consumer has a delivery before it is redelivered. For programs whose work on a
    message takes longer; a consumer may have its own."""
    member_timeout_seconds: float = 60.0
    """How long a member of a group may neither poll, ack nor extend before it is out, and what it
    has goes to the others. For consumers whose work on a message takes longer."""
    reclaim_seconds: float = 2.0
    """How long a process that serves after another one was killed keeps back what clients had in
    work, so that they can keep it. For clients that take longer to connect again."""
    read_ahead_bytes: int = 1 * MIB
    """How much is read from the disk at once. For programs with many queues and little memory."""

    # --- the machine ----------------------------------------------------------------------------

    hold_gil: bool = False
    """Keep the interpreter's lock while the disk syncs. For programs that send beside a thread that
    computes: sends are many times faster, and every other Python thread waits for the disk."""
    allow_remote: bool = False
    """Open for writing also where another machine serves the files (NFS, SMB and the like). For
    operators who trust that machine's syncs and locks."""
    file_mode: int = 0o600
    """The permissions of each file that the engine makes, whatever the umask. A directory that it
    makes has them, too, and may be entered by those who may read its files. For programs whose
    readers are other users of the machine."""

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
        for name in ("segment_bytes", "first_segment_bytes"):
            size = getattr(self, name)
            good = SEGMENT_BYTES_MIN <= size <= SEGMENT_BYTES_MAX and size % 8 == 0
            wanted = f"a multiple of 8 from {SEGMENT_BYTES_MIN:,} to {SEGMENT_BYTES_MAX:,}"
            _check(name, size, good, wanted)
        _check(
            "file_mode",
            self.file_mode,
            self.file_mode & ~0o066 == 0o600,
            "read and write for the owner, 0o600, and any of them for others, such as 0o640",
        )
        share = self.producer_share
        _check("producer_share", share, share <= 1, "more than 0, and at most 1")
        _check("queues", self.queues, self.queues <= QUEUES_MAX, f"from 1 to {QUEUES_MAX} queues")
        # A copy, so that what the caller adds later is not taken unchecked.
        queues_of: Mapping[Any, Any] = dict(self.topic_queues)
        object.__setattr__(self, "topic_queues", queues_of)
        for topic, count in queues_of.items():
            known = isinstance(topic, str) and _is_int(count) and 1 <= count <= QUEUES_MAX
            wanted = f"names of topics, each with its number of queues, from 1 to {QUEUES_MAX}"
            _check("topic_queues", {topic: count}, known, wanted)

    @property
    def capacity(self) -> int:
        """Return how many bytes the first segment of a new journal holds."""
        return min(self.first_segment_bytes, self.segment_bytes)

    def queues_of(self, topic: str) -> int:
        """Return how many queues the topic gets when it is made."""
        return self.topic_queues.get(topic, self.queues)


def _check(name: str, value: object, good: bool, wanted: str) -> None:
    if not good:
        raise BadOption(f"Options({name}={value!r}): must be {wanted}. Nothing was opened.")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_float(value: Any) -> bool:
    # A NaN compares as False with everything.
    return (_is_int(value) or isinstance(value, float)) and abs(value) <= SECONDS_MAX


def _one_of(names: Any) -> tuple[Callable[[Any], bool], str]:
    known = get_args(names)
    return lambda value: isinstance(value, str) and value in known, f"one of {', '.join(known)}"


# What a field may hold, by the type that it is declared with. "int | None" also allows None.
KINDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "int": (_is_int, "a whole number, an int"),
    "float": (_is_float, "a number, an int or a float, and at most a hundred years of seconds"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "SyncMode": _one_of(SyncMode),
    "OnUndecided": _one_of(OnUndecided),
    "Mapping[str, int]": (lambda value: isinstance(value, Mapping), "a mapping of str to int"),
}
# All other numbers must be more than 0.
MAY_BE_ZERO = (
    "compress_bytes_min",
    "reference_bytes_min",
    "check_after_seconds",
    "checker_threads",
    "reclaim_seconds",
)
