"""What groups, members and filters cost: `python -m benchmarks.groups`.

Many groups on one topic, many topics, many members on many queues, how long a change of members
takes, and what a filter saves of reading. Each row is a ratio of two ways that were timed in turn.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import fmq
from fmq import filters

ROUNDS = 5
OPTIONS = fmq.Options(sync="never")  # what the disk takes is the same in all rows
MESSAGES, GROUPS, TOPICS, QUEUES, MEMBERS = 2_000, 100, 10_000, 1_024, 64
FILTERED, BODY = 40_000, b"x" * 2048
BACKLOG, HANDLED, KEYS = 100_000, 2_000, 1_000


def in_turn(*ways: Callable[[], int]) -> list[float]:
    """Return the seconds for each thing that each way does: medians of rounds, in turn."""
    seconds: list[list[float]] = [[] for _ in ways]
    for _ in range(ROUNDS):
        for way, found in zip(ways, seconds, strict=True):
            begun = time.perf_counter()
            count = way()
            found.append((time.perf_counter() - begun) / count)
    return [median(each) for each in seconds]


def consumed(consumer: fmq.Consumer) -> int:
    """Poll and ack everything, one by one. Return how many there were."""
    count = 0
    while deliveries := consumer.poll(limit=100):
        for delivery in deliveries:
            delivery.ack()
        count += len(deliveries)
    return count


def show(what: str, one: float, other: float) -> None:
    print(f"{what:60} {other / one:6.2f} x  ({one * 1e6:.1f} and {other * 1e6:.1f} us)", flush=True)


def many_groups(home: Path) -> None:
    """A message that is taken and acked, with one group on its topic and with a hundred."""
    with fmq.open(home / "groups", OPTIONS) as engine:
        for topic, groups in (("one", 1), ("many", GROUPS)):
            for number in range(groups):
                engine.create_group(f"g{number}", topic)

        def way(topic: str) -> Callable[[], int]:
            def take() -> int:
                engine.send_many(topic, [b"x"] * MESSAGES)
                with engine.consumer(topic, group="g0") as consumer:
                    return consumed(consumer)

            return take

        show("take and ack with 100 groups, beside 1", *in_turn(way("one"), way("many")))


def many_topics(home: Path) -> None:
    """A message of one topic among ten thousand others, each of one message."""
    with fmq.open(home / "few", OPTIONS) as few, fmq.open(home / "topics", OPTIONS) as many:
        for number in range(TOPICS):
            many.send(f"t{number}", b"x", sync=False)

        def way(engine: fmq.Engine) -> Callable[[], int]:
            def take() -> int:
                engine.send_many("mine", [b"x"] * MESSAGES)
                with engine.consumer("mine", group="g") as consumer:
                    return consumed(consumer)

            return take

        show("take and ack among 10,000 topics, beside none", *in_turn(way(few), way(many)))


def many_members(home: Path) -> None:
    """Compare 16 queues and one member with 1,024 queues and 64 members."""
    for strategy in ("average", "sticky"):
        queues = fmq.Options(sync="never", topic_queues={"few": 16, "many": QUEUES})
        with ExitStack() as stack:
            engine = stack.enter_context(fmq.open(home / strategy, queues))
            how = {"group": "g", "strategy": strategy}
            alone = stack.enter_context(engine.consumer("few", group="f", strategy=strategy))
            engine.send("many", b"x")
            began = time.perf_counter()
            members = [
                stack.enter_context(engine.consumer("many", **how))  # type: ignore[arg-type]
                for _ in range(MEMBERS)
            ]
            joined = (time.perf_counter() - began) / MEMBERS

            def few(engine: fmq.Engine = engine, alone: fmq.Consumer = alone) -> int:
                count = 0
                for _ in range(MEMBERS):
                    for queue in range(16):
                        engine.send_many("few", [b"x"] * 2, queue=queue)
                    count += consumed(alone)
                return count

            def many(engine: fmq.Engine = engine, members: list[fmq.Consumer] = members) -> int:
                for queue in range(QUEUES):
                    engine.send_many("many", [b"x"] * 2, queue=queue)
                return sum(map(consumed, members))

            show(f"{strategy}: 64 members on 1,024 queues, beside 1 on 16", *in_turn(few, many))
            began = time.perf_counter()
            members[0].close()
            left = time.perf_counter() - began
            print(f"{strategy}: a join takes {joined * 1e3:.1f} ms, a leave {left * 1e3:.1f} ms")


def with_filter(home: Path, in_record: int, where: str) -> None:
    """Take one of a hundred messages of 2 KiB by its tag, beside reading all bodies."""
    with fmq.open(home / f"filter{in_record}{where}", OPTIONS) as engine:
        for at in range(0, FILTERED, in_record):
            tags = [
                "paid" if (n if where == "each" else n // 100) % 100 == 0 else "open"
                for n in range(at, at + in_record)
            ]
            engine.send_many("t", [fmq.Message(BODY, tag=tag) for tag in tags])
        rounds = iter(range(1000))

        def way(wanted: filters.Filter | None, *, by_hand: bool = False) -> Callable[[], int]:
            def take() -> int:
                group = engine.group(f"g{next(rounds)}")
                with engine.consumer("t", group=group.name) as consumer:
                    if by_hand or wanted is not None:
                        while deliveries := consumer.poll(limit=1000):
                            [each for each in deliveries if each.tag == "paid"]
                    else:
                        while consumer.poll_batch(limit=1000) is not None:
                            pass
                return FILTERED

            return take

        paid = filters.tags("paid")
        for number in range(3 * ROUNDS):  # made before the clock runs
            engine.create_group(f"g{number}", "t", filter=(None, paid, None)[number % 3])
        bodies, sifted, by_hand = in_turn(way(None), way(paid), way(None, by_hand=True))
        what = f"1 of 100, {in_record} in a record, {where}"
        print(
            f"{what:44} all bodies take {bodies / sifted:5.2f} x as long as the filter, a filter "
            f"by hand {by_hand / sifted:5.2f} x"
        )


def with_order(home: Path) -> None:
    """Take and ack one by one of a backlog sent one by one, by members that keep the order of keys,
    beside those that do not. Then with sends of another client between.
    """
    path = home / "order"
    with (
        fmq.open(path, OPTIONS) as engine,
        engine.serve(),
        fmq.connect(path, start=False) as stranger,
    ):
        for number in range(BACKLOG):
            engine.send("t", b"x", key=f"k{number % KEYS}")

        def way(consumer: fmq.Consumer, *, sends: bool) -> Callable[[], int]:
            def take() -> int:
                for _ in range(HANDLED):
                    (delivery,) = consumer.poll(limit=1)
                    delivery.ack()
                return HANDLED

            def send_beside() -> int:
                for _ in range(HANDLED // 10):
                    (delivery,) = consumer.poll(limit=1)
                    stranger.send("other", b"x")
                    delivery.ack()
                return HANDLED // 10

            return send_beside if sends else take

        plain = engine.consumer("t", group="plain")
        ordered = engine.consumer("t", group="ordered", ordered=True)
        with plain, ordered:
            for each in (plain, ordered):
                each.poll(limit=1)[0].ack()  # the first poll reads the most
            for sends, what in ((False, "take and ack"), (True, "the same and a client's send")):
                figures = in_turn(way(plain, sends=sends), way(ordered, sends=sends))
                show(f"{what} of 100,000 in the order of keys, beside without", *figures)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        many_groups(home)
        many_topics(home)
        many_members(home)
        with_order(home)
        for where in ("each", "in blocks"):
            for in_record in (100, 1):
                with_filter(home, in_record, where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
