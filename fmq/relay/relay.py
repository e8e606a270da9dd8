"""The loop of a relay: claim the target, read its place, copy, and begin again when in doubt.

Three rules carry it. First the target is fenced against any other relay of this name, and only then
asked how far it is. A batch and its place are stored together. And whenever it is not known what
was stored, the target is claimed and asked again. The group in the directory is told last: so an
ack that is lost costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from time import monotonic
from typing import Any, NamedTuple

from fmq.errors import BadOption
from fmq.relay.doubts import Doubts
from fmq.relay.relay_errors import MessageRefused, Unsure
from fmq.relay.source import QueueEnds, RelayRead, RelaySource, place_of
from fmq.relay.target import RelayBatch, RelayTarget

logger = logging.getLogger("fmq.relay")
ACK_SECONDS = 0.2  # an ack of each queue is a sync: not after each batch
STOP, PARK = "stop", "park"


class RelayStats(NamedTuple):
    """What a relay has done since it was made."""

    messages: int
    batches: int
    claims: int
    doubts: int
    """How often it was not known whether a batch was stored."""
    parked: int
    """How many messages the target refused, which are dead letters of the relay's group now."""
    lag: int
    """How many messages the group of the relay has not acked."""


class Relay:
    """Copies topics of an engine into a target. One thread calls `run`."""

    def __init__(
        self,
        engine: Any,
        target: RelayTarget,
        *,
        topics: str | Iterable[str],
        name: str = "relay",
        batch: int = 1000,
        on_refused: str = STOP,
    ) -> None:
        """`engine` is the result of `fmq.open` or `fmq.connect`. The group `relay-NAME` holds what
        is not copied. `batch` is how many messages are stored at once; an append is never cut.

        What the target will never take ends the relay. With on_refused="park" it becomes a dead
        letter of the group, and the relay goes on without it.
        """
        if on_refused not in (STOP, PARK):
            raise BadOption(f"on_refused={on_refused!r:.80}: is {STOP!r} or {PARK!r}.")
        self._parks = on_refused == PARK
        named = [topics] if isinstance(topics, str) else [*topics]
        self._source = RelaySource(engine, named, f"relay-{name}")
        self._target = target
        self._batch = batch
        self._ends = Event()
        self._acked = 0.0  # when what is copied was acked last
        # The ends of copied messages that the group has not acked yet.
        self._untold: QueueEnds = {}
        self._doubts = Doubts(self._ends, "the relay will claim its target again")
        self._messages = self._batches = self._claims = self._parked = 0
        # The messages that were parked and that the next batch has.
        self._left_out: set[tuple[str, int, int]] = set()

    def run(self, *, once: bool = False) -> None:
        """Copy until `stop` is called; with `once`, until the target has all that the topics have.

        Raises RelayTakenOver if another relay of the name claims the target, StoreDiffers if the
        target has a copy of another directory, and MessageRefused for a message that it will never
        take, unless such messages are parked.
        """
        while not self._ends.is_set():
            try:
                self._copy(once=once)
                return
            except MessageRefused as refusal:
                self._park(refusal)
            except Unsure as error:
                self._doubts.wait(error)

    def _copy(self, *, once: bool) -> None:
        self._claims += 1
        position = self._source.begin(self._target.claim())
        self._acked, self._untold = monotonic(), {}
        # While the target stores a batch, which is mostly a wait, a thread reads the next one.
        with ThreadPoolExecutor(1, "fmq-relay") as reader:
            ahead: Future[RelayRead] | None = None
            while not self._ends.is_set():
                found = ahead.result() if ahead else self._read(position, self._due())
                position = found.position
                if found.batch is None:
                    self._source.ack(self._taken())
                    if once:
                        return
                    self._source.wait()
                    ahead = None
                    continue
                # Behind a batch that is not full there was nothing to read.
                is_behind = len(found.batch.messages) >= self._batch
                ahead = reader.submit(self._read, position, self._due()) if is_behind else None
                self._hand_over(found.batch)
                self._untold |= found.ends
        self._source.ack(self._taken())

    def _read(self, position: int, copied: QueueEnds) -> RelayRead:
        """Ack what is copied, and read on. Only what is passed here is used: while another thread
        runs this, the loop notes what else was copied.
        """
        self._source.ack(copied)
        return self._source.read(position, self._batch)

    def _due(self) -> QueueEnds:
        """Return what is to be acked now, if it is time."""
        return self._taken() if monotonic() - self._acked >= ACK_SECONDS else {}

    def _taken(self) -> QueueEnds:
        """Return the ends of what was copied since they were returned last."""
        taken, self._acked, self._untold = self._untold, monotonic(), {}
        return taken

    def _hand_over(self, batch: RelayBatch) -> None:
        messages = batch.messages
        if self._left_out:
            messages = [each for each in messages if place_of(each) not in self._left_out]
        self._target.deliver(batch._replace(messages=messages))
        self._left_out.clear()
        self._doubts.are_over()
        self._messages += len(messages)
        self._batches += 1

    def _park(self, refusal: MessageRefused) -> None:
        """Make a dead letter of the refused message, and leave it out of the next batch. The target
        is claimed and asked again before that: nothing is known of it after a refusal.

        The dead letter is there first. If the relay dies before the batch is stored, the message is
        refused once more, and the group has acked it already.
        """
        place = place_of(refusal.message)
        if not self._parks or place in self._left_out:
            raise refusal
        self._source.park(*place, refusal.reason)
        self._left_out.add(place)
        self._parked += 1
        logger.warning("%s/%s offset %s is parked: %s", *place, refusal.reason)

    def stop(self) -> None:
        """Let `run` return after the present batch. Any thread may call it."""
        self._ends.set()

    def stats(self) -> RelayStats:
        """Return what the relay has done, and how far it is behind."""
        counts = self._messages, self._batches, self._claims, self._doubts.count, self._parked
        return RelayStats(*counts, self._source.lag())

    def close(self) -> None:
        """Stop, and close the target."""
        self.stop()
        self._target.close()
