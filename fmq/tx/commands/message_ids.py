"""Sending once: a message whose id is taken is left out, and its receipt is that of the first one.

A published message takes its id, once for each topic, for as long as the window has it
(id_window.py). An undecided transaction holds the ids of its messages: it takes them when it is
committed, and frees them when it is rolled back.

A look-up also finds the sends that are planned and not yet durable. The journal is written in the
order of the plans, so the first message is durable no later than the call that finds it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from fmq.basics.message import DelayedReceipt, Origin, Receipt
from fmq.errors import MessageIdUndecided
from fmq.store.bytes.columns import Columns
from fmq.store.bytes.content import columns_crc, encode_messages
from fmq.store.bytes.extension import extension_of, request_in
from fmq.store.bytes.extras import Extras
from fmq.store.bytes.kinds import Append, Record, Run
from fmq.store.bytes.timing import timing_in, with_timing
from fmq.store.index.catalog import Catalog
from fmq.store.index.id_table import WAITS, IdKey, IdTable, TakenId, id_keys_of
from fmq.store.reading.batch import messages_of
from fmq.tx.commands.buffer import TransactionBuffer
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.id_window import IdWindow
from fmq.tx.looks.receipts import FirstSent, RepeatOf


class Admitted(NamedTuple):
    """Runs that remain to be written, and the messages that were left out of them."""

    runs: list[Run]
    left_out: list[FirstSent | Receipt]


class MessageIds:
    """Checks the ids of the messages that one engine sends."""

    def __init__(self, writer: Writer, catalog: Catalog) -> None:
        self._writer = writer
        self._ledger = writer.ledger
        self._catalog = catalog
        self._loading = threading.Lock()

    # --- sending --------------------------------------------------------------------------------

    def planner(self, runs: list[Run]) -> Callable[[Append], object]:
        """Return the function that plans an append of `runs`. The function looks up their ids, if
        any.
        """
        if self.load_for(runs):
            return self._send
        return self._writer.send

    def load_for(self, records: Iterable[Record]) -> bool:
        """Load the window of ids if a message of `records` has an id. Return whether one has. The
        caller does not hold the engine's lock.
        """
        if _have_ids(records):
            self.load()
            return True
        return False

    def _send(self, sent: Append) -> None:
        """Plan an append that belongs to no transaction. In `sent`, replace messages that were sent
        before by their first places, at its end. The caller holds the engine's lock.
        """
        runs, left_out = self.admit(sent)
        if left_out:
            sent[:] = [*runs, *left_out]
        if runs:
            self._writer.send(runs)

    def leave_out(
        self,
        append: Append,
        make: Callable[[TransactionBuffer, list[Run]], Append],
        transaction: TransactionBuffer,
    ) -> None:
        """Leave out of a transaction the messages that were sent before, and let `make` make its
        records of the remaining runs. Under the lock, before the append is placed.
        """
        transaction.left_out = ()
        if self._ledger.id_window is None or not _have_ids(append):
            # No window is loaded, so no message here has an id.
            return
        runs = [each for each in append if type(each) is Run]
        left, transaction.left_out = self.admit(runs)
        if transaction.left_out:
            append[:] = make(transaction, left)

    def admit(self, runs: Sequence[Run]) -> Admitted:
        """Return `runs` without the messages whose ids are taken. Under the lock, before a plan.

        Raises MessageIdUndecided if an undecided transaction holds one of the ids.
        """
        admitted: list[Run] = []
        left_out: list[FirstSent | Receipt] = []
        mine: dict[IdKey, Run] = {}
        for run in runs:
            keys = id_keys_of(run).keys
            if self._are_free(keys, mine):
                mine.update(dict.fromkeys(keys, run))
                admitted.append(run)
            else:
                left, repeats = self._admit_some(run, mine)
                left_out += repeats
                if left.count:
                    admitted.append(left)
        return Admitted(admitted, left_out)

    def _are_free(self, keys: list[IdKey], mine: dict[IdKey, Run]) -> bool:
        """Return whether all ids are free, by looking all of them up at once."""
        window = self._ledger.id_window
        assert window is not None, "loaded before the plan"
        known = self._ledger.held_ids, window.known
        if len(keys) > 1 and len(set(keys)) != len(keys):
            return False
        return all(each.keys().isdisjoint(keys) for each in (mine, *known))

    def _admit_some(
        self, run: Run, mine: dict[IdKey, Run]
    ) -> tuple[Run, list[FirstSent | Receipt]]:
        """Return `run` without the messages whose ids are taken, and the places of the
        first ones.
        """
        repeats: list[FirstSent | Receipt] = []
        fresh: list[IdKey] = []
        out: set[int] = set()
        for key, number in zip(*id_keys_of(run), strict=True):
            first: FirstSent | Receipt | None
            if key in mine:
                first = FirstSent(mine[key], key)
            else:
                first = self._first_sent(run, number, key)
            if first is None:
                mine[key] = run
                fresh.append(key)
            else:
                repeats.append(first)
                out.add(number)
        if not out:
            return run, repeats
        left = self._without(run, out)
        mine.update(dict.fromkeys(fresh, left))
        for each in repeats:
            if isinstance(each, FirstSent) and each.run is run:
                each.run = left
        return left, repeats

    def _first_sent(self, run: Run, number: int, key: IdKey) -> FirstSent | Receipt | None:
        """Return the place of the message that took the id `key`; None if it is free."""
        holder = self._ledger.held_ids.get(key)
        if holder is not None:
            (message_id,) = Extras(run.extension, run.count).ids(number, number + 1) or ("",)
            tx_id = self._ledger.undecided[holder].prepare.tx_id
            raise MessageIdUndecided(message_id or "", run.topic, tx_id)
        found = self._find(run.topic, key)
        if found is None:
            return None
        return _receipt(found)

    def _find(self, topic: str, key: IdKey) -> TakenId | None:
        window = self._ledger.id_window
        assert window is not None, "loaded before the plan"
        deleted = self._ledger.deleted.get(topic, 0)
        return window.find(key, deleted, self._writer.now_us())

    def _without(self, run: Run, out: set[int]) -> Run:
        """Return `run` without the messages whose numbers are in `out`."""
        if len(out) == run.count:
            return Run(run.kind, 0)
        columns = Columns.of(run)
        messages = messages_of(columns, columns.bodies(), NOWHERE, 0, 0)
        left = [each for number, each in enumerate(messages) if number not in out]
        new = encode_messages(left, self._writer.options.compress_bytes_min)
        new.kind, new.topic, new.queue = run.kind, run.topic, run.queue
        new.tx, new.tx_id, new.producer = run.tx, run.tx_id, run.producer
        if (timing := timing_in(run.extension)) is not None:
            new.extension = with_timing(new.extension, timing)
        new.columns_crc = columns_crc(new)
        if (request := request_in(run.extension)) is not None:
            new.extension = extension_of(request, new.extension)
        return new

    def sent_before(self, runs: Iterable[Run], positions: set[int]) -> list[Receipt]:
        """Return the receipts of the messages that an earlier call left out. A client repeats that
        call, which published the records at `positions`.
        """
        found: list[Receipt] = []
        runs = [each for each in runs if id_keys_of(each).keys]
        if not self.load_for(runs):
            return found
        with self._writer.commit_queue.lock:
            met: set[IdKey] = set()
            for run in runs:
                for key in id_keys_of(run).keys:
                    first = self._find(run.topic, key)
                    if first is not None and (key in met or first.position not in positions):
                        found.append(_receipt(first))
                    met.add(key)
        return found

    # --- loading the window ---------------------------------------------------------------------

    def load(self) -> IdWindow:
        """Return the window. The first call makes it from the indexes. The caller does not hold the
        engine's lock.

        Raises Damaged or Unreadable if a segment that may hold ids of the window cannot be read.
        """
        window = self._ledger.id_window
        if window is not None:
            return window
        with self._loading:
            while (window := self._ledger.id_window) is None:
                self._load()
            return window

    def _load(self) -> None:
        """Make the window of ids. Drop it again if segments were sealed or dropped meanwhile: then
        the caller tries again.
        """
        ledger, options = self._ledger, self._writer.options
        lock = self._writer.commit_queue.lock
        with lock:
            bases = self._catalog.bases()
            own = sum(index.ids.own for index in (*ledger.sealed, ledger.index))
        seconds = options.message_id_seconds
        older: list[IdTable] = []
        for base in reversed(bases):
            if own >= options.message_ids_kept:
                break
            try:
                table = self._catalog.ids(base)
            except FileNotFoundError:
                break  # retention has dropped the segment
            own += table.own
            older.append(table)
            age_us = self._writer.clock.time_us() - table.newest_us
            if len(table) and age_us > seconds * 1_000_000:
                break  # the ids in older segments are older still
        with lock:
            if self._catalog.bases() == bases:
                newer = [index.ids for index in (*ledger.sealed, ledger.index)]
                tables = [*reversed(older), *newer]
                ledger.id_window = IdWindow(tables, options.message_ids_kept, seconds)


def _have_ids(records: Iterable[Record]) -> bool:
    for record in records:
        if record.extension and type(record) is Run and id_keys_of(record).keys:
            return True
    return False


def _receipt(taken: TakenId) -> Receipt:
    """Return the receipt of the message that took an id, by its row in the table of ids."""
    if taken.offset < WAITS:
        return Receipt(taken.topic, taken.queue, taken.offset, taken.position)
    due_us = taken.offset ^ WAITS
    return DelayedReceipt(taken.topic, taken.queue, None, taken.position, 1, due_us)


def in_prepared(left_out: Sequence[FirstSent | Receipt], runs: Sequence[Run]) -> list[RepeatOf]:
    """Return the receipts of the messages that a prepare has left out. If a message repeats another
    one of the same transaction, its receipt is not known before the commit. Instead return the
    index of the run with the first one, and its number in that run.
    """
    found: list[RepeatOf] = []
    for each in left_out:
        if isinstance(each, FirstSent):
            mine = [number for number, run in enumerate(runs) if run is each.run]
            found.append((mine[0], each.number) if mine else each.receipt())
        else:
            found.append(each)
    return found


NOWHERE = Origin("", 0, 0, 0, None, None)
