"""A relay into streams of Redis: a batch and its place are written by one script.

Each queue is a stream, such as `orders.0`. The hash `fmq-relay-NAME` has the place, and the owner:
a word that the newest claim has made up. The script compares both before it writes. So an older
relay is refused, and so is a batch behind another one that a restarted server has lost.

A script that fails in the middle keeps what it has written, so it looks before it writes at all
that could fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from struct import pack
from typing import Any, Unpack
from uuid import uuid4

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ConnectionError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    TimeoutError,
)
from redis.retry import Retry

from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape
from fmq.relay.relay_errors import RelayError, RelayTakenOver, Unsure
from fmq.relay.target import RelayBatch, RelayPlace

SECONDS = 10  # how long an answer may take until the relay is in doubt
PASSING = "MISCONF", "NOREPLICAS", "LOADING", "MASTERDOWN", "CLUSTERDOWN"
"""Errors of a server that takes nothing now, and may do so later."""
OWNER, PLACE = "owner", "place"
DELIVER = """
local owner, place = unpack(redis.call('HMGET', KEYS[1], 'owner', 'place'))
if owner ~= ARGV[1] then return 'owner' end
if (place or '') ~= ARGV[2] then return 'place' end
for n = 2, #KEYS do
    local kind = redis.call('TYPE', KEYS[n]).ok
    if kind ~= 'none' and kind ~= 'stream' then return KEYS[n] end
end
for n = 4, #ARGV do
    local message, parts, at = ARGV[n], {}, 1
    while at <= #message do
        parts[#parts + 1], at = struct.unpack('>I4c0', message, at)
    end
    redis.call('XADD', KEYS[tonumber(parts[1])], '*', unpack(parts, 2))
end
redis.call('HSET', KEYS[1], 'place', ARGV[3])
return 'stored'
"""


class RedisTarget:
    """Streams of a Redis server. The key of the place has the prefix of their names, too."""

    atomic = True

    def __init__(self, address: str, name: str = "relay", **shape: Unpack[EnvelopeShape]) -> None:
        """`address` is one that redis-py takes, such as redis://host:6379/0."""
        again = Retry(NoBackoff(), 0)  # the relay tries again, and asks first
        self._redis: Any = Redis.from_url(address, socket_timeout=SECONDS, retry=again)
        self._script = self._redis.register_script(DELIVER)
        self._envelope = Envelope(**shape)
        self._key = f"{self._envelope.prefix}fmq-relay-{name}"
        self._owner = self._place = ""

    def claim(self) -> RelayPlace | None:
        """Write a new owner, and only then read the place."""
        self._owner = uuid4().hex
        with _explained(), self._redis.pipeline(transaction=True) as pipeline:
            pipeline.hset(self._key, OWNER, self._owner)
            pipeline.hget(self._key, PLACE)
            _, place = pipeline.execute()
        self._place = (place or b"").decode()
        return RelayPlace.of_text(self._place) if self._place else None

    def deliver(self, batch: RelayBatch) -> None:
        """Store the messages and the place by one script, if this relay still is the owner."""
        place, streams = batch.place.text(), {self._key: 1}
        messages = [_packed(each, streams) for each in self._envelope.headers(batch)]
        with _explained():
            said = self._script([*streams], [self._owner, self._place, place, *messages]).decode()
        if said == "stored":
            self._place = place
            return
        if said == "owner":
            raise RelayTakenOver(
                f"another relay of this name has claimed {self._key!r}. Nothing of the last batch "
                "of this one is there."
            )
        if said == "place":
            raise Unsure("Redis is at another place than this relay has left it")
        raise RelayError(f"{said!r} is no stream in Redis. Nothing of the last batch is there.")

    def status(self) -> RelayPlace | None:
        """Return the place that Redis has now."""
        with _explained():
            place = self._redis.hget(self._key, PLACE)
        return None if place is None else RelayPlace.of_text(place.decode())

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()


def _packed(enveloped: Enveloped, streams: dict[str, int]) -> bytes:
    """Return the number of the message's stream and its fields, each behind its length."""
    message, name, headers = enveloped
    number = streams.setdefault(f"{name}.{message.queue}", len(streams) + 1)
    encoded = [str(number).encode(), b"body", message.body]
    for key, value in headers:
        if key != "body":
            encoded += key.encode(), value.encode()
    return b"".join([pack(">I", len(part)) + part for part in encoded])


@contextmanager
def _explained() -> Iterator[None]:
    """Raise errors of the client as those of a relay."""
    try:
        yield
    except RedisError as error:
        what = f"{type(error).__name__} {error}"
        is_lost = isinstance(error, ConnectionError | TimeoutError)
        is_lost = is_lost and not isinstance(error, AuthenticationError)
        if is_lost or isinstance(error, OutOfMemoryError | ReadOnlyError):
            raise Unsure(f"Redis gave no answer, or takes nothing now: {what}") from error
        if any(word in what for word in PASSING):
            raise Unsure(f"Redis takes nothing now: {what}") from error
        raise RelayError(f"Redis refuses a relay: {what}. Nothing was copied.") from error
