"""The exporter that sends metrics to a collector over HTTP."""

from __future__ import annotations

from opentelemetry.sdk.metrics.export import MetricExporter

from fmq.errors import BadOption, ExtraMissing


def exporter_to(url: str) -> MetricExporter:
    """Return an exporter to the collector at `url`. Raises BadOption or ExtraMissing.

    What else it needs, such as headers and certificates, it takes from the variables that
    OpenTelemetry names for that.
    """
    if not url.startswith(("http://", "https://")):
        raise BadOption(
            f"{url!r}: must be like http://127.0.0.1:4318/v1/metrics. Nothing is sent there."
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    except ImportError as error:
        raise ExtraMissing("--otlp", "opentelemetry-exporter-otlp-proto-http", "otel") from error
    exporter: MetricExporter = OTLPMetricExporter(endpoint=url)
    return exporter
