"""A relay into a real Redis server, read back from its streams."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from fmq import Engine
from fmq.relay import Relay, RelayBatch, RelayError, RelayTakenOver, Unsure
from fmq.relay.addresses import target_at
from fmq.testing.relay import CASES, MessageShown, RelayWorld, check_target

pytest.importorskip("redis", reason="no client of Redis on this machine")

from redis import Redis

from fmq.relay.redis_target import RedisTarget
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
    spec = importlib.util.spec_from_file_location("redis_tool", ROOT / "tools" / "redis_server.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["redis_tool"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = tool()
    if found.missing():
        pytest.skip(found.missing())
    made = found.Server(tmp_path_factory.mktemp("redis"))
    yield made
    made.stop()


@pytest.fixture
def client(server: Any) -> Iterator[Any]:
    with closing(Redis.from_url(server.address)) as made:
        yield made


@pytest.fixture
def system(server: Any, client: Any) -> Callable[[], Any]:
    class System:
        def __init__(self) -> None:
            self.prefix = f"n{next(NUMBERS)}:"

        def target(self) -> RedisTarget:
            return RedisTarget(server.address, "n", prefix=self.prefix)

        def shown(self) -> Iterator[MessageShown]:
            for stream in ("a.0", "b.0"):
                for _, fields in client.xrange(self.prefix + stream):
                    _, topic, queue, offset = fields[b"fmq-id"].decode().split("/")
                    yield topic, int(queue), int(offset)

    return System


@pytest.mark.parametrize("case", [*CASES])
def test_the_redis_target_keeps_the_rules_of_a_target(system: Callable[[], Any], case: str) -> None:
    check_target(system, only=case)


@pytest.mark.parametrize("kind", CAUGHT_BY)
def test_a_relay_into_redis_that_lacks_a_rule_is_caught(
    system: Callable[[], Any], kind: type[Planted]
) -> None:
    check_planted(system, kind)


def test_a_relay_into_redis_that_asks_before_it_claims_is_caught(system: Callable[[], Any]) -> None:
    check_asking_too_early(system)


def test_relays_into_redis_that_share_a_place_are_caught(system: Callable[[], Any]) -> None:
    check_sharing_a_place(system)


def relayed(engine: Engine, target: RedisTarget, **more: Any) -> Relay:
    relay = Relay(engine, target, topics="t", name="n", **more)
    with closing(relay):
        relay.run(once=True)
    return relay


def test_a_cloud_event_is_read_back_from_redis(
    system: Callable[[], Any], engine: Engine, server: Any, client: Any
) -> None:
    made = system()
    send_event(engine)
    relayed(engine, RedisTarget(server.address, "n", prefix=made.prefix, cloudevents=True))
    ((_, fields),) = client.xrange(made.prefix + "t.0")
    check_event({name.decode(): text.decode() for name, text in fields.items()}, "ce-", engine)


def test_the_example_of_the_page_reads_what_a_relay_has_written(
    server: Any, engine: Engine, client: Any
) -> None:
    page = (ROOT / "docs" / "relay.md").read_text()
    (example,) = re.findall(r"```python\n(from redis .*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    engine.send("orders", b"1")
    engine.send("orders", b"2")
    Relay(engine, target_at(server.address, "n", {}), topics="orders", name="n").run(once=True)
    store = engine.feedback.store
    assert names["read"](server.address) == [
        (f"{store}/orders/0/{n}", b"%d" % (n + 1)) for n in (0, 1)
    ]
    ((first, _), _) = client.xrange("orders.0")
    assert [body for _, body in names["read"](server.address, first.decode())] == [b"2"]


def test_an_entry_has_all_that_a_message_has(
    system: Callable[[], Any], engine: Engine, client: Any
) -> None:
    engine.create_topic("t", queues=2)
    with engine.transaction(tx_id="T") as tx:
        said: dict[str, Any] = {"headers": {"a": "ü", "fmq-id": "of another"}, "message_id": "m"}
        tx.send("t", b"\0body", key="k", queue=1, tag="paid", **said)
        tx.send("t", b"", queue=1)
    made = system()
    relayed(engine, made.target())
    (_, full), (_, bare) = client.xrange(f"{made.prefix}t.1")
    store, (sent, _) = engine.feedback.store, engine.read("t", queue=1)
    time = str(sent.origin.time_us)  # type: ignore[union-attr]
    assert {name.decode(): value.decode() for name, value in full.items()} == {
        "a": "ü",
        "body": "\0body",
        "fmq-id": f"{store}/t/1/0",
        "fmq-time": time,
        "fmq-key": "k",
        "fmq-tag": "paid",
        "fmq-message-id": "m",
        "fmq-tx": "T",
        "fmq-tx-count": "2",
    }
    assert [*bare] == [b"body", b"fmq-id", b"fmq-tx", b"fmq-tx-count", b"fmq-time"]


def test_a_key_that_is_no_stream_ends_the_relay_before_anything_is_written(
    system: Callable[[], Any], engine: Engine, client: Any
) -> None:
    engine.create_topic("t", queues=2)
    engine.send("t", b"x", queue=0)
    engine.send("t", b"x", queue=1)
    made = system()
    client.set(f"{made.prefix}t.1", "a text")
    with pytest.raises(RelayError, match="is no stream in Redis"):
        relayed(engine, made.target())
    assert not client.exists(f"{made.prefix}t.0")


def test_a_batch_that_the_server_has_lost_is_copied_again(
    system: Callable[[], Any], engine: Engine, client: Any
) -> None:
    """A server that is started again may lack what it has acknowledged, and messages and place go
    together. The relay, whose connection was made again, must not write behind the gap.
    """
    made = system()
    for number in range(6):
        engine.send("t", b"%d" % number)

    class Forgets(RedisTarget):
        batches = 0

        def deliver(self, batch: RelayBatch) -> None:
            self.batches += 1
            before = client.hget(f"{made.prefix}fmq-relay-n", "place")
            super().deliver(batch)
            if self.batches == 2:
                client.xtrim(f"{made.prefix}t.0", maxlen=2)
                (_, (last, _)) = client.xrange(f"{made.prefix}t.0")
                client.xdel(f"{made.prefix}t.0", last)
                client.hset(f"{made.prefix}fmq-relay-n", "place", before)

    relay = relayed(engine, Forgets(str(client_address(client)), "n", prefix=made.prefix), batch=1)
    assert relay.stats().doubts == 1
    bodies = [fields[b"body"] for _, fields in client.xrange(f"{made.prefix}t.0")]
    assert bodies == [b"%d" % number for number in range(6)]


def client_address(client: Any) -> str:
    where = client.get_connection_kwargs()
    return f"redis://{where['host']}:{where['port']}/0"


def test_an_older_relay_is_refused_after_the_claim_of_a_newer_one_was_lost(
    system: Callable[[], Any], client: Any
) -> None:
    """Two relays never have one owner's word, so a server that goes back lets in one of them."""
    world = RelayWorld(system)
    old, new = world.target(), world.target()
    late = world.batch(old)
    key = f"{world.system.prefix}fmq-relay-n"  # type: ignore[attr-defined]
    word = client.hget(key, "owner")
    ours = world.batch(new)
    client.hset(key, "owner", word)
    old.deliver(late)
    with pytest.raises(RelayTakenOver):
        new.deliver(ours)
    world.close()


@pytest.mark.parametrize(("setting", "value"), [("maxmemory", "1"), ("min-replicas-to-write", "1")])
def test_a_server_that_takes_nothing_now_is_a_doubt(
    system: Callable[[], Any], engine: Engine, client: Any, setting: str, value: str
) -> None:
    engine.send("t", b"x")
    made = system()
    target = made.target()
    with closing(target):
        target.claim()
        client.config_set(setting, value)
        try:
            with pytest.raises(Unsure, match="takes nothing now"):
                target.claim()
        finally:
            client.config_set(setting, "0")
    relayed(engine, made.target())
    assert client.xlen(f"{made.prefix}t.0") == 1


def test_a_wrong_password_ends_the_relay(engine: Engine, server: Any) -> None:
    address = server.address.replace("redis://", "redis://nobody:wrong@")
    with (
        closing(target_at(address, "n", {"t": 1}, prefix="w:")) as target,
        pytest.raises(RelayError, match="Redis refuses a relay"),
    ):
        Relay(engine, target, topics="t", name="n").run(once=True)


def test_a_server_that_dies_is_a_doubt(
    system: Callable[[], Any], engine: Engine, server: Any
) -> None:
    made = system()
    for number in range(10):
        engine.send("t", b"%d" % number)

    class Dies(RedisTarget):
        deaths = 1

        def deliver(self, batch: RelayBatch) -> None:
            if self.deaths:
                self.deaths -= 1
                server.stop()
                try:
                    super().deliver(batch)
                finally:
                    server.start()
            super().deliver(batch)

    relay = relayed(engine, Dies(server.address, "n", prefix=made.prefix), batch=4)
    assert relay.stats()[:6] == (10, 3, 2, 1, 0, 0)
    with closing(Redis.from_url(server.address)) as client:
        assert client.xlen(f"{made.prefix}t.0") == 10
