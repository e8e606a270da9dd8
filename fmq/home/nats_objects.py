"""A home in NATS JetStream: `nats://host:4222/shop`.

    fmq-home-NAME                a stream
    fmq-home-NAME.slots.N        a subject for each object, with one message

A message is published under the condition that its subject has none yet. The server keeps the
condition in the order of the stream, which a majority of its nodes has agreed on.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from errno import EACCES, EINVAL, EMSGSIZE
from threading import Thread
from typing import Any, TypeVar

import nats
from nats.aio.client import Client
from nats.errors import Error as NatsFailed

from fmq.home.objects import KeyTaken, NoAnswer

T = TypeVar("T")
CONNECT_SECONDS, SECONDS = 5, 3  # how long a connection, and an answer, may take
MESSAGE_BYTES_MAX = 900_000  # a server takes 1 MiB if nothing else is configured
HEADER_BYTES = 4096  # at most, of subject and headers
TOGETHER = 16  # how many requests are on their way at once: all must be answered in time
EXPECTED = "Nats-Expected-Last-Subject-Sequence"
NO_MESSAGE, NO_STREAM, NOT_CLUSTERED, WRONG_LAST = 10037, 10059, 10074, (10071, 10164)
"""Codes of errors of the server."""
NODES = 3
"""How many nodes of a cluster have the stream, if this engine makes it."""
STREAM = {
    "storage": "file", "retention": "limits", "max_msgs": -1, "max_bytes": -1, "max_age": 0,
    "max_msgs_per_subject": 1, "persist_mode": "default",
}  # fmt: skip
"""What a stream must have, as with something else it would lose entries."""


class NatsObjects:
    """Implements Objects. The loop of the client runs in a thread of its own."""

    def __init__(self, address: str, servers: Sequence[str], home: str, *, make: bool) -> None:
        """With `make` the stream is made if it is missing."""
        self.address = address
        self._servers = [*servers]
        self._stream = f"fmq-home-{home}"
        self._make = make
        self._connecting = asyncio.Lock()
        self._client: Client | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="fmq-nats", daemon=True)
        self._thread.start()
        self.object_bytes_max = MESSAGE_BYTES_MAX
        try:
            self._run(self._begin_at_any())
        except BaseException:
            self.close()
            raise

    async def _begin_at_any(self) -> None:
        """Ask each node, and the first one again: it may have had no leader yet."""
        for _ in self._servers:
            with suppress(NoAnswer):
                await self._begin()
                return
        await self._begin()

    async def _begin(self) -> None:
        said = await self._asked("STREAM.INFO")
        if _code(said) == NO_STREAM and self._make:
            how = {"name": self._stream, "subjects": [f"{self._stream}.>"], **STREAM}
            said = await self._asked("STREAM.CREATE", num_replicas=NODES, **how)
            if _code(said) == NOT_CLUSTERED:
                said = await self._asked("STREAM.CREATE", **how)
        config = self._checked(said)["config"]
        wrong = {name for name, value in STREAM.items() if config.get(name, value) != value}
        if wrong:
            has = ", ".join(f"{name}: {config[name]}" for name in sorted(wrong))
            raise OSError(EINVAL, f"its stream may lose entries ({has})", self.address)
        client, most = await self._connected(), config.get("max_msg_size", -1)
        most = min(client.max_payload, most) if most > 0 else client.max_payload
        self.object_bytes_max = min(MESSAGE_BYTES_MAX, most - HEADER_BYTES)

    # --- calls ------------------------------------------------------------------------------------

    def create(self, key: str, data: bytes) -> None:
        if len(data) > self.object_bytes_max:
            raise OSError(EMSGSIZE, f"{key} has {len(data):,} bytes, and the stream takes "
                          f"{self.object_bytes_max:,} at once", self.address)  # fmt: skip
        said = self._run(self._request(self._subject(key), data, {EXPECTED: "0"}))
        if _code(said) in WRONG_LAST:
            raise KeyTaken
        self._checked(said)

    def read(self, key: str) -> bytes | None:
        return self._run(self._read(key))

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        found: list[bytes] = []
        for at in range(0, len(keys), TOGETHER):
            for data in self._run(_all(map(self._read, keys[at : at + TOGETHER]))):
                if data is None:
                    return found
                found.append(data)
        return found

    def names(self, folder: str) -> list[str]:
        return self._run(self._names(folder))

    def remove(self, keys: Sequence[str]) -> None:
        for at in range(0, len(keys), TOGETHER):
            self._run(_all(map(self._remove, keys[at : at + TOGETHER])))

    def close(self) -> None:
        if not self._thread.is_alive():
            return
        with suppress(NoAnswer):
            self._run(self._disconnected())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # --- in the loop ------------------------------------------------------------------------------

    async def _read(self, key: str) -> bytes | None:
        said = await self._asked("STREAM.MSG.GET", last_by_subj=self._subject(key))
        if _code(said) == NO_MESSAGE:
            return None
        return b64decode(self._checked(said)["message"].get("data", ""))

    async def _names(self, folder: str) -> list[str]:
        """A node that was the leader, and does not know yet that it is not, may answer from an old
        state. So a message goes ahead, to which a majority agrees: the answer must be behind it.
        """
        behind = 0
        if self._make:
            look = await self._request(self._subject("look"), b"")
            behind = self._checked(look)["seq"]
        start, found = self._subject(f"{folder}/"), list[str]()
        while True:
            said = self._checked(
                await self._asked("STREAM.INFO", subjects_filter=f"{start}*", offset=len(found))
            )
            if said["state"]["last_seq"] < behind:
                raise NoAnswer("a node has answered from an old state")
            page = said["state"].get("subjects") or {}
            found += [subject.removeprefix(start) for subject in page]
            if not page or len(found) >= said.get("total", 0):
                return sorted(found)

    async def _remove(self, key: str) -> None:
        self._checked(await self._asked("STREAM.PURGE", filter=self._subject(key)))

    def _subject(self, key: str) -> str:
        return f"{self._stream}.{key.replace('/', '.')}"

    async def _asked(self, what: str, **how: object) -> dict[str, Any]:
        return await self._request(f"$JS.API.{what}.{self._stream}", json.dumps(how).encode())

    async def _request(
        self, subject: str, data: bytes, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        try:
            client = await self._connected()
            answer = await client.request(subject, data, timeout=SECONDS, headers=headers)
            said: dict[str, Any] = json.loads(answer.data)
        except (NatsFailed, OSError, TimeoutError, EOFError, json.JSONDecodeError) as error:
            await self._disconnected()
            self._servers.append(self._servers.pop(0))  # the next one may be well
            raise NoAnswer(f"{type(error).__name__} {error}".strip()) from error
        return said

    async def _connected(self) -> Client:
        async with self._connecting:
            if self._client is None:
                once = {"allow_reconnect": False, "max_reconnect_attempts": 1}
                how = {**once, "reconnect_time_wait": 0, "connect_timeout": CONNECT_SECONDS}
                self._client = await nats.connect(self._servers[0], error_cb=_ignore, **how)
            return self._client

    async def _disconnected(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(NatsFailed, OSError):
                await client.close()

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def _checked(self, said: dict[str, Any]) -> dict[str, Any]:
        """Return the answer `said`, unless it is an error."""
        error = said.get("error")
        if error is None:
            return said
        text = f"{error.get('description')} ({error.get('err_code')})"
        if error.get("code", 500) >= 500:
            raise NoAnswer(text)
        raise OSError(EACCES, text, self.address)


async def _ignore(_: Exception) -> None:
    """Each call raises its own errors."""


async def _all(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    return await asyncio.gather(*calls)


def _code(said: dict[str, Any]) -> int:
    """Return the code of the error in an answer; 0 if there is none."""
    code: int = said.get("error", {}).get("err_code", 0)
    return code
