"""A thread that hands the numbers of an engine to an exporter, again and again."""

from __future__ import annotations

import logging
from threading import Event, Lock, Thread

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult
from opentelemetry.sdk.resources import Resource

import fmq
from fmq.arguments.names import check_seconds
from fmq.basics.clock import Clock, SystemClock
from fmq.errors import BadOption
from fmq.otel.points import metrics_data

logger = logging.getLogger("fmq.metrics")


class MetricsExport:
    """Hands the numbers of an engine to an exporter of OpenTelemetry, until it is closed."""

    def __init__(
        self,
        engine: fmq.AnyEngine,
        exporter: MetricExporter,
        *,
        every: float = 60.0,
        resource: Resource | None = None,
        messaging_names: bool = False,
        clock: Clock | None = None,
    ) -> None:
        """Export `every` so many seconds, and at the end. `resource` and `messaging_names` are as
        in `metrics_data`. The exporter stays the caller's, who shuts it down.
        """
        self._seconds = check_seconds("every", every)
        if self._seconds <= 0:
            raise BadOption(f"every={every:g}: must be more than 0. Nothing was exported.")
        self._engine = engine
        self._exporter = exporter
        self._resource = resource
        self._messaging_names = messaging_names
        self._clock = SystemClock() if clock is None else clock
        self._lock = Lock()  # exporters need not be safe for threads
        self._closing = Event()
        self._thread = Thread(target=self._run, name="fmq otel", daemon=True)
        self._thread.start()

    def export(self) -> bool:
        """Export now. Return whether that went well; the log says why it did not."""
        with self._lock:
            try:
                data = metrics_data(
                    self._engine,
                    self._clock.time_us() * 1000,
                    resource=self._resource,
                    messaging_names=self._messaging_names,
                )
                done = self._exporter.export(data) is MetricExportResult.SUCCESS
            except Exception:  # of the engine, or of an exporter that somebody else wrote
                logger.warning("the numbers were not exported", exc_info=True)
                return False
        if not done:
            logger.warning("the exporter has not taken the numbers")
        return done

    def _run(self) -> None:
        while not self._closing.wait(self._seconds):
            self.export()

    def close(self) -> None:
        """Export once more, and end. A second call does nothing."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self.export()

    def __enter__(self) -> MetricsExport:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
