"""What a send of a value costs beside a send of its bytes.

    python -m benchmarks.codecs

It sends equal orders in turns: the bytes with `engine.send`, and the value with each codec. Once
without waiting for the disk, in microseconds of processor, so that only Python is measured; once
durably, in microseconds of the clock. It prints the median, and the median of the ratios to the
plain send of the same turn.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any, Literal

import msgspec
import pydantic

import fmq

TURNS = 15
SENDS = {"never": 1000, "always": 100}
PLAIN = "engine.send of bytes"


@dataclass
class DataclassOrder:
    id: int
    customer: str
    total: float
    note: str | None = None


class MsgspecOrder(msgspec.Struct):
    id: int
    customer: str
    total: float
    note: str | None = None


class PydanticOrder(pydantic.BaseModel):
    id: int
    customer: str
    total: float
    note: str | None = None


FIELDS: dict[str, Any] = {"id": 1234, "customer": "ann of the mill", "total": 12.5, "note": "soon"}
CODECS: dict[str, tuple[Any, Any]] = {
    "json()": (fmq.codecs.json(), FIELDS),
    "dataclass": (fmq.codecs.dataclass(DataclassOrder), DataclassOrder(**FIELDS)),
    "msgspec": (fmq.codecs.msgspec(MsgspecOrder), MsgspecOrder(**FIELDS)),
    "pydantic": (fmq.codecs.pydantic(PydanticOrder), PydanticOrder(**FIELDS)),
}


def senders(engine: fmq.Engine) -> dict[str, Callable[[], object]]:
    """Return what sends one order, in each of the ways."""
    body = fmq.codecs.json().encode(asdict(DataclassOrder(**FIELDS)))
    found: dict[str, Callable[[], object]] = {PLAIN: lambda: engine.send("plain", body)}
    for name, (codec, value) in CODECS.items():
        topic = engine.topic(name, codec=codec)
        found[name] = lambda topic=topic, value=value: topic.send(value)  # type: ignore[misc]
    return found


def measure(sync: Literal["never", "always"]) -> dict[str, list[float]]:
    """Return the microseconds of a send in each turn, by how it is sent."""
    clock = time.process_time if sync == "never" else time.perf_counter
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        path = stack.enter_context(tempfile.TemporaryDirectory(dir="."))
        engine = stack.enter_context(fmq.open(path, fmq.Options(sync=sync), background=False))
        ways = senders(engine)
        for _ in range(TURNS):
            for name, send in ways.items():
                begin = clock()
                for _ in range(SENDS[sync]):
                    send()
                found.setdefault(name, []).append((clock() - begin) / SENDS[sync] * 1e6)
    return found


def main() -> None:
    """Measure, and print a line for each codec."""
    print(f"{'':24} {'no sync':>10} {'ratio':>6} {'durable':>12} {'ratio':>6}")
    never, always = measure("never"), measure("always")
    for name in never:
        cells = []
        for times in (never, always):
            pairs = zip(times[name], times[PLAIN], strict=True)
            cells += [median(times[name]), median(mine / plain for mine, plain in pairs)]
        print(f"{name:24} {cells[0]:7.1f} us {cells[1]:6.2f} {cells[2]:9.1f} us {cells[3]:6.2f}")


if __name__ == "__main__":
    main()
