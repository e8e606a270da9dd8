"""A broker for FastStream whose topics are those of an fmq engine.

    broker = FmqBroker("shop")

    @broker.subscriber("orders", group="billing")
    @broker.publisher("invoices")
    async def bill(order: Order) -> Invoice: ...

The ack of a message and all that its handler publishes are one transaction.
"""

from faststream_fmq.broker import FmqBroker
from faststream_fmq.message import FmqMessage
from faststream_fmq.publisher import FmqPublisher
from faststream_fmq.router import FmqPublisherRoute, FmqRoute, FmqRouter
from faststream_fmq.subscriber import FmqSubscriber
from faststream_fmq.testing import TestFmqBroker

__all__ = [
    "FmqBroker",
    "FmqMessage",
    "FmqPublisher",
    "FmqPublisherRoute",
    "FmqRoute",
    "FmqRouter",
    "FmqSubscriber",
    "TestFmqBroker",
]
