"""Binds SQLAlchemy's asyncio sessions and connections. Their steps run on their event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from fmq.bind.sqlalchemy.binding import SqlAlchemyBinding

T = TypeVar("T")


class AsyncSqlAlchemyBinding:
    """An AsyncSession or AsyncConnection. Each step is one call on its event loop."""

    def __init__(self, bridge: Any) -> None:
        """Bind the session or connection of `bridge`, from fmq/bind/on_loop.py."""
        self._run = bridge.run_sync
        self._inner = inner = cast(SqlAlchemyBinding, self._run(SqlAlchemyBinding))
        self.path = inner.path
        self.register = inner.register
        self.check = inner.check
        self.purge = inner.purge

    def begin(self) -> str:
        return str(self._on_loop(self._inner.begin))

    def insert_marker(self, store: str, tx_id: str) -> str:
        return str(self._on_loop(partial(self._inner.insert_marker, store, tx_id)))

    def commit(self) -> None:
        self._on_loop(self._inner.commit)

    def rolled_back_for_sure(self) -> bool:
        return self._inner.rolled_back_for_sure()

    def rollback(self) -> None:
        self._on_loop(self._inner.rollback)

    def leave(self) -> None:
        self._on_loop(self._inner.leave)

    def _on_loop(self, step: Callable[[], object]) -> object:
        return self._run(lambda _: step())
