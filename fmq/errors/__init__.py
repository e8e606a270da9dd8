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
    │   ├── BackupRefused       a directory that is no backup, or that of another journal
    │   ├── NotServed           no engine process answers
    │   ├── OutcomeUnknown      an engine process has ended, and a call's outcome with it
    │   ├── NotAllowed          an engine process does not serve this client, or not in this way
    │   ├── ProtocolError       an engine process and its client do not understand each other
    │   ├── StorageFull         no room: refused whole, before a byte was written
    │   ├── IllegalRecord       a defect of fmq, met and refused before a byte was written
    │   ├── HomeBehind          a home has lost what it had acknowledged
    │   ├── HomeRefused         what cannot be a home, or no cache of this one
    │   └── EngineFailed        a write or sync failed: open the directory again
    │       └── TakenOver       another machine has the home now
    ├── UsageError              the call cannot be served, and nothing was changed
    │   ├── Closed  Forked  ReadOnly  Nested
    │   ├── BadName  BadOption  BadAllocation  BadFilter  BadBody  TooLarge  TooMany
    │   ├── OffsetGone          retention has dropped what was asked for
    │   ├── PositionGone        retention has dropped what `engine.tail` was asked for
    │   ├── OffsetBeyond        nothing is there yet
    │   ├── EraseRefused        a message that will be copied yet cannot be erased now
    │   ├── GroupExists  UnknownGroup  StillUndecided  UnknownDeadLetter
    │   ├── TopicExists  TopicInUse  UnknownTopic
    │   ├── FilterDiffers  StrategyDiffers  TopicsDiffer  CodecDiffers
    │   ├── ScheduleDiffers  UnknownSchedule  ExtraMissing
    │   └── UnknownMember  MemberReplaced  MemberPutOut
    ├── TransactionError        what may follow what in a transaction
    │   ├── UnknownTransaction  TxIdInUse  AlreadyDecided  WrongState  MarkMoved
    │   ├── MessageIdUndecided     an undecided transaction holds the id
    │   ├── Impaired            messages of an undecided transaction are damaged
    │   └── RollBack            raised by a program: its own part did not happen
    └── LeaseLost               the lease of a delivery or a question has ended

An error says what happened, where, what became of the data, and what to do next. What a
program may want to branch on is an attribute, too.
"""

from fmq.errors.base import (
    FmqError,
)
from fmq.errors.group_errors import (
    CodecDiffers,
    FilterDiffers,
    GroupExists,
    LeaseLost,
    MemberPutOut,
    MemberReplaced,
    StillUndecided,
    StrategyDiffers,
    TopicExists,
    TopicInUse,
    TopicsDiffer,
    UnknownDeadLetter,
    UnknownGroup,
    UnknownMember,
    UnknownTopic,
)
from fmq.errors.storage_errors import (
    BackupRefused,
    CheckpointLost,
    Damaged,
    EngineFailed,
    HomeBehind,
    HomeRefused,
    IllegalRecord,
    Locked,
    NewerFormat,
    NotAllowed,
    NotAStore,
    NotServed,
    OutcomeUnknown,
    ProtocolError,
    RemoteFileSystem,
    StorageError,
    StorageFull,
    TakenOver,
    Unreadable,
    UnsupportedSystem,
)
from fmq.errors.transaction_errors import (
    AlreadyDecided,
    Impaired,
    MarkMoved,
    MessageIdUndecided,
    RollBack,
    TransactionError,
    TxIdInUse,
    UnknownTransaction,
    WrongState,
)
from fmq.errors.usage_errors import (
    BadAllocation,
    BadBody,
    BadFilter,
    BadName,
    BadOption,
    Closed,
    EraseRefused,
    ExtraMissing,
    Forked,
    Nested,
    OffsetBeyond,
    OffsetGone,
    PositionGone,
    ReadOnly,
    ScheduleDiffers,
    TooLarge,
    TooMany,
    UnknownSchedule,
    UsageError,
)

__all__ = [
    "AlreadyDecided",
    "BackupRefused",
    "BadAllocation",
    "BadBody",
    "BadFilter",
    "BadName",
    "BadOption",
    "CheckpointLost",
    "CodecDiffers",
    "Closed",
    "Damaged",
    "EngineFailed",
    "EraseRefused",
    "ExtraMissing",
    "FilterDiffers",
    "FmqError",
    "Forked",
    "GroupExists",
    "HomeBehind",
    "HomeRefused",
    "IllegalRecord",
    "Impaired",
    "LeaseLost",
    "Locked",
    "MarkMoved",
    "MemberPutOut",
    "MemberReplaced",
    "MessageIdUndecided",
    "Nested",
    "NewerFormat",
    "NotAStore",
    "NotAllowed",
    "NotServed",
    "OffsetBeyond",
    "OffsetGone",
    "OutcomeUnknown",
    "PositionGone",
    "ProtocolError",
    "ReadOnly",
    "RemoteFileSystem",
    "RollBack",
    "ScheduleDiffers",
    "StillUndecided",
    "StorageError",
    "StorageFull",
    "StrategyDiffers",
    "TakenOver",
    "TooLarge",
    "TooMany",
    "TopicExists",
    "TopicInUse",
    "TopicsDiffer",
    "TransactionError",
    "TxIdInUse",
    "UnknownDeadLetter",
    "UnknownGroup",
    "UnknownMember",
    "UnknownSchedule",
    "UnknownTopic",
    "UnknownTransaction",
    "Unreadable",
    "UnsupportedSystem",
    "UsageError",
    "WrongState",
]

# Tracebacks and pickles should name the module that programs import from.
for _name in __all__:
    globals()[_name].__module__ = __name__
