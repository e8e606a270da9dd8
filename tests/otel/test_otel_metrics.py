"""The metrics that OpenTelemetry gets: the numbers of Prometheus, and what an exporter makes of
them.
"""

from __future__ import annotations

import gzip
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.resources import Resource

import fmq
from fmq.metrics import exposition
from fmq.metrics.numbers import COUNTER, HISTOGRAM, look
from fmq.otel import MetricsExport, metrics_data
from fmq.otel.points import MESSAGING_NAMES, name_and_unit
from fmq.otel.to_collector import exporter_to
from fmq.testing import FakeClock

ROOT = Path(__file__).parent.parent.parent
NOW_NS = 1_767_225_600_000_000_000
UNITS = {"s": "_seconds", "By": "_bytes", "": ""}


class InMemoryExporter(sdk.MetricExporter):
    """Keeps what it is given. It refuses as often as `refuse` says."""

    def __init__(self, refuse: int = 0) -> None:
        super().__init__()
        self.refuse = refuse
        self.got: list[sdk.MetricsData] = []

    def export(
        self, metrics_data: sdk.MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> sdk.MetricExportResult:
        if self.refuse:
            self.refuse -= 1
            return sdk.MetricExportResult.FAILURE
        self.got.append(metrics_data)
        return sdk.MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        return None


class FailingExporter(InMemoryExporter):
    """An exporter with a defect."""

    def export(
        self, metrics_data: sdk.MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> sdk.MetricExportResult:
        raise RuntimeError("a defect")


@pytest.fixture
def busy(engine: fmq.Engine, clock: FakeClock) -> fmq.Engine:
    """An engine with acks, a dead letter, a backlog, a limit and an undecided transaction."""
    engine.send_many("orders", [b"one", b"two", b"three"])
    tx = engine.transaction(tx_id="t", producer="shop")
    tx.send("orders", b"four")
    tx.prepare()
    clock.advance(3)
    with engine.consumer("orders", group="mail") as consumer:
        consumer.poll(limit=1)[0].ack()
        consumer.poll(limit=1)[0].reject("no")
    engine.group("mail").limit(concurrency=3)
    return engine


def metrics_of(data: sdk.MetricsData) -> dict[str, sdk.Metric]:
    (resource,) = data.resource_metrics
    (scope,) = resource.scope_metrics
    found = {each.name: each for each in scope.metrics}
    assert len(found) == len(scope.metrics)
    return found


def values(metric: sdk.Metric) -> dict[tuple[tuple[str, Any], ...], float]:
    assert isinstance(metric.data, (sdk.Sum, sdk.Gauge))
    return {
        tuple(sorted((each.attributes or {}).items())): each.value
        for each in metric.data.data_points
    }


def test_each_number_is_that_of_prometheus(busy: fmq.Engine) -> None:
    """Compare both with one look. Ages go on between two looks, so they are left out."""
    metrics = metrics_of(metrics_data(busy, NOW_NS))
    text = exposition(busy)
    families = dict(re.findall(r"^# TYPE fmq_(\S+) (\S+)", text, re.MULTILINE))
    names = {name_and_unit(name)[0]: name for name in families}
    assert names.keys() == metrics.keys()
    compared = 0
    for name, metric in metrics.items():
        prometheus = names[name]
        back = f"{name.replace('.', '_', 1)}{UNITS[metric.unit or '']}"
        is_sum = isinstance(metric.data, sdk.Sum)
        assert f"fmq_{prometheus}" == back + ("_total" if is_sum else "")
        assert is_sum == (families[prometheus] == COUNTER)
        if families[prometheus] == HISTOGRAM or re.search("oldest|behind|silent|free", name):
            continue
        for labels, value in values(metric).items():
            said = ",".join(f'{label}="{each}"' for label, each in dict(labels).items())
            (line,) = re.findall(
                rf"^fmq_{prometheus}{re.escape('{' + said + '}' if said else '')} (\S+)$",
                text,
                re.MULTILINE,
            )
            assert float(line) == value, name
            compared += 1
    assert compared >= 30


def test_the_buckets_are_those_of_prometheus(busy: fmq.Engine) -> None:
    metric = metrics_of(metrics_data(busy, NOW_NS))["fmq.handed_over"]
    assert isinstance(metric.data, sdk.Histogram)
    (point,) = metric.data.data_points
    below, found = 0, {}
    for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False):
        below += count
        found[f"{bound!r}"] = float(below)
    said = re.findall(
        r'^fmq_handed_over_seconds_bucket\{group="mail",le="([0-9].*?)"\} (\S+)$',
        exposition(busy),
        re.MULTILINE,
    )
    assert found == {bound: float(count) for bound, count in said}
    assert point.count == sum(point.bucket_counts) == 2
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1


def test_counters_say_since_when_they_count(busy: fmq.Engine) -> None:
    metrics = metrics_of(metrics_data(busy, NOW_NS))
    opened = look(busy).opened_at
    assert opened is not None
    for name, started in (
        ("fmq.messages_sent", int(opened.timestamp()) * 10**9),
        ("fmq.messages_lost", 0),  # since the group was made: no engine knows when
        ("fmq.journal_position", 0),
    ):
        data = metrics[name].data
        assert isinstance(data, sdk.Sum) and data.is_monotonic
        assert data.aggregation_temporality is sdk.AggregationTemporality.CUMULATIVE
        for point in data.data_points:
            assert (point.start_time_unix_nano, point.time_unix_nano) == (started, NOW_NS)


def test_messaging_names_are_beside_ours_behind_a_switch(busy: fmq.Engine) -> None:
    ours = metrics_of(metrics_data(busy, NOW_NS))
    both = metrics_of(metrics_data(busy, NOW_NS, messaging_names=True))
    added = both.keys() - ours.keys()
    assert added == {each.name for each in MESSAGING_NAMES.values()}
    assert both.keys() > ours.keys()
    common = ("messaging.operation.name", "send"), ("messaging.operation.type", "send")
    sent = {(("messaging.destination.name", "orders"), *common, ("messaging.system", "fmq")): 3.0}
    assert values(both["messaging.client.sent.messages"]) == sent
    ((labels, value),) = values(both["messaging.client.consumed.messages"]).items()
    assert dict(labels)["messaging.consumer.group.name"] == "mail"
    assert value == 2
    handled = both["messaging.process.duration"].data
    assert isinstance(handled, sdk.Histogram)
    assert handled.data_points[0].count == 2
    assert both["messaging.process.duration"].unit == "s"


def test_the_encoder_of_otlp_takes_all_points(busy: fmq.Engine) -> None:
    resource = Resource.create({"service.name": "shop"})
    data = metrics_data(busy, NOW_NS, resource=resource, messaging_names=True)
    (found,) = encode_metrics(data).resource_metrics
    assert ("service.name", "shop") in {
        (e.key, e.value.string_value) for e in found.resource.attributes
    }
    by_name = {each.name: each for each in found.scope_metrics[0].metrics}
    (point,) = by_name["fmq.write"].histogram.data_points
    assert point.count > 0 and not point.HasField("sum")
    assert by_name["fmq.messages_sent"].sum.data_points[0].as_double == 3


def test_an_export_is_repeated_after_a_failure(
    busy: fmq.Engine, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = InMemoryExporter(refuse=1)
    with MetricsExport(busy, exporter, every=3600, clock=clock) as exporting:
        assert not exporting.export()
        assert exporting.export()
    assert len(exporter.got) == 2  # the last one by the end of the block
    exporting.close()
    assert len(exporter.got) == 2
    assert "the exporter has not taken the numbers" in caplog.text


def test_neither_an_exporter_that_fails_nor_a_closed_engine_stops_the_exports(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with fmq.open(tmp_path) as engine:
        exporting = MetricsExport(engine, FailingExporter(), every=3600)
        assert not exporting.export()
        engine.send("orders", b"one")
    assert not exporting.export()
    exporting.close()
    assert "a defect" in caplog.text and "Closed" in caplog.text


@pytest.mark.parametrize("every", [0, -1, float("nan")])
def test_exports_need_an_interval(engine: fmq.Engine, every: float) -> None:
    with pytest.raises(fmq.UsageError, match="every"):
        MetricsExport(engine, InMemoryExporter(), every=every)


def test_a_collector_is_named_by_a_url() -> None:
    with pytest.raises(fmq.BadOption, match="v1/metrics"):
        exporter_to("127.0.0.1:4318")


def test_a_client_has_the_numbers_of_its_server(tmp_path: Path) -> None:
    with fmq.open(tmp_path) as engine, engine.serve(), fmq.connect(tmp_path) as client:
        client.send("orders", b"one")
        found = metrics_of(metrics_data(client, NOW_NS))
    assert values(found["fmq.messages_sent"]) == {(("topic", "orders"),): 1.0}


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """A collector on loopback, with the bodies that it got."""
    bodies: list[bytes] = []

    class Taking(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Taking) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/metrics", bodies
        server.shutdown()
        thread.join()


def test_the_command_serve_sends_its_metrics(
    tmp_path: Path, collector: tuple[str, list[bytes]]
) -> None:
    """It sends them at its end, too, so this test waits for no interval."""
    url, bodies = collector
    path = tmp_path / "d"
    run = [sys.executable, "-m", "fmq", "serve", str(path), "--otlp", url, "--otlp-messaging-names"]
    with subprocess.Popen(run, cwd=ROOT, stderr=subprocess.PIPE, text=True) as served:
        assert served.stderr is not None
        try:
            said = served.stderr.readline()
            assert f"metrics sent to {url}" in said, said
            with fmq.connect(path) as client:
                client.send("orders", b"one")
        finally:
            served.send_signal(signal.SIGTERM)
            served.stderr.read()
    assert served.returncode == 0
    body = bodies[-1]
    request = ExportMetricsServiceRequest.FromString(
        gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body
    )
    metrics = request.resource_metrics[0].scope_metrics[0].metrics
    sent = {
        each.name: each.sum.data_points[0].as_double for each in metrics if each.sum.data_points
    }
    assert sent["fmq.messages_sent"] == sent["messaging.client.sent.messages"] == 1
