"""What an open transaction holds: messages and acks, in memory and within the limits."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any, NoReturn, Protocol
from weakref import finalize

from fmq.basics.joined_bodies import JoinedBodies
from fmq.basics.message import Body, Message, Receipt
from fmq.errors import EngineFailed, OutcomeUnknown, WrongState
from fmq.store.bytes.content import (
    as_bytes,
    copied_headers,
    encode_bodies,
    encode_items,
    encode_joined,
    frozen,
    split_bodies,
)
from fmq.store.bytes.extension import Request
from fmq.store.bytes.extras import EXTRA_BYTES
from fmq.store.bytes.kinds import AckRange, Run
from fmq.store.bytes.record import utf8
from fmq.store.bytes.timing import TIMING_BYTES, Timing
from fmq.store.journal.section import is_refusal
from fmq.tx.commands.limits import COLUMNS_BYTES, RUN_BYTES, Limits
from fmq.tx.commands.marks import MarkBuffer
from fmq.tx.commands.router import Router

NO_EXTRAS = (None, None, None)
NO_MARKS = MarkBuffer()
"""Of each transaction that changes no mark. A change is made in a copy."""
Encode = Callable[[Any, int | None], Run]
RunPlace = tuple[str, int, Timing | None]
"""Topic, queue, and when the messages are due."""
# Each character of a topic's name takes at most 4 bytes, and the name may be written twice.
NAME_BYTES = 4 * 2


class Phase(Enum):
    """How far a transaction has come, as its user sees it."""

    OPEN = "open"
    PREPARED = "prepared"
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"
    IN_DOUBT = "in doubt"  # a step failed, but its append may be durable


OPEN, PREPARED, COMMITTED = Phase.OPEN, Phase.PREPARED, Phase.COMMITTED
ROLLED_BACK, IN_DOUBT = Phase.ROLLED_BACK, Phase.IN_DOUBT
Receipts = Callable[[], list[Receipt]]


class Keeper(Protocol):
    """The lock and the counters that guard what consumers and transactions hold."""

    @property
    def dropped(self) -> deque[Callable[[], object]]:
        """Functions that release what a dropped transaction held. The next call that consumes runs
        them.
        """

    @property
    def moves(self) -> int:
        """The number of times that a group was moved or deleted, and its members lost what they
        held.
        """

    def change(self, change: Callable[[], None]) -> None:
        """Call `change` under the engine's lock."""


class Ackable(Protocol):
    """A delivery, or a batch of deliveries, as a transaction sees it."""

    def _hold_for_transaction(self, keeper: object, holder: object) -> AckRange:
        """Move the hold from the consumer to `holder`, without a lease. Return what to ack."""

    def _check_held_for_transaction(self, holder: object) -> None:
        """Raise LeaseLost if `holder` does not hold the delivery any more. The caller holds the
        engine's lock.
        """

    def _end_hold_for_transaction(self, holder: object) -> None:
        """Give the delivery back to its consumer, if `holder` still holds it. The caller holds the
        engine's lock.
        """


# A delivery that a transaction acks, and the object in whose name it is held meanwhile. Each pair
# has an object of its own, so that ending one transaction's hold never ends another's.
HeldAck = tuple[Ackable, object]


def _release(held: Iterable[HeldAck]) -> None:
    """Give deliveries back to their consumers. The caller holds the engine's lock."""
    for ackable, holder in held:
        ackable._end_hold_for_transaction(holder)


class TransactionBuffer:
    """The content of an open transaction: messages by topic and queue, acks, and marks."""

    def __init__(
        self,
        keeper: Keeper,
        router: Router,
        limits: Limits,
        tx_id: str,
        producer: str,
        check_after_ms: int,
        *,
        named: bool,
    ) -> None:
        """`named` says whether the user chose the id. Then the user may ask for it again."""
        self._keeper = keeper
        self._router = router
        self._limits = limits
        self.tx_id = tx_id
        self.producer = producer
        self.check_after_ms = check_after_ms
        self.named = named
        # The client's request that made this transaction, if the client is another process.
        self.request: Request | None = None
        # True if a database gets a marker when it commits this transaction (see fmq.bind).
        self.bound = False
        # The messages that the prepare or commit left out, because they had been sent before.
        self.left_out: Sequence[Any] = ()
        self.number = 0  # the position of the transaction's first record, once that is planned
        self.phase = self.before_step = OPEN
        self.was_prepared = False
        self.receipts: Receipts = list  # makes the receipts, once the transaction is committed
        # True while a task of a loop commits or prepares the transaction. A second task is refused.
        self.is_in_step = False
        # True if the user chose the id, and `take_id` has not been called yet.
        self.must_take_id = False
        self.messages = 0
        self.runs: dict[RunPlace, list[Message | bytes] | JoinedBodies] = {}
        # Encodes messages of `runs`. They are only bodies, until one has a key, tag, headers or
        # extras.
        self.encode: Encode = encode_bodies
        self.acks: list[AckRange] = []
        self.marks = NO_MARKS
        self._held: list[HeldAck] = []
        # The value of `Keeper.moves` when this transaction held its first delivery.
        self._moves = 0
        # A finalizer. If this object is dropped, it releases the deliveries that are held for its
        # acks.
        self._if_dropped: Any = None
        # A finalizer. If this object is dropped, it releases the id that another process holds.
        self.if_id_dropped: Any = None
        self._savepoints: list[object] = []  # the savepoints from the oldest to the newest
        self._names_bytes = len(tx_id) + (len(utf8(producer)) if producer else 0)
        self._bytes = 0
        # The bytes of the columns for one message without key, tag and headers. Once a message has
        # extras, the extras columns are included.
        self._columns_bytes = COLUMNS_BYTES
        self._bytes_max = limits.bytes_max(self._names_bytes)

    @property
    def size(self) -> int:
        """The bytes that its append takes at most, without PREPARE or COMMIT."""
        return self._bytes

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to send, ack or mark."""
        return not (self.messages or self.acks or self.marks)

    def is_of(self, keeper: Keeper) -> bool:
        """Return whether `keeper` guards what the transaction holds: not in the child of a fork."""
        return self._keeper is keeper

    # --- messages -----------------------------------------------------------------------------

    def send(
        self,
        topic: str,
        body: Body,
        key: str | None,
        tag: str | None,
        headers: Mapping[str, str] | None,
        queue: int | None,
        message_id: str | None = None,
        priority: int | None = None,
        expires_at: datetime | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Add a message. Raises TooLarge or TooMany, and then nothing was added."""
        if self.phase is not OPEN:
            self.refuse("send")
        item: Message | bytes
        item = plain = body if type(body) is bytes else as_bytes(body)
        size, more, columns_bytes = len(plain), self._bytes, self._columns_bytes
        if not (
            (key is None and tag is None)
            and (headers is None or (type(headers) is dict and not headers))
            and (message_id is None and priority is None and expires_at is None)
        ):
            extras = message_id, priority, expires_at
            copied = None if headers is None else copied_headers(headers)
            item = Message(plain, key, tag, copied, None, None, *extras)
            # This may be set for a message that is refused below. It only costs the faster way.
            if self.encode is encode_joined:
                self.runs = {place: [*run] for place, run in self.runs.items()}
            self.encode = encode_items
            if extras != NO_EXTRAS and columns_bytes == COLUMNS_BYTES:
                columns_bytes += EXTRA_BYTES
                more += self.messages * EXTRA_BYTES
            more += self._limits.size_of(item) - size - COLUMNS_BYTES
        limits = self._limits
        topic, number = self._router.target(topic, key, queue)
        if size > limits.message_bytes_max:
            limits.refuse_message(size)
        size += more + columns_bytes
        place = topic, number, timing
        run = self.runs.get(place)
        if run is None:
            size += RUN_BYTES + self._names_bytes + NAME_BYTES * len(topic)
            if timing is not None:
                size += TIMING_BYTES
        count = self.messages + 1
        if size > self._bytes_max or count > limits.messages_max:
            limits.refuse(self.tx_id, size, self._bytes_max, count)
        if run is None:
            self.runs[place] = [item]
        else:
            run.append(item)  # type: ignore[arg-type]  # no joined bodies beside a Message
        self._bytes, self._columns_bytes, self.messages = size, columns_bytes, count

    def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None = None,
        timing: Timing | None = None,
    ) -> None:
        """Add several messages: all of them, or none if one is refused."""
        if (
            isinstance(bodies, JoinedBodies)
            and (bodies and self.encode is not encode_items)
            and self._send_bodies(topic, bodies, queue, timing)
        ):
            return
        found, plain = split_bodies(bodies)
        items: Sequence[Body | Message] = found
        if not items:
            self.require(OPEN, "send")
            self._router.check_target(topic, queue)
        elif plain and self._send_bodies(topic, frozen(found), queue, timing):
            return
        back = self._savepoint_of_messages()
        try:
            for item in items:
                said = item if isinstance(item, Message) else Message(item)
                carried = said.key, said.tag, said.headers, queue, *said[6:]
                self.send(topic, said.body, *carried, timing)
        except BaseException:
            back()
            raise

    def _send_bodies(
        self,
        topic: str,
        bodies: list[bytes] | JoinedBodies,
        queue: int | None,
        timing: Timing | None,
    ) -> bool:
        """Add bodies that go to one queue, all at once. Return False, and add nothing, if they are
        to be looked at one by one: `send` chooses their queues, or says which one is refused.
        """
        if self.phase is not OPEN or not self._router.has_one_queue(topic, queue):
            return False
        topic, number = self._router.target(topic, None, queue)
        place = topic, number, timing
        run = self.runs.get(place)
        sizes = bodies.sizes if isinstance(bodies, JoinedBodies) else [*map(len, bodies)]
        size = self._bytes + sum(sizes) + len(bodies) * self._columns_bytes
        if run is None:
            size += RUN_BYTES + self._names_bytes + NAME_BYTES * len(topic)
            if timing is not None:
                size += TIMING_BYTES
        count, limits = self.messages + len(bodies), self._limits
        if (
            max(sizes) > limits.message_bytes_max
            or size > self._bytes_max
            or count > limits.messages_max
        ):
            return False
        if isinstance(bodies, JoinedBodies):
            self.encode = encode_joined
        if run is not None:
            run.extend(bodies)
        elif isinstance(bodies, JoinedBodies):
            self.runs[place] = JoinedBodies(bodies.sizes, bodies.pieces)
        else:
            self.runs[place] = list[Message | bytes](bodies)
        self._bytes, self.messages = size, count
        return True

    def _savepoint_of_messages(self) -> Callable[[], None]:
        """Return a function that drops all messages that are added from now on."""
        lengths = {place: len(run) for place, run in self.runs.items()}
        size, columns, count = self._bytes, self._columns_bytes, self.messages

        def back() -> None:
            self.runs = {place: self.runs[place][:length] for place, length in lengths.items()}
            self._bytes, self._columns_bytes, self.messages = size, columns, count

        return back

    # --- acks ---------------------------------------------------------------------------------

    def ack(self, delivery: Ackable) -> None:
        """Add the ack of `delivery`, and hold it until the transaction has ended."""
        self.require(OPEN, "ack")
        if not hasattr(delivery, "_hold_for_transaction"):
            raise TypeError(
                f"tx.ack takes a delivery or a batch of them, not {type(delivery).__name__}"
            )
        held = delivery, object()
        if not self._held:
            self._moves = self._keeper.moves
        self._held.append(held)
        self._watch_over_acks()
        try:
            size = self._add_ack(delivery._hold_for_transaction(self._keeper, held[1]))
        except BaseException:
            self.give_back(len(self._held) - 1)
            raise
        if size > self._bytes_max:
            self.give_back(len(self._held) - 1)
            self._limits.refuse(self.tx_id, size, self._bytes_max, self.messages)

    def _add_ack(self, ack: AckRange) -> int:
        """Add `ack` unless the transaction would become too large. Return its size with the ack."""
        joined = self.acks[-1].joined(ack) if self.acks else None
        if joined is not None:
            self.acks[-1] = joined
            return self._bytes
        size = self._bytes + self._limits.size_of_ack(ack)
        if size <= self._bytes_max:
            self._bytes = size
            self.acks.append(ack)
        return size

    def give_back(self, keep: int = 0) -> None:
        """Give all held deliveries back to their consumers, except the first `keep`."""
        held = self._held[keep:]
        if held:
            self._keeper.change(partial(_release, held))
            del self._held[keep:]

    def check_held(self) -> None:
        """Raise LeaseLost if a group was moved and a delivery is no longer held. The caller holds
        the engine's lock.
        """
        if self._held and self._keeper.moves != self._moves:
            for ackable, holder in self._held:
                ackable._check_held_for_transaction(holder)

    def held(self) -> list[Ackable]:
        """Return the deliveries that the transaction acks."""
        return [ackable for ackable, _ in self._held]

    def _watch_over_acks(self) -> None:
        """Arrange that the deliveries are given back if the transaction is dropped without
        an end.
        """
        if self._if_dropped is None and self._held:
            release = partial(_release, self._held)
            self._if_dropped = finalize(self, self._keeper.dropped.append, release)
            self._if_dropped.atexit = False

    # --- marks ----------------------------------------------------------------------------------

    def change_mark(self, step: str, change: Callable[[MarkBuffer], int]) -> None:
        """Let `change` set or remove a mark, if that fits into the transaction."""
        self.require(OPEN, step)
        marks = self.marks.copy()
        size = self._bytes + change(marks)
        if size > self._bytes_max:
            self._limits.refuse(self.tx_id, size, self._bytes_max, self.messages)
        self.marks, self._bytes = marks, size

    # --- savepoints -----------------------------------------------------------------------------

    def savepoint(self) -> Callable[[], None]:
        """Return a function that drops all that is added from now on, later savepoints included."""
        drop_messages, acks, held = self._savepoint_of_messages(), [*self.acks], len(self._held)
        marks = self.marks
        savepoints, mine, number = self._savepoints, object(), len(self._savepoints)
        savepoints.append(mine)

        def back() -> None:
            self.require(OPEN, "rolling back to a savepoint")
            if savepoints[number : number + 1] != [mine]:
                raise WrongState(
                    f"transaction {self.tx_id!r} was rolled back to an earlier savepoint, and this "
                    "one with it. Nothing was changed; make another one."
                )
            del savepoints[number + 1 :]
            drop_messages()
            self.acks[:] = acks
            self.marks = marks
            self.give_back(held)

        return back

    # --- phases -----------------------------------------------------------------------------------

    def planned(self) -> None:
        """Note that the append is pending. From now on its outcome decides about the acks."""
        self.phase = IN_DOUBT
        if self._if_dropped is not None:
            self._if_dropped.detach()
            self._if_dropped = None

    def stepped(self, after: Phase, taken: Any) -> None:
        """Note that a step was taken, to the phase `after`. For a commit, `taken` makes the
        receipts.
        """
        self.phase = after
        if after is COMMITTED:
            self.receipts = taken
        elif after is PREPARED:
            self.was_prepared = True
        else:
            self._held.clear()  # applying the ROLLBACK gives the deliveries back

    def failed(self, error: BaseException) -> None:
        """Note that a step has raised `error`. If that refuses the step, the transaction is as it
        was before.
        """
        if is_refusal(error) and not isinstance(error, (EngineFailed, OutcomeUnknown)):
            self.phase = self.before_step
            if self.phase is OPEN:
                self._watch_over_acks()

    def require(self, phase: Phase, step: str) -> None:
        """Raise WrongState unless the transaction is in `phase`, in which `step` is possible."""
        if self.phase is not phase:
            self.refuse(step)

    def refuse(self, step: str) -> NoReturn:
        """Raise WrongState: `step` is not possible now."""
        advice = "begin another transaction for what is still to be sent"
        if self.phase is IN_DOUBT:
            advice = f"engine.outcome({self.tx_id!r}) tells, if need be after opening again"
        raise WrongState(
            f"transaction {self.tx_id!r} is {self.phase.value}, so {step} cannot follow. Nothing "
            f"was changed; {advice}."
        )
