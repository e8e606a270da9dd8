#!/usr/bin/env python3
"""Let workers race for messages that fail, and look whether each is handled as often as it must be.

    python tools/stress_workers.py DIR --seconds 60 --seed 7
    python tools/stress_workers.py DIR --connect

DIR is new. Threads are switched every 10 microseconds. In each round one or two members run several
workers each on a topic of their own: ordered or not, with one queue or three, with priorities, and
with some messages whose first attempt fails. With --connect the members are clients. The first
round that is wrong ends it, and is printed. The same seed draws the same rounds, but the threads
may take another way.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import fmq

SWITCH_SECONDS = 0.000_01
STUCK_SECONDS = 20.0  # no round takes a second


@dataclass
class Round:
    """One topic, its workers, and what the workers have seen."""

    number: int
    is_ordered: bool
    queues: int
    has_priorities: bool
    messages: int
    members: int
    workers: int
    flaky: set[int]
    """The messages whose first attempt fails."""
    seen: Counter[int] = field(default_factory=Counter)
    done: list[tuple[str, int]] = field(default_factory=list)
    """Key and number of each message that was handled, in order."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_done: threading.Event = field(default_factory=threading.Event)

    def handle(self, delivery: Any) -> None:
        """Note a message, and fail if it is the first attempt of one that is to fail."""
        number = int(delivery.body)
        with self.lock:
            self.seen[number] += 1
            if number in self.flaky and self.seen[number] == 1:
                raise ValueError("the first attempt fails")
            self.done.append((delivery.key, number))
            if len(self.done) >= self.messages:
                self.is_done.set()

    def wrong(self, unread: int) -> list[str]:
        """Return what is wrong with a round that has ended; nothing if all is well."""
        found = [
            f"message {number} was handled {self.seen[number]} times"
            for number in range(self.messages)
            if self.seen[number] != 1 + (number in self.flaky)
        ]
        if unread:
            found.append(f"{unread} messages are not acked")
        if self.is_ordered and self.queues == 1:
            for key in "abc":
                of_key = [number for its_key, number in self.done if its_key == key]
                if any(later < earlier for earlier, later in pairwise(of_key)):
                    found.append(f"the messages of key {key} were handled in the order {of_key}")
        return found

    def __str__(self) -> str:
        return (
            f"round {self.number}: ordered={self.is_ordered} queues={self.queues} "
            f"priorities={self.has_priorities} messages={self.messages} "
            f"members={self.members} workers={self.workers} flaky={sorted(self.flaky)}"
        )


def drawn(number: int, draw: random.Random) -> Round:
    """Draw how a round is."""
    ordered, messages = draw.random() < 0.6, draw.randint(3, 25)
    return Round(
        number,
        is_ordered=ordered,
        queues=draw.choice([1, 1, 3]),
        has_priorities=not ordered and draw.random() < 0.3,
        messages=messages,
        members=draw.choice([1, 1, 2]),
        workers=draw.choice([2, 3]),
        flaky={draw.randrange(messages) for _ in range(draw.randint(0, 3))},
    )


def played(engine: Any, one: Round, draw: random.Random) -> list[str]:
    """Play a round; return what is wrong."""
    topic = f"t{one.number}"
    engine.create_topic(topic, queues=one.queues)
    for number in range(one.messages):
        priority = draw.choice([0, 3, 9]) if one.has_priorities else None
        engine.send(topic, b"%d" % number, key=draw.choice("abc"), priority=priority)
    retry = fmq.Retry(5, backoff=[0.0])
    members = [
        engine.consumer(topic, group="g", ordered=one.is_ordered, retry=retry, member=f"m{k}")
        for k in range(one.members)
    ]
    threads = [
        threading.Thread(
            target=member.run, args=(one.handle,), kwargs={"workers": one.workers}, daemon=True
        )
        for member in members
    ]
    for thread in threads:
        thread.start()
    if not one.is_done.wait(STUCK_SECONDS):
        return [f"only {len(one.done)} of {one.messages} messages were handled"]
    for member in members:
        member.drain(timeout=STUCK_SECONDS)
    for thread in threads:
        thread.join(STUCK_SECONDS)
    if any(thread.is_alive() for thread in threads):
        return ["a member that was drained does not end"]
    for member in members:
        member.close()
    wrong = one.wrong(sum(each.unread for each in engine.groups("g")))
    engine.group("g").delete()
    engine.topic(topic).delete()
    return wrong


def stress(path: str, seconds: float, seed: int, *, by_connect: bool) -> int:
    """Play rounds for so long; return the exit code."""
    sys.setswitchinterval(SWITCH_SECONDS)
    draw, until, number = random.Random(seed), time.monotonic() + seconds, 0
    home = fmq.open(path)
    if by_connect:
        home.serve()
    engine: Any = fmq.connect(path) if by_connect else home
    while time.monotonic() < until:
        number += 1
        one = drawn(number, draw)
        if wrong := played(engine, one, draw):
            print(one, *wrong, f"seed {seed}", sep="\n")
            return 1
    print(f"{number} rounds with seed {seed}: each message was handled as often as it must be")
    engine.close()
    home.close()
    return 0


def main() -> int:
    """Read the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("directory", help="a new one")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--connect", action="store_true", help="the members are clients")
    chosen = parser.parse_args()
    logging.getLogger("fmq").setLevel(logging.CRITICAL)  # the handlers' errors are meant
    return stress(chosen.directory, chosen.seconds, chosen.seed, by_connect=chosen.connect)


if __name__ == "__main__":
    sys.exit(main())
