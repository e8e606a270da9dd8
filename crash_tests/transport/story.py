"""The steps of some clients, one call after another, and what is there at the end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH, let_go
from crash_tests.oracle import Violation
from crash_tests.transport.awaited import AwaitedClient
from crash_tests.transport.blow import Blow
from crash_tests.transport.coroutines import HERD, cancelled_poll, cancelled_send, herd
from crash_tests.transport.looks import Content, Looks, Place
from crash_tests.transport.server import (
    LONG,
    OPTIONS,
    RECLAIM_SECONDS,
    BreakingServer,
    ClientDied,
    Unseen,
)
from crash_tests.transport.survey import Blows
from fmq.basics.message import Receipt
from fmq.consume.calls.consumer import member_of
from fmq.consume.claims.delivery import Delivery
from fmq.errors import LeaseLost
from fmq.remote.remote_consumer import RemoteConsumer
from fmq.testing import CrashDisk, FakeClock

CLIENTS = 2
STEPS = 7
# The share of the steps of a client of asyncio that only such a client can make.
AWAITED_SHARE = 0.4
PER_STEP = 2  # limit of messages that a step consumes
PAUSE = 4.0  # seconds after which no message waits that was handed out once or twice
# Contents that depend on which messages a member gets, if several share a group.
DEPENDS = "a/0", "g0", "g0 has rejected"
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
    "hold",
    "settle",
)
JUMP_SECONDS = 7200
# Blows after which other members get a client's messages at once, although it may come back.
GIVING_BACK = "ask", "answer", "power"
AWAITED = ("herd", "cancelled send", "cancelled poll", "two cancellations", "cancelled poll twice")
# The steps without those whose result depends on which messages a member gets.
IF_SHARED = (
    *("many", "ack", "ack in tx", "release", "take", "take for good", "reject", "advance"),
    *("hold", "hold", "hold", "settle", "settle"),
)
AWAITED_IF_SHARED = ("herd", "cancelled send", "two cancellations")


class Step(NamedTuple):
    """A step of a client. Its messages are named after the step."""

    name: int
    client: int
    kind: str
    awaits: bool = False
    """Whether its client uses fmq.aio."""


class Plot(NamedTuple):
    """The steps and conditions of a story."""

    steps: tuple[Step, ...]
    is_shared: bool = False
    """Whether the clients consume as members of one group, so that who gets what is open."""
    jump_seconds: int = 0
    """By so much the server's clock on the wall jumps when the blow falls."""


class End(NamedTuple):
    """The end of a story."""

    server: BreakingServer
    content: Content
    died_at: int  # the step in which a client died; -1: none


def draw(seed: int) -> Plot:
    """Return a story."""
    random = Random(seed)
    is_shared = seed % 4 == 3
    # The first step sends messages to consume.
    kinds = ["many", *random.choices(IF_SHARED if is_shared else KINDS, k=STEPS)]
    clients = [random.randrange(CLIENTS) for _ in kinds]
    awaiting = CLIENTS - 1 if seed % 3 == 2 else -1
    own = AWAITED_IF_SHARED if is_shared else AWAITED
    steps = tuple(
        Step(name, client, _kind(random, kind, own, client == awaiting), client == awaiting)
        for name, (client, kind) in enumerate(zip(clients, kinds, strict=True))
    )
    if is_shared:
        # The clock is set back. Then what was given back waits, so a member gets other messages.
        return Plot(steps, is_shared=True, jump_seconds=-JUMP_SECONDS)
    return Plot(steps, jump_seconds=JUMP_SECONDS if seed % 4 == 1 else 0)


def _kind(random: Random, kind: str, own: tuple[str, ...], awaits: bool) -> str:
    return random.choice(own) if awaits and random.random() < AWAITED_SHARE else kind


@cache
def _empty(reclaim_seconds: float) -> CrashDisk:
    """Return a disk with a directory that has this option: what is stored counts."""
    disk = CrashDisk()
    options = replace(OPTIONS, reclaim_seconds=reclaim_seconds)
    fmq.open(PATH, options, disk=disk, clock=FakeClock(), background=False).close()
    return disk


class Story:
    """One run of a story, with one blow or none."""

    def __init__(self, plot: Plot, looks: Looks, blow: Blow | None = None) -> None:
        self._steps = steps = plot.steps
        self._is_shared = plot.is_shared
        self._looks = looks
        self._clock = FakeClock()
        self._blow = blow
        at = blow.at if blow is not None and blow.is_of_disk else None
        reclaim_seconds = RECLAIM_SECONDS if plot.is_shared else 0.0
        self.server = BreakingServer(
            *(_empty(reclaim_seconds).after_kill(crash_at=at), self._clock, blow),
            reclaim_seconds=reclaim_seconds,
            jump_seconds=plot.jump_seconds,
        )
        awaiting = {step.client for step in steps if step.awaits}
        self._clients: list[Any] = [
            self.server.begin_client(awaits=number in awaiting) for number in range(CLIENTS)
        ]
        self._consumers: dict[int, Any] = {}
        self._herd: list[Any] = []  # consumers
        self._held: list[list[Any]] = [[] for _ in range(CLIENTS)]
        # The messages that each client has taken for good.
        self._taken: list[list[Any]] = [[] for _ in range(CLIENTS)]
        self._settled: set[Place] = set()  # what a shared group has acked or rejected
        self._receipts: list[tuple[Receipt, list[bytes]]] = []

    def tell(self, blows: Blows | None = None) -> End:
        """Run it to its end, and return what is there. Raises Violation. `blows` notes where blows
        may fall.
        """
        try:
            if blows is not None:
                blows.begin(self.server)
            return self._tell(blows)
        except BaseException:
            let_go(self.server.engine, self.server.disk)
            raise
        finally:
            for client in self._clients:
                if isinstance(client, AwaitedClient):
                    client.let_go()

    def _tell(self, blows: Blows | None) -> End:
        died_at, dead = -1, -1
        for at, step in enumerate(self._steps):
            if step.client == dead:
                continue
            if blows is not None:
                blows.step = at
            try:
                self._perform(step.name, step.client, step.kind)
            except ClientDied:
                died_at, dead = at, step.client
        self.server.survey = Unseen()
        self.server.disk.watch(None)
        return End(self.server, self._content(dead), died_at)

    def _perform(self, at: int, number: int, kind: str) -> None:
        client, name = self._clients[number], b"%d of %d" % (at, number)
        match kind:
            case "send":
                self._returned([client.send("a", name)], [name])
            case "send before":
                client.send("a", name + b" before")
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
            case "herd" | "herd without acks":
                if not self._herd:
                    self._herd = [client.consumer("h", group="herd") for _ in range(HERD)]
                acks = kind == "herd"
                what = client, self._herd, self._clock, name
                self._returned(client.tell(herd, *what, acks=acks), [name] * HERD)
            case "cancelled send" | "two cancellations":
                client.tell(cancelled_send, client, name, 1 if kind == "cancelled send" else 2)
            case "settle" | "settle one":
                self._settle(number, kind)
            case _:
                self._consume(at, number, kind, client)

    def _settle(self, number: int, kind: str) -> None:
        """Ack the messages that the client holds since an earlier step."""
        held = self._held[number]
        for delivery in held[: 1 if kind == "settle one" else None]:
            self._ack(delivery)
        held.clear()

    def _ack(self, delivery: Any) -> None:
        try:
            delivery.ack()
        except LeaseLost:
            if not self._may_be_taken_over:
                raise
        else:
            self._note_acked(delivery)

    @property
    def _may_be_taken_over(self) -> bool:
        """Whether the other client may get what one has in hand. A client may notice that its
        connection was cut after the other one has polled. After a kill, the next server holds back
        what clients had in hand.
        """
        blow = self._blow
        return self._is_shared and blow is not None and blow.how.startswith(GIVING_BACK)

    def _note_acked(self, delivery: Any) -> None:
        """Note a message that an ack was for. An ack that is sent again over a new connection
        succeeds if the message is acked, whoever has acked it.
        """
        place = delivery.topic, delivery.queue, delivery.offset
        if not (self._may_be_taken_over and place in self._settled):
            self._note_settled([delivery])

    def _note_settled(self, deliveries: Iterable[Any]) -> None:
        """Note the messages that are acked. Raises Violation if a message of a shared group was
        acked before.
        """
        for each in deliveries if self._is_shared else ():
            place = each.topic, each.queue, each.offset
            if place in self._settled:
                raise Violation("I7", f"{place} is acked a second time")
            self._settled.add(place)

    def _group(self, number: int) -> str:
        return f"g{0 if self._is_shared else number}"

    def _consume(self, at: int, number: int, kind: str, client: Any) -> None:
        consumer = self._consumers.get(number)
        if consumer is None:
            group = self._group(number)
            consumer = client.consumer(["a", "b"], group=group, lease_seconds=LONG)
            self._consumers[number] = consumer
        if kind in ("take for good", "take one for good"):
            self._take(number, consumer, 1 if kind == "take one for good" else 2)
            return
        if kind in ("replay", "replay of one topic"):
            self._replay(client, f"g{number}", of_one_topic=kind != "replay")
            return
        if kind.startswith("cancelled poll"):
            client.tell(cancelled_poll, consumer, self._pause, 2 if "twice" in kind else 1)
            return
        taken: list[Delivery] = []
        if kind == "advance":
            self._advance(consumer)
            return
        while len(taken) < 2 and (found := self._poll(consumer, 2 - len(taken))):
            taken += found  # redelivered messages may come in several batches
        if not taken:
            return
        if kind == "hold":
            self._held[number] += taken
        elif kind in ("ack", "ack one"):
            for delivery in taken[: 1 if kind == "ack one" else None]:
                self._ack(delivery)
        elif kind == "ack in tx":
            with client.transaction(tx_id=f"T{at}") as tx:
                for delivery in taken:
                    tx.ack(delivery)
                tx.send("a", b"%d after %d messages" % (at, len(taken)))
            self._note_settled(taken)
        elif kind in ("reject", "reject one"):
            for delivery in taken[: 1 if kind == "reject one" else None]:
                delivery.reject("no")
                self._note_settled([delivery])
        elif kind == "release":
            for delivery in taken:
                delivery.release()

    def _pause(self) -> None:
        self._clock.advance(PAUSE)

    def _poll(self, consumer: Any, limit: int) -> list[Delivery]:
        self._pause()
        found: list[Delivery] = consumer.poll(limit=limit)
        return found

    def _advance(self, consumer: Any) -> None:
        """Ack two messages one by one, as `run` does."""
        done: Any = None
        for _ in range(2):
            following = None
            if done is not None and isinstance(consumer, RemoteConsumer):
                following = member_of(consumer).advance(done)
                self._note_acked(done)
            elif done is not None:  # of asyncio
                self._ack(done)
            done = following or next(iter(self._poll(consumer, 1)), None)
            if done is None:
                return
        self._ack(done)

    @staticmethod
    def _replay(client: Any, group: str, *, of_one_topic: bool) -> None:
        dead = client.dead_letters(group)
        if of_one_topic:
            letters = dead.list()
            dead.replay([each.number for each in letters if each.topic == letters[0].topic])
        else:
            dead.replay()

    def _take(self, number: int, consumer: Any, wanted: int) -> None:
        """Take messages for good. If an answer is lost, none may be lost or come twice."""
        before = len(self._taken[number])
        self._clock.advance(PAUSE)
        while wanted and (found := consumer.take(limit=wanted)):
            wanted -= len(found)
            self._taken[number] += [(each.topic, each.queue, each.offset) for each in found]
            self._note_settled(found)
        if len(set(self._taken[number])) != len(self._taken[number]):
            raise Violation("I7", f"g{number} has taken {self._taken[number][before:]} twice")

    def _returned(self, receipts: list[Receipt], bodies: list[bytes]) -> None:
        """Keep the promise of a call."""
        at = 0
        for receipt in receipts:
            self._receipts.append((receipt, bodies[at : at + receipt.count]))
            at += receipt.count
        if at != len(bodies):
            raise Violation("I1", f"receipts of {at} messages for {len(bodies)}")

    # --- the end --------------------------------------------------------------------------------

    def _content(self, dead: int) -> Content:
        for number, client in enumerate(self._clients):
            if number != dead:
                client.close()
        if self._is_shared:
            self._clock.advance(RECLAIM_SECONDS)
        content = self._looks.at_end(self.server, self._clock, self._receipts)
        if self._is_shared:
            most = len(self._settled) + (0 if dead < 0 else PER_STEP)
            if not len(self._settled) <= content["g0"] <= most:
                raise Violation("I7", f"acked {self._settled}, and there are {content['g0']}")
            return {what: found for what, found in content.items() if what not in DEPENDS}
        taken = {f"g{n} has taken": len(self._taken[n]) for n in range(CLIENTS) if n != dead}
        return {**content, **taken}
