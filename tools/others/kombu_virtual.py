"""A plugin of pytest: the tests of kombu's virtual transport make connections of ours."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import kombu
import pytest

import fmq
import fmq.compat.kombu

NUMBERS = count()


@pytest.fixture(autouse=True)
def _ours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace `client` and `memory_client` of the module: all connections of a test share a
    directory.
    """
    with tempfile.TemporaryDirectory() as folder, fmq.open(Path(folder) / "jobs") as engine:

        def client(**named: Any) -> kombu.Connection:
            return kombu.Connection(
                "fmq://", transport_options={"engine": engine, **named.pop("transport_options", {})}
            )

        for name in ("client", "memory_client"):
            if hasattr(request.module, name):
                monkeypatch.setattr(request.module, name, client)
        yield
