"""The consumer of a client, and its claims, which the client may still ack."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from fmq.arguments.names import check_seconds
from fmq.consume.calls.advance import Advance, Handled, is_worth_it, keep
from fmq.consume.calls.consumer import Consumer, leave, member_of
from fmq.consume.claims.backoff import check_delay
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.delivery import DeliveredRange
from fmq.errors import FmqError, LeaseLost
from fmq.server.handed_out import HandedOut
from fmq.store.bytes.internal import is_broadcast
from fmq.store.bytes.kinds import AckRange
from fmq.store.reading.batch import Batch
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.dead_letters import check_taken
from fmq.wire.batches import ANSWER_BYTES_MAX, encode_batch, fitting
from fmq.wire.claims import ADVANCED, CLAIM, NEWS, PIECE
from fmq.wire.values import encode_values


class ClaimedPart(DeliveredRange):
    """A part of what a poll has handed to a client. A transaction of the client acks it."""

    __slots__ = ("_first_and_end", "_holder")

    def __init__(self, consumer: Consumer, claim: Claim, first: int, end: int) -> None:
        self._consumer = consumer
        self._claim = claim
        self._first_and_end = first, end
        # Stands for the client's transaction that holds the part, if there is one.
        self._holder: object = None

    def _offsets(self) -> tuple[int, int]:
        return self._first_and_end

    def hold(self, keeper: object) -> None:
        """Hold the part, without a lease, for a transaction that the client collects."""
        holder = object()
        self._hold_for_transaction(keeper, holder)
        self._holder = holder

    def _hold_for_transaction(self, keeper: object, holder: object) -> AckRange:
        if self._holder is not None:
            self._end_hold_for_transaction(self._holder)
            self._holder = None
        return super()._hold_for_transaction(keeper, holder)

    def end_hold(self) -> None:
        """Give the part back to its consumer. The caller holds the engine's lock."""
        self._end_hold_for_transaction(self._holder)


class ServedMember:
    """One consumer of a client, with the claims that the client may still ack."""

    def __init__(self, consumer: Consumer, writer: Writer, handed_out: HandedOut) -> None:
        self._consumer = consumer
        self.in_group = member_of(consumer)
        self._handed_out = handed_out
        self._writer = writer
        self._claims: dict[int, list[Claim]] = {}
        # By number of the claim, first and end.
        self._held: dict[tuple[int, int, int], ClaimedPart] = {}
        self._next = 0
        self._forget_at = 64

    @property
    def group(self) -> str:
        """The group as records name it: that of a broadcast member has a name of its own."""
        return self.in_group.group

    def poll(self, limit: int, *, in_one_piece: bool) -> bytes | None:
        """Return claims and their messages as bytes; None if there is nothing yet."""
        if self.in_group.draining.is_on:
            return b""
        news = self._news()
        if news is not None:
            return news
        found = self.in_group.claim(limit, 0.0, as_batch=True, in_one_piece=in_one_piece)
        if found is None:
            return None
        claim, batches = found
        counted = self.in_group.count(claim, self._fitting(claim, batches))
        return b"".join(self._piece(claim, batch) for batch in counted) or None

    def _piece(self, claim: Claim, batch: Batch) -> bytes:
        """Return a claim and its messages as bytes. The client may ack them from now on. Return b""
        if the messages are gone.
        """
        shown = self.in_group.burying.shown_of(batch)
        if shown is not None and not shown:
            return b""  # the messages are gone
        said = encode_batch(batch, shown)
        number = self._number_of(claim, batch.next)
        return PIECE.pack(number, claim.count + 1, len(said)) + said

    def advance(self, number: int, first: int, end: int) -> ServedAdvance | None:
        """Claim the next message. Return an object that acks the handled range together with its
        attempt. Return None if there is no message, or if it does not pay to look before the ack.
        Raises LeaseLost.
        """
        if not is_worth_it(self.in_group):
            return None
        done = Handled(self._claim(number, first, end), first, end)
        keep(self.in_group, done)
        found = self.in_group.claim(1, 0.0, as_batch=True, in_one_piece=True)
        if found is None:
            return None
        claim, (batch,) = found
        one = Advance(self.in_group, done, claim, [(batch.offset, batch.next)])
        return ServedAdvance(self, one, claim, batch)

    def _fitting(self, claim: Claim, batches: list[Batch]) -> list[Batch]:
        """Return the batches that fit into one answer. Give the others back."""
        found: list[Batch] = []
        room = ANSWER_BYTES_MAX
        for whole in batches:
            end = whole.offset
            if room > 0:
                found.append(batch := fitting(whole))
                end = batch.next
                room -= sum(map(len, batch.bodies))
            if end < whole.next:
                room = 0  # give back all later messages, too: they must not overtake these
                self.in_group.try_give_back(claim, end, whole.next)
        return found

    def _news(self) -> bytes | None:
        """Return the queues that the member has lost and gained, as bytes; None if there is no
        news.
        """
        news = self.in_group.take_news()
        if news is None:
            return None
        return CLAIM.pack(NEWS) + encode_values([[[*each] for each in side] for side in news])

    def take(self, limit: int) -> bytes | tuple[Claim, Batch] | None:
        """Claim messages of one queue that fit into one answer. If there is news, return that
        instead.
        """
        news = self._news()
        if news is not None:
            return news
        found = self.in_group.claim(limit, 0.0, as_batch=True, in_one_piece=True)
        if found is None:
            return None
        claim, (whole,) = found
        batch = fitting(whole)
        if batch.next < whole.next:
            self.in_group.try_give_back(claim, batch.next, whole.next)
        return claim, batch

    def give_back(self, claim: Claim, batch: Batch) -> None:
        """Give back messages that no client has seen."""
        self.in_group.try_give_back(claim, batch.offset, batch.next)

    def plan_take(self, claim: Claim, batch: Batch, extension: bytes) -> Callable[[], None]:
        """Return a function that plans the ack of a batch that was taken. The ACK gets the
        `extension`.
        """
        acking = self.in_group.acking(claim, batch.offset, batch.next, extension)
        return partial(self.in_group.plan_ack, acking)

    def _number_of(self, claim: Claim, end: int) -> int:
        """Return the number by which the client names these messages. They reach up to the offset
        `end`.
        """
        number = self._next
        self._next = (number + 1) % NEWS
        self._forget()
        self._claims[number] = [claim]
        self._note(claim.queue.topic, claim.queue.number, end)
        return number

    def _note(self, topic: str, queue: int, end: int) -> None:
        """Note what the client has now, for the next server, if other members may want it."""
        if not is_broadcast(self.group):
            self._handed_out.note((self.group, topic, queue), end)

    def claim_again(self, number: int, topic: str, queue: int, first: int, end: int) -> None:
        """Claim messages again that the client says it has, unless another member has them now."""
        claims = self.in_group.claim_again(check_taken(topic), queue, first, end)
        self._note(topic, queue, max((each.end for each in claims), default=0))
        self._claims.setdefault(number, []).extend(claims)
        self._next = max(self._next, (number + 1) % NEWS)

    def _forget(self) -> None:
        """Forget claims that hold nothing any more."""
        if len(self._claims) >= self._forget_at:
            # Keep claims with parts in transactions: a rollback gives the parts back to them.
            in_transactions = {id(part._claim) for part in self._held.values()}
            self._claims = {
                number: kept
                for number, claims in self._claims.items()
                if (
                    kept := [each for each in claims if id(each) in in_transactions or _holds(each)]
                )
            }
            self._forget_at = 64 + 2 * len(self._claims)  # so each claim is looked at about twice

    def part(self, number: int, first: int, end: int) -> ClaimedPart:
        """Return the part that a transaction is to ack. Raises LeaseLost."""
        held = self._held.pop((number, first, end), None)
        return held or ClaimedPart(self._consumer, self._claim(number, first, end), first, end)

    def hold(self, number: int, first: int, end: int) -> None:
        """Hold messages for a transaction that the client collects. Raises LeaseLost."""
        part = ClaimedPart(self._consumer, self._claim(number, first, end), first, end)
        part.hold(self._writer)
        self._held[number, first, end] = part

    def end_hold(self, number: int, first: int, end: int) -> None:
        """Give back messages that a transaction of the client does not ack."""
        part = self._held.pop((number, first, end), None)
        if part is not None:
            self._writer.change(part.end_hold)

    def _claim(self, number: int, first: int, end: int) -> Claim:
        claims = self._claims.get(number, ())
        for claim in claims:
            if claim.first <= first < end <= claim.end:
                return claim
            if claim.first <= first < claim.end:
                # Name the first message that is not in the claim.
                first = claim.end
        raise LeaseLost(
            f"offset {first}: was acked before, or its lease has ended and it is redelivered. "
            "Nothing was changed."
        )

    def plan_ack(self, number: int, first: int, end: int) -> Callable[[], None]:
        """Return a function that plans an ack. Raises LeaseLost."""
        claim = self._claim(number, first, end)
        return partial(self.in_group.plan_ack, self.in_group.acking(claim, first, end))

    def plan_ack_all(self, ranges: list[tuple[int, int, int]]) -> Callable[[], None]:
        """Return a function that plans an ack of several ranges, each with the number of its claim.
        Raises LeaseLost.
        """
        held = [(self._claim(*each), *each[1:]) for each in ranges]
        return partial(self.in_group.plan_ack_all, self.in_group.acking_all(held))

    def reject(self, number: int, first: int, end: int, reason: str) -> None:
        """Move messages to the dead letters of the group. Raises LeaseLost."""
        self.in_group.reject(self._claim(number, first, end), first, end, reason)

    def release(
        self, number: int, first: int, end: int, delay: float, *, count: bool, attempt: int
    ) -> None:
        """Give messages of this attempt back. Raises LeaseLost."""
        claim, delay = self._claim(number, first, end), check_delay(delay)
        self.in_group.give_back(claim, first, end, delay, count=count, attempt=attempt)

    def extend(self, number: int, first: int, end: int, seconds: float) -> None:
        """Let a lease end `seconds` from now. Raises LeaseLost."""
        claim = self._claim(number, first, end)
        self.in_group.extend(claim, first, end, check_seconds("seconds", seconds))

    def leave(self, *, counts: bool = True, is_lost: bool = False) -> None:
        """Give everything back, because the client has left or its connection has ended. Without
        `counts`, attempts of messages in hand do not count.
        """
        self._claims.clear()
        if is_lost:
            # Keep the group of a broadcast member, because the client may come back.
            self.in_group.on_left = lambda: None
        with suppress(FmqError):  # a closed engine holds nothing
            leave(self._consumer, counts=counts)
            for number, first, end in [*self._held]:
                self.end_hold(number, first, end)


class ServedAdvance:
    """The ack of what a client has handled, and the next message for it."""

    def __init__(self, member: ServedMember, advance: Advance, claim: Claim, batch: Batch) -> None:
        self._member = member
        self._claim = claim
        self._batch = batch
        self.advance = advance

    def answer(self) -> bytes:
        """Return the answer. The append is durable."""
        said = ADVANCED.pack(self.advance.is_acked)
        return said + self._member._piece(self._claim, self._batch) if self.advance.left else said

    def undo(self) -> None:
        """Give the next message back, because the plan was refused."""
        self._member.give_back(self._claim, self._batch)


def _holds(claim: Claim) -> bool:
    """Return whether `claim` holds any of its messages."""
    return any(
        claim.holds.is_held_by(at, at + 1, claim)
        for first, end in claim.ranges
        for at in range(first, end)
    )
