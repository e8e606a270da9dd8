"""RocketMQ in your pytest: the fixture `rocketmq` is a server with a fresh store for each test.

    def test_an_order_is_billed(rocketmq):
        producer = Producer(ClientConfiguration(rocketmq.address, Credentials()), ["orders"])
        ...
        assert rocketmq.engine.read("orders")

pytest loads this module in each run, so it imports the server only for a test that asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fmq_rocketmq.testing import Broker


@pytest.fixture
def rocketmq(tmp_path: Path) -> Iterator[Broker]:
    """A server for clients of RocketMQ, and the engine behind it."""
    from fmq_rocketmq.testing import Broker

    with Broker(tmp_path / "rocketmq") as broker:
        yield broker
