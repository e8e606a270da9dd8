"""The bodies that every subject sends: the same bytes, in the same order, in every run.

They look like what people send: short JSON with some repetition and some noise, so that an
engine that compresses gets neither nothing nor a gift.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

POOL = 4096  # bodies made beforehand and sent over and over: making one costs more than a send
SEED = 7


def body(number: int, size: int, noise: random.Random) -> bytes:
    """A body of exactly `size` bytes."""
    head = (
        f'{{"id":{number:08d},"customer":"c-{noise.randrange(10_000):04d}","state":"paid","note":"'
    )
    room = max(0, size - len(head) - 2)
    return (head + noise.randbytes(room // 2 + 1).hex()[:room] + '"}').encode()[:size]


def equal(size: int, count: int = POOL) -> list[bytes]:
    """`count` bodies of `size` bytes each."""
    noise = random.Random(SEED)
    return [body(number, size, noise) for number in range(count)]


def mixed(size: int, count: int = POOL) -> list[bytes]:
    """`count` bodies of half to one and a half times `size` bytes, `size` on average."""
    noise = random.Random(SEED)
    half = size // 2
    return [body(n, size - half + noise.randrange(2 * half + 1), noise) for n in range(count)]


def batches(pool: list[bytes], size: int) -> list[list[bytes]]:
    """The pool, cut into lists of `size`."""
    repeated = list(itertools.islice(itertools.cycle(pool), max(size, len(pool) // size * size)))
    return [repeated[start : start + size] for start in range(0, len(repeated), size)]


def stream(pool: list[bytes], count: int, size: int) -> Iterator[list[bytes]]:
    """`count` bodies as lists of at most `size`."""
    source = itertools.cycle(pool)
    for left in range(count, 0, -size):
        yield list(itertools.islice(source, min(size, left)))
