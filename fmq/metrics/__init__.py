"""What an engine says of itself, as Prometheus reads it. It calls an engine as any program does."""

from fmq.metrics.exposition import exposition
from fmq.metrics.metrics_page import MetricsPage

__all__ = ["MetricsPage", "exposition"]
