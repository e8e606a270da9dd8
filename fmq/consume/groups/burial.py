"""Moving messages to the dead letters of their group, and replaying, purging or carrying dead
letters.

Each move is one append. It holds the dead letter, and acks the message that was rejected. A dead
letter that is replayed or carried forward is ended by the append that holds its copy. So after a
crash each is in exactly one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat

from fmq.basics.message import Message, Origin
from fmq.basics.results import DeadLetter
from fmq.consume.claims.ranges import Ranges, ranges_of
from fmq.consume.groups.dead_pages import LETTERS_AT_ONCE, PAGE_BYTES, DeadLetterPages, Letter
from fmq.errors import OffsetGone, TooLarge, UnknownDeadLetter
from fmq.steps.call_steps import Durable, Steps
from fmq.store.bytes.content import encode_messages
from fmq.store.bytes.dead_column import ORIGINS, Failure, encode_failures, short_reason
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.extension import decode_extension, encode_extension
from fmq.store.bytes.extras import with_ids_taken
from fmq.store.bytes.internal import dead_topic, is_internal, replay_topic
from fmq.store.bytes.kinds import AckRange, Acks, Append, Changed, ChangeKind, QueuePlace, Run
from fmq.store.reading.batch import Batch
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.dead_letters import CARRIED, PURGED, REPLAYED, DeadLetterState
from fmq.tx.ledger.queues import Queue
from fmq.tx.looks.messages import Messages

RANGES_AT_ONCE = 5000


class Burying:
    """Moves the dead letters of one engine."""

    def __init__(self, writer: Writer, messages: Messages) -> None:
        self._writer = writer
        self._ledger = writer.ledger
        self._messages = messages
        self._pages = DeadLetterPages(
            writer.commit_queue.lock,
            writer.ledger,
            messages,
            lambda: writer.catch_up(writer.ledger.changed_at),
        )

    # --- to the dead letters --------------------------------------------------------------------

    def appends_of(
        self,
        group: str,
        queue: Queue,
        first: int,
        end: int,
        reason: str,
        attempts: Callable[[int], int],
        extension: bytes = b"",
    ) -> Iterator[tuple[int, int, Append]]:
        """Yield parts of a range: first, end, and an append that acks the part for `group` and
        makes dead letters of it. Its ACK gets the `extension`. Raises TooLarge, or the errors of
        reading.
        """
        at, now = first, self._writer.clock.time_us()
        said = short_reason(reason)
        while at < end:
            batch = self._messages.batch_of(queue, at, min(end - at, LETTERS_AT_ONCE))
            messages = _as_many(batch.messages)
            stop = at + len(messages)
            failures = []
            before = self._failures(queue, at, stop)
            for message, offset, earlier in zip(messages, range(at, stop), before, strict=True):
                place, origin = offset, message.origin
                # The message was replayed before, and has failed again: keep its first place.
                if earlier is not None:
                    place, origin = earlier.offset, earlier.origin
                assert origin is not None, "the message was read"
                failures.append(Failure(None, now, attempts(offset), place, origin, said))
            run = self._run_of(dead_topic(group), messages, failures)
            acked = Acks((AckRange(group, queue.topic, queue.number, at, stop),), 0)
            acked.extension = extension
            append: Append = [acked, run]
            if group not in self._ledger.dead:
                append.append(Changed(ChangeKind.BEGIN_DEAD, group, ""))
            self._check_size(append, queue, at)
            yield at, stop, append
            at = stop

    def _failures(self, queue: Queue, first: int, end: int) -> Iterable[Failure | None]:
        if is_internal(queue.topic):
            return self._messages.failures(queue.topic, first, end)
        return repeat(None, end - first)

    def _run_of(self, topic: str, messages: list[Message], failures: list[Failure]) -> Run:
        run = encode_messages(messages, self._writer.options.compress_bytes_min)
        run.topic, run.ids = topic, None  # no id is looked up: the messages were sent before
        said = decode_extension(run.extension) if run.extension else {}
        extension = encode_extension({**said, ORIGINS: encode_failures(failures)})
        run.extension = with_ids_taken(extension)
        return run

    def _check_size(self, append: Append, queue: Queue, offset: int) -> None:
        """Raise TooLarge if no segment can hold `append`."""
        size, most = measured(append), self._writer.journal.append_bytes_max
        if size > most:
            what = f"the dead letter of {queue.topic}/{queue.number} offset {offset} in bytes"
            raise TooLarge(what, size, most, "segment_bytes")

    # --- what was replayed ----------------------------------------------------------------------

    def as_they_were(self, topic: str, messages: list[Message]) -> list[Message]:
        """Return messages that were replayed to `topic` as they were where they failed; none if
        they are gone.
        """
        if not messages:
            return messages
        first = messages[0].offset
        assert first is not None, "the messages were read"
        try:
            failures = [*self._messages.failures(topic, first, first + len(messages))]
        except OffsetGone:
            return []  # the group was deleted after its letters were read
        return [
            message if failure is None else origin_of(message, failure)
            for message, failure in zip(messages, failures, strict=True)
        ]

    def shown_of(self, batch: Batch) -> list[Message] | None:
        """Return replayed messages with the places where they failed; an empty list if they are
        gone. Return None if `batch` was not replayed.
        """
        return self.as_they_were(batch.topic, batch.messages) if is_internal(batch.topic) else None

    # --- what is there --------------------------------------------------------------------------

    def count(self, group: str) -> int:
        """Return how many dead letters `group` has."""
        return self._pages.count(group)

    def page(self, group: str, after: int, limit: int) -> list[DeadLetter]:
        """Return dead letters with numbers above `after`, as many as one call may read."""
        return self._pages.page(group, after, limit)

    def replayed(self, group: str, topic: str, after: int, limit: int) -> list[DeadLetter]:
        """Return the dead letters of `topic` that were replayed to `group` and are not acked."""
        return self._pages.replayed(group, topic, after, limit)

    # --- from the dead letters ------------------------------------------------------------------

    def replaying(
        self, group: str, numbers: list[int] | None, *, or_gone: bool = False
    ) -> Steps[int]:
        """Replay these dead letters, or all of them, to `group`. Return how many were replayed.

        Raises UnknownDeadLetter, and changes nothing, if one of them does not exist. With `or_gone`
        missing ones are left out.
        """
        done = 0
        whose = self._ledger.dead.get(group)
        for number, _, count in self._wanted(group, numbers, or_gone=or_gone):
            at, last = number - 1, number + count - 1
            while letters := self._pages.letters(group, at, LETTERS_AT_ONCE, last):
                done += yield from self._replaying(group, whose, letters)
                at = letters[-1].number
        return done

    def _replaying(
        self, group: str, whose: DeadLetterState | None, letters: list[Letter]
    ) -> Steps[int]:
        """Replay `letters`, with one append for each topic that they came from. Return how many
        still existed.
        """
        by_topic: dict[str, list[Letter]] = {}
        for letter in letters:
            by_topic.setdefault(letter.failure.origin.topic, []).append(letter)
        done = 0
        for topic, some in by_topic.items():
            run = self._run_of(
                replay_topic(group, topic),
                [letter.message for letter in some],
                [letter.failure for letter in some],
            )
            ranges = ranges_of(letter.offset for letter in some)
            if (yield self._ended(group, whose, topic, ranges, REPLAYED, [run])):
                done += len(some)
            elif len(some) > 1:
                for letter in some:
                    done += yield from self._replaying(group, whose, [letter])
        return done

    def purging(
        self,
        group: str,
        numbers: list[int] | None,
        before_us: int | None,
        *,
        or_gone: bool = False,
    ) -> Steps[int]:
        """Drop these dead letters of `group`, or all of them, for good. Replayed ones that are not
        acked are dropped, too, unless an undecided transaction acks them. Return how many were
        dropped.
        """
        whose = self._ledger.dead.get(group)
        while True:
            wanted = self._wanted(group, numbers, or_gone=or_gone)
            ranges = [(offset, offset + count) for _, offset, count in wanted]
            try:
                if before_us is not None:
                    ranges = self._older(group, ranges, before_us)
                break
            except OffsetGone:
                # Retention has carried the letters forward just now, or the group was deleted.
                pass
        done = 0
        for at in range(0, len(ranges), RANGES_AT_ONCE):
            part = ranges[at : at + RANGES_AT_ONCE]
            if (yield self._ended(group, whose, "", part, PURGED, [])):
                done += sum(end - first for first, end in part)
        if numbers is None and before_us is None:
            done += yield from self._purging_replayed(group)
        return done

    def _purging_replayed(self, group: str) -> Steps[int]:
        """Ack everything that was replayed to `group`, for good. Return how many messages there
        were.
        """
        done = 0
        while True:
            with self._writer.commit_queue.lock:
                acks = self._replayed(group)[:RANGES_AT_ONCE]
            if not acks:
                return done
            append = [Acks(tuple(acks), 0)]

            def plan(append: Append, acks: list[AckRange] = acks) -> bool:
                if self._replayed(group)[: len(acks)] != acks:
                    return False  # a consumer has acked some of the messages meanwhile: look again
                self._writer.send(append)
                return True

            if (yield Durable(plan, append, True)):
                done += sum(each.end - each.first for each in acks)

    def _replayed(self, group: str) -> list[AckRange]:
        """Return what was replayed to `group` and is neither acked nor held by an undecided
        transaction. The caller holds the engine's lock.
        """
        taken: dict[str, list[tuple[int, int]]] = {}
        for entry in self._ledger.undecided.values():
            for ack in entry.prepare.acks:
                taken.setdefault(ack.topic, []).append((ack.first, ack.end))
        found = []
        for (whose, topic), name in self._ledger.again.items():
            for first, end in self._ledger.replayed_of(group, topic) if whose == group else ():
                for low, high in [*sorted(taken.get(name, ())), (end, end)]:
                    if first < min(low, end):
                        found.append(AckRange(group, name, 0, first, min(low, end)))
                    first = max(first, high)
        return found

    def _older(self, group: str, ranges: Ranges, before_us: int) -> Ranges:
        """Return the parts of `ranges` whose letters died before a time. Raises the errors of
        reading.
        """
        topic = dead_topic(group)
        return ranges_of(
            offset
            for first, end in ranges
            for offset, failure in zip(
                range(first, end), self._messages.failures(topic, first, end), strict=True
            )
            if failure is not None and failure.time_us < before_us
        )

    def check(self, group: str, numbers: list[int]) -> None:
        """Raise UnknownDeadLetter unless `group` has dead letters of all these numbers."""
        self._wanted(group, numbers, or_gone=False)

    def _wanted(
        self, group: str, numbers: list[int] | None, *, or_gone: bool
    ) -> list[tuple[int, int, int]]:
        """Return number, offset and count of each run of the wanted letters. Raises
        UnknownDeadLetter if one does not exist.
        """
        if numbers is None:
            return _joined(self._pages.runs(group))
        found = []
        with self._writer.commit_queue.lock:
            dead, queue = self._pages.state_of(group)
            for number in sorted(numbers):
                offset = None if dead is None else dead.moved.offset_of(number)
                if dead is not None and offset is not None and dead.is_open(queue, offset):
                    found.append((number, offset, 1))
                elif not or_gone:
                    raise UnknownDeadLetter(group, number)
        return _joined(found)

    def _ended(
        self,
        group: str,
        whose: DeadLetterState | None,
        topic: str,
        ranges: list[tuple[int, int]],
        why: int,
        copies: list[Run],
    ) -> Durable:
        """Return the step that ends the letters in `ranges`, with their `copies`, in one append.
        The answer is False, and nothing was changed, if one of them has ended already, or if the
        group was deleted: a new group of the same name may have letters at these places.
        """
        writer = self._writer
        places = [QueuePlace(0, offset) for first, end in ranges for offset in (first, end, 0)]
        append = [*copies, Changed(ChangeKind.END_DEAD, group, topic, places, why)]

        def plan(append: Append) -> bool:
            dead, queue = self._pages.state_of(group)
            if dead is not whose or dead is None:
                return False
            if queue is None or not dead.are_open(queue, ranges):
                return False
            if why == CARRIED:
                append = self._renumbered(append)
                writer.make_room(measured(append), ordinary=True, makes_room=True)
            writer.send(append)
            return True

        return Durable(plan, append, True)

    def _renumbered(self, append: Append) -> Append:
        """Put the offsets of the copies into the END_DEAD of `append`, and return it. The caller
        holds the engine's lock.
        """
        *copies, change = append
        topic = self._writer.ledger.topics.get(copies[0].topic)
        at = 0 if topic is None else topic.queues[0].end
        offsets = [place.offset for place in change.places]
        places = []
        for first, end in zip(offsets[::3], offsets[1::3], strict=True):
            places += [QueuePlace(0, offset) for offset in (first, end, at)]
            at += end - first
        numbered = Changed(ChangeKind.END_DEAD, change.group, change.topic, places, change.value)
        return [*copies, numbered]

    # --- over a retention -----------------------------------------------------------------------

    def carry(self, below: Mapping[str, int]) -> int:
        """Write dead letters again, so that their segments can be dropped: in each topic of `below`
        those with lower offsets. Return how many bytes were written.

        Raises StorageFull, or the errors of reading.
        """
        written = 0
        for group, dead in [*self._ledger.dead.items()]:
            for number, offset, count in self._pages.runs(group) if dead.topic in below else ():
                count = min(count, below[dead.topic] - offset)
                while count > 0:
                    letters = self._some(group, number, offset, count)
                    written += self._carry(group, dead, letters)
                    number, offset = number + len(letters), offset + len(letters)
                    count -= len(letters)
        return written

    def _some(self, group: str, number: int, offset: int, count: int) -> list[Letter]:
        """Return the first letters of a run, as many as one append should hold."""
        letters: list[Letter] = []
        size = 0
        for letter in self._pages.read(group, number, offset, count):
            letters.append(letter)
            size += len(letter.message.body)
            if len(letters) == LETTERS_AT_ONCE or size >= PAGE_BYTES:
                break
        return letters

    def _carry(self, group: str, whose: DeadLetterState, letters: list[Letter]) -> int:
        failures = [letter.failure._replace(number=letter.number) for letter in letters]
        run = self._run_of(dead_topic(group), [letter.message for letter in letters], failures)
        ranges = ranges_of(letter.offset for letter in letters)
        step = self._ended(group, whose, "", ranges, CARRIED, [run])
        if self._writer.commit_queue.run(step.plan, step.what, step.sync):
            return run.size
        if len(letters) == 1:
            return 0  # the letter was replayed or purged meanwhile
        return sum(self._carry(group, whose, [letter]) for letter in letters)


def origin_of(message: Message, failure: Failure) -> Message:
    """Return a replayed message with the place where it failed."""
    origin: Origin = failure.origin
    return message._replace(offset=failure.offset, origin=origin)


def _as_many(messages: list[Message]) -> list[Message]:
    """Return the first ones of `messages`: about PAGE_BYTES, and at least one."""
    size = 0
    for count, message in enumerate(messages, 1):
        size += len(message.body)
        if size >= PAGE_BYTES:
            return messages[:count]
    return messages


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    found: list[tuple[int, int, int]] = []
    for number, offset, count in runs:
        if found:
            before, place, length = found[-1]
            if (before + length, place + length) == (number, offset):
                found[-1] = before, place, length + count
                continue
        found.append((number, offset, count))
    return found
