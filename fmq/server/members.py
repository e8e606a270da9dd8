"""The consumer of a client, and its claims, which the client may still ack."""

from __future__ import annotations

from contextlib import suppress

from fmq.consume.calls.member import GroupMember
from fmq.consume.calls.thread_member import ThreadMember
from fmq.consume.claims.claim import Claim
from fmq.consume.claims.delivery import DeliveredRange
from fmq.consume.claims.poll import Poll
from fmq.errors import FmqError, LeaseLost
from fmq.server.handed_out import HandedOut
from fmq.steps.call_steps import Steps
from fmq.store.bytes.internal import is_broadcast
from fmq.store.bytes.kinds import AckRange
from fmq.store.reading.batch import Batch
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.dead_letters import check_taken
from fmq.wire.batches import ANSWER_BYTES_MAX, encode_batch, fitting
from fmq.wire.claims import CLAIM, NEWS, PIECE
from fmq.wire.values import encode_values


class ClaimedPart(DeliveredRange):
    """A part of what a poll has handed to a client. A transaction of the client acks it."""

    __slots__ = ("_first_and_end", "_holder")

    def __init__(self, member: ThreadMember, claim: Claim, first: int, end: int) -> None:
        self._member = member
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

    def __init__(self, member: ThreadMember, writer: Writer, handed_out: HandedOut) -> None:
        self.in_group = member
        self._handed_out = handed_out
        self._writer = writer
        self._claims: dict[int, list[Claim]] = {}
        # Parts that transactions hold, by number of the claim, first and end.
        self._held: dict[tuple[int, int, int], ClaimedPart] = {}
        self._next = 0
        self._forget_at = 64

    @property
    def group(self) -> str:
        """The name of the group in records. A broadcast member has a group of its own there."""
        return self.in_group.group

    @property
    def named(self) -> str:
        """The group as the client names it."""
        return self.in_group.named

    def poll(self, limit: int, timeout: float, *, in_one_piece: bool) -> Steps[bytes]:
        """Return the bytes of claims and their messages, or news; b"" after `timeout` seconds."""
        in_group = self.in_group
        poll = served_poll(in_group, limit, timeout, in_one_piece=in_one_piece)
        poll.fit = self._fitting
        while (found := (yield from in_group.taking(poll))) is not None:
            claim, batches = found
            said = b"".join(self.piece(claim, batch) for batch in batches)
            if said:
                return said
            poll.claim = None  # the messages are gone
        return self.news()

    def piece(self, claim: Claim, batch: Batch) -> bytes:
        """Return a claim and its messages as bytes. The client may ack them from now on. Return b""
        if the messages are gone.
        """
        shown = self.in_group.burying.shown_of(batch)
        if shown is not None and not shown:
            return b""  # the messages are gone
        said = encode_batch(batch, shown)
        number = self._number_of(claim, batch.next)
        return PIECE.pack(number, claim.count + 1, len(said)) + said

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
                room = 0  # give back all later messages, too: none may overtake this batch
                self.in_group.try_give_back(claim, end, whole.next)
        return found

    def news(self) -> bytes:
        """Return the queues that were lost and gained, if the client is to be told of some; else
        b"".
        """
        found = None if self.in_group.draining.is_on else self.in_group.take_news()
        if found is None:
            return b""
        return CLAIM.pack(NEWS) + encode_values([[[*each] for each in side] for side in found])

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

    def has_in_hand(self) -> bool:
        """Return whether the client may still ack something. The caller holds the engine's lock."""
        claims = (claim for claims in self._claims.values() for claim in claims)
        return bool(self._held) or any(map(_holds, claims))

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
            # With this limit each claim is looked at about twice.
            self._forget_at = 64 + 2 * len(self._claims)

    def part(self, number: int, first: int, end: int) -> ClaimedPart:
        """Return the part that a transaction is to ack. Raises LeaseLost."""
        held = self._held.pop((number, first, end), None)
        return held or ClaimedPart(self.in_group, self.claim_of(number, first, end), first, end)

    def hold(self, number: int, first: int, end: int) -> None:
        """Hold messages for a transaction that the client collects. Raises LeaseLost."""
        part = ClaimedPart(self.in_group, self.claim_of(number, first, end), first, end)
        part.hold(self._writer)
        self._held[number, first, end] = part

    def end_hold(self, number: int, first: int, end: int) -> None:
        """Give back messages that a transaction of the client does not ack."""
        part = self._held.pop((number, first, end), None)
        if part is not None:
            self._writer.change(part.end_hold)

    def claim_of(self, number: int, first: int, end: int) -> Claim:
        """Return the claim that has the messages; raise LeaseLost."""
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

    def leaving(self, *, counts: bool) -> Steps[None]:
        """Give everything back, because the client has left. Without `counts`, attempts of messages
        in hand do not count.
        """
        self._claims.clear()
        with suppress(FmqError):  # a closed engine holds nothing
            yield from self.in_group.leaving(counts=counts)
            for number, first, end in [*self._held]:
                self.end_hold(number, first, end)

    def lose(self) -> None:
        """Give everything back, because the connection of the client has ended. The group of a
        broadcast member is kept, because the client may come back. So nothing is written.
        """
        self.in_group.leaving_group = None
        self.in_group.entry.is_cut_off = True
        for _ in self.leaving(counts=True):
            raise AssertionError("it writes nothing")


def served_poll(
    member: GroupMember, limit: int, timeout: float = 0.0, *, in_one_piece: bool = True
) -> Poll:
    """Return a poll for a client. The poll returns batches, or news of the queues that the client
    has.
    """
    how = {"as_batch": True, "in_one_piece": in_one_piece, "listens": False}
    return Poll(member.clock, limit, timeout, **how)


def _holds(claim: Claim) -> bool:
    """Return whether `claim` holds any of its messages."""
    return any(
        claim.holds.is_held_by(at, at + 1, claim)
        for first, end in claim.ranges
        for at in range(first, end)
    )
