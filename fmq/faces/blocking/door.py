# Made of fmq/aio/face/door.py by tools/make_faces.py: change that file, and run it.
"""What carries out the calls of a face: in this thread, for a loop, or in another process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Protocol, TypeVar

from fmq.allocation import Strategy
from fmq.arguments.options import Options
from fmq.assembly.stats import Stats
from fmq.basics.message import Body, Message, Receipt
from fmq.basics.results import Outcome, Settled
from fmq.consume.claims.backoff import Retry
from fmq.consume.claims.membership import OnChange
from fmq.faces.any_consumer import AnyConsumer
from fmq.store.reading.batch import Batch

T = TypeVar("T")
M_co = TypeVar("M_co", covariant=True)


class LookingDoor(Protocol):
    """What carries out the calls that change nothing. The face has checked their arguments."""

    @property
    def path(self) -> str: ...

    @property
    def options(self) -> Options: ...

    def check_open(self) -> None:
        """Raise if nothing can be read any more."""

    def look(self, name: str, *args: Any) -> Any:
        """Return what the call `name` of `fmq.faces.table.LOOKS` returns."""

    def change(self, name: str, *args: Any, **named: Any) -> Any:
        """Make a change of `fmq.faces.table` by its name, or refuse it, and return its result."""

    def run(self, steps: Callable[..., T], *args: Any) -> T:
        """Return what `steps` returns for a door that blocks and for `args`: a call that takes
        several looks, which are made in one thread.
        """
        ...

    def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, waiting up to `timeout` seconds for the first."""

    def stats(self) -> Stats:
        """Return a snapshot of the engine."""
        ...

    def close(self) -> None:
        """End the engine, or leave it."""


class JoiningDoor(Protocol[M_co]):
    """What makes consumers, each kind of door its own."""

    def join(
        self,
        topics: str | Iterable[str],
        group: str,
        lease_seconds: float | None,
        member: str | None,
        strategy: str | Strategy | None,
        wanted: str | None,
        *,
        ordered: bool,
        strict: bool,
        on_change: OnChange | None,
        broadcast: bool,
        retry: Retry | None,
        expired: str,
        damaged: str,
    ) -> M_co:
        """Return a member of `group`, which wants what the text of a filter says."""
        ...


class JoiningFace(Protocol[M_co]):
    """A face, as far as the kind of its consumers is asked for."""

    @property
    def _door(self) -> JoiningDoor[M_co]: ...


class EngineDoor(LookingDoor, JoiningDoor[AnyConsumer], Protocol):
    """What carries out all calls."""

    def send(
        self,
        topic: str,
        body: Body,
        key: str | None,
        tag: str | None,
        headers: Mapping[str, str] | None,
        queue: int | None,
        producer: str | None,
        message_id: str | None,
        priority: int | None,
        expires_at: datetime | None,
        delay: float | None,
        deliver_at: datetime | None,
        sync: bool | None,
    ) -> Receipt:
        """Append one message."""
        ...

    def send_many(
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
        """Return what registers a checker."""
        ...

    def settle(self, timeout: float) -> Settled:
        """Ask the registered checkers about all that is undecided."""
        ...

    def send_with(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
    ) -> Outcome:
        """Prepare `messages`, call `local`, and decide as it answers."""
        ...
