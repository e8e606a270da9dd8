"""The clients that are connected: which of them live, and which can be asked about transactions.

A client opens a telemetry stream when it starts. A producer says there to which topics it sends. A
client lives while it has a stream, and for a short time after its last call.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from fmq_rocketmq.protocol import Code
from fmq_rocketmq.refusals import Refused

SILENCE_SECONDS = 30.0  # clients send a heartbeat each 10 s
TOPICS_MAX = 1000  # of one producer
COMMANDS_MAX = 100  # how many commands wait for a client that does not read


class Stream:
    """What one telemetry stream sends to its client: commands, and None at its end."""

    def __init__(self, client: str) -> None:
        self.client = client
        self.topics: set[str] = set()
        self._commands: queue.Queue[Any] = queue.Queue(COMMANDS_MAX)
        self._has_ended = threading.Event()

    def send(self, command: Any) -> bool:
        """Pass on a command. Return False if the client does not read, or is gone."""
        if self._has_ended.is_set():
            return False
        try:
            self._commands.put_nowait(command)
        except queue.Full:
            return False
        return True

    def end(self) -> None:
        """Let `commands` end. What waits is dropped."""
        self._has_ended.set()
        with suppress(queue.Full):
            self._commands.put_nowait(None)

    def end_after_rest(self) -> None:
        """Let `commands` end once what waits was sent."""
        if not self.send(None):
            self.end()

    def commands(self) -> Iterable[Any]:
        """Yield the commands until the end."""
        while not self._has_ended.is_set():
            command = self._commands.get()
            if command is None:
                return
            yield command


class Clients:
    """All clients of a server. Any thread may call it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._streams: list[Stream] = []
        self._seen: dict[str, float] = {}
        self._closed = False

    def note_call(self, client: str) -> None:
        """Note that a client has called."""
        with self._lock:
            self._seen[client] = self._clock()

    def open(self, client: str) -> Stream:
        """Return the stream of a client that has connected."""
        stream = Stream(client)
        with self._lock:
            self._streams.append(stream)
            if self._closed:
                stream.end()
        return stream

    def close(self, stream: Stream) -> None:
        """Note the end of a stream."""
        stream.end()
        with self._lock:
            if stream in self._streams:
                self._streams.remove(stream)

    def publishes(self, stream: Stream, topics: Iterable[str]) -> None:
        """Note that a producer sends to `topics`. Raises Refused if they are too many."""
        named = set(topics)
        if len(named) > TOPICS_MAX:
            raise Refused(
                Code.BAD_REQUEST,
                f"a producer names at most {TOPICS_MAX:,} topics, not {len(named):,}.",
            )
        with self._changed:
            stream.topics = named
            self._changed.notify_all()

    def has_sent_half(self, client: str, topic: str) -> None:
        """Note that a client has sent a transaction to `topic`, so that it can be asked about it
        even if it has not named the topic.
        """
        with self._changed:
            for stream in self._streams:
                if stream.client == client and len(stream.topics) < TOPICS_MAX:
                    stream.topics.add(topic)
            self._changed.notify_all()

    def wait_for_topics(self) -> list[str]:
        """Return the topics of all producers, sorted, once there are any. Return none at the end of
        the server.
        """
        with self._changed:
            while not self._closed:
                topics = set().union(*(each.topics for each in self._streams))
                if topics:
                    return sorted(topics)
                self._changed.wait()
            return []

    def send_to_producer(self, topic: str, command: Any) -> bool:
        """Pass a command to a producer of `topic`; they take turns. Return whether one took it."""
        with self._lock:
            fit = [each for each in self._streams if topic in each.topics]
        for stream in fit:
            if stream.send(command):
                with self._lock:
                    if stream in self._streams:  # the next question goes to another one
                        self._streams.remove(stream)
                        self._streams.append(stream)
                return True
        return False

    def is_live(self, client: str) -> bool:
        """Return whether a client is connected, or has called a short time ago."""
        with self._lock:
            if any(each.client == client for each in self._streams):
                return True
            return self._clock() - self._seen.get(client, -SILENCE_SECONDS) < SILENCE_SECONDS

    def forget(self, client: str) -> None:
        """Note that a client has ended."""
        with self._lock:
            self._seen.pop(client, None)
            ended = [each for each in self._streams if each.client == client]
            self._streams = [each for each in self._streams if each.client != client]
        for stream in ended:
            stream.end()

    def forget_silent(self) -> None:
        """Forget clients that have not called for a long time."""
        with self._lock:
            oldest = self._clock() - 2 * SILENCE_SECONDS
            self._seen = {client: at for client, at in self._seen.items() if at > oldest}

    def close_all(self) -> None:
        """End all streams, and those that will be opened."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            streams = [*self._streams]
        for stream in streams:
            stream.end()
