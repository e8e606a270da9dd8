"""The loop of a relay: claim the target, read its place, copy, and begin again when in doubt.

Three rules carry it. First the target is fenced against any other relay of this name, and only then
asked how far it is. A batch and its place are stored together. And whenever it is not known what
was stored, the target is claimed and asked again. The group in the directory is told last: so an
ack that is lost costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event
from time import monotonic, perf_counter_ns
from typing import Any, NamedTuple

from fmq.basics.counts import Times
from fmq.basics.message import Message
from fmq.errors import BadOption
from fmq.relay.doubts import Doubts
from fmq.relay.lag_alarm import LagAlarm
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, Unsure
from fmq.relay.source import NO_TOPIC, QueueEnds, RelayRead, RelaySource, place_of
from fmq.relay.target import PARKED, ParkedStub, RelayBatch, RelayPlace, RelayTarget
from fmq.relay.turn import RelayTurn

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
    lag_seconds: float
    """How long ago the oldest of these was sent."""
    fences: int
    """How often another relay has shut this one out."""
    position: int
    """Where in the journal it goes on."""
    commits: Times
    """How long the target took to store a batch."""
    late: bool
    """Whether `lag_seconds` has reached the level of the alarm."""


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
        encode: Callable[[Message], bytes] | None = None,
        standby: bool = False,
        alarm_seconds: float | None = None,
    ) -> None:
        """`engine` is the result of `fmq.open` or `fmq.connect`. The group `relay-NAME` holds what
        is not copied. `batch` is how many messages are stored at once; an append is never cut.

        What the target will never take ends the relay. With on_refused="park" it becomes a dead
        letter of the group, an atomic target gets a stub in its place, and the relay goes on.
        `encode` makes the body that the target gets of a message; what it fails for is refused.

        With `standby`, which all relays of the name need then, it waits while another one copies,
        and goes on when that one has ended or is silent for ten seconds.

        It logs a warning once the oldest message that is not copied was sent `alarm_seconds` ago.
        """
        if on_refused not in (STOP, PARK):
            raise BadOption(f"on_refused={on_refused!r:.80}: is {STOP!r} or {PARK!r}.")
        self._parks = on_refused == PARK
        named = [topics] if isinstance(topics, str) else [*topics]
        self._source = RelaySource(engine, named, f"relay-{name}")
        self._alarm = None if alarm_seconds is None else LagAlarm(self._source, alarm_seconds)
        self._target = target
        self._batch = batch
        self._encode = encode
        self._ends = Event()
        self._turn = RelayTurn(engine, name, self._ends) if standby else None
        self._acked = 0.0  # when what is copied was acked last
        # The ends of copied messages that the group has not acked yet.
        self._untold: QueueEnds = {}
        self._doubts = Doubts(self._ends, "the relay will claim its target again")
        self._messages = self._batches = self._claims = self._parked = self._fences = 0
        self._position = 0
        self._times = [0] * 65  # as `Times` counts them
        # What the next batch has of parked messages, with the reason for the stub; None if the
        # target takes no stub.
        self._left_out: dict[tuple[str, int, int], str | None] = {}

    def run(self, *, once: bool = False) -> None:
        """Copy until `stop` is called; with `once`, until the target has all that the topics have.

        Raises RelayTakenOver if another relay of the name claims the target, StoreDiffers if the
        target has a copy of another directory, and MessageRefused for a message that it will never
        take, unless such messages are parked.
        """
        try:
            while not self._ends.is_set():
                try:
                    if self._turn is None or self._turn.wait():
                        self._copy(once=once)
                    return
                except MessageRefused as refusal:
                    self._park(refusal)
                except RelayTakenOver as error:
                    self._fences += 1
                    if self._turn is None:
                        raise
                    self._turn.lose()
                    logger.warning("the relay stands by again: %s", error)
                except Unsure as error:
                    self._look_at_lag()
                    self._doubts.wait(error)
        finally:
            if self._turn is not None:
                self._turn.leave()

    def begin_at(self, position: int, *, adopt: bool = False) -> None:
        """Let the target go on at a position of the journal: 0 for all that is left, and
        `engine.stats().position` for what is sent from now on. It may get messages again, or lack
        some. A target that has a place already needs `adopt`, whosever place that is.

        Raises RelayError if it has one.
        """
        if not 0 <= position <= self._source.engine.stats().position:
            raise BadOption(f"position={position}: the journal does not have it.")
        place = self._target.claim()
        if place is not None and not adopt:
            raise RelayError(
                f"the target has a place already: position {place.position} of the directory "
                f"{place.store}. Nothing was changed. With adopt=True, on the command line "
                "--adopt, it is replaced."
            )
        here = RelayPlace(self._source.store, position, NO_TOPIC, 0, 0, 0)
        self._target.deliver(RelayBatch([], here))

    def _copy(self, *, once: bool) -> None:
        if self._turn is not None:
            self._turn.keep()
        self._claims += 1
        position = self._source.begin(self._target.claim())
        self._acked, self._untold = monotonic(), {}
        # While the target stores a batch, which is mostly a wait, a thread reads the next one.
        with ThreadPoolExecutor(1, "fmq-relay") as reader:
            ahead: Future[RelayRead] | None = None
            while not self._ends.is_set():
                if self._turn is not None:
                    self._turn.keep()
                self._look_at_lag()
                self._position = position
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

    def _look_at_lag(self) -> None:
        if self._alarm is not None:
            self._alarm.look()

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
        messages, parked = batch.messages, len(self._left_out)
        if parked or self._encode is not None:
            messages = [found for each in messages if (found := self._made(each)) is not None]
        began = perf_counter_ns()
        self._target.deliver(batch._replace(messages=messages))
        self._times[(perf_counter_ns() - began).bit_length()] += 1
        self._left_out.clear()
        self._doubts.are_over()
        self._messages += len(batch.messages) - parked
        self._batches += 1

    def _made(self, message: Message) -> Message | None:
        """Return what the target gets of a message; None if nothing."""
        place = place_of(message)
        if place in self._left_out:
            reason = self._left_out[place]
            if reason is None:
                return None
            said = {PARKED: " ".join(reason.split())}  # a line, as NATS takes no other header
            return ParkedStub(b"", headers=said, offset=message.offset, origin=message.origin)
        if self._encode is None:
            return message
        try:
            return message._replace(body=self._encode(message))
        except Exception as error:
            reason = f"it cannot be encoded: {type(error).__name__} {error}"
            raise MessageRefused(message, reason) from error

    def _park(self, refusal: MessageRefused) -> None:
        """Make a dead letter of the refused message, and put a stub in its place in the next batch;
        nothing if the target refuses that, too, or has no transactions. The target is claimed and
        asked again before that: nothing is known of it after a refusal.

        The dead letter is there first. If the relay dies before the batch is stored, the message is
        refused once more, and the group has acked it already.
        """
        place = place_of(refusal.message)
        if not self._parks:
            raise refusal
        if place in self._left_out:
            if self._left_out[place] is None:
                raise refusal
            self._left_out[place] = None
            return
        self._source.park(*place, refusal.reason)
        self._left_out[place] = refusal.reason if self._target.atomic else None
        self._parked += 1
        logger.warning("%s/%s offset %s is parked: %s", *place, refusal.reason)

    def stop(self) -> None:
        """Let `run` return after the present batch. Any thread may call it."""
        self._ends.set()

    def stats(self) -> RelayStats:
        """Return what the relay has done, and how far it is behind."""
        counts = self._messages, self._batches, self._claims, self._doubts.count, self._parked
        lag, seconds, times = *self._source.lag(), Times(tuple(self._times))
        late = self._alarm is not None and self._alarm.is_late(seconds)
        return RelayStats(*counts, lag, seconds, self._fences, self._position, times, late)

    def close(self) -> None:
        """Stop, and close the target."""
        self.stop()
        self._target.close()
