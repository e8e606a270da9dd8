"""OpenTelemetry: the context of a trace in the headers of messages, and the numbers of an engine.

    engine = fmq.otel.instrument(fmq.open("shop"))

It calls an engine as any program does, and needs the extra `otel`. `docs/opentelemetry.md` has
more.
"""

from fmq.errors import ExtraMissing

try:
    from fmq.otel.export_loop import MetricsExport
    from fmq.otel.instrument import instrument
    from fmq.otel.message_spans import processing
    from fmq.otel.points import metrics_data
except ImportError as error:
    raise ExtraMissing("fmq.otel", "opentelemetry-sdk", "otel") from error

__all__ = ["MetricsExport", "instrument", "metrics_data", "processing"]
