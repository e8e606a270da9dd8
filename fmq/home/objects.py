"""What a home needs of its storage: objects under keys, each of which is made once.

Whoever creates a key first has it; all later ones get `KeyTaken`. Nothing else orders machines, no
clock and no lock. Adapters implement `Objects`, each in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

READ_TOGETHER = 16  # a take-over reads many entries, and each one takes a round trip


class KeyTaken(Exception):
    """The key exists. Another machine may have made it, or an earlier try of this one."""


class NoAnswer(Exception):
    """The storage did not say whether the object was made. It may be there, now or later."""


class Objects(Protocol):
    """The objects of one home. Keys are like `slots/00000000000000000007`."""

    address: str
    """How the user has named the home."""
    object_bytes_max: int
    """The size of the largest object that may be made."""

    def create(self, key: str, data: bytes) -> None:
        """Make the object `key`; durable on return. Raises KeyTaken, also durable, or NoAnswer. Any
        other OSError ends the engine.
        """

    def read(self, key: str) -> bytes | None:
        """Return the object `key`; None if there is none. Raises NoAnswer."""

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        """Return the objects `keys`, up to the first that does not exist. Raises NoAnswer.

        An object may be missing only if it did not exist at some moment after this call began.
        """

    def names(self, folder: str) -> list[str]:
        """Return the sorted names below `folder`, such as `slots`. Raises NoAnswer.

        What existed before this call began, and still exists, is among them.
        """

    def remove(self, keys: Sequence[str]) -> None:
        """Remove objects. It is no error if one is missing. Raises NoAnswer."""

    def close(self) -> None: ...


def read_together(read: Callable[[str], bytes | None], keys: Sequence[str]) -> list[bytes]:
    """Read objects in threads, in the order of `keys`, up to the first that is missing."""
    found: list[bytes] = []
    with ThreadPoolExecutor(READ_TOGETHER) as threads:
        for at in range(0, len(keys), READ_TOGETHER):
            for data in threads.map(read, keys[at : at + READ_TOGETHER]):
                if data is None:
                    return found
                found.append(data)
    return found
