"""A story: what some clients do, one call after the other, and what is there at its end."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from crash_tests.transport.awaited import AwaitedClient
from crash_tests.transport.blow import AT_PIECES, Blow
from crash_tests.transport.server import OPTIONS, BreakingServer, ClientDied
from fmq.consume.backoff import DEFAULT
from fmq.consume.delivery import Delivery, ReplayedDelivery
from fmq.message import Receipt
from fmq.remote.remote_consumer import RemoteConsumer
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside

CLIENTS = 2
STEPS = 7
LOSSES_MAX = 40  # tried at one operation
QUEUES = (("a", 0), ("b", 0), ("b", 1))
KINDS = (
    "send",
    "send",
    "many",
    "tx",
    "commit",
    "rollback",
    "ack",
    "ack in tx",
    "release",
    "take",
    "take for good",
    "reject",
    "advance",
    "replay",
)
# What a client may have done of a call in which it dies.
BEGUN = {
    "commit": "prepare",
    "rollback": "prepare",
    "ack": "ack one",
    "advance": "ack one",
    "release": "take",
    "take for good": "take one for good",
    "reject": "reject one",
    "replay": "replay of one topic",  # each has an append of its own
}
Content = dict[str, Any]
Place = tuple[str, int, int]  # topic, queue and offset of a message; a transaction's share a body


class Step(NamedTuple):
    """What a client does. Its messages are named after the step."""

    name: int
    client: int
    kind: str
    awaits: bool = False
    """Whether its client uses fmq.aio."""


class End(NamedTuple):
    """How a story has ended."""

    server: BreakingServer
    content: Content
    died_at: int  # the step in which a client died; -1: none


def draw(seed: int) -> tuple[Step, ...]:
    """Return a story."""
    random = Random(seed)
    kinds = ["many", *random.choices(KINDS, k=STEPS)]  # so that there is something to consume
    clients = [random.randrange(CLIENTS) for _ in kinds]
    awaiting = CLIENTS - 1 if seed % 3 == 2 else -1
    return tuple(
        Step(name, client, kind, client == awaiting)
        for name, (client, kind) in enumerate(zip(clients, kinds, strict=True))
    )


@cache
def _empty() -> CrashDisk:
    disk = CrashDisk()
    fmq.open(PATH, OPTIONS, disk=disk, clock=FakeClock(), background=False).close()
    return disk


class Story:
    """One telling of a story, with one blow, or none."""

    def __init__(self, steps: tuple[Step, ...], blow: Blow | None = None) -> None:
        self._steps = steps
        self._clock = FakeClock()
        at = (
            blow.at
            if blow is not None and blow.how in ("power", "kill", "kill unwritten")
            else None
        )
        disk = _empty().after_kill(crash_at=at)
        self.server = BreakingServer(disk, self._clock, blow)
        awaiting = {step.client for step in steps if step.awaits}
        self._clients: list[Any] = [
            self.server.begin_client(awaits=number in awaiting) for number in range(CLIENTS)
        ]
        self.begun = self.server.pieces, self.server.disk.operations
        self._consumers: dict[int, Any] = {}
        self._taken: list[list[Any]] = [[] for _ in range(CLIENTS)]  # for good, by client
        self._receipts: list[tuple[Receipt, list[bytes]]] = []

    def tell(self) -> End:
        """Tell it to its end, and return what is there. Raises Violation."""
        try:
            return self._tell()
        finally:
            for client in self._clients:
                if isinstance(client, AwaitedClient):
                    client.let_go()

    def _tell(self) -> End:
        died_at, dead = -1, -1
        for at, step in enumerate(self._steps):
            if step.client == dead:
                continue
            try:
                self._perform(step.name, step.client, step.kind)
            except ClientDied:
                died_at, dead = at, step.client
        self.told = self.server.pieces, self.server.disk.operations
        return End(self.server, self._content(dead), died_at)

    def _perform(self, at: int, number: int, kind: str) -> None:
        client, name = self._clients[number], b"%d of %d" % (at, number)
        match kind:
            case "send":
                self._returned([client.send("a", name)], [name])
            case "many":
                bodies = [b"%s, %d" % (name, i) for i in range(3)]
                self._returned(client.send_many("b", bodies, queue=at % 2), bodies)
            case "tx":
                with client.transaction(tx_id=f"T{at}") as tx:
                    tx.send("a", name)
                    tx.send("b", name, queue=1)
                    tx.mark("m", at)
                self._returned(tx.commit(), [name, name])
            case "commit" | "rollback" | "prepare":
                tx = client.transaction(tx_id=f"T{at}")
                tx.send("a", name)
                tx.send("b", name, queue=0)
                tx.prepare()
                if kind == "commit":
                    self._returned(tx.commit(), [name, name])
                elif kind == "rollback":
                    tx.rollback()
            case _:
                self._consume(at, number, kind, client)

    def _consume(self, at: int, number: int, kind: str, client: Any) -> None:
        consumer = self._consumers.get(number)
        if consumer is None:
            consumer = client.consumer(["a", "b"], group=f"g{number}")
            self._consumers[number] = consumer
        if kind in ("take for good", "take one for good"):
            self._take(number, consumer, 1 if kind == "take one for good" else 2)
            return
        if kind in ("replay", "replay of one topic"):
            self._replay(client, f"g{number}", of_one_topic=kind != "replay")
            return
        taken: list[Delivery] = []
        if kind == "advance":
            self._advance(consumer)
            return
        while len(taken) < 2 and (found := consumer.poll(limit=2 - len(taken))):
            taken += found  # what comes again may come in pieces
        if not taken:
            return
        if kind in ("ack", "ack one"):
            for delivery in taken[: 1 if kind == "ack one" else None]:
                delivery.ack()
        elif kind == "ack in tx":
            with client.transaction(tx_id=f"T{at}") as tx:
                for delivery in taken:
                    tx.ack(delivery)
                tx.send("a", b"%d after %d messages" % (at, len(taken)))
        elif kind in ("reject", "reject one"):
            for delivery in taken[: 1 if kind == "reject one" else None]:
                delivery.reject("no")
        elif kind == "release":
            for delivery in taken:
                delivery.release()

    @staticmethod
    def _advance(consumer: Any) -> None:
        """Ack two messages one by one, as `run` does."""
        done: Any = None
        for _ in range(2):
            following = None
            if done is not None and isinstance(consumer, RemoteConsumer):
                following = consumer._advance(done)
            elif done is not None:  # of asyncio
                done.ack()
            done = following or next(iter(consumer.poll(limit=1)), None)
            if done is None:
                return
        done.ack()

    @staticmethod
    def _replay(client: Any, group: str, *, of_one_topic: bool) -> None:
        dead = client.dead_letters(group)
        if of_one_topic:
            letters = dead.list()
            dead.replay([each.number for each in letters if each.topic == letters[0].topic])
        else:
            dead.replay()

    def _take(self, number: int, consumer: Any, wanted: int) -> None:
        """Take messages for good. None may be lost, or come twice, if an answer is lost."""
        before = len(self._taken[number])
        while wanted and (found := consumer.take(limit=wanted)):
            wanted -= len(found)
            self._taken[number] += [(each.topic, each.queue, each.offset) for each in found]
        if len(set(self._taken[number])) != len(self._taken[number]):
            raise Violation("I7", f"g{number} has taken {self._taken[number][before:]} twice")

    def _returned(self, receipts: list[Receipt], bodies: list[bytes]) -> None:
        """Keep what a call has promised."""
        at = 0
        for receipt in receipts:
            self._receipts.append((receipt, bodies[at : at + receipt.count]))
            at += receipt.count
        if at != len(bodies):
            raise Violation("I1", f"receipts of {at} messages for {len(bodies)}")

    # --- the end --------------------------------------------------------------------------------

    def _content(self, dead: int) -> Content:
        """Return what is there, after comparing it with what was promised."""
        server = self.server
        for number, client in enumerate(self._clients):
            if number != dead:
                client.close()
        with server.connect() as client:
            for receipt, bodies in self._receipts:
                self._check_receipt(client, receipt, bodies)
            content: Content = {"undecided": [each.tx_id for each in client.undecided()]}
            for topic, queue in QUEUES:
                messages = client.read(topic, queue=queue, limit=999)
                content[f"{topic}/{queue}"] = [each.body.decode() for each in messages]
            content["m"] = client.mark("m")
            for number in range(CLIENTS):
                acked, rejected = self._check_group(client, f"g{number}")
                content[f"g{number}"] = acked
                # Which ones differs: what a lost answer has handed out comes behind others.
                content[f"g{number} has rejected"] = len(rejected)
                if len(set(rejected)) != len(rejected):
                    raise Violation("I7", f"g{number} has rejected {rejected}, one of them twice")
                if number != dead:  # it may have had no answer to its last call
                    content[f"g{number} has taken"] = len(self._taken[number])
        server.close()
        server.engine.close()
        problems = fmq.check(PATH, disk=server.disk).problems
        if problems:
            raise Violation("I10", f"{problems}")
        return content

    def _check_receipt(self, client: RemoteEngine, receipt: Receipt, bodies: list[bytes]) -> None:
        topic, queue, offset = receipt.topic, receipt.queue, receipt.offset
        found = client.read(topic, queue=queue, offset=offset, limit=len(bodies))
        if [each.body for each in found] != bodies:
            raise Violation("I1", f"{topic}/{queue} from {offset} has {found}, not {bodies}")

    def _check_group(self, client: RemoteEngine, group: str) -> tuple[int, list[Place]]:
        """Return how much is acked, and where that lies which was rejected, replayed or not; all
        else must come at once: no client holds it any more.
        """
        known = [each for each in client.groups() if each.group == group]
        acked = sum(each.acked_below + each.acked_beyond for each in known)
        there = sum(each.next - each.first for each in client.queues())
        with client.consumer(["a", "b"], group=group) as consumer:
            letters = client.dead_letters(group).list()
            taken, rejected = 0, [(each.topic, each.queue, each.offset) for each in letters]
            for found in self._polls(consumer, group):
                replayed = [each for each in found if isinstance(each, ReplayedDelivery)]
                again = [(each.topic, each.queue, each.offset) for each in replayed]
                taken, rejected = taken + len(found) - len(again), rejected + again
        if acked + taken != there:
            raise Violation("I7", f"{group} has acked {acked} of {there}, and {taken} come again")
        return acked, rejected

    def _polls(self, consumer: RemoteConsumer, group: str) -> Iterator[list[Delivery]]:
        """Yield all that comes at once, and then what waits, as its attempts have failed twice."""
        tried = inside(self.server.engine).ledger.tried.items()
        counts = [each[2] for (name, *_), known in tried if name == group for each in known.all()]
        for seconds in (0.0, DEFAULT.delay(max(counts, default=0))):
            self._clock.advance(seconds)
            while found := consumer.poll(limit=99):
                yield found


def told(steps: tuple[Step, ...], blow: Blow) -> BreakingServer:
    """Tell a story with a blow. Raises Violation unless it ends as it does without."""
    end = Story(steps, blow).tell()
    expected = [*_ends(steps, end.died_at)]
    if not any(
        all(each[what] == found for what, found in end.content.items()) for each in expected
    ):
        raise Violation("I5", f"ends with {end.content}, not with {expected[0]}")
    return end.server


def _ends(steps: tuple[Step, ...], died_at: int) -> Iterator[Content]:
    """Yield how it may end: a client that dies has made its last call, a part of it, or none."""
    if died_at < 0:
        yield _clean(steps)
        return
    last = steps[died_at]
    before, after = steps[:died_at], steps[died_at + 1 :]
    rest = tuple(each for each in after if each.client != last.client)
    yield _clean((*before, last, *rest))
    yield _clean((*before, *rest))
    if last.kind in BEGUN:
        yield _clean((*before, last._replace(kind=BEGUN[last.kind]), *rest))


@lru_cache(64)
def _clean(steps: tuple[Step, ...]) -> Content:
    return Story(steps).tell().content


def blows_of(steps: tuple[Step, ...]) -> Iterator[Blow]:
    """Yield all that may happen in a story."""
    story = Story(steps)
    story.tell()
    pieces, operations = zip(story.begun, story.told, strict=True)
    for at in range(*pieces):
        yield from (Blow(at + 1, how) for how in AT_PIECES)
    for at in range(*operations):
        yield Blow(at, "kill")
        yield Blow(at, "kill unwritten")
        yield from (Blow(at, "power", loss) for loss in range(LOSSES_MAX))
