"""The blocks of transactions that are running here. A context variable lists them, the outermost
first.

Each thread has its own, and each asyncio task, which begins with those of the code that started it.
Blocks are kept by weak references, so one that is dropped before its end is not kept alive.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol
from weakref import ref

if TYPE_CHECKING:
    from fmq.tx.commands.transaction_content import TransactionContent

# If the list has this many blocks, those that ended in another context are dropped from it.
PRUNED_FROM = 16


class Block(Protocol):
    """What can be entered: a transaction in its `with` block, or a session that an outbox
    follows.
    """

    def _taking(self, store: str | None) -> TransactionContent | None:
        """Return the transaction that takes the messages sent now, if it is of `store` (None: of
        any). Return None if the block has ended, is being ended, or belongs to another store.
        """


_blocks: ContextVar[tuple[ref[Block], ...]] = ContextVar("fmq.running", default=())


def enter(block: Block) -> None:
    """Note that `block` has begun here, inside of the blocks that run already."""
    blocks = _blocks.get()
    if len(blocks) >= PRUNED_FROM:
        blocks = tuple(each for each in blocks if each() is not None)
    _blocks.set((*blocks, ref(block)))


def leave(block: Block) -> None:
    """Note that `block` has ended. Does nothing in a context where it has not begun."""
    blocks = _blocks.get()
    if blocks and blocks[-1]() is block:
        _blocks.set(blocks[:-1])
    elif blocks:
        _blocks.set(tuple(each for each in blocks if each() is not block))


def innermost(store: str | None) -> TransactionContent | None:
    """Return the transaction of the innermost block that runs here and belongs to `store`."""
    for each in reversed(_blocks.get()):
        block = each()
        found = None if block is None else block._taking(store)
        if found is not None:
            return found
    return None
