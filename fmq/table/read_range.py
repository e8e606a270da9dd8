"""Which part of each journal a read is about: from one position to another, of whole appends.

Every incremental read goes through here: `fmq.table.read` and the delivery into tables of a lake.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fmq.errors import BadOption
from fmq.machine.disk import Disk
from fmq.table.snapshot import Snapshot
from fmq.table.stream import BatchRoom, ReadPoint, append_at, batch_end, go_on
from fmq.table.table_errors import PositionBeyond

LOG = logging.getLogger(__name__)
Positions = int | Mapping[str, int]
"""A position, or one for each store, by its UUID as hex."""


class ReadRange(NamedTuple):
    """A part of one journal: whole appends, from position `first` up to, not including, `end`."""

    path: str
    store: str
    first: int
    end: int


def range_of(
    journal: Snapshot,
    since: int | None = None,
    until: int | None = None,
    room: BatchRoom | None = None,
    *,
    skip_gaps: bool = False,
    permissive: bool = False,
    disk: Disk | None = None,
) -> ReadRange:
    """Return the part of `journal` from `since`, or its beginning, to `until`, or its end: as much
    of it as `room` allows. Subtract this part from `room`.

    Raises PositionBeyond, BadOption if no append begins at `since`, and Outrun if retention has
    dropped it; with `skip_gaps` the part begins behind the gap.
    """
    store, stop = journal.store.hex(), journal.visible_to
    first = journal.first
    if since is not None:
        if since > stop:
            raise PositionBeyond(journal.path, store, since, stop)
        first, lost = go_on(journal, ReadPoint(since), stop, skip=skip_gaps, disk=disk)
        if lost:
            LOG.warning(
                "%s: retention dropped the journal from position %d up to %d before it was read; "
                "reading goes on behind the gap, as was asked",
                *(journal.path, since, since + lost),
            )
        if first == since and (begins := append_at(journal, since, disk)) != since:
            raise BadOption(
                f"{journal.path}: position {since} is inside of an append, which begins at "
                f"{begins}. Nothing was read. `end` of an earlier read is where to go on."
            )
    if until is not None and until < stop:
        # An append that `until` would cut belongs to the next read.
        stop = append_at(journal, until, disk)
    end = batch_end(journal, first, stop, room or BatchRoom(), permissive=permissive, disk=disk)
    return ReadRange(journal.path, store, first, end)


def positions_of(
    name: str, given: Positions | None, journals: Sequence[Snapshot]
) -> dict[str, int]:
    """Return the positions in `given`, the argument called `name`, by store. Raises BadOption."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        found = dict(given)
    elif len(journals) == 1:
        found = {journals[0].store.hex(): given}
    else:
        raise BadOption(
            f"{name}={given!r}: one position means nothing in {len(journals)} journals. Nothing "
            f"was read; {name} may have one for each store, as `reader.ends` of an earlier read."
        )
    for store, position in found.items():
        if not isinstance(store, str):
            raise TypeError(f"{name}: a store is named by its UUID, a str of hex, not {store!r}")
        if isinstance(position, bool) or not isinstance(position, int):
            raise TypeError(f"{name}: a position is an int, not {position!r}. Nothing was read.")
        if position < 0:
            raise BadOption(f"{name}={position}: no position is negative. Nothing was read.")
    return found


def only(ranges: Iterable[ReadRange], what: str) -> ReadRange:
    """Return the one range. Raises BadOption, which names `what` was asked, if there are others."""
    known = list(ranges)
    if len(known) != 1:
        raise BadOption(
            f"`{what}` means nothing in a read of {len(known)} journals; `ranges` and `ends` have "
            "it for each."
        )
    return known[0]
