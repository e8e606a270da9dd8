"""What Celery's integration tests need: a Redis server for the results, and a broker.

The broker is a directory of fmq, or another database of the same Redis server.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmarks.peers.programs import find_program
from benchmarks.peers.server import Server
from tools.ports import HOST, free_port

# What their modules import, and the plugins of pytest with the marks that they use.
PACKAGES = {
    "redis": "redis",
    "pytest_rerunfailures": "pytest-rerunfailures",
    "pytest_timeout": "pytest-timeout",
    "pytest_order": "pytest-order",
    "sqlalchemy": "sqlalchemy",
    "cryptography": "cryptography",
    "pydantic": "pydantic",
}


def missing() -> str:
    """Return what this machine lacks for these tests, with the command that installs it; "" if
    nothing.
    """
    if find_program("redis-server") is None:
        return "there is no redis-server (apt-get install redis-server)"
    lacks = [package for module, package in PACKAGES.items() if find_spec(module) is None]
    return f"pip install {' '.join(lacks)}" if lacks else ""


@contextmanager
def on_fmq() -> Iterator[dict[str, str]]:
    """Yield the environment of a run with fmq as the broker."""
    with _redis() as (folder, found):
        yield {**found, "TEST_BROKER": f"fmq://{folder}/jobs"}


@contextmanager
def on_redis() -> Iterator[dict[str, str]]:
    """Yield the environment of a run with Redis as the broker."""
    with _redis() as (_, found):
        yield {**found, "TEST_BROKER": f"redis://{HOST}:{found['REDIS_PORT']}/1"}


@contextmanager
def _redis() -> Iterator[tuple[Path, dict[str, str]]]:
    """Run a Redis server in a temporary folder. Yield the folder, and the server's part of the
    environment: its port, and the results in its first database, where the tests look.
    """
    port = free_port()
    program = find_program("redis-server")
    assert program is not None
    environment = {
        "REDIS_HOST": HOST,
        "REDIS_PORT": str(port),
        "TEST_BACKEND": f"redis://{HOST}:{port}/0",
    }
    server = Server()
    # A worker of Celery's may still be ending when its folder is removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        folder = Path(made)
        settings = ["--bind", HOST, "--port", str(port), "--save", "", "--dir", made]
        server.start(program, *settings, log=folder / "redis.log", ready=lambda: _answers(port))
        try:
            yield folder, environment
        finally:
            server.stop()


def _answers(port: int) -> bool:
    try:
        socket.create_connection((HOST, port)).close()
    except ConnectionRefusedError:
        time.sleep(0.05)
        return False
    return True
