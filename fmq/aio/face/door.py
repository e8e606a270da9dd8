"""The doors of a face, as protocols: a door carries out the calls in this thread, for a loop, or in
another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Protocol, TypeVar

from fmq.aio.face.consumer import AsyncConsumer
from fmq.arguments.options import Options
from fmq.assembly.stats import Stats
from fmq.basics.message import Body, Message, MessagePlace, Receipt
from fmq.basics.results import Outcome, Settled
from fmq.codecs import Codec
from fmq.consume.claims.membership import Joining
from fmq.copies import Backup, Progress
from fmq.store.reading.batch import Batch
from fmq.tx.commands.sender import SendArguments

T = TypeVar("T")
M_co = TypeVar("M_co", covariant=True)


class AsyncLookingDoor(Protocol):
    """A door for calls that change nothing. The face has checked their arguments."""

    @property
    def path(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def check_readable(self) -> None:
        """Raise if the engine is closed, so that nothing can be read."""

    async def look(self, name: str, *args: Any) -> Any:
        """Carry out the call `name` of `fmq.faces.table.LOOKS`, and return its result."""

    async def change(self, name: str, *args: Any, **named: Any) -> Any:
        """Carry out the change `name` of `fmq.faces.table`, and return its result. Raises what
        refuses it.
        """

    async def run(self, steps: Callable[..., T], *args: Any) -> T:
        """Call `steps` with a blocking door and with `args`, and return its result. `steps` makes
        several looks, all in one thread.
        """
        ...

    async def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, after waiting up to `timeout` seconds for the first one."""

    async def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, with the offset of the next message of
        each, after waiting up to `timeout` seconds for the first one.
        """
        ...

    async def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        ...

    async def backup(self, destination: str, progress: Progress | None) -> Backup:
        """Copy to `destination` what the backup there lacks."""
        ...

    async def close(self) -> None:
        """Close the engine. If the engine is in another process, close the connection to it."""


class AsyncJoiningDoor(Protocol[M_co]):
    """A door that makes consumers. Each kind of door makes a kind of its own."""

    @property
    def options(self) -> Options: ...

    @property
    def codecs(self) -> dict[str, Codec[Any]]:
        """The codecs that this engine object was given, by topic. Its consumers look here."""

    def new_member(self) -> str:
        """Return a name for a consumer whose program gives it none."""
        ...

    def consumer(self, asked: Joining) -> M_co:
        """Return the consumer that `asked` describes."""
        ...


class AsyncJoiningFace(Protocol[M_co]):
    """A face whose door makes consumers of the kind `M`."""

    @property
    def _door(self) -> AsyncJoiningDoor[M_co]: ...


class AsyncEngineDoor(AsyncLookingDoor, AsyncJoiningDoor[AsyncConsumer], Protocol):
    """A door for all calls."""

    async def send(
        self,
        topic: str,
        body: Body,
        how: SendArguments,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Receipt:
        """Append one message."""
        ...

    async def send_many(
        self,
        topic: str,
        bodies: Iterable[Body | Message],
        queue: int | None,
        producer: str | None,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> list[Receipt]:
        """Append messages, all or none of them."""
        ...

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None, bind: Any
    ) -> Any:
        """Return a new transaction."""

    @property
    def feedback(self) -> Any: ...

    def checker(self, producer: str) -> Callable[[Any], Any]:
        """Return the decorator that registers a checker for `producer`."""
        ...

    async def settle(self, timeout: float) -> Settled:
        """Ask the registered checkers about all undecided transactions."""
        ...

    async def send_with(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
    ) -> Outcome:
        """Prepare `messages`, call `local`, and decide as its answer says."""
        ...
