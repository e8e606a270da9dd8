"""How an adapter gets an engine: the program's own, or a client of a directory.

A message is sent with the block that runs, if that is a block of the same directory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fmq
from fmq import Engine, RemoteEngine
from fmq.arguments.path import PathLike

Handle = Engine | RemoteEngine
ENGINES = Engine, RemoteEngine


def engine_of(where: Handle | str | PathLike) -> tuple[Handle, Callable[[], None]]:
    """Return an engine and the function that closes it. For the program's own engine the function
    does nothing.
    """
    if isinstance(where, ENGINES):
        return where, lambda: None
    engine = fmq.connect(where)
    return engine, engine.close


def send(engine: Handle, topic: str, body: bytes, **named: Any) -> None:
    """Send with the transaction whose block is running, if it is of the same directory; else at
    once.
    """
    tx = fmq.current_transaction(engine)
    if tx is None:
        engine.send(topic, body, **named)
    else:
        tx.send(topic, body, **named)
