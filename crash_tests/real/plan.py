"""The units of each thread of a life, made from a seed.

A store has one life after another, each a process that ends by a crash. A unit is one call, or
one transaction. Whoever knows the seed knows every unit byte by byte, so a process under load
need only say how far it has come. This module knows nothing of fmq.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from crash_tests.oracle import Fate, Lane

LANES: tuple[Lane, ...] = (("orders", 0), ("mails", 0), ("mails", 1))
QUEUES = {"mails": 2}

ABSENT, UNDECIDED, VISIBLE, ROLLED_BACK = (
    Fate.ABSENT,
    Fate.UNDECIDED,
    Fate.VISIBLE,
    Fate.ROLLED_BACK,
)

# The fates that a unit of each kind goes through, one with each call that returns.
WAYS = {
    "send": (ABSENT, VISIBLE),
    "send later": (ABSENT, VISIBLE),  # durable with the next call of its thread that is
    "send many": (ABSENT, VISIBLE),
    "commit at once": (ABSENT, VISIBLE),
    "commit": (ABSENT, UNDECIDED, VISIBLE),
    "roll back": (ABSENT, UNDECIDED, ROLLED_BACK),
    "leave": (ABSENT, UNDECIDED),
    "ack": (ABSENT, VISIBLE),
}
OFTEN = {"send": 5, "commit at once": 3, "commit": 3}
KINDS = tuple(kind for kind in WAYS if kind != "ack")
WEIGHTS = [OFTEN.get(kind, 1) for kind in KINDS]
TX_KINDS = {"commit at once", "commit", "roll back", "leave"}

# What a consumer does with a batch: acks it alone, or in a transaction that also sends.
CONSUMER = "c"
DONE: Lane = ("done", 0)
ACK_KINDS = (
    "ack",
    "ack",
    "ack",
    "commit at once",
    "commit at once",
    "commit",
    "roll back",
    "leave",
)


@dataclass(frozen=True, slots=True)
class Unit:
    """One call, or one transaction, whole or not at all. Its name is life.thread.number."""

    name: str
    kind: str
    bodies: dict[Lane, list[bytes]]

    @property
    def is_tx(self) -> bool:
        return self.kind in TX_KINDS

    @property
    def messages(self) -> int:
        return sum(map(len, self.bodies.values()))


def units(seed: int, life: int, thread: int) -> Iterator[Unit]:
    """Yield all units that this thread would ever make."""
    random = Random(f"{seed} {life} {thread}")
    for number in count():
        name = f"{life}.{thread}.{number}"
        (kind,) = random.choices(KINDS, WEIGHTS)
        lanes = random.sample(LANES, random.randint(2, 3) if kind in TX_KINDS else 1)
        yield Unit(name, kind, _bodies(name, kind, lanes, random))


def transforming(seed: int, name: str, kind: str) -> Unit:
    """Return the consumer's unit: an ack alone, or a transaction that also sends one message."""
    bodies = {} if kind == "ack" else {DONE: [body(name, 0, Random(f"{seed} {name}"))]}
    return Unit(name, kind, bodies)


def _bodies(name: str, kind: str, lanes: list[Lane], random: Random) -> dict[Lane, list[bytes]]:
    several = kind == "send many" or kind in TX_KINDS
    numbers = count()
    return {
        lane: [
            body(name, next(numbers), random) for _ in range(random.randint(1, 4) if several else 1)
        ]
        for lane in lanes
    }


def body(name: str, number: int, random: Random) -> bytes:
    """Return a body that names its unit. Now and then it is large enough for a reference,
    or larger.
    """
    size = random.choice((30, 100, 100, 300, 1000)) if random.random() < 0.9 else 0
    return f"{name} {number} ".encode() + random.randbytes(size or random.randint(4096, 30_000))
