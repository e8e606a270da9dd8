"""A small HTTP server for Prometheus: /metrics and /healthz, in threads of its own.

Its threads call the engine as threads of a program do, so they cannot stop it, and they end when
the process does. Scrapes that come close together share one look: its text is kept for a
second, or for 50 times what the look took, so that many groups cost others little.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from socket import AF_INET, AF_INET6
from threading import BoundedSemaphore, Lock, Thread
from typing import Any

import fmq
from fmq.basics.clock import Clock, SystemClock
from fmq.errors import BadOption, FmqError
from fmq.metrics.exposition import exposition, text_of
from fmq.metrics.numbers import Metric

KEPT_SECONDS, KEPT_SECONDS_MAX, KEPT_TIMES = 1.0, 10.0, 50.0
ASKED_SECONDS = 5.0  # how long a client may take to send its request
AT_ONCE_MAX = 8
PORT_MAX = 65535
TEXT = "text/plain; version=0.0.4; charset=utf-8"
logger = logging.getLogger("fmq.metrics")


class MetricsPage:
    """Answers HTTP until it is closed. Every program that reaches it sees the names of topics and
    groups.
    """

    def __init__(
        self,
        engine: fmq.AnyEngine,
        where: str,
        clock: Clock | None = None,
        metrics: Callable[[], Iterable[Metric]] | None = None,
    ) -> None:
        """Listen at `where`, such as 127.0.0.1:9464. `metrics` returns other numbers than those of
        the engine. Raises BadOption.
        """
        self._numbers = metrics
        self._engine = engine
        self._clock = SystemClock() if clock is None else clock
        self._lock = Lock()
        self._text = ""
        self._kept_until = -inf
        host, port = _host_and_port(where)
        try:
            self._server = MetricsServer((host, port), self)
        except OSError as error:
            raise BadOption(
                f"{where}: this process cannot listen there ({error.strerror}). Nothing was "
                "changed."
            ) from error
        self._thread = Thread(target=self._server.serve_forever, name="fmq metrics", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the metrics."""
        host, port = self._server.server_address[:2]
        name = f"[{host!s}]" if ":" in str(host) else host
        return f"http://{name!s}:{port}/metrics"

    def answer(self, path: str) -> tuple[int, str]:
        """Return the status and the text of an answer."""
        if path not in ("/metrics", "/healthz"):
            return 404, "there are /metrics and /healthz\n"
        try:
            if path == "/metrics":
                return 200, self._metrics()
            failure = self._engine.stats().failure
        except FmqError as error:
            return 503, f"{error}\n"
        return (200, "ok\n") if failure is None else (503, f"{failure}\n")

    def _metrics(self) -> str:
        with self._lock:  # one look at a time, however many clients ask
            began = self._clock.monotonic()
            if began >= self._kept_until:
                numbers = self._numbers
                self._text = text_of(numbers()) if numbers else exposition(self._engine)
                kept = KEPT_TIMES * (self._clock.monotonic() - began)
                self._kept_until = began + min(max(kept, KEPT_SECONDS), KEPT_SECONDS_MAX)
            return self._text

    def close(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsPage:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _host_and_port(where: str) -> tuple[str, int]:
    host, found, port = where.rpartition(":")
    if not (found and host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
        raise BadOption(f"{where!r}: must be like 127.0.0.1:9464. Nothing was changed.")
    return host.strip("[]"), int(port)


class MetricsServer(ThreadingHTTPServer):
    """Threads that answer, at most AT_ONCE_MAX at once."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], page: MetricsPage) -> None:
        self.page = page
        self.free = BoundedSemaphore(AT_ONCE_MAX)
        self.address_family = AF_INET6 if ":" in address[0] else AF_INET
        super().__init__(address, MetricsRequest)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a client in a thread; close the connection if there are too many of them."""
        if self.free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.info("a request has failed", exc_info=True)


class MetricsRequest(BaseHTTPRequestHandler):
    """One request. A connection serves no second one."""

    timeout = ASKED_SECONDS
    server: MetricsServer
    server_version, sys_version = "fmq", ""

    def do_GET(self) -> None:  # named by http.server
        status, text = self.server.page.answer(self.path.partition("?")[0])
        data = text.encode("utf-8", "replace")
        self.send_response(status)
        self.send_header("Content-Type", TEXT)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of each request."""
