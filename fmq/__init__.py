"""fmq: an embedded transaction engine for messages, what SQLite is to tables.

    import fmq

    with fmq.open("shop") as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"order 1", key="c-7")
            tx.send("emails", b"receipt 1")

All public names are here, errors too; filters are in `fmq.filters`, codecs in
`fmq.codecs`, what tests need in `fmq.testing`, calls that are awaited in `fmq.aio`.
"""

from fmq import codecs, errors, filters
from fmq.arguments.options import Options
from fmq.arguments.stored_options import Setting
from fmq.assembly.stats import Kept, Stats
from fmq.basics.counts import Counts, GroupCounts, Times
from fmq.basics.message import Appended, DelayedReceipt, Mark, Message, Origin, Receipt
from fmq.basics.results import (
    ClientInfo,
    DeadLetter,
    FormerMember,
    GroupInfo,
    HeldMessages,
    HomeStats,
    JointDecision,
    Limit,
    MemberInfo,
    Outcome,
    Pause,
    QueueInfo,
    ScheduleInfo,
    Settled,
    TopicCodec,
    UndecidedTransaction,
)
from fmq.consume.calls.any_consumer import AnyConsumer
from fmq.consume.calls.consumer import Consumer
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.delivery import Delivery, DeliveryBatch
from fmq.copies import Backup, Restored, Salvaged, Shipped, backup, restore, salvage, ship
from fmq.engines.current import current_transaction
from fmq.engines.engine import Engine
from fmq.engines.read_only_engine import ReadOnlyEngine
from fmq.engines.reconciliation import Reconciliation, reconcile
from fmq.engines.startup import open
from fmq.engines.verification import Problem, Report, check
from fmq.errors import (
    AlreadyDecided,
    BackupRefused,
    BadAllocation,
    BadBody,
    BadFilter,
    BadName,
    BadOption,
    CheckpointLost,
    Closed,
    CodecDiffers,
    Damaged,
    EngineFailed,
    EraseRefused,
    ExtraMissing,
    FilterDiffers,
    FmqError,
    Forked,
    GroupExists,
    HomeBehind,
    HomeRefused,
    IllegalRecord,
    Impaired,
    LeaseLost,
    Locked,
    MarkMoved,
    MemberPutOut,
    MemberReplaced,
    MessageIdUndecided,
    Nested,
    NewerFormat,
    NotAllowed,
    NotAStore,
    NotServed,
    OffsetBeyond,
    OffsetGone,
    OutcomeUnknown,
    PositionGone,
    ProtocolError,
    ReadOnly,
    RemoteFileSystem,
    RollBack,
    ScheduleDiffers,
    StillUndecided,
    StorageError,
    StorageFull,
    StrategyDiffers,
    TakenOver,
    TooLarge,
    TooMany,
    TopicExists,
    TopicInUse,
    TopicsDiffer,
    TransactionError,
    TxIdInUse,
    UnknownDeadLetter,
    UnknownGroup,
    UnknownMember,
    UnknownSchedule,
    UnknownTopic,
    UnknownTransaction,
    Unreadable,
    UnsupportedSystem,
    UsageError,
    WrongState,
)
from fmq.faces.blocking.engine_face import AnyEngine, WritingEngine
from fmq.faces.blocking.handles import DeadLetters, Group
from fmq.faces.blocking.typed_topic import TypedTopic
from fmq.feedback.answers import Answer
from fmq.feedback.loop import CheckLoop
from fmq.feedback.question import Question
from fmq.feedback.service import Feedback
from fmq.recovery.recover import RecoveryReport
from fmq.remote.dial import connect
from fmq.remote.remote_consumer import RemoteConsumer
from fmq.remote.remote_engine import RemoteEngine
from fmq.remote.server_stop import Stopped, stop
from fmq.server.server_handle import Serving
from fmq.store.reading.batch import Batch
from fmq.tx.commands.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "AlreadyDecided",
    "Answer",
    "AnyConsumer",
    "AnyEngine",
    "Backup",
    "BackupRefused",
    "BadAllocation",
    "BadBody",
    "BadFilter",
    "BadName",
    "BadOption",
    "Batch",
    "CheckLoop",
    "CheckpointLost",
    "ClientInfo",
    "Closed",
    "CodecDiffers",
    "Consumer",
    "Counts",
    "Damaged",
    "DeadLetter",
    "DeadLetters",
    "DelayedReceipt",
    "Delivery",
    "DeliveryBatch",
    "Engine",
    "EngineFailed",
    "EraseRefused",
    "ExtraMissing",
    "Feedback",
    "FilterDiffers",
    "FmqError",
    "Forked",
    "FormerMember",
    "Group",
    "GroupCounts",
    "GroupExists",
    "GroupInfo",
    "HeldMessages",
    "JointDecision",
    "HomeBehind",
    "HomeRefused",
    "HomeStats",
    "IllegalRecord",
    "Impaired",
    "Kept",
    "LeaseLost",
    "Limit",
    "Locked",
    "Mark",
    "MarkMoved",
    "MemberInfo",
    "MemberPutOut",
    "MemberReplaced",
    "Message",
    "MessageIdUndecided",
    "Nested",
    "NewerFormat",
    "NotAStore",
    "NotAllowed",
    "NotServed",
    "OffsetBeyond",
    "OffsetGone",
    "Options",
    "Origin",
    "Outcome",
    "OutcomeUnknown",
    "Pause",
    "PositionGone",
    "Problem",
    "ProtocolError",
    "Question",
    "QueueInfo",
    "ReadOnly",
    "ReadOnlyEngine",
    "Reconciliation",
    "Restored",
    "Salvaged",
    "Shipped",
    "Receipt",
    "RecoveryReport",
    "RemoteConsumer",
    "RemoteEngine",
    "RemoteFileSystem",
    "Report",
    "Retry",
    "RollBack",
    "ScheduleDiffers",
    "ScheduleInfo",
    "Serving",
    "Setting",
    "Settled",
    "Stats",
    "StillUndecided",
    "Stopped",
    "StorageError",
    "StorageFull",
    "StrategyDiffers",
    "Times",
    "TakenOver",
    "TooLarge",
    "TooMany",
    "TopicCodec",
    "TopicExists",
    "TopicInUse",
    "TopicsDiffer",
    "Transaction",
    "TransactionError",
    "TxIdInUse",
    "TypedTopic",
    "UndecidedTransaction",
    "UnknownDeadLetter",
    "UnknownGroup",
    "UnknownMember",
    "UnknownSchedule",
    "UnknownTopic",
    "UnknownTransaction",
    "Unreadable",
    "UnsupportedSystem",
    "UsageError",
    "WritingEngine",
    "WrongState",
    "backup",
    "check",
    "reconcile",
    "restore",
    "salvage",
    "ship",
    "stop",
    "codecs",
    "connect",
    "current_transaction",
    "errors",
    "filters",
    "open",
]
