"""fmq: an embedded transaction engine for messages, what SQLite is to tables.

    import fmq

    with fmq.open("shop") as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"order 1", key="c-7")
            tx.send("emails", b"receipt 1")

All public names are here; errors are in `fmq.errors`, what tests need in `fmq.testing`.
"""

from fmq import errors
from fmq.check import Problem, Report, check
from fmq.consume.consumer import Consumer, Delivery, DeliveryBatch
from fmq.engine import Engine
from fmq.errors import FmqError, RollBack
from fmq.feedback.loop import CheckLoop
from fmq.feedback.question import Answer, Question, Settled
from fmq.message import (
    GroupInfo,
    Message,
    Origin,
    Outcome,
    QueueInfo,
    Receipt,
    UndecidedTransaction,
)
from fmq.opening import open
from fmq.options import Options
from fmq.readonly import ReadOnlyEngine
from fmq.recovery.recover import RecoveryReport
from fmq.stats import Stats
from fmq.store.batch import Batch
from fmq.tx.transaction import Transaction

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Batch",
    "CheckLoop",
    "Consumer",
    "Delivery",
    "DeliveryBatch",
    "Engine",
    "FmqError",
    "GroupInfo",
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
    "Report",
    "RollBack",
    "Settled",
    "Stats",
    "Transaction",
    "UndecidedTransaction",
    "check",
    "errors",
    "open",
]
