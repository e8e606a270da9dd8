"""Servers for relays: the PostgreSQL that tests/bind has, and one Kafka for all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bind.conftest import address
from tools import kafka

__all__ = ["address"]


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    if missing := kafka.fetch():
        pytest.skip(missing)
    made = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    yield made
    made.stop()
