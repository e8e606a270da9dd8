"""The door of an engine, here or in another process, for the coroutines of one loop.

Frequent calls are made by the side of the loop: `LocalSide` or `RemoteSide`. Other calls are made
by threads, through the blocking door.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, get_running_loop
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

from fmq.aio.call import end_of, written
from fmq.aio.face.consumer import AsyncConsumer
from fmq.aio.feedback import AsyncFeedback
from fmq.aio.local import LocalSide
from fmq.aio.loop_member import LoopMember
from fmq.aio.remote import RemoteSide
from fmq.aio.threads import Threads
from fmq.arguments.options import Options
from fmq.assembly.stats import Stats
from fmq.basics.message import Body, Message, MessagePlace, Receipt
from fmq.basics.results import Outcome, Settled
from fmq.codecs import Codec
from fmq.consume.claims.membership import Joining
from fmq.copies import Backup, Progress
from fmq.engines.thread_door import ThreadDoor
from fmq.errors import WrongState
from fmq.posix import after_fork_in_child
from fmq.remote.lazy_door import LazyDoor
from fmq.server.doors import Reach
from fmq.server.server_handle import Serving
from fmq.store.reading.batch import Batch
from fmq.tx.commands.sender import SendArguments
from fmq.wire.processes import new_member

C = TypeVar("C", bound=Callable[..., Any])
T = TypeVar("T")
Awaited: TypeAlias = Coroutine[Any, Any, T]


class LoopDoor:
    """An engine for one loop at a time. When that loop has closed, the next one may use the
    engine.
    """

    def __init__(self, door: Any) -> None:
        """`door` is a ThreadDoor, LinkDoor or LazyDoor."""
        self.blocking = door
        self.codecs: dict[str, Codec[Any]] = {}
        self._is_met = not isinstance(door, LazyDoor)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._side_now: Any = None

    @property
    def side(self) -> Any:
        """Return the side of the running loop. The first call on a loop makes it."""
        if get_running_loop() is not self._loop:
            self._meet(get_running_loop())
        return self._side_now

    def _meet(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            raise WrongState(
                "this object belongs to another event loop, which is not closed. Nothing was "
                "changed; fmq.aio.of(...) gives each loop its own, of the same engine."
            )
        self.use(loop, Threads(loop))
        _doors.add(self)

    def use(self, loop: asyncio.AbstractEventLoop, threads: Threads) -> None:
        """Serve the coroutines of `loop` from now on."""
        door = self.blocking
        if isinstance(door, LazyDoor):
            door = door.met()
        kind = LocalSide if isinstance(door, ThreadDoor) else RemoteSide
        self._side_now = kind(door, loop, threads)
        self._loop = loop

    async def _met(self) -> Any:
        """Return the side of the running loop. If connecting was put off, connect first, in a
        thread.
        """
        if not self._is_met:
            threads = Threads(get_running_loop())
            await threads.long(self.blocking.met)
            self._is_met = True
        return self.side

    def forked(self) -> None:
        """Forget the loop, in the child process of a fork."""
        self._loop = self._side_now = None

    # --- calls by name, which threads make ------------------------------------------------------

    def check_readable(self) -> None:
        """Raise if the engine is closed, so that nothing can be read."""
        if self._is_met:
            self.blocking.check_readable()

    def look(self, name: str, *args: Any) -> Awaited[Any]:
        """Carry out a call of LOOKS, and return its result."""
        if get_running_loop() is self._loop:
            run = self._side_now.threads.run
            return run(self.blocking.look, name, *args)  # type: ignore[no-any-return]
        return self._later("look", name, *args)

    def change(self, name: str, *args: Any, **named: Any) -> Awaited[Any]:
        """Carry out a change, and return its result."""
        if get_running_loop() is self._loop:
            run = self._side_now.threads.run
            return run(self.blocking.change, name, *args, **named)  # type: ignore[no-any-return]
        return self._later("change", name, *args, **named)

    def run(self, steps: Callable[..., T], *args: Any) -> Awaited[T]:
        """Let one thread call `steps`, which makes several looks, and return its result."""
        return self._later("run", steps, *args)

    def stats(self) -> Awaited[Stats]:
        """Return a snapshot of the engine."""
        return self._later("stats")

    async def _later(self, method: str, *args: Any, **named: Any) -> Any:
        """Let a thread call a method of the blocking door, and return its result."""
        side = await self._met()
        return await side.threads.run(getattr(self.blocking, method), *args, **named)

    # --- sending and reading --------------------------------------------------------------------

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
        side = self._side_now if get_running_loop() is self._loop else await self._met()
        call = side.send(topic, body, how, delay, deliver_at, sync)
        try:
            return await call.future  # type: ignore[no-any-return]
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
            raise

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
        side = self._side_now if get_running_loop() is self._loop else await self._met()
        call = side.send_many(topic, bodies, queue, producer, delay, deliver_at, sync)
        if call is None:
            return []
        try:
            return await call.future  # type: ignore[no-any-return]
        except CancelledError as cancelled:
            await end_of(call, cancelled, written)
            raise

    async def read_batch(
        self, topic: str, queue: int, offset: int, limit: int, timeout: float
    ) -> Batch | None:
        """Return messages of a queue, after waiting up to `timeout` seconds for the first one."""
        side = self._side_now if get_running_loop() is self._loop else await self._met()
        found: Batch | None = await side.read_batch(topic, queue, offset, limit, timeout)
        return found

    async def wait(self, places: Sequence[MessagePlace], timeout: float) -> list[MessagePlace]:
        """Return the places whose queues have messages, after waiting up to `timeout` seconds for
        the first one.
        """
        side = self._side_now if get_running_loop() is self._loop else await self._met()
        found: list[MessagePlace] = await side.wait(places, timeout)
        return found

    # --- transactions and consumers -------------------------------------------------------------

    def begin(
        self, tx_id: str | None, producer: str | None, check_after: float | None, bind: Any
    ) -> Any:
        """Return a new transaction."""
        side = self.side
        side.check()
        if bind is not None:
            return self.blocking.begin(tx_id, producer, check_after, bind)
        return side.begin(tx_id, producer, check_after)

    async def send_with(
        self,
        messages: Iterable[tuple[str, Body | Message]],
        local: Callable[..., Any],
        tx_id: str | None,
        producer: str | None,
        check_after: float | None,
    ) -> Outcome:
        """Prepare `messages`, call `local`, and decide as its answer says."""
        side = await self._met()
        call = _on_loop(side.loop, local) if iscoroutinefunction(local) else local
        names = tx_id, producer, check_after
        found: Outcome = await side.threads.long(self.blocking.send_with, messages, call, *names)
        return found

    @property
    def feedback(self) -> AsyncFeedback:
        return AsyncFeedback(self.side, self.blocking.feedback)

    def checker(self, producer: str) -> Callable[[C], C]:
        """Return the decorator that registers a checker. A coroutine function runs on this loop."""
        loop, register = self.side.loop, self.blocking.checker(producer)

        def registered(check: C) -> C:
            register(_on_loop(loop, check) if iscoroutinefunction(check) else check)
            return check

        return registered

    async def settle(self, timeout: float) -> Settled:
        """Ask the registered checkers about all undecided transactions."""
        side = await self._met()
        found: Settled = await side.threads.long(self.blocking.settle, timeout)
        return found

    new_member = staticmethod(new_member)

    def consumer(self, asked: Joining) -> AsyncConsumer:
        """Return a consumer, which joins its group later."""
        side = self.side
        side.check()
        return AsyncConsumer(LoopMember(side, self.blocking.member, asked))

    # --- the engine itself ----------------------------------------------------------------------

    @property
    def path(self) -> str:
        found: str = self.blocking.path
        return found

    @property
    def options(self) -> Options:
        found: Options = self.blocking.options
        return found

    def serve(self, reach: Reach) -> Awaited[Serving]:
        """Let other processes use the directory."""
        return self._later("serve", reach)

    def stop(self, seconds: float) -> Awaited[None]:
        """Have the engine process end."""
        return self._later("stop", seconds)

    async def backup(self, destination: str, progress: Progress | None) -> Backup:
        """Copy to `destination` what the backup there lacks. A thread does, and `progress` is
        called on the loop. If the call is cancelled, the copying ends.
        """
        side = await self._met()
        cancelled: list[CancelledError] = []

        def tell(done: int, total: int) -> None:
            if cancelled:
                raise cancelled[0]
            if progress is not None:
                side.loop.call_soon_threadsafe(progress, done, total)

        try:
            found: Backup = await side.threads.long(self.blocking.backup, destination, tell)
        except CancelledError as error:
            cancelled.append(error)
            raise
        return found

    async def close(self) -> None:
        """Wait for calls that are being written or sent, and close the engine. Waiting polls and
        reads get Closed.
        """
        if not self._is_met:
            self.blocking.close()
            return
        side = self.side
        await side.drain()
        side.end()
        await side.threads.long(self.blocking.close)
        side.threads.stop()

    def __repr__(self) -> str:
        return f"<fmq.aio of {self.blocking!r}>"


_doors: WeakSet[LoopDoor] = WeakSet()


def _after_fork() -> None:
    for door in [*_doors]:
        door.forked()


after_fork_in_child(_after_fork)


def _on_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function for threads that runs a coroutine function on `loop`."""

    def call(*args: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(function(*args), loop).result()

    return call
