"""What a send costs with OpenTelemetry, and that one without it costs nothing more.

    python -m benchmarks.traced

It sends plain bodies without waiting for the disk, so that only Python is measured, in turns: on an
engine as it is, on one that is instrumented without a provider, and on one whose spans all end in
memory and are dropped. It prints microseconds of processor for each send, the least of all turns.
"""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack

from opentelemetry.sdk.trace import TracerProvider

import fmq
from fmq.otel import instrument

TURNS, SENDS = 15, 2000


def microseconds(engine: fmq.Engine) -> float:
    """Return how much processor one send takes."""
    begin = time.process_time()
    for _ in range(SENDS):
        engine.send("orders", b"x" * 100)
    return (time.process_time() - begin) / SENDS * 1e6


def main() -> None:
    """Measure, and print a line for each engine."""
    with ExitStack() as stack:
        engines: dict[str, fmq.Engine] = {}
        for name in ("as it is", "instrumented, no provider", "instrumented, each send sampled"):
            path = stack.enter_context(tempfile.TemporaryDirectory())
            engines[name] = stack.enter_context(fmq.open(path, fmq.Options(sync="never")))
        _, bare, sampled = engines.values()
        instrument(bare)
        instrument(sampled, tracer_provider=TracerProvider())
        found: dict[str, list[float]] = {name: [] for name in engines}
        for _ in range(TURNS):
            for name, engine in engines.items():
                found[name].append(microseconds(engine))
    for name, times in found.items():
        print(f"{name:32} {min(times):6.1f} us")


if __name__ == "__main__":
    main()
