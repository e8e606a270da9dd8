"""The numbers of a relay for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator

from fmq.metrics.numbers import COUNTER, GAUGE, HISTOGRAM, TOTAL, Metric
from fmq.relay import Relay

COUNTERS = {
    "messages": "Messages that were copied.",
    "batches": "Batches that the target has stored.",
    "claims": "Claims of the target.",
    "fences": "How often another relay has shut this one out.",
    "doubts": "How often it was not known whether a batch was stored.",
    "parked": "Messages that the target refused, which are dead letters now.",
}
GAUGES = {
    "lag": "Messages that are not copied yet.",
    "lag_seconds": "How long ago the oldest of these was sent.",
    "late": "1 if the lag has reached --alarm.",
}


def relay_metrics(relay: Relay, name: str) -> Iterator[Metric]:
    """Yield the numbers of the relay `name`."""
    stats, labels = relay.stats(), {"relay": name}
    found = stats._asdict()
    for what, text in COUNTERS.items():
        yield Metric(f"relay_{what}{TOTAL}", COUNTER, text, [(labels, found[what])])
    for what, text in GAUGES.items():
        yield Metric(f"relay_{what}", GAUGE, text, [(labels, found[what])])
    text = "How long the target took to store a batch."
    yield Metric("relay_commit_seconds", HISTOGRAM, text, times=[(labels, stats.commits)])
