"""Drops the oldest segments. What is still needed of them is first written again at the end of
the journal.

The order keeps it safe: choose · lock out exports · STATE, durable · checkpoint, durable, if
there is room for it · forget in memory · remove the files, oldest first. If it is interrupted
anywhere, the newest STATE says what is below the floor, and recovery removes the rest.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fmq.arguments.options import Options
from fmq.basics.clock import as_datetime, as_text
from fmq.chores.carried_ids import IdCarrier
from fmq.consume.groups.burial import Burying
from fmq.copies.holders import ShippingHolder, holders
from fmq.errors import FmqError
from fmq.machine.disk import Directory, File
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.internal import is_internal
from fmq.store.bytes.kinds import Append, Carryover
from fmq.store.index.catalog import SUFFIX, Catalog
from fmq.store.index.index import LaneSummary, QueueKey
from fmq.store.journal.journal import Journal
from fmq.store.journal.scan import Scan
from fmq.store.journal.segment import HEADER_BYTES, Segment, segment_name
from fmq.store.reading.key_marks import SUFFIX as KEYS_SUFFIX
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.acks import AckSet
from fmq.tx.ledger.carryover import carried_of, to_json
from fmq.tx.ledger.ledger import Entry, Ledger

logger = logging.getLogger("fmq.groups")
# segments dropped at once; each is an open file meanwhile, and a process may have few
AT_ONCE_MAX = 16
HOLDERS_MAX = 100  # how many holders of a segment `stats().kept_by` lists, at most
# If the newest time in the journal is further ahead of the clock, `stats().kept` says so.
AHEAD_US_MAX = 60_000_000
POSITION_MAX = 1 << 63
INDEX, CHECKPOINT = "its index, which is not written yet", "the checkpoint, which replays from it"
"""What a checkpoint takes away, of all that may keep a segment."""


class Retention:
    """Keeps the journal within `retain_bytes` and `retain_seconds`. If neither is set, keeps it
    within `retain_acked_bytes`, but drops only segments whose messages are all acked.
    """

    def __init__(
        self,
        directory: Directory,
        writer: Writer,
        catalog: Catalog,
        burying: Burying,
        ids: IdCarrier,
    ) -> None:
        self._directory = directory
        self._writer = writer
        self._catalog = catalog
        self._burying = burying
        # The limit in bytes counts from this position. Carrying dead letters forward makes the
        # journal longer; without this, segments with little else would be carried and dropped for
        # ever.
        self._counts_from = 0
        self._ids = ids
        self._options: Options = writer.options
        self._journal: Journal = writer.journal
        self._ledger: Ledger = writer.ledger
        # The limits are checked from this end of the journal on.
        self.looks_from = 0
        self.plan_looks()
        # An oldest segment that is over the limits (by its base), and the reason why it cannot be
        # dropped.
        self.kept: tuple[int, str] | None = None
        # True if retention could drop the segment in `kept` after a checkpoint.
        self.waits_for_checkpoint = False
        self._scan_from = 0  # where a replay would begin, at the last look
        # What the last look found unread: the base of the segment, the group, and the queue with
        # its messages. The next look begins with this group, because most looks find it again.
        self._unread: tuple[int, str, QueueKey, LaneSummary] | None = None
        self._passed_over: set[str] = set()  # destinations for which retention does not wait
        self.looked = False  # True once `choose` was called by this engine
        self.doomed: list[Segment] = []  # segments forgotten in memory whose files still exist

    @property
    def only_acked(self) -> bool:
        """Return whether only segments whose messages every group has acked may be dropped."""
        options = self._options
        return options.retain_bytes is None and options.retain_seconds is None

    def _bytes_max(self) -> int | None:
        options = self._options
        return options.retain_acked_bytes if self.only_acked else options.retain_bytes

    def plan_looks(self) -> None:
        """Set the position from which on the limits have to be checked. From there on, an extra
        spare is set aside, so that a STATE can be written on a full disk.
        """
        most, base = self._bytes_max(), self._journal.segments[0].base
        if not self.only_acked:
            self.looks_from = 0
        else:
            # Far below the limit, spare the work of a look and the room of an extra spare.
            self.looks_from = POSITION_MAX if most is None else base + most // 2
        self._journal.spares.aside = int(self._journal.position >= self.looks_from)

    def due(self) -> bool:
        """Return whether a limit is exceeded. Most calls only look at memory. Sets a spare aside.

        If no limit is exceeded only because the journal's times are far ahead of the clock, `kept`
        says so.
        """
        segments, self._journal.spares.aside = self._journal.segments, 1
        if self._over_bytes(segments):
            return True
        newest_us = self._limited_us(segments)
        if self._over_age(newest_us):
            return True
        self.kept = None
        if newest_us is not None and newest_us - self._writer.clock.time_us() > AHEAD_US_MAX:
            when = as_text(as_datetime(newest_us))
            by = f"its newest time, {when}, which a clock gave that was ahead"
            self.kept = segments[0].base, by
        return False

    def choose(self, scan_from: int) -> list[Segment]:
        """Return the oldest segments that may be dropped now. `kept` says what keeps the
        next one.
        """
        self.kept, self.looked, self._scan_from = None, True, scan_from
        self.waits_for_checkpoint = False
        chosen: list[Segment] = []
        with self._writer.commit_queue.lock:
            segments = list(self._journal.segments)
        for i, segment in enumerate(segments[:-1]):
            if i == AT_ONCE_MAX or not self._over_limits(segments[i:]):
                break
            by = next(self._holders(segment, most=1), None)
            if by is not None:
                self.kept = segment.base, by
                self.waits_for_checkpoint = by in (INDEX, CHECKPOINT)
                break
            chosen.append(segment)
        fitting = self._ids.fitting(chosen)
        if chosen and not fitting:
            self.kept = chosen[0].base, "the message ids in it, which would take as much room again"
        return fitting

    def _over_limits(self, segments: list[Segment]) -> bool:
        return self._over_bytes(segments) or self._over_age(self._limited_us(segments))

    def _over_bytes(self, segments: list[Segment]) -> bool:
        most = self._bytes_max()
        if most is None or len(segments) < 2:
            return False
        # Messages that wait for their time do not count: dropping them would only write them again.
        held = self._ledger.timers.held_bytes()
        over = segments[-1].limit - segments[0].base - held > most
        return over and self._journal.position >= self._counts_from

    def _limited_us(self, segments: list[Segment]) -> int | None:
        """Return when the newest message of the oldest segment was published, for the age limit;
        None if no age limit applies.
        """
        if self._options.retain_seconds is None or len(segments) < 2:
            return None
        return self._newest_us(segments)

    def _over_age(self, newest_us: int | None) -> bool:
        most = self._options.retain_seconds
        if most is None or newest_us is None:
            return False
        return self._writer.clock.time_us() - newest_us > most * 1_000_000

    def _newest_us(self, segments: list[Segment]) -> int:
        """Return when the newest message of the oldest of `segments` was published.

        If it holds decisions and acks only, no index has their times. They are at most as new as
        the first record of the next segment.
        """
        lanes = self._summary(segments[0]).values()
        if lanes:
            return max(lane.last_us for lane in lanes)
        return self._began_us(segments[1])

    def _began_us(self, segment: Segment) -> int:
        """Return when the first record of `segment` was written. If it has none yet, return the
        time now.
        """
        try:
            file = self._directory.open(segment.name)
        except FileNotFoundError:
            # The segment was opened ahead of use and has no record.
            return self._writer.clock.time_us()
        try:
            start = segment.base + HEADER_BYTES
            for first, *_ in Scan(file, segment.base, segment.limit, start, self._journal.seed):
                return first.time_us
        finally:
            file.close()
        return self._writer.clock.time_us()

    def _summary(self, segment: Segment) -> dict[QueueKey, LaneSummary]:
        with self._writer.commit_queue.lock:
            for index in (self._ledger.index, *self._ledger.sealed):
                if index.base == segment.base:
                    return index.summary()
            if segment.base > self._ledger.index.base:
                return {}  # the segment was opened ahead of use; no append in it is applied yet
        return self._catalog.summary(segment.base)

    def kept_by(self) -> tuple[str, ...]:
        """Return every reason that keeps the segment in `kept`, and not only the first that was
        found: at most HOLDERS_MAX of them. The caller does not hold the engine's lock.
        """
        kept = self.kept
        segment = None if kept is None else self._journal.segment_of(kept[0])
        if kept is None or segment is None:
            return ()
        found: list[str] = []
        with contextlib.suppress(FmqError, OSError):  # the engine may be closed
            found += self._holders(segment, HOLDERS_MAX)
        # If the look finds nothing, return the reason that retention met, such as an export.
        return (*found,) or (kept[1],)

    def _holders(self, segment: Segment, most: int) -> Iterator[str]:
        """Yield what keeps `segment`, at most `most` of each kind."""
        lock, limit = self._writer.commit_queue.lock, segment.limit
        with lock:
            entries = [*self._ledger.undecided.values()] if most > 1 else self._oldest_undecided()
            has_index = segment.base in self._catalog.bases()
        prepared = [each.prepare.tx_id for each in entries if each.prepare.position < limit]
        yield from [f"undecided transaction {tx_id!r}" for tx_id in prepared[:most]]
        if not has_index:
            yield INDEX
            return  # without the index it is not known whose messages are in the segment
        for ship in self._shippings_of(segment):
            yield f"the shipping to {ship.destination}, which has come to {ship.position}"
        if self._scan_from < limit:
            yield CHECKPOINT
        lanes = self._catalog.summary(segment.base)
        with lock:
            wanted = [*islice(self._wanted_by(segment, lanes), most)]
        yield from wanted

    def _oldest_undecided(self) -> list[Entry]:
        return [*islice(self._ledger.undecided.values(), 1)]

    def _wanted_by(self, segment: Segment, lanes: Mapping[QueueKey, LaneSummary]) -> Iterator[str]:
        """Yield which readers of its messages keep `segment`. The caller holds the engine's
        lock.
        """
        if self.only_acked:
            yield from self._without_group(segment, lanes)
        if self.only_acked or self._options.keep_unread:
            yield from self._unread_in(segment, lanes)

    def _without_group(
        self, segment: Segment, lanes: Mapping[QueueKey, LaneSummary]
    ) -> Iterator[str]:
        """Yield what keeps messages that no group will ack: a topic that no group reads, or one
        that has its own retention. The caller holds the engine's lock.
        """
        ledger = self._ledger
        read = {topic for _, topic in ledger.subscriptions}
        for (name, number), lane in lanes.items():
            queue = ledger.queue(name, number)
            if queue is None or is_internal(name) or self._is_gone(name, segment):
                continue  # dead letters are carried forward
            if queue.first >= lane.next:
                continue  # the topic's own retention has dropped the messages already
            if queue.owner.retain_ms:
                yield f"the topic {name!r}, which keeps messages for a time of its own"
            elif name not in read:
                yield f"the topic {name!r}, which no group reads"

    def _shippings_of(self, segment: Segment) -> Iterator[ShippingHolder]:
        """Yield the destinations that still need `segment` and are not too far behind."""
        for holder in holders(self._directory):
            if holder.position >= segment.limit:
                continue
            behind = self._journal.position - holder.position
            if behind <= holder.keep_bytes:
                yield holder
            elif holder.destination not in self._passed_over:
                self._passed_over.add(holder.destination)
                logger.warning(
                    "%s: retention goes on without the shipping to %s, which is %s bytes behind, "
                    "and may be %s. Its next run ships all anew",
                    *(self._directory.path, holder.destination, f"{behind:,}"),
                    f"{holder.keep_bytes:,}",
                )

    def _unread_in(self, segment: Segment, lanes: Mapping[QueueKey, LaneSummary]) -> Iterator[str]:
        """Yield the groups that have not acked all messages of a queue in `segment`. The caller
        holds the engine's lock.
        """
        first = None
        if self._unread is not None and self._unread[0] == segment.base:
            _, group, key, lane = self._unread
            if first := self._has_unread(segment, group, key, lane):
                yield first
        keys: dict[str, list[QueueKey]] = {}
        for key in lanes:
            keys.setdefault(key[0], []).append(key)
        # A group reads all queues of its topics, also those in which it has acked nothing yet.
        for group, topic in sorted(self._ledger.subscriptions):
            for key in keys.get(topic, ()):
                by = self._has_unread(segment, group, key, lanes[key])
                if by and by != first:
                    self._unread = segment.base, group, key, lanes[key]
                    yield by

    def _has_unread(
        self, segment: Segment, group: str, key: QueueKey, lane: LaneSummary
    ) -> str | None:
        topic, number = key
        is_read = (group, topic) in self._ledger.subscriptions
        if not is_read or self._is_gone(topic, segment):
            return None
        done = self._ledger.acked.get((group, topic, number)) or AckSet()
        # Look only at offsets in this segment: a group may have begun above offset 0.
        if not any(done.gaps(lane.first, lane.next)):
            return None
        return f"group {group!r}, which has not acked {topic}/{number} below {lane.next}"

    def _is_gone(self, topic: str, segment: Segment) -> bool:
        """Return whether `topic` was deleted after all of `segment` was written."""
        return self._ledger.deleted.get(topic, 0) >= segment.limit

    def lock_out_exports(self, segments: list[Segment]) -> tuple[list[Segment], list[File]]:
        """Lock the oldest of `segments`, up to the first that an export has pinned. Return these
        segments, and their locks.
        """
        locks: list[File] = []
        try:
            for i, segment in enumerate(segments):
                try:
                    file = self._directory.open(segment.name)
                except FileNotFoundError:
                    continue  # the segment was lost, so no export can read it
                locks.append(file)
                if not file.pin(exclusive=True):
                    locks.pop().close()
                    self.kept = segment.base, "an export or backup that is running"
                    return segments[:i], locks
        except BaseException:
            for lock in locks:
                lock.close()
            raise
        return segments, locks

    def carry_dead_letters(self, segments: list[Segment]) -> None:
        """Write the dead letters in `segments` again at the end of the journal. Raises StorageFull,
        or Damaged if one cannot be read.
        """
        below: dict[str, int] = {}
        for segment in segments:
            for (topic, _), lane in self._catalog.summary(segment.base).items():
                if is_internal(topic) and self._ledger.deleted.get(topic, 0) < segment.limit:
                    below[topic] = lane.next
        if below:
            carried = self._burying.carry(below)
            self._counts_from = self._journal.position + carried

    def carry_over(self, segments: list[Segment]) -> bool:
        """Append STATE and sync it. From then on, nothing below the end of `segments` is needed.

        Return False, with nothing written, if a group was made or moved back meanwhile that has
        not acked all of it.
        """
        floor = segments[-1].limit
        writer, ledger = self._writer, self._ledger
        held = [(segment, self._catalog.summary(segment.base)) for segment in segments]

        def plan(state: Carryover) -> bool:
            if not self._ids.is_current():
                return False
            reasons = ((each.base, by) for each, of in held for by in self._wanted_by(each, of))
            self.kept = next(reasons, None)
            if self.kept is not None:
                return True
            firsts: dict[QueueKey, int] = {}
            for segment, lanes in held:
                for key, lane in lanes.items():
                    # Skip the ids of a topic that was deleted meanwhile, even if it was created
                    # again.
                    if not self._is_gone(key[0], segment):
                        firsts[key] = lane.next
            carried = carried_of(ledger, firsts)
            carried["floor"] = floor
            state.json = to_json(carried)
            lost.update(_lost(ledger, carried["groups"]))
            append: Append = [*kept_ids, state]
            writer.make_room(measured(append), ordinary=True, makes_room=True)
            writer.send(append)
            return True

        lost: dict[tuple[str, str], int] = {}
        writer.commit_queue.flush(force=True)
        kept_ids = self._ids.records(segments)
        while not writer.commit_queue.run(plan, Carryover(b"", 0), True):
            writer.commit_queue.flush(force=True)
            kept_ids = self._ids.records(segments)
        for (group, topic), count in lost.items():
            logger.warning(
                "the group %r has lost %s messages of the topic %r, which it had not acked: "
                "retention does not wait for it, as keep_unread=False says",
                *(group, f"{count:,}", topic),
            )
        return self.kept is None

    def forget(self, segments: list[Segment]) -> None:
        """Drop `segments` from memory. From then on, no message in them can be read."""
        queue = self._writer.commit_queue
        with queue.lock, queue.changing:
            for segment in segments:
                dropped = self._journal.drop_first()
                assert dropped is segment
                self._catalog.drop(segment.base)
                self._journal.files.forget(segment.base)
                self.doomed.append(segment)
            if self._ledger.id_window is not None:
                self._ledger.id_window.drop_below(segments[-1].limit)
        self.plan_looks()

    def remove(self) -> None:
        """Remove the files of the segments that `forget` dropped.

        The oldest go first, so that the journal never has a hole. A removal that fails is tried
        again before the next.
        """
        while self.doomed:
            segment = self.doomed[0]
            suffixes = SUFFIX, KEYS_SUFFIX
            for name in (segment.name, *(segment_name(segment.base, each) for each in suffixes)):
                with contextlib.suppress(FileNotFoundError):
                    self._directory.remove(name)
            # Sync after each removal: without it, a crash may keep the older file and lose the
            # newer one.
            self._directory.sync()
            self.doomed.pop(0)


def _lost(ledger: Ledger, carried: list[list[Any]]) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield how many messages each group loses in each topic, as STATE states them."""
    for group, topic, _, _, lost in carried:
        before = ledger.subscriptions[group, topic].lost
        if lost > before:
            yield (group, topic), lost - before
