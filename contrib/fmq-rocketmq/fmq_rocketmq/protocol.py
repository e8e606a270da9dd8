"""RocketMQ's messages, enums and calls as Python objects, made from wire/rocketmq_v2.binpb.

They live in a pool of their own. protobuf refuses two definitions of one name in its default pool,
and a program may use RocketMQ's own client beside this server.
"""

from __future__ import annotations

from enum import IntEnum
from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "apache.rocketmq.v2"
SERVICE = f"{PACKAGE}.MessagingService"


def _read_pool() -> Any:
    """Return a pool with the files of the protocol. Each file comes after those it imports."""
    data = files("fmq_rocketmq").joinpath("wire", "rocketmq_v2.binpb").read_bytes()
    pool = descriptor_pool.DescriptorPool()
    for each in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(each.SerializeToString())
    return pool


_POOL = _read_pool()


def message(name: str) -> Any:
    """Return the class of the message `name`, such as "SendMessageRequest"."""
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


def _enum(name: str) -> Any:
    found = _POOL.FindEnumTypeByName(f"{PACKAGE}.{name}")
    return IntEnum(name, {each.name: each.number for each in found.values})


def calls() -> list[Any]:
    """Return the descriptor of each call of MessagingService."""
    return [*_POOL.FindServiceByName(SERVICE).methods]


def class_of(descriptor: Any) -> Any:
    """Return the class of the message that `descriptor` describes."""
    return message_factory.GetMessageClass(descriptor)


Code = _enum("Code")
ClientType = _enum("ClientType")
DigestType = _enum("DigestType")
Encoding = _enum("Encoding")
FilterType = _enum("FilterType")
MessageType = _enum("MessageType")
Permission = _enum("Permission")
AddressScheme = _enum("AddressScheme")
TransactionResolution = _enum("TransactionResolution")
TransactionSource = _enum("TransactionSource")

Status = message("Status")
Message = message("Message")
Resource = message("Resource")
