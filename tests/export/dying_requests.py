"""A server of HTTP in front of another one, which kills a client at one of its requests."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class DyingRequests:
    """Passes requests on to `upstream`, HOST:PORT. The one with the number `at` is the last of the
    client that `kill` kills: before it is passed on, or if it is `answered`, after that.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.seen: list[str] = []
        """The lines of the requests since `expect`."""
        self._counting = threading.Lock()
        self.expect(-1, lambda: None)

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                with suppress(ConnectionError):
                    super().handle_one_request()

            def log_message(self, *args: Any) -> None:
                """Say nothing."""

        def answer(request: BaseHTTPRequestHandler) -> None:
            self.pass_on(request)

        for verb in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{verb}", answer)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def expect(self, at: int, kill: Callable[[], None], *, answered: bool = False) -> None:
        """Count requests from 0 on anew."""
        self.seen.clear()
        self._at, self._kill, self._answered = at, kill, answered

    def pass_on(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        with self._counting:
            is_last = len(self.seen) == self._at
            self.seen.append(f"{request.command} {request.path}")
        if is_last and not self._answered:
            self._kill()
            request.close_connection = True
            return
        upstream = HTTPConnection(self.upstream)
        upstream.request(request.command, request.path, body, dict(request.headers))
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        if is_last:
            self._kill()
            request.close_connection = True
            return
        request.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                request.send_header(name, value)
        told = answer.getheader("Content-Length") if request.command == "HEAD" else len(data)
        request.send_header("Content-Length", str(told or 0))
        request.end_headers()
        request.wfile.write(data)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
