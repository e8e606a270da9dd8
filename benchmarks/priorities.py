"""What priorities cost a consumer: `python -m benchmarks.priorities [messages]`.

A backlog is consumed one by one, and acked without a sync of its own, so that the disk does not
hide the processor. Each row is compared with the first one, a backlog without priorities; the
rounds take turns. The last rows are the time until a nine behind the whole backlog is handed out,
here and after a restart.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import fmq
from fmq import Message

MESSAGES, ROUNDS, TAKEN = 100_000, 3, 5_000
LATER = datetime.now(UTC) + timedelta(days=1)
BACKLOGS: dict[str, Callable[[int], Message]] = {
    "no priorities": lambda n: Message(b"x" * 100),
    "one priority": lambda n: Message(b"x" * 100, priority=5),
    "one in a hundred is a nine": lambda n: Message(b"x" * 100, priority=9 * (not n % 100)),
    "mixed": lambda n: Message(b"x" * 100, priority=n * 7 % 10),
    "expiries": lambda n: Message(b"x" * 100, expires_at=LATER),
}


def filled(home: Path, name: str, messages: int) -> fmq.Engine:
    """Return an engine with a backlog."""
    engine = fmq.open(home / name.replace(" ", "_"))
    make = BACKLOGS[name]
    for at in range(0, messages, 1000):
        engine.send_many("t", [make(n) for n in range(at, min(at + 1000, messages))])
    return engine


def rate(engine: fmq.Engine, group: str, limit: int) -> float:
    """Return how many messages a second are polled and acked."""
    with engine.consumer("t", group=group) as consumer:
        began, done = time.perf_counter(), 0
        while done < TAKEN:
            for delivery in consumer.poll(limit=limit):
                delivery.ack(sync=False)
                done += 1
        return done / (time.perf_counter() - began)


def first_nine(engine: fmq.Engine, group: str) -> float:
    """Return how many milliseconds a poll takes that is handed a nine behind the backlog."""
    with engine.consumer("t", group=group) as consumer:
        began = time.perf_counter()
        (delivery,) = consumer.poll(limit=1)
        assert delivery.message.priority == 9
        return (time.perf_counter() - began) * 1000


def main(arguments: list[str]) -> None:
    messages = int(arguments[0]) if arguments else MESSAGES
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        engines = {name: filled(home, name, messages) for name in BACKLOGS}
        for limit in (1, 100):
            rates: dict[str, list[float]] = {name: [] for name in engines}
            for number in range(ROUNDS):
                for name, engine in engines.items():
                    rates[name].append(rate(engine, f"{limit}-{number}", limit))
            base = statistics.median(rates["no priorities"])
            for name, found in rates.items():
                median = statistics.median(found)
                print(f"limit={limit:<4} {name:28} {median:10,.0f}/s  {median / base:5.2f}")
        engines["no priorities"].send("t", b"", priority=9)
        print(f"a nine behind {messages:,}: {first_nine(engines['no priorities'], 'nine'):.2f} ms")
        for engine in engines.values():
            engine.close()
        with fmq.open(home / "no_priorities") as engine:
            print(f"after a restart: {first_nine(engine, 'again'):.2f} ms")
        with fmq.open(home / "mixed") as engine:
            print(f"after a restart, mixed: {first_nine(engine, 'again'):.2f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
