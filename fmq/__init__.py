"""fmq: an embedded transaction engine for messages, what SQLite is to tables.

    import fmq

    with fmq.open("shop") as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"order 1", key="c-7")
            tx.send("emails", b"receipt 1")

All public names are here; errors are in `fmq.errors`, filters in `fmq.filters`, what tests need in
`fmq.testing`.
"""

from fmq import errors, filters
from fmq.consume.backoff import Retry
from fmq.consume.consumer import Consumer
from fmq.consume.dead_letter import DeadLetters
from fmq.consume.delivery import Delivery, DeliveryBatch
from fmq.consume.group import Group
from fmq.current import current_transaction
from fmq.engine import Engine
from fmq.errors import FmqError, RollBack
from fmq.feedback.answers import Answer
from fmq.feedback.loop import CheckLoop
from fmq.feedback.question import Question
from fmq.feedback.service import Feedback
from fmq.message import DelayedReceipt, Mark, Message, Origin, Receipt
from fmq.options import Options
from fmq.read_only_engine import ReadOnlyEngine
from fmq.recovery.recover import RecoveryReport
from fmq.remote.connecting import connect
from fmq.remote.remote_consumer import RemoteConsumer
from fmq.remote.remote_engine import RemoteEngine
from fmq.results import (
    DeadLetter,
    GroupInfo,
    MemberInfo,
    Outcome,
    QueueInfo,
    Settled,
    UndecidedTransaction,
)
from fmq.server.serving import Serving
from fmq.startup import open
from fmq.stats import Kept, Stats
from fmq.store.batch import Batch
from fmq.tx.transaction import Transaction
from fmq.verification import Problem, Report, check

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Batch",
    "CheckLoop",
    "Consumer",
    "DeadLetter",
    "DeadLetters",
    "DelayedReceipt",
    "Delivery",
    "DeliveryBatch",
    "Engine",
    "Feedback",
    "FmqError",
    "Group",
    "GroupInfo",
    "Kept",
    "Mark",
    "MemberInfo",
    "Message",
    "Options",
    "Origin",
    "Outcome",
    "Problem",
    "Question",
    "QueueInfo",
    "ReadOnlyEngine",
    "Receipt",
    "RecoveryReport",
    "RemoteConsumer",
    "RemoteEngine",
    "Report",
    "Retry",
    "RollBack",
    "Serving",
    "Settled",
    "Stats",
    "Transaction",
    "UndecidedTransaction",
    "check",
    "connect",
    "current_transaction",
    "errors",
    "filters",
    "open",
]
