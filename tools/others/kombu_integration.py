"""The tests of kombu for a transport and its broker, with a directory as the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kombu
import pytest
from t.integration.common import (  # type: ignore[import-not-found]
    BaseExchangeTypes,
    BaseFailover,
    BaseMessage,
    BasePriority,
    BaseTimeToLive,
    BasicFunctionality,
)

import fmq.compat.kombu  # noqa: F401 - makes fmq:// known

NOWHERE = "/proc/no-directory-can-be-here"


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[kombu.Connection]:
    with kombu.Connection(f"fmq://{tmp_path}/jobs") as made:
        yield made


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(f"fmq://{NOWHERE}")


@pytest.fixture
def failover_connection(tmp_path: Path) -> Iterator[kombu.Connection]:
    """The number is a port for kombu, and nothing for us: the test tells two addresses by it."""
    both = f"fmq://localhost:1{NOWHERE};fmq://localhost:2{tmp_path}/jobs"
    with kombu.Connection(both, connect_timeout=10) as made:
        yield made


class TestBasicFunctionality(BasicFunctionality):
    """Connections, channels, and simple queues."""


class TestExchangeTypes(BaseExchangeTypes):
    """Direct, topic and fanout."""


class TestTimeToLive(BaseTimeToLive):
    """Messages that expire."""


class TestPriority(BasePriority):
    """Which message is taken first."""


class TestMessage(BaseMessage):
    """Acks and rejections."""


class TestFailover(BaseFailover):
    """Two addresses, of which the first cannot be reached."""
