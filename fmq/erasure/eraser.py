"""Erasing messages: what they were is overwritten in every file that has it.

A message may lie in several records: one that was prepared is copied by its commit, one that waited
is copied when it is due, and a dead letter is a copy, too. So an erasure reads the whole journal,
and overwrites each record that has the message. How that survives a crash is said in
recovery/erasure_file.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from threading import Lock
from typing import NamedTuple

from fmq.basics.message import Message
from fmq.basics.results import Erased
from fmq.errors import EraseRefused, OffsetBeyond, UnknownTopic
from fmq.machine.disk import Directory
from fmq.recovery import erasure_file
from fmq.recovery.erasure_file import Erasing, NewRecord
from fmq.recovery.segment_pin import pin
from fmq.steps.call_steps import Apart, Durable, Steps, nothing
from fmq.store.bytes.dead_column import failures_in
from fmq.store.bytes.decoding import columns_of, decode
from fmq.store.bytes.erased_columns import CannotErase, erase
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import PRE_MESSAGE, REF_MESSAGE, TIMER, AckRange, Erasure, Run
from fmq.store.bytes.timing import Timing, timing_in
from fmq.store.journal.files import Files
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, segment_name
from fmq.store.reading.key_marks import KeyMarks
from fmq.store.reading.reader import Reader
from fmq.tx.commands.writer import Writer
from fmq.tx.looks.messages import Messages

# Limits of one ERASE: how many bytes it overwrites, and how many messages it names.
IMAGE_BYTES_MAX = 32 << 20
MESSAGES_MAX = 5000
RANGE_BYTES_MAX = 600  # what one message may add to an ERASE
NOT_SHOWN = (PRE_MESSAGE, TIMER)
Numbers = set[int]
Choose = Callable[["_Found"], Numbers]
"""Returns which messages of a record are erased."""


class _Found(NamedTuple):
    """A record of messages."""

    base: int
    run: Run
    data: bytes

    def contents(self) -> list[tuple[object, ...]]:
        """Return what each message is, without its place."""
        columns, count = columns_of(self.data, 0, self.run), self.run.count
        carried = (each or [None] * count for each in (*columns.texts(), columns.headers()))
        return list(zip(columns.bodies(), *carried, strict=True))


class Eraser:
    """Erases messages of one engine, one call at a time."""

    def __init__(
        self,
        directory: Directory,
        store: bytes,
        writer: Writer,
        messages: Messages,
        files: Files,
        reader: Reader,
        marks: KeyMarks,
    ) -> None:
        self._directory, self._store = directory, store
        self._writer, self._messages, self._files = writer, messages, files
        self._ledger, self._journal = writer.ledger, writer.journal
        self._reader, self._marks = reader, marks
        self._mutex = Lock()

    def erasing(
        self, topic: str, queue: int | None, offset: int | None, key: str | None
    ) -> Steps[Erased]:
        """Erase one message, or all of `topic` that have `key`. To do it again does no harm."""
        yield Durable(nothing, None, True)
        if key is not None:
            done: Erased = yield Apart(partial(self._erase_key, topic, key))
            return done
        assert queue is not None and offset is not None
        done = yield Apart(partial(self._erase_message, topic, queue, offset))
        return done

    def finish(self) -> None:
        """Carry out the erasure that an interrupted call has begun, if there is one."""
        found = erasure_file.read(self._directory)
        if found is None:
            return
        erasure_file.overwrite(self._directory, found.images)
        if self._ledger.erasures.number != found.number:
            self._writer.commit_queue.run(self._plan, found, True)
        erasure_file.end(self._directory)

    # --- which messages ---------------------------------------------------------------------------

    def _erase_key(self, topic: str, key: str) -> Erased:
        with self._writer.commit_queue.lock:
            if topic not in self._ledger.topics:
                raise UnknownTopic(topic)

        def choose(found: _Found) -> Numbers:
            keys, _ = columns_of(found.data, 0, found.run).texts()
            numbers = {i for i, each in enumerate(keys or ()) if each == key}
            return numbers & self._of_topic(found.run, topic) if numbers else numbers

        return self._erase(choose)

    def _of_topic(self, run: Run, topic: str) -> Numbers:
        """Return the numbers of the messages in `run` that were sent to `topic`. A dead letter
        counts as sent to the topic in which it failed.
        """
        if run.topic == topic:
            return set(range(run.count))
        if not is_internal(run.topic):
            return set()
        failures = failures_in(run.extension, run.count) or ()
        return {i for i, each in enumerate(failures) if each.origin.topic == topic}

    def _erase_message(self, topic: str, queue: int, offset: int) -> Erased:
        batch = self._messages.batch(topic, queue, offset, 1)
        if batch is None:
            with self._writer.commit_queue.lock:
                known = self._ledger.queue(topic, queue)
                if topic not in self._ledger.topics:
                    raise UnknownTopic(topic)
            raise OffsetBeyond(topic, queue, offset, 0 if known is None else known.next)
        (message,) = batch.messages
        return self._erase(self._copies_of(message))

    def _copies_of(self, message: Message) -> Choose:
        """Return the function that finds the message and all copies of it in a record."""
        assert message.position is not None and message.offset is not None
        own = self._run_at(message.position)
        topic, queue, offset = own.topic, own.queue, message.offset
        number = offset - own.offset
        holder = own.body_position or own.position
        content = message[:4]
        timing = timing_in(own.extension)
        timer = timing.number if timing is not None else None
        txs = {own.tx} if own.tx else set()
        if timer is not None:
            txs |= {run.tx for _, run in self._runs() if _is_of(run, timer) and run.tx}

        def choose(found: _Found) -> Numbers:
            run = found.run
            if run.position == holder:
                return {number}
            if is_internal(run.topic):
                failures = failures_in(run.extension, run.count) or ()
                return {
                    i
                    for i, each in enumerate(failures)
                    if (each.origin.topic, each.origin.queue, each.offset) == (topic, queue, offset)
                }
            # A pre-message or a timer of the same transaction or timer is a copy of the message if
            # its content is equal. No reader sees these copies, but they must be erased too.
            if run.kind not in NOT_SHOWN or (run.topic, run.queue) != (topic, queue):
                return set()
            if run.position in self._referred or not (run.tx in txs or _is_of(run, timer)):
                return set()
            return {i for i, each in enumerate(found.contents()) if each == content}

        return choose

    # --- where they lie ---------------------------------------------------------------------------

    def _erase(self, choose: Choose) -> Erased:
        with self._mutex, ExitStack() as stack:
            self.finish()
            self._pin(stack)
            self._referred = {
                run.body_position: run for _, run in self._runs() if run.body_position
            }
            chosen: dict[int, Numbers] = {}
            for base, run in self._runs():
                if run.kind != REF_MESSAGE:
                    numbers = choose(self._read(base, run))
                    if numbers:
                        self._refuse_open(run)
                        chosen[run.position] = numbers
            done = Erased(0, 0)
            for part in self._parts(chosen):
                done = Erased(*map(sum, zip(done, self._carry_out(part), strict=True)))
            return done

    def _pin(self, stack: ExitStack) -> None:
        """Keep retention from dropping segments until `stack` ends."""
        while True:
            with self._writer.commit_queue.lock:
                first = self._journal.segments[0].base
            if pin(self._directory, segment_name(first), stack):
                return

    def _runs(self) -> Iterator[tuple[int, Run]]:
        """Yield each record of messages that is durable, with the base of its segment."""
        with self._writer.commit_queue.lock:
            upto = self._journal.durable_to
            segments = [(each.base, min(each.end, upto)) for each in self._journal.segments]
        for base, end in segments:
            start = base + HEADER_BYTES
            if end <= start:
                continue
            with self._files.using(base) as file:
                for append in Scan(file, base, end, start, self._journal.seed, proven=end + 1):
                    yield from ((base, run) for run in append if isinstance(run, Run))

    def _read(self, base: int, run: Run) -> _Found:
        with self._files.using(base) as file:
            data = file.read(run.position - base, run.size)
        fresh = decode(data, 0, run.position, self._journal.seed)
        assert isinstance(fresh, Run)
        return _Found(base, fresh, data)

    def _run_at(self, position: int) -> Run:
        segment = self._journal.segment_of(position)
        assert segment is not None
        record = self._reader.record(segment.base, position - segment.base)
        assert isinstance(record, Run)
        return record

    def _refuse_open(self, run: Run) -> None:
        """Raise EraseRefused for a message that will still be copied: it is of an undecided
        transaction, or waits for its time.
        """
        with self._writer.commit_queue.lock:
            entry = self._ledger.undecided.get(run.tx) if run.kind == PRE_MESSAGE else None
            if entry is not None:
                raise EraseRefused(
                    run.topic,
                    f"the undecided transaction {entry.prepare.tx_id!r} holds such a message",
                    "decide it, with engine.decide(), and erase again",
                )
            timing = timing_in(run.extension) if run.kind == TIMER else None
            if timing is not None:
                found = Timing(timing.due_us, timing.number or run.position)
                if self._ledger.timers.find(found) is not None:
                    raise EraseRefused(
                        run.topic,
                        "such a message waits for its time",
                        "recall it (engine.delayed() lists it), and erase again",
                    )

    # --- overwriting ------------------------------------------------------------------------------

    def _parts(self, chosen: dict[int, Numbers]) -> Iterator[Erasing]:
        """Yield what is overwritten at once: not more than fits into memory."""
        images: list[NewRecord] = []
        shown: dict[tuple[str, int], list[int]] = defaultdict(list)
        size = count = 0
        count_max = min(MESSAGES_MAX, self._journal.append_bytes_max // RANGE_BYTES_MAX) or 1
        for base, run, numbers in self._chosen(chosen, count_max):
            if images and (size > IMAGE_BYTES_MAX or count + len(numbers) > count_max):
                yield self._part(images, shown)
                images, size, count = [], 0, 0
                shown.clear()
            # Read the record again: the scan may have read it before its last messages were erased.
            found = self._read(base, run)
            columns = columns_of(found.data, 0, found.run)
            try:
                data = erase(found.data, found.run, columns, numbers, self._journal.seed)
            except CannotErase as error:
                raise EraseRefused(
                    run.topic,
                    f"{error}, at position {run.position}",
                    "erase all messages of its record, or let retention drop it",
                ) from None
            images.append(NewRecord(base, run.position - base, data))
            published = self._referred.get(run.position, run)
            if published.kind not in NOT_SHOWN:
                place = published.topic, published.queue
                shown[place] += (published.offset + i for i in numbers)
            size, count = size + len(data), count + len(numbers)
        if images:
            yield self._part(images, shown)

    def _chosen(
        self, chosen: dict[int, Numbers], count_max: int
    ) -> Iterator[tuple[int, Run, Numbers]]:
        """Yield each chosen record, with what is erased of it; more than once if that is more than
        `count_max` messages.
        """
        for base, run in self._runs():
            numbers = sorted(chosen.get(run.position, ()))
            for at in range(0, len(numbers), count_max):
                yield base, run, set(numbers[at : at + count_max])

    def _part(self, images: list[NewRecord], shown: dict[tuple[str, int], list[int]]) -> Erasing:
        ranges: list[AckRange] = []
        for place, offsets in sorted(shown.items()):
            for offset in sorted(offsets):
                one = AckRange("", *place, offset, offset + 1)
                joined = ranges[-1].joined(one) if ranges else None
                ranges[-1:] = [joined] if joined else [*ranges[-1:], one]
        return Erasing(self._journal.position, ranges, images)

    def _carry_out(self, part: Erasing) -> tuple[int, int]:
        """Erase durably. Return how many messages readers could see, and how many records were
        overwritten.
        """
        erasure_file.begin(self._directory, self._store, part)
        try:
            erasure_file.overwrite(self._directory, part.images)
        except OSError as error:
            with self._writer.commit_queue.lock:
                self._writer.commit_queue.fail(error)
            raise self._writer.commit_queue.failed_error() from error
        self._forget(part)
        count = self._writer.commit_queue.run(self._plan, part, True)
        erasure_file.end(self._directory)
        return count, len(part.images)

    def _forget(self, part: Erasing) -> None:
        """Forget what is in memory of the messages."""
        with self._writer.commit_queue.lock:
            for each in part.ranges:
                queue = self._ledger.queue(each.topic, each.queue)
                if queue is not None:
                    queue.latest = None
        self._reader.forget()
        for base in part.segments:
            self._marks.forget(base)

    def _plan(self, part: Erasing) -> int:
        """Plan the ERASE, under the lock. Return how many messages of it a reader could see."""
        left = []
        for each in part.ranges:
            queue = self._ledger.queue(each.topic, each.queue)
            if queue is not None and queue.first < each.end <= queue.end:
                left.append(each)
        self._writer.send([Erasure(part.number, left, part.segments, 0)])
        return sum(each.end - each.first for each in left if not is_internal(each.topic))


def _is_of(run: Run, timer: int | None) -> bool:
    """Return whether a run is a record of this timer."""
    if timer is None or run.kind != TIMER:
        return False
    timing = timing_in(run.extension)
    return timing is not None and (timing.number or run.position) == timer
