"""Holders: each keeps retention from dropping segments, also while its process does not run. A tool
that ships a journal has one.

A holder is a file SHIPPING.<number> in the directory of the journal, JSON: where the segments go,
the position from which on they are still needed, and how far the journal may run ahead of it. A
holder further behind than that is passed over.
"""

from __future__ import annotations

import json
import zlib
from contextlib import closing, suppress
from typing import NamedTuple

from fmq.machine.disk import Directory, free, replace
from fmq.recovery.layout import SHIPPING

NEW = ".new"


class ShippingHolder(NamedTuple):
    """A destination that still needs segments."""

    destination: str
    position: int
    """What lies from here on is not shipped yet."""
    keep_bytes: int
    """How far the journal may be ahead, until retention goes on without this holder."""


def holder_name(destination: str) -> str:
    return f"{SHIPPING}{zlib.crc32(destination.encode()):08x}"


def hold(directory: Directory, holder: ShippingHolder) -> None:
    """Have retention keep what `holder` needs, durably."""
    name = holder_name(holder.destination)
    replace(directory, name, name + NEW, json.dumps(holder._asdict()).encode())


def release(directory: Directory, destination: str) -> bool:
    """Have retention keep nothing for `destination` any more. Return whether it did."""
    name = holder_name(destination)
    if name not in directory.names():
        return False
    free(directory, name)
    return True


def holders(directory: Directory) -> list[ShippingHolder]:
    """Return all holders. A holder file that cannot be read holds nothing: its tool writes it
    again.
    """
    found = []
    for name in sorted(directory.names()):
        if name.startswith(SHIPPING) and not name.endswith(NEW):
            with suppress(OSError, ValueError, TypeError), closing(directory.open(name)) as file:
                found.append(ShippingHolder(**json.loads(file.read(0, file.size()))))
    return found
