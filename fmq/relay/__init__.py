"""Relays: messages of a directory, copied into another system, each once and in order.

    relay = fmq.relay.Relay(engine, target, topics=["orders", "emails"], name="crm")
    relay.run()

A target is an object of four methods, see `RelayTarget`. docs/relay.md says what it has to do, and
what each failure leads to.
"""

from fmq.relay.relay import Relay, RelayStats
from fmq.relay.relay_errors import MessageRefused, RelayError, RelayTakenOver, StoreDiffers, Unsure
from fmq.relay.target import RelayBatch, RelayPlace, RelayTarget

__all__ = [
    "RelayBatch",
    "RelayTakenOver",
    "RelayPlace",
    "MessageRefused",
    "Relay",
    "RelayError",
    "RelayStats",
    "StoreDiffers",
    "RelayTarget",
    "Unsure",
]
