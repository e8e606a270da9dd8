"""A relay into a real NATS server, read back from its stream."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import fmq
from fmq import Engine
from fmq.relay import MessageRefused, Relay, RelayBatch, RelayError, RelayTakenOver, Unsure
from fmq.testing import CrashDisk
from fmq.testing.relay import CASES, MessageShown, check_target

pytest.importorskip("nats", reason="no client of NATS on this machine")

import nats

from fmq.relay import nats_target
from fmq.relay.nats_target import NatsTarget, create_stream
from tests.relay.planted import (
    CAUGHT_BY,
    Planted,
    check_asking_too_early,
    check_planted,
    check_sharing_a_place,
)
from tests.relay.systems import check_event, send_event

NUMBERS = count()
ROOT = Path(__file__).parent.parent.parent


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("nats_tool", ROOT / "tools" / "nats_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["nats_tool"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = tool()
    if found.missing():
        pytest.skip(found.missing())
    made = found.Server(tmp_path_factory.mktemp("nats"))
    yield made
    made.stop()


@pytest.fixture
def system(server: Any) -> Callable[..., Any]:
    class System:
        def __init__(self, **settings: Any) -> None:
            self.name = f"n{next(NUMBERS)}"
            self.prefix = f"{self.name}."
            create_stream(server.address, self.name, ["a", "b", "t"], self.prefix, **settings)

        def target(self) -> NatsTarget:
            return NatsTarget(server.address, self.name, prefix=self.prefix)

        def shown(self) -> Iterator[MessageShown]:
            for message in self.messages():
                _, topic, queue, offset = message.headers["fmq-id"].split("/")
                yield topic, int(queue), int(offset)

        def messages(self) -> list[Any]:
            """Return all messages of the stream but the places, in order."""
            return asyncio.run(read(server.address, f"fmq-relay-{self.name}"))

    return System


async def read(address: str, stream: str) -> list[Any]:
    client = await nats.connect(address)
    found = []
    try:
        js = client.jetstream()
        info = await js.stream_info(stream)
        left = info.state.messages
        reader = await js.pull_subscribe_bind(
            stream=stream, consumer=(await js.add_consumer(stream, ack_policy="none")).name
        )
        while left:
            for message in await reader.fetch(min(left, 500), timeout=60):
                left -= 1
                if message.subject != stream:
                    found.append(message)
    finally:
        await client.close()
    return found


@pytest.mark.parametrize("case", [*CASES])
def test_the_nats_target_keeps_the_rules_of_a_target(system: Callable[[], Any], case: str) -> None:
    check_target(system, only=case)


@pytest.fixture
def roomy() -> Iterator[Engine]:
    """An engine that takes large messages and transactions."""
    with fmq.open("data", disk=CrashDisk()) as engine:
        yield engine


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_nats_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_nats_that_asks_before_it_claims_is_caught(system: Callable[[], Any]) -> None:
    check_asking_too_early(system)


def test_relays_into_nats_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


def relayed(engine: Engine, target: NatsTarget, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


def test_a_cloud_event_is_read_back_from_nats(
    system: Callable[[], Any], engine: Engine, server: Any
) -> None:
    made = system()
    send_event(engine)
    relayed(engine, NatsTarget(server.address, made.name, prefix=made.prefix, cloudevents=True))
    (message,) = made.messages()
    check_event(message.headers, "ce-", engine)


def test_a_message_of_a_stream_has_all_that_it_has_here(
    system: Callable[[], Any], engine: Engine
) -> None:
    engine.create_topic("t", queues=2)
    with engine.transaction(tx_id="T") as tx:
        said: dict[str, Any] = {"headers": {"a": "ü"}, "message_id": "m", "tag": "paid"}
        tx.send("t", b"\0body", key="k", queue=1, **said)
    made = system()
    relayed(engine, made.target())
    (message,) = made.messages()
    (sent,) = engine.read("t", queue=1)
    assert sent.origin is not None
    assert (message.subject, message.data) == (f"{made.prefix}t.1", b"\0body")
    said = {name: text for name, text in message.headers.items() if not name.startswith("Nats-")}
    assert said == {
        "fmq-id": f"{engine.feedback.store}/t/1/0",
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "a": "ü",
    }


@pytest.mark.parametrize(
    "odd",
    [
        {"headers": {"Nats-Rollup": "all"}},
        {"headers": {"a": "two\nlines"}},
        {"headers": {"a b": "x"}},
        {"key": " k"},
        {"body": bytes(1 << 20)},
    ],
    ids=lambda odd: str(odd)[:30],
)
def test_what_nats_cannot_hold_is_named_or_parked(
    system: Callable[[], Any], roomy: Engine, odd: dict[str, Any]
) -> None:
    made = system()
    roomy.send("t", b"before")
    roomy.send("t", **{"body": b"odd"} | odd)
    roomy.send("t", b"after")
    with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
        relayed(roomy, made.target())
    assert made.messages() == []
    relayed(roomy, made.target(), on_refused="park")
    assert [each.data for each in made.messages()] == [b"before", b"", b"after"]
    assert [each.offset for each in roomy.dead_letters("relay-n").list()] == [1]
    roomy.send("t", **{"body": b"odd"} | odd)
    relayed(roomy, made.target(), on_refused="park")
    place = made.target().status()
    assert (place.offset, len(made.messages())) == (3, 4)


def test_a_message_above_the_limit_of_the_stream_is_named(
    system: Callable[..., Any], engine: Engine
) -> None:
    made = system(max_msg_size=2000)
    engine.send_many("t", [b"before", bytes(1900)])
    with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
        relayed(engine, made.target())


SENT = 2500


@pytest.mark.parametrize("stops_at", [0, 1, 2])
def test_a_transaction_larger_than_an_atomic_batch_comes_once(
    system: Callable[[], Any], roomy: Engine, stops_at: int
) -> None:
    """It comes in three batches. The relay dies behind one of them, and another one goes on."""
    roomy.send("t", b"alone")
    with roomy.transaction() as tx:
        for number in range(SENT):
            tx.send("t", b"%d" % number)
    made = system()
    target, left = made.target(), [stops_at + 1]
    publish = nats_target._Link.publish_batch

    def dying(link: Any, messages: Any) -> Any:
        said = publish(link, messages)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt
        return said

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nats_target._Link, "publish_batch", dying)
        with pytest.raises(KeyboardInterrupt):
            relayed(roomy, target)
    relayed(roomy, made.target())
    relayed(roomy, made.target())
    assert [each[2] for each in made.shown()] == [*range(SENT + 1)]


def test_a_relay_that_was_shut_out_in_the_middle_of_a_large_batch_writes_no_more(
    system: Callable[[], Any], engine: Engine
) -> None:
    engine.send_many("t", [b"x"] * 1500)
    made = system()
    publish = nats_target._Link.publish_batch

    def overtaken(link: Any, messages: Any) -> Any:
        said = publish(link, messages)
        if patched:
            patched.pop()
            with closing(made.target()) as newer:
                newer.claim()
        return said

    patched = [True]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nats_target._Link, "publish_batch", overtaken)
        with pytest.raises(RelayTakenOver):
            relayed(engine, made.target())
    relayed(engine, made.target())
    assert [each[2] for each in made.shown()] == [*range(1500)]


def test_a_stream_that_is_missing_or_takes_no_batches_is_named(server: Any, engine: Engine) -> None:
    engine.send("t", b"x")
    with pytest.raises(RelayError, match="create_stream makes it"):
        relayed(engine, NatsTarget(server.address, "nobody"))

    async def make() -> None:
        client = await nats.connect(server.address)
        await client.jetstream().add_stream(name="fmq-relay-plain", subjects=["plain.>"])
        await client.close()

    asyncio.run(make())
    with pytest.raises(RelayError, match="takes no atomic batches"):
        relayed(engine, NatsTarget(server.address, "plain"))
    create_stream(server.address, "plain", ["t"])
    relayed(engine, NatsTarget(server.address, "plain"))


@pytest.mark.parametrize("topic", ["a b", "a*", ">", "a..b"])
def test_a_topic_that_nats_cannot_name_is_refused(server: Any, topic: str) -> None:
    with pytest.raises(RelayError, match="no such subject"):
        create_stream(server.address, "odd", [topic])


def test_no_server_is_a_doubt() -> None:
    with pytest.raises(Unsure, match="gave no answer"):
        NatsTarget("nats://127.0.0.1:1").claim()


def test_a_server_that_dies_is_a_doubt(
    system: Callable[[], Any], engine: Engine, server: Any
) -> None:
    made = system()
    for number in range(10):
        engine.send("t", b"%d" % number)

    class Dies(NatsTarget):
        deaths = 1

        def deliver(self, batch: RelayBatch) -> None:
            super().deliver(batch)
            if self.deaths:
                self.deaths -= 1
                server.stop()
                server.start()
                raise fmq.relay.Unsure("the server is gone")

    relay = relayed(engine, Dies(server.address, made.name, prefix=made.prefix))
    assert relay.stats().claims >= 2
    assert [each.data for each in made.messages()] == [b"%d" % n for n in range(10)]
