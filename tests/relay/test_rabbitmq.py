"""A relay into a real RabbitMQ server: into a stream, read back from it, and into queues."""

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
from fmq.relay.addresses import target_at
from fmq.testing import CrashDisk
from fmq.testing.relay import CASES, MessageShown, RelayWorld, check_target

pytest.importorskip("rstream", reason="no client of RabbitMQ's streams on this machine")
pytest.importorskip("aio_pika", reason="no client of RabbitMQ on this machine")

import aio_pika
import rstream

from fmq.relay.rabbitmq_queues import RabbitQueuesTarget, create_queues
from fmq.relay.rabbitmq_target import RabbitStreamTarget, create_stream
from tests.relay.planted import (
    CAUGHT_BY,
    Planted,
    check_asking_too_early,
    check_planted,
    check_sharing_a_place,
)
from tests.relay.systems import check_event, places_of, send_event

NUMBERS = count()
ROOT = Path(__file__).parent.parent.parent


def tool() -> Any:
    path = ROOT / "tools" / "rabbitmq_server.py"
    spec = importlib.util.spec_from_file_location("rabbitmq_tool", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rabbitmq_tool"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = tool()
    if found.missing():
        pytest.skip(found.missing())
    made = found.Server(tmp_path_factory.mktemp("rabbitmq"))
    yield made
    made.stop()


# --- streams --------------------------------------------------------------------------------------


def read(server: Any, stream: str) -> list[tuple[bytes, dict[str, str], Any]]:
    """Return body, properties and the AMQP properties of each message, as a reader that knows no
    relay has them.
    """
    return asyncio.run(_read(server, stream))


async def _read(server: Any, stream: str) -> list[tuple[bytes, dict[str, str], Any]]:
    found, end = [], asyncio.Event()
    how = {"host": "127.0.0.1", "port": server.stream, "username": "guest", "password": "guest"}
    producer = rstream.Producer(**how)
    await producer.start()
    last = b"end %4d" % next(NUMBERS)
    await producer.send_wait(stream, b"\0Su\xa0\x08" + last)
    await producer.close()
    consumer = rstream.Consumer(**how)
    await consumer.start()

    def take(message: Any, _: Any) -> None:
        said = {
            key.decode(): value.decode()
            for key, value in (message.application_properties or {}).items()
        }
        if message.body == last:
            end.set()
        elif "fmq-id" in said:
            found.append((message.body, said, message.properties))

    first = rstream.ConsumerOffsetSpecification(rstream.OffsetType.FIRST)
    await consumer.subscribe(stream, take, offset_specification=first, decoder=rstream.amqp_decoder)
    await asyncio.wait_for(end.wait(), 60)
    await consumer.close()
    return found


@pytest.fixture
def system(server: Any) -> Callable[..., Any]:
    class System:
        def __init__(self, **settings: Any) -> None:
            self.name = f"n{next(NUMBERS)}"
            create_stream(server.address, self.name, **settings)

        def target(self) -> RabbitStreamTarget:
            return RabbitStreamTarget(server.address, self.name)

        def shown(self) -> Iterator[MessageShown]:
            for _, said, _ in self.messages():
                _, topic, queue, offset = said["fmq-id"].split("/")
                yield topic, int(queue), int(offset)

        def messages(self) -> list[tuple[bytes, dict[str, str], Any]]:
            return read(server, f"fmq-relay-{self.name}")

    return System


@pytest.mark.parametrize("case", [*CASES])
def test_the_stream_target_keeps_the_rules_of_a_target(
    system: Callable[[], Any], case: str
) -> None:
    check_target(system, only=case)


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_rabbitmq_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_rabbitmq_that_asks_before_it_claims_is_caught(
    system: Callable[[], Any],
) -> None:
    check_asking_too_early(system)


def test_relays_into_rabbitmq_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


def relayed(engine: Engine, target: Any, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


@pytest.fixture
def roomy() -> Iterator[Engine]:
    """An engine that takes large messages and transactions."""
    with fmq.open("data", disk=CrashDisk()) as engine:
        yield engine


def test_a_message_of_a_stream_has_all_that_it_has_here(
    system: Callable[[], Any], engine: Engine
) -> None:
    engine.create_topic("t", queues=2)
    with engine.transaction(tx_id="T") as tx:
        said: dict[str, Any] = {"headers": {"a": "ü", "fmq-id": "of another"}, "message_id": "m"}
        tx.send("t", b"\0body", key="k", queue=1, tag="paid", **said)
    made = system()
    relayed(engine, made.target())
    ((body, found, properties),) = made.messages()
    (sent,) = engine.read("t", queue=1)
    assert sent.origin is not None
    name = f"{engine.feedback.store}/t/1/0"
    assert (body, properties.message_id, properties.subject) == (b"\0body", name.encode(), b"t.1")
    assert found == {
        "a": "ü",
        "fmq-id": name,
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
    }


SENT, PART = 30, 100_000


@pytest.mark.parametrize("stops_at", [0, 1, 2])
def test_a_transaction_larger_than_a_frame_comes_once(
    system: Callable[[], Any], roomy: Engine, stops_at: int
) -> None:
    """It comes in several entries. The relay dies behind one of them, and another one goes on."""
    roomy.send("t", b"alone")
    with roomy.transaction() as tx:
        for _ in range(SENT):
            tx.send("t", bytes(PART))
    made = system()
    target, left = made.target(), [stops_at + 2]  # the claim writes one, too

    class Dies(RabbitStreamTarget):
        def _write(self, messages: list[bytes]) -> None:
            super()._write(messages)
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt

    with closing(Dies(*target_of(target))) as dying, pytest.raises(KeyboardInterrupt):
        relayed(roomy, dying)
    relayed(roomy, made.target())
    relayed(roomy, made.target())
    assert [each[2] for each in made.shown()] == [*range(SENT + 1)]


def target_of(target: Any) -> tuple[str, str]:
    return target._address, target._stream.removeprefix("fmq-relay-")


def test_a_message_larger_than_a_frame_is_named_or_parked(
    system: Callable[[], Any], roomy: Engine
) -> None:
    made = system()
    roomy.send_many("t", [b"before", bytes(1 << 20), b"after"])
    with pytest.raises(MessageRefused, match="t/0 offset 1 is refused by the target"):
        relayed(roomy, made.target())
    assert made.messages() == []
    relayed(roomy, made.target(), on_refused="park")
    assert [body for body, *_ in made.messages()] == [b"before", b"", b"after"]


def test_the_place_is_found_behind_many_claims(system: Callable[[], Any], engine: Engine) -> None:
    made = system()
    engine.send("t", b"x")
    relayed(engine, made.target())
    place = made.target().status()
    assert place is not None
    for _ in range(5):
        with closing(made.target()) as target:
            assert target.claim() == place
    with closing(made.target()) as target:  # it dies before it has written the place again
        target.claim()
        assert target._link is not None
        for number in (1, 2):
            target._link.publish(target._id + number * (1 << 32), [b"\0Su\xa0\0"])
    with closing(made.target()) as target:
        assert target.claim() == place


def test_of_two_claims_with_one_id_one_is_made_again(system: Callable[[], Any]) -> None:
    """Both have asked for the last id at the same time, and RabbitMQ drops the second entry."""
    made = system()
    world = RelayWorld(lambda: made)
    first = world.target()
    late = world.batch(first)

    class Same(RabbitStreamTarget):
        claims = 0

        def _fence_id(self, link: Any) -> int:
            self.claims += 1
            return 1 << 32 if self.claims == 1 else super()._fence_id(link)

    with closing(Same(*target_of(first))) as second:
        second.claim()
        assert second.claims == 2
    with pytest.raises(RelayTakenOver, match="has claimed"):
        first.deliver(late)
    world.close()


def test_a_stream_that_is_missing_is_named(server: Any, engine: Engine) -> None:
    engine.send("t", b"x")
    with pytest.raises(RelayError, match="create_stream makes it"):
        relayed(engine, RabbitStreamTarget(server.address, "nobody"))


def test_a_stream_that_rabbitmq_does_not_make_is_named(server: Any) -> None:
    with pytest.raises(RelayError, match="makes no stream 'fmq-relay-odd'"):
        create_stream(server.address, "odd", **{"max-age": "long"})


def test_a_wrong_password_ends_the_relay(server: Any) -> None:
    address = server.address.replace("guest@", "wrong@")
    with pytest.raises(RelayError, match="refuses a relay"):
        RabbitStreamTarget(address, "n").claim()


@pytest.mark.parametrize("kind", [RabbitStreamTarget, RabbitQueuesTarget])
def test_no_server_is_a_doubt(kind: Any, engine: Engine) -> None:
    address = "127.0.0.1:1"
    target = (
        RabbitStreamTarget(f"rabbitmq-stream://{address}", "n")
        if kind is RabbitStreamTarget
        else RabbitQueuesTarget(engine, f"amqp://{address}/", "n")
    )
    with pytest.raises(Unsure, match="gave no answer"):
        target.claim()


# --- queues ---------------------------------------------------------------------------------------


def taken(server: Any, *queues: str) -> list[Any]:
    return asyncio.run(_taken(server, queues))


async def _taken(server: Any, queues: tuple[str, ...]) -> list[Any]:
    connection = await aio_pika.connect(server.queues)
    async with connection, connection.channel() as channel:
        found = []
        for name in queues:
            queue = await channel.get_queue(name)
            while (message := await queue.get(no_ack=True, fail=False)) is not None:
                found.append(message)
        return found


def test_a_cloud_event_is_read_back_from_a_stream_and_a_queue(
    system: Callable[[], Any], engine: Engine, server: Any
) -> None:
    made = system()
    send_event(engine)
    relayed(engine, RabbitStreamTarget(server.address, made.name, cloudevents=True))
    ((_, said, _),) = made.messages()
    check_event(said, "cloudEvents_", engine)
    create_queues(server.queues, ["t"], made.name)
    prefix = {"prefix": made.name, "cloudevents": True}
    target = RabbitQueuesTarget(engine, server.queues, made.name, **prefix)
    Relay(engine, target, topics="t", name="of-queues").run(once=True)
    target.close()
    (message,) = taken(server, f"{made.name}t")
    check_event(message.headers, "cloudEvents:", engine)


@pytest.mark.parametrize("case", [*CASES])
def test_the_queues_target_loses_nothing_and_keeps_the_order(server: Any, case: str) -> None:
    """The place is in the directory of the world, so the check is made by hand, as for HTTP."""
    prefix = f"q{next(NUMBERS)}."
    create_queues(server.queues, ["a", "b"], prefix)

    class System:
        def target(self) -> RabbitQueuesTarget:
            return RabbitQueuesTarget(world.engine, server.queues, "n", prefix=prefix)

        def shown(self) -> list[Any]:
            return []

    world = RelayWorld(System)
    try:
        CASES[case](world)
        world.relay()
        ids = dict.fromkeys(each.message_id for each in taken(server, prefix + "a", prefix + "b"))
        assert places_of(ids) == sorted(world.sent)
    finally:
        world.close()


def test_a_message_of_a_queue_has_all_that_it_has_here(server: Any, engine: Engine) -> None:
    create_queues(server.queues, ["t"], "all.")
    with engine.transaction(tx_id="T") as tx:
        tx.send("t", b"\0body", key="k", tag="paid", headers={"a": "ü"}, message_id="m")
    relayed(engine, RabbitQueuesTarget(engine, server.queues, "n", prefix="all."))
    (message,) = taken(server, "all.t")
    (sent,) = engine.read("t")
    assert sent.origin is not None
    assert (message.body, message.delivery_mode) == (b"\0body", aio_pika.DeliveryMode.PERSISTENT)
    assert message.headers == {
        "a": "ü",
        "fmq-id": f"{engine.feedback.store}/t/0/0",
        "fmq-time": str(sent.origin.time_us),
        "fmq-key": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "fmq-tx": "T",
        "fmq-tx-count": "1",
    }


def test_a_queue_that_is_missing_is_named_and_nothing_is_lost(server: Any, engine: Engine) -> None:
    engine.send("t", b"x")
    target = RabbitQueuesTarget(engine, server.queues, "n", prefix="later.")
    with pytest.raises(RelayError, match="no queue takes the routing key"):
        relayed(engine, target)
    create_queues(server.queues, ["t"], "later.")
    relayed(engine, target_at(server.queues, "n", {"t": 1}, engine=engine, prefix="later."))
    assert [each.body for each in taken(server, "later.t")] == [b"x"]


def test_a_server_that_dies_is_a_doubt(
    system: Callable[[], Any], engine: Engine, server: Any
) -> None:
    """The last test of all, as a server takes its time."""
    made = system()
    for number in range(10):
        engine.send("t", b"%d" % number)

    class Dies(RabbitStreamTarget):
        deaths = 1

        def deliver(self, batch: RelayBatch) -> None:
            if self.deaths:
                self.deaths -= 1
                server.until_kept()
                server.stop()
                try:
                    super().deliver(batch)
                finally:
                    server.start()
            super().deliver(batch)

    relay = relayed(engine, Dies(*target_of(made.target())), batch=4)
    assert relay.stats().doubts >= 1
    assert [body for body, *_ in made.messages()] == [b"%d" % n for n in range(10)]
