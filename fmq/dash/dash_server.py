"""Serves an application of ASGI by uvicorn, in a thread of its own."""

from __future__ import annotations

import asyncio
import socket
from threading import Thread

from fmq.dash.dash_app import DashApp
from fmq.errors import BadOption, ExtraMissing

try:
    import uvicorn
except ImportError as error:
    raise ExtraMissing("fmq dash", "uvicorn", "dash") from error

PORT_MAX = 65535
AT_ONCE_MAX = 200
ENDS_WITHIN_SECONDS = 1  # pages that are open never end by themselves


class DashServer:
    """Listens until it is closed."""

    def __init__(self, app: DashApp, where: str) -> None:
        """Listen at `where`, such as 127.0.0.1:8787. Raises BadOption."""
        host, found, port = where.rpartition(":")
        host = host.strip("[]")
        if not (found and host and port.isascii() and port.isdigit() and int(port) <= PORT_MAX):
            raise BadOption(f"{where!r}: must be like 127.0.0.1:8787. Nothing is served.")
        try:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            self._socket = socket.create_server((host, int(port)), family=family)
        except OSError as error:
            raise BadOption(
                f"{where}: this process cannot listen there ({error.strerror}). Nothing is served."
            ) from error
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="critical",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=AT_ONCE_MAX,
            timeout_graceful_shutdown=ENDS_WITHIN_SECONDS,
        )
        self._server = uvicorn.Server(config)
        self._thread = Thread(target=self._run, name="fmq dash", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The address of the first page."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"

    def _run(self) -> None:
        asyncio.run(self._server.serve([self._socket]))

    def close(self) -> None:
        """Answer nothing more."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def __enter__(self) -> DashServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
