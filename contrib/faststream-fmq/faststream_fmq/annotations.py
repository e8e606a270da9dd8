"""Types for arguments of handlers that FastStream fills in: the message, broker or engine.

from faststream_fmq.annotations import Engine, FmqMessage

@broker.subscriber("orders", group="billing")
async def bill(order: Order, message: FmqMessage, engine: Engine) -> None: ...
"""

from typing import Annotated

from faststream.annotations import ContextRepo, Logger
from faststream.params import Context

import fmq.aio
from faststream_fmq.broker import FmqBroker as Broker
from faststream_fmq.message import FmqMessage as Message

FmqMessage = Annotated[Message, Context("message")]
FmqBroker = Annotated[Broker, Context("broker")]
Engine = Annotated[fmq.aio.AsyncEngine, Context("broker.engine")]

__all__ = ["ContextRepo", "Engine", "FmqBroker", "FmqMessage", "Logger"]
