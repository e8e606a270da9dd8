"""fmq: an embedded transaction engine for messages, what SQLite is to tables.

    import fmq

    with fmq.open("shop") as engine:
        with engine.transaction() as tx:
            tx.send("orders", b"order 1", key="c-7")
            tx.send("emails", b"receipt 1")

All public names are here; errors are in `fmq.errors`, what tests need in `fmq.testing`.
"""

import typing as _typing

from fmq import errors
from fmq.consume.consumer import Consumer
from fmq.consume.delivery import Delivery, DeliveryBatch
from fmq.errors import FmqError, RollBack
from fmq.feedback.answers import Answer
from fmq.message import Message, Origin, Receipt
from fmq.opening import open
from fmq.store.batch import Batch
from fmq.tx.transaction import Transaction

if _typing.TYPE_CHECKING:
    from fmq.checking import Problem, Report, check
    from fmq.engine import Engine
    from fmq.feedback.loop import CheckLoop
    from fmq.feedback.question import Question
    from fmq.feedback.service import Feedback
    from fmq.infos import GroupInfo, Outcome, QueueInfo, Settled, UndecidedTransaction
    from fmq.options import Options
    from fmq.readonly import ReadOnlyEngine
    from fmq.recovery.recover import RecoveryReport
    from fmq.stats import Kept, Stats

__version__ = "0.1.0"

__all__ = [
    "Answer",
    "Batch",
    "CheckLoop",
    "Consumer",
    "Delivery",
    "DeliveryBatch",
    "Engine",
    "Feedback",
    "FmqError",
    "GroupInfo",
    "Kept",
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

# Imported when they are first named: a program that only sends never does.
_LATER = {
    "CheckLoop": "fmq.feedback.loop",
    "Engine": "fmq.engine",
    "Feedback": "fmq.feedback.service",
    "GroupInfo": "fmq.infos",
    "Kept": "fmq.stats",
    "Options": "fmq.options",
    "Outcome": "fmq.infos",
    "Problem": "fmq.checking",
    "Question": "fmq.feedback.question",
    "QueueInfo": "fmq.infos",
    "ReadOnlyEngine": "fmq.readonly",
    "RecoveryReport": "fmq.recovery.recover",
    "Report": "fmq.checking",
    "Settled": "fmq.infos",
    "Stats": "fmq.stats",
    "UndecidedTransaction": "fmq.infos",
    "check": "fmq.checking",
}


def __getattr__(name: str) -> _typing.Any:
    if name not in _LATER:
        raise AttributeError(f"module 'fmq' has no attribute {name!r}")
    import sys

    from fmq.imported import have

    have(_LATER[name])
    value = globals()[name] = getattr(sys.modules[_LATER[name]], name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
