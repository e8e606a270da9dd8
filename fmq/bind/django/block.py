"""`atomic`: a block or decorator like Django's, with messages that commit with the block."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar

from django.db import DEFAULT_DB_ALIAS, connections

from fmq.bind.interface import TransactionFactory
from fmq.tx.commands.transaction import Transaction

T = TypeVar("T")


@dataclass
class Atomic:
    """A block, or a decorator that runs each call of its function in a block."""

    engine: TransactionFactory | Callable[[], TransactionFactory]
    using: str
    producer: str | None
    tx_id: str | None
    check_after: float | None
    _tx: Transaction | None = None

    def __enter__(self) -> Transaction:
        engine = self.engine() if callable(self.engine) else self.engine
        self._tx = engine.transaction(
            tx_id=self.tx_id,
            producer=self.producer,
            check_after=self.check_after,
            bind=connections[self.using],
        )
        return self._tx.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tx is not None
        self._tx.__exit__(kind, error, traceback)

    def __call__(self, function: Callable[..., T]) -> Callable[..., T]:
        if inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{function.__qualname__} is a coroutine function: the block would end before it "
                "has begun. Decorate a function, and call it through asgiref's sync_to_async."
            )

        @wraps(function)
        def in_block(*args: Any, **kwargs: Any) -> T:
            # A new block for each call, as other threads may be inside of their blocks.
            with replace(self, _tx=None) as tx:
                return function(*args, **kwargs, tx=tx)

        return in_block


def atomic(
    engine: TransactionFactory | Callable[[], TransactionFactory],
    using: str = DEFAULT_DB_ALIAS,
    *,
    producer: str | None = None,
    tx_id: str | None = None,
    check_after: float | None = None,
) -> Atomic:
    """Return Django's `atomic(using, durable=True)` with messages that commit with it.

    The block gives a transaction to send with. A decorated function gets it as `tx`. `engine` may
    be a function that returns the engine, for code that is decorated before the engine is open.
    """
    return Atomic(engine, using, producer, tx_id, check_after)
