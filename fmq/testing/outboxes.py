"""An outbox: the messages that an application sends in a test, in an engine in memory.

The application's own engines are handles that lead to that engine meanwhile. It knows how they are
used, and neither their directories nor their connections.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, overload

import fmq
from fmq.bind.drivers import is_django, is_of_django_outbox
from fmq.testing.crash_disk import CrashDisk

Handle = fmq.Engine | fmq.RemoteEngine


class SentMessages(Sequence[fmq.Message]):
    """The messages that were sent, as a list: by transaction, then by topic and queue."""

    def __init__(self, memory: fmq.Engine, engine: Handle) -> None:
        self._memory: fmq.Engine | None = memory
        self._engine = engine
        self._after = -1  # the position of the last message that `clear` dropped
        self._last: list[fmq.Message] = []  # the messages that were left when the block ended

    @property
    def engine(self) -> Handle:
        """Return a handle of the engine in memory: the first that was passed, or a new one."""
        return self._engine

    def of(self, topic: str) -> list[fmq.Message]:
        """Return the messages of `topic`."""
        return [message for message in self._messages() if message.topic == topic]

    def bodies(self, topic: str) -> list[bytes]:
        """Return the bodies of the messages of `topic`."""
        return [message.body for message in self.of(topic)]

    def values(self, topic: str) -> list[Any]:
        """Return what the bodies of `topic` hold as JSON. Raises ValueError for one that is none.

        A topic with a codec has `value(message)` for each message of `of(topic)`.
        """
        return [json.loads(body) for body in self.bodies(topic)]

    def one(self, topic: str) -> fmq.Message:
        """Return the only message of `topic`. Raises AssertionError, which lists what was sent, if
        there is not exactly one.
        """
        found = self.of(topic)
        if len(found) != 1:
            raise AssertionError(f"{len(found)} messages of {topic!r}, and not one, in {self!r}")
        return found[0]

    def clear(self) -> None:
        """Drop the messages sent so far."""
        found = self._messages()
        self._after = max([self._after, *(_place(each)[0] for each in found)])
        self._last = []

    def close(self) -> None:
        """Keep the messages, because the engine in memory is about to close."""
        self._last, self._memory = self._messages(), None

    def _messages(self) -> list[fmq.Message]:
        if self._memory is None:
            return self._last
        found = [each for info in self._memory.queues() for each in _all(self._memory, info)]
        return sorted((each for each in found if _place(each)[0] > self._after), key=_place)

    @overload
    def __getitem__(self, index: int) -> fmq.Message: ...

    @overload
    def __getitem__(self, index: slice) -> list[fmq.Message]: ...

    def __getitem__(self, index: int | slice) -> fmq.Message | list[fmq.Message]:
        return self._messages()[index]

    def __iter__(self) -> Iterator[fmq.Message]:
        return iter(self._messages())  # read the messages once, and not once for each index

    def __len__(self) -> int:
        return len(self._messages())

    def __repr__(self) -> str:
        return f"<SentMessages {[(each.topic, each.key, each.body) for each in self._messages()]}>"


def _place(message: fmq.Message) -> tuple[int, int]:
    assert message.position is not None
    assert message.offset is not None
    return message.position, message.offset


def _all(engine: fmq.Engine, info: fmq.QueueInfo) -> Iterator[fmq.Message]:
    offset = info.first
    while found := engine.read(info.topic, queue=info.queue, offset=offset, limit=1000):
        yield from found
        offset += len(found)


class MemoryCalls:
    """The calls of an application's handles, made on an engine in memory."""

    def __init__(self, memory: fmq.Engine) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def transaction(self, *, bind: Any = None, **names: Any) -> fmq.Transaction:
        """Begin a transaction. With a Django connection it needs neither a file nor a marker."""
        if bind is not None and is_django(bind):
            # imported here, because it imports Django
            from fmq.testing.django_block import DjangoBlock

            bind = DjangoBlock(bind)
        elif bind is not None and is_of_django_outbox(bind):
            # imported here, because it imports Django
            from fmq.testing.django_block import DjangoOutboxInTest

            bind = DjangoOutboxInTest(bind.connection)
        tx: fmq.Transaction = self._memory.transaction(bind=bind, **names)
        return tx

    def begin(self) -> None:
        """Do nothing, because there is nothing to connect to."""

    def close(self) -> None:
        """Do nothing, because the next test may use the handle again."""


@contextmanager
def _diverted(engine: Handle, calls: MemoryCalls) -> Iterator[None]:
    """Direct the calls of `engine` to `calls` inside of the block.

    Its class is exchanged, so that code that has the object itself, in whatever module, has the
    diverted one. Nothing that the object holds is touched.
    """
    own = type(engine)
    if not issubclass(own, fmq.Engine | fmq.RemoteEngine):
        raise TypeError(
            f"outbox() takes engines made by fmq.connect or fmq.open, not {engine!r}. Nothing was "
            "diverted."
        )
    names = [name for name in dir(own) if not name.startswith("_")]

    def lead(name: str) -> property:
        return property(lambda _: getattr(calls, name))

    engine.__class__ = type(own.__name__, (own,), {name: lead(name) for name in names})
    try:
        yield
    finally:
        engine.__class__ = own


@contextmanager
def outbox(*engines: Handle, options: fmq.Options | None = None) -> Iterator[SentMessages]:
    """Collect what an application sends inside of the block, and keep it out of the journal.

    All calls of `engines`, made by `fmq.connect` or `fmq.open`, lead to one engine in memory
    meanwhile. A client made with `lazy=True` does not even connect. Without `engines`, hand
    `outbox.engine` to the application. A block of Django's may be inside of that of a TestCase: its
    messages, and those of an outbox of Django's, are sent when the block ends, and dropped if it
    raises.
    """
    with ExitStack() as stack:
        memory = stack.enter_context(
            fmq.open("outbox", options, disk=CrashDisk(), background=False)
        )
        handles: Iterable[Handle] = engines or [fmq.connect("outbox", lazy=True)]
        calls = MemoryCalls(memory)
        for each in handles:
            stack.enter_context(_diverted(each, calls))
        box = SentMessages(memory, next(iter(handles)))
        stack.callback(box.close)
        yield box
