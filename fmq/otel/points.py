"""The numbers of an engine as OpenTelemetry's SDK hands them to an exporter.

The API of OpenTelemetry has no histogram that somebody else has counted. So the points are made
here, from the numbers that Prometheus gets. Their names become the same in Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

import fmq
from fmq.metrics.exposition import FIRST_BUCKET, LAST_BUCKET
from fmq.metrics.numbers import COUNTER, GAUGE, TOTAL, Labels, Metric, look
from fmq.otel.message_spans import SYSTEM

Attributes = dict[str, str]
CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE
UNITS = {"_seconds": "s", "_bytes": "By"}
BOUNDS = tuple((1 << i) / 1e9 for i in range(FIRST_BUCKET, LAST_BUCKET + 1))
DESTINATION, GROUP = "messaging.destination.name", "messaging.consumer.group.name"
NAMES_OF_LABELS = {"topic": DESTINATION, "group": GROUP}


@dataclass(frozen=True)
class MessagingName:
    """One of our metrics under the name that OpenTelemetry gives to all message systems."""

    name: str
    unit: str
    operation: str
    kind: str | None = None


MESSAGING_NAMES = {
    f"messages_sent{TOTAL}": MessagingName(
        "messaging.client.sent.messages", "{message}", "send", "send"
    ),
    f"attempts{TOTAL}": MessagingName(
        "messaging.client.consumed.messages", "{message}", "poll", "receive"
    ),
    # One write may be that of many calls, and has no destination.
    "write_seconds": MessagingName("messaging.client.operation.duration", "s", "write"),
    "handled_seconds": MessagingName("messaging.process.duration", "s", "process", "process"),
}


def metrics_data(
    engine: fmq.AnyEngine,
    now_ns: int,
    *,
    resource: Resource | None = None,
    messaging_names: bool = False,
) -> sdk.MetricsData:
    """Return the numbers of `engine` at `now_ns`, in nanoseconds since 1970, for an exporter.

    With `messaging_names` some of them are there a second time, under OpenTelemetry's own names for
    message systems. `resource` says whose numbers they are, by default what the environment says.
    Counters are cumulative. Raises the errors of the engine's calls.
    """
    found = look(engine)
    make = _Points(_ns(found.opened_at), now_ns)
    metrics = [make.metric(each) for each in found.metrics]
    if messaging_names:
        metrics += [*make.under_messaging_names(found.metrics)]
    scope = sdk.ScopeMetrics(InstrumentationScope("fmq", fmq.__version__), metrics, "")
    whose = Resource.create() if resource is None else resource
    return sdk.MetricsData([sdk.ResourceMetrics(whose, [scope], "")])


def _ns(time: datetime | None) -> int:
    return 0 if time is None else int(time.timestamp() * 1_000_000) * 1000


def name_and_unit(name: str) -> tuple[str, str]:
    """Return the name and the unit of a metric. An exporter to Prometheus joins them again."""
    plain = name.removesuffix(TOTAL)
    for suffix, unit in UNITS.items():
        if plain.endswith(suffix):
            return f"fmq.{plain.removesuffix(suffix)}", unit
    return f"fmq.{plain}", ""


class _Points:
    """Makes the points of one look."""

    def __init__(self, opened_ns: int, now_ns: int) -> None:
        self._opened_ns = opened_ns
        self._now_ns = now_ns

    def metric(self, found: Metric) -> sdk.Metric:
        """Return a metric under our name."""
        name, unit = name_and_unit(found.name)
        return sdk.Metric(name, found.text, unit, self._data(found, lambda labels: labels))

    def under_messaging_names(self, metrics: Iterable[Metric]) -> Iterator[sdk.Metric]:
        """Yield those metrics that have one of OpenTelemetry's names, too."""
        for found in metrics:
            said = MESSAGING_NAMES.get(found.name)
            if said is None:
                continue
            common = {"messaging.system": SYSTEM, "messaging.operation.name": said.operation}
            if said.kind is not None:
                common["messaging.operation.type"] = said.kind

            def attributes(labels: Labels, common: Attributes = common) -> Attributes:
                renamed = {NAMES_OF_LABELS[label]: text for label, text in labels.items()}
                return {**common, **renamed}

            yield sdk.Metric(said.name, found.text, said.unit, self._data(found, attributes))

    def _data(self, found: Metric, attributes: Any) -> Any:
        started = self._opened_ns if found.since_opening else 0
        if found.kind in (GAUGE, COUNTER):
            points = [
                sdk.NumberDataPoint(attributes(labels), started, self._now_ns, float(value))
                for labels, value in found.numbers
            ]
            if found.kind == GAUGE:
                return sdk.Gauge(points)
            return sdk.Sum(points, CUMULATIVE, is_monotonic=True)
        times = [self._histogram(attributes(labels), each) for labels, each in found.times]
        return sdk.Histogram(times, CUMULATIVE)

    def _histogram(self, attributes: Attributes, times: fmq.Times) -> sdk.HistogramDataPoint:
        buckets = times.buckets
        shown = buckets[FIRST_BUCKET + 1 : LAST_BUCKET + 1]
        counts = [sum(buckets[: FIRST_BUCKET + 1]), *shown, sum(buckets[LAST_BUCKET + 1 :])]
        # fmq keeps no sum, no least and no largest time; in OTLP these are optional.
        nothing: Any = None
        return sdk.HistogramDataPoint(
            attributes=attributes,
            start_time_unix_nano=self._opened_ns,
            time_unix_nano=self._now_ns,
            count=times.count,
            sum=nothing,
            bucket_counts=counts,
            explicit_bounds=BOUNDS,
            min=nothing,
            max=nothing,
        )
