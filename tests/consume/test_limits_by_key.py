"""Limits by key, and fairness: a tenant's backlog does not hold up the others."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

import fmq
from fmq.errors import BadOption
from fmq.testing import CrashDisk, FakeClock
from tests.budget import SEED, within_budget
from tests.conftest import OPTIONS, PATH

AT_ONCE = fmq.Retry(backoff=0)


def send(engine: Any, keys: str, topic: str = "t", **more: Any) -> None:
    """Send a message for each letter, which is its key; "-" is one without a key."""
    for letter in keys:
        engine.send(topic, letter.encode(), key=None if letter == "-" else letter, **more)


def keys_of(found: Any) -> str:
    return "".join(each.body.decode() for each in found)


def test_keys_take_turns_if_the_group_is_fair(engine: fmq.Engine) -> None:
    send(engine, "aaaaaabbc")
    engine.create_group("g", "t")
    engine.group("g").limit(fair=True)
    with engine.consumer("t", group="g") as consumer:
        assert sorted(keys_of(consumer.poll(limit=3))) == ["a", "b", "c"]
        assert sorted(keys_of(consumer.poll(limit=2))) == ["a", "b"]
        send(engine, "d")
        assert sorted(keys_of(consumer.poll(limit=9))) == ["a", "a", "a", "a", "d"]
        assert consumer.poll() == []


def test_keys_take_turns_from_one_poll_to_the_next(engine: fmq.Engine) -> None:
    send(engine, "aaaabbbbcc")
    engine.create_group("g", "t")
    engine.group("g").limit(fair=True)
    with engine.consumer("t", group="g") as consumer:
        assert keys_of(consumer.poll(limit=1)[0] for _ in range(7)) == "abcabca"


@pytest.mark.parametrize("how", ["poll", "take", "poll_batch"])
def test_no_more_of_a_key_are_in_hand_at_once(engine: fmq.Engine, how: str) -> None:
    send(engine, "aaaabb--")
    engine.create_group("g", "t")
    engine.group("g").limit(concurrency_by_key=2)
    with engine.consumer("t", group="g") as consumer, engine.consumer("t", group="g") as other:
        found = [*consumer.poll(limit=5), *other.poll(limit=9)]
        assert sorted(keys_of(found)) == ["-", "-", "a", "a", "b", "b"]
        assert not getattr(other, how)()
        next(each for each in found if each.key == "a").ack()
        if how == "poll_batch":
            batch = other.poll_batch()
            assert batch is not None
            assert batch.bodies == (b"a",)
            batch.ack()
        elif how == "take":
            assert [each.body for each in other.take(limit=9)] == [b"a"]
        else:
            assert keys_of(other.poll()) == "a"


def test_a_key_counts_in_all_queues_and_topics(engine: fmq.Engine) -> None:
    engine.create_topic("t", queues=3)
    for queue in range(3):
        send(engine, "aab", queue=queue)
    send(engine, "ab", topic="u")
    engine.create_group("g", "t")
    with engine.consumer(("t", "u"), group="g") as consumer:
        engine.group("g").limit(concurrency_by_key=3)
        found = [each for _ in range(9) for each in consumer.poll()]
        assert Counter(each.key for each in found) == {"a": 3, "b": 3}
        next(each for each in found if each.key == "b").ack()
        assert keys_of(each for _ in range(4) for each in consumer.poll()) == "b"


def test_a_message_given_back_frees_its_key_and_waits_for_its_turn(
    engine: fmq.Engine, clock: FakeClock
) -> None:
    send(engine, "aab")
    engine.create_group("g", "t")
    engine.group("g").limit(concurrency_by_key=1)
    with engine.consumer("t", group="g") as consumer:
        first = next(each for each in consumer.poll() if each.key == "a")
        first.release(delay=10.0)
        [second] = consumer.poll()
        assert (second.key, second.attempt) == ("a", 1)
        clock.advance(11.0)
        assert consumer.poll() == []
        second.ack()
        [again] = consumer.poll()
        assert (again.offset, again.attempt) == (first.offset, 2)


def test_no_second_has_more_of_a_key_than_its_rate(engine: fmq.Engine, clock: FakeClock) -> None:
    send(engine, "aaaaabbb")
    engine.create_group("g", "t")
    engine.group("g").limit(rate_by_key=2)
    with engine.consumer("t", group="g") as consumer:
        assert sorted(keys_of(consumer.poll())) == ["a", "a", "b", "b"]
        before = clock.monotonic()
        assert sorted(keys_of(consumer.poll(timeout=5.0))) == ["a", "a", "b"]
        assert clock.monotonic() - before == pytest.approx(1.0)
        send(engine, "c")
        assert keys_of(consumer.take()) == "c"
        clock.advance(1.0)
        assert keys_of(consumer.poll()) == "a"


def test_a_limit_by_key_can_come_and_go(engine: fmq.Engine, clock: FakeClock) -> None:
    """What was tried keeps its number of attempts."""
    send(engine, "aaabbb")
    engine.create_group("g", "t")
    group = engine.group("g")
    with engine.consumer("t", group="g", retry=AT_ONCE) as consumer:
        for each in consumer.poll(limit=2):
            each.release()
        group.limit(concurrency_by_key=1)
        assert sorted(keys_of(consumer.poll())) == ["a"]  # the two that are tried go alone
        assert sorted(keys_of(consumer.poll())) == ["b"]
        group.limit(concurrency=9)
        found = [each for _ in range(4) for each in consumer.poll()]
        assert Counter((each.key, each.attempt) for each in found) == {
            ("a", 1): 1,
            ("a", 2): 1,
            ("b", 1): 2,
        }


def test_a_limit_by_key_holds_with_and_without_the_checkpoint(
    engine: fmq.Engine, disk: CrashDisk, clock: FakeClock
) -> None:
    send(engine, "aabbb")
    engine.create_group("g", "t")
    engine.group("g").limit(concurrency_by_key=1, rate_by_key=3, fair=True, by="ann")
    limit = engine.groups("g")[0].limit
    engine.close()
    clock.advance(1.0)
    directory = disk.directory(PATH, make=False)
    for is_by_checkpoint in (True, False):
        for name in [] if is_by_checkpoint else directory.names():
            if name.startswith("checkpoint"):
                directory.remove(name)
        with fmq.open(PATH, OPTIONS, disk=disk, clock=clock, background=False) as again:
            assert again.groups("g")[0].limit == limit
            with again.consumer("t", group="g") as consumer:
                assert sorted(keys_of(consumer.poll())) == ["a", "b"]
                assert consumer.poll() == []
        clock.advance(60.0)


def test_a_filter_and_priorities_do_not_disturb_a_limit_by_key(engine: fmq.Engine) -> None:
    for number in range(40):
        engine.send(
            "t", b"%d" % number, key="ab"[number % 2], tag="xy"[number % 4 // 2], priority=5
        )
    engine.create_group("g", "t", filter=fmq.filters.tags("y"))
    engine.group("g").limit(concurrency_by_key=2)
    with engine.consumer("t", group="g") as consumer:
        found = [each.offset for each in consumer.poll(limit=9)]
        assert found == [2, 3, 6, 7]
        assert consumer.poll() == []


def test_an_ordered_group_has_no_limit_by_key(engine: fmq.Engine) -> None:
    engine.send("t", b"")
    engine.create_group("g", "t")
    group = engine.group("g")
    with engine.consumer("t", group="g", ordered=True) as consumer:
        with pytest.raises(BadOption, match="not both"):
            group.limit(fair=True)
        group.limit(concurrency=1)
        assert len(consumer.poll()) == 1
    group.limit(rate_by_key=9)
    with pytest.raises(BadOption, match="not both"):
        engine.consumer("t", group="g", ordered=True)


@pytest.mark.parametrize("case", range(within_budget(4)))
def test_a_limit_by_key_holds_whatever_happens(
    engine: fmq.Engine, clock: FakeClock, case: int
) -> None:
    """Members come and go, leases end, messages are acked, given back and rejected."""
    rng = Random(f"{SEED} {case}")
    engine.create_topic("t", queues=2)
    engine.create_group("g", "t")
    most = rng.randint(1, 3)
    engine.group("g").limit(concurrency_by_key=most, concurrency=rng.choice((None, 5)))
    held: list[tuple[Any, float]] = []
    consumers = [engine.consumer("t", group="g", lease_seconds=5, retry=AT_ONCE) for _ in range(3)]
    sent = 0
    for _ in range(120):
        act = rng.choice(("send", "poll", "poll", "poll", "ack", "ack", "release", "wait"))
        held = [(each, until) for each, until in held if until > clock.monotonic()]
        if act == "send":
            send(engine, rng.choice("aaab-c") * rng.randint(1, 4))
            sent += 1
        elif act == "poll":
            found = rng.choice(consumers).poll(limit=rng.randint(1, 4))
            held += [(each, clock.monotonic() + 5) for each in found]
            counts = Counter(each.key for each, _ in held)
            assert all(count <= most for count in counts.values()), counts
        elif act == "wait":
            clock.advance(rng.choice((0.1, 2.0)))
        elif held:
            each, _ = held.pop(rng.randrange(len(held)))
            each.ack() if act == "ack" else each.release()
    for each, _ in held:
        each.ack()
    left = engine.group("g").infos()
    for _ in range(sum(info.unread for info in left) + 9):
        for consumer in consumers:
            for each in consumer.poll(timeout=1.0):
                each.ack()
    assert sum(info.unread for info in engine.group("g").infos()) == 0
    for consumer in consumers:
        consumer.close()


def test_many_jobs_of_one_tenant_do_not_hold_up_the_others(engine: fmq.Engine) -> None:
    """`python -m benchmarks.fair` does it with 100,000 jobs."""
    for _ in range(15):
        engine.send_many("t", [fmq.Message(b"x", key="huge")] * 200)
    small = [fmq.Message(b"x", key=f"{tenant}") for tenant in range(30) for _ in range(4)]
    engine.send_many("t", small)
    engine.create_group("g", "t")
    engine.group("g").limit(fair=True)
    left, handed = len(small), 0
    with engine.consumer("t", group="g") as consumer:
        while left:
            for each in consumer.poll(limit=4):
                handed += 1
                left -= each.key != "huge"
                each.ack()
    assert handed <= 2 * len(small)
