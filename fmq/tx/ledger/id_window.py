"""The window of message ids: those that an engine remembers, and which message took each.

The window is made at the first use of an id, from the tables of ids in the indexes of the segments,
the newest first. After that each published id is added. The newest ids are remembered: as many as
`Options.message_ids_kept` says, and none older than `message_id_seconds`. Tables are dropped as a
whole, so some older ids may still be known. Before retention drops a segment, its ids that belong
to the window are carried into the segment being written (chores/carried_ids.py). Guarded by the
engine's lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from fmq.store.index.id_table import IdKey, IdTable, TakenId

ROW_BITS = 32
ROW = (1 << ROW_BITS) - 1
MORE = 1 << 62  # larger than any row number


class IdWindow:
    """The ids that one engine remembers."""

    def __init__(self, tables: Iterable[IdTable], kept: int, seconds: float) -> None:
        """`tables` belong to consecutive segments, the oldest first. The last one still grows.

        The window has the newest `kept` ids, without those older than `seconds`.
        """
        self._kept = kept
        self._age_us = round(seconds * 1_000_000)
        self._tables: dict[int, IdTable] = {}  # the tables by their numbers, the oldest first
        # The number of each table, by the base of its segment.
        self._numbers: dict[int, int] = {}
        self._next = 0
        # For each key, the number of the table and the row in it, packed into one int.
        self._where: dict[IdKey, int] = {}
        # How many ids were taken in the segments of the tables. Carried ids do not count.
        self.own = 0
        for table in tables:
            self.note(table, len(table))

    def __len__(self) -> int:
        return len(self._where)

    def note(self, table: IdTable, rows: int) -> None:
        """Note the last `rows` of `table`. Some of them may have been carried there."""
        if not rows:
            return
        start = len(table) - rows
        self.own += sum(1 for each in table.positions[start:] if each >= table.base)
        self._note(table, start, table.all_keys(start))

    def note_run(self, table: IdTable, keys: Sequence[IdKey]) -> None:
        """Note the last rows of `table`. They belong to a run whose messages take `keys`."""
        if keys:
            self.own += len(keys)
            self._note(table, len(table) - len(keys), keys)

    def _note(self, table: IdTable, start: int, keys: Iterable[IdKey]) -> None:
        number = self._numbers.get(table.base)
        if number is None:
            number = self._numbers[table.base] = self._next
            self._tables[number] = table
            self._next += 1
            self._drop_old(table)
        self._where.update(zip(keys, range(number << ROW_BITS | start, MORE), strict=False))

    @property
    def known(self) -> Mapping[IdKey, object]:
        """The keys of all ids that may be in the window."""
        return self._where

    def _drop_old(self, newest: IdTable) -> None:
        """Drop the tables that are older than the oldest id of the window."""
        newer = self.own
        for number, table in [*self._tables.items()]:
            if table is newest:
                return
            newer -= table.own
            if newer < self._kept and not self._is_old(table.newest_us, newest.newest_us):
                return
            self._drop(number)

    def _drop(self, number: int) -> None:
        table = self._tables.pop(number)
        del self._numbers[table.base]
        self.own -= table.own
        where = self._where
        for key in table.all_keys():
            if where.get(key, -1) >> ROW_BITS == number:
                del where[key]

    def drop_below(self, floor: int) -> None:
        """Drop the tables of segments below `floor`, because retention drops these segments."""
        for number, table in [*self._tables.items()]:
            if table.base < floor:
                self._drop(number)

    def _is_old(self, time_us: int, now_us: int) -> bool:
        return now_us - time_us > self._age_us

    def find(self, key: IdKey, deleted: int, now_us: int) -> TakenId | None:
        """Return the message that took an id; None if the window has none.

        An id before the position `deleted`, where the topic was last deleted, does not count.
        """
        at = self._where.get(key)
        if at is None:
            return None
        found = self._tables[at >> ROW_BITS].row(at & ROW)
        if found.position < deleted or self._is_old(found.time_us, now_us):
            return None
        return found

    def below(self, floor: int, now_us: int) -> list[TakenId]:
        """Return the ids of the window that only segments below `floor` hold. They must be
        carried.
        """
        rest, carried = 0, []
        candidates: list[TakenId] = []
        for number, table in self._tables.items():
            if table.base >= floor:
                rest += table.own
                carried += [position for position in table.positions if position < table.base]
            else:
                candidates += self._live(number, table, now_us)
        room = self._kept - rest
        if room <= 0:
            return []
        positions = [each.position for each in candidates] + carried
        if len(positions) > room:
            least = sorted(positions)[-room]
            candidates = [each for each in candidates if each.position >= least]
        return candidates

    def _live(self, number: int, table: IdTable, now_us: int) -> Iterator[TakenId]:
        first, where = number << ROW_BITS, self._where
        for row, key in enumerate(table.all_keys()):
            if where.get(key) == first | row:
                found = table.row(row)
                if not self._is_old(found.time_us, now_us):
                    yield found
