"""Objects of fmq.aio in memory. A test calls them like blocking ones.

Nothing runs beside anything else here. Where the loop would wait, time passes or the server runs,
and what is meant for a thread is done at once. So a test does the same in each run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, nullcontext, suppress
from contextvars import copy_context
from functools import partial
from inspect import getattr_static, isawaitable, iscoroutinefunction
from itertools import count
from selectors import SelectorKey, SelectSelector
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from fmq.aio.call import Call
from fmq.aio.loop_engine import AsyncEngine
from fmq.aio.threads import Threads
from fmq.engines.engine import Engine
from fmq.remote.link_door import LinkDoor
from fmq.remote.remote_engine import RemoteEngine
from fmq.testing.fake_clock import TICK_SECONDS, FakeClock
from fmq.testing.transport import RETRY_FOR, FakeLoop, MemoryServer, MemoryWire

_bells: WeakValueDictionary[int, Bell] = WeakValueDictionary()
_numbers = count(1 << 30)  # numbers above those of any real descriptor


class Bell:
    """Stands in for a descriptor that a loop in memory watches: it is readable while it rings."""

    def __init__(self) -> None:
        self.rings = False
        self.number = next(_numbers)
        _bells[self.number] = self


class RingingWire(MemoryWire):
    """A connection in memory that a loop can watch."""

    def __init__(self, server: MemoryServer) -> None:
        self._bell = Bell()
        super().__init__(server)

    def arrive(self, data: bytes) -> None:
        super().arrive(data)
        self._bell.rings = True

    def cut(self) -> None:
        super().cut()
        self._bell.rings = True

    def receive_now(self) -> bytes | None:
        found = super().receive_now()
        if found is None:
            self._bell.rings = False
        return found

    def fileno(self) -> int:
        """Return the number of the bell, which rings while data has arrived."""
        return self._bell.number


class Bells(SelectSelector):
    """A selector of bells. The operating system does not know it, so a forked child has its own."""

    is_woken = False
    """Whether a call from elsewhere waits for the loop."""

    def ringing(self) -> list[tuple[SelectorKey, int]] | None:
        """Return what is readable now; None if nothing is, and no call has woken the loop."""
        found = [(key, key.events) for key in self.get_map().values() if _bells[key.fd].rings]
        woken, self.is_woken = self.is_woken, False
        return found if found or woken else None


class LoopOfBells(asyncio.SelectorEventLoop):
    """An event loop that watches bells instead of descriptors."""

    def __init__(self, selector: Bells) -> None:
        self._bells = selector
        super().__init__(selector)

    def _make_self_pipe(self) -> None:
        """Make no pipe, because a call from another thread wakes the selector itself."""

    def _close_self_pipe(self) -> None:
        """Do nothing, because there is no pipe."""

    def _write_to_self(self) -> None:
        self._bells.is_woken = True


class AtOnce(Threads):
    """Stands in for threads: each task runs at once, in the caller's thread."""

    def alone(self, function: Callable[[], object]) -> None:
        function()

    def begin(self, function: Callable[[], Any]) -> Call:
        call = Call(self._loop)
        call.has_begun = True
        self._job(call, function)()
        return call

    def soon(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon(partial(self.begin, function))


class TimePasses(Bells):
    """A selector that moves the clock where its loop would wait, after the server has run."""

    def __init__(self, clock: FakeClock, server: FakeLoop | None) -> None:
        super().__init__()
        self._clock = clock
        self._server = server

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """Return what can be read now, or after moving the clock by up to `timeout` seconds."""
        while (found := self.ringing()) is None and timeout != 0:
            wait = None if self._server is None else self._server.next_in()
            if wait is not None and (timeout is None or wait <= timeout):
                assert self._server is not None
                self._server.step()
                if timeout is not None:
                    timeout = max(0.0, timeout - wait)
                continue
            assert timeout is not None, "no answer will ever come"
            self._clock.advance(max(TICK_SECONDS, timeout))
            break
        return found or []


class LoopInMemory(LoopOfBells):
    """An event loop whose clock a test moves."""

    def __init__(self, clock: FakeClock, server: FakeLoop | None = None) -> None:
        super().__init__(TimePasses(clock, server))
        self.time = clock.monotonic  # type: ignore[method-assign]

    def __del__(self) -> None:
        self.close()  # do not warn when a test is over

    @contextmanager
    def _nested(self) -> Iterator[None]:
        """Let the loop run inside of one of its own calls, such as one that was meant for a
        thread.
        """
        itself: Any = self
        task, thread = asyncio.current_task(self), itself._thread_id
        to_come = len(itself._ready)
        if task is not None:
            asyncio.tasks._leave_task(self, task)
        itself._thread_id = None
        asyncio._set_running_loop(None)
        try:
            yield
        finally:
            asyncio._set_running_loop(self)
            itself._thread_id = thread
            if task is not None:
                asyncio.tasks._enter_task(self, task)
            # The outer turn has counted how many calls were ready. Leave as many.
            nothing = asyncio.Handle(lambda: None, (), self)
            nothing.cancel()
            itself._ready.extendleft([nothing] * max(0, to_come - len(itself._ready)))

    def finish(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine to its end, in the caller's context."""
        context = copy_context()
        try:
            is_inside = asyncio._get_running_loop() is self
            with self._nested() if is_inside else nullcontext():
                return self.run_until_complete(self.create_task(coroutine, context=context))
        finally:
            here = copy_context()
            for variable, value in context.items():
                if here.get(variable) is not value:
                    variable.set(value)


class Awaited:
    """A blocking front of an object of fmq.aio. Each call runs to its end, and a result from
    fmq.aio gets such a front, too.
    """

    def __init__(self, finish: Callable[[Coroutine[Any, Any, Any]], Any], what: Any) -> None:
        """`finish` runs a coroutine to its end."""
        self._finish = finish
        self._what = what

    def __getattr__(self, name: str) -> Any:
        if name in ("_finish", "_what"):
            raise AttributeError(name)  # while it is being copied, it has no inner object yet
        if name.startswith("_") and not hasattr(self._what, name):
            # attributes that tests look into
            return getattr(getattr(self._what, "_joined", None), name)
        if isinstance(getattr_static(self._what, name, None), property):
            return self._call(partial(getattr, self._what, name))
        found = getattr(self._what, name)
        return partial(self._call, found) if callable(found) else found

    def run(self, handler: Any, **named: Any) -> Any:
        """Run `handler`, and hand it deliveries with blocking calls."""
        given = (
            (lambda delivery: handler(self._wrapped(delivery))) if callable(handler) else handler
        )
        return self._call(self._what.run, given, **named)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._what, name, value)  # raises if the inner object has no such attribute

    def _call(self, call: Callable[..., Any], *args: Any, **named: Any) -> Any:
        async def made() -> Any:
            # A call may need the running loop before it returns its awaitable.
            found = call(*map(_bare, args), **{name: _bare(each) for name, each in named.items()})
            return await found if isawaitable(found) else found

        return self._wrapped(self._finish(made()))

    def _wrapped(self, found: Any) -> Any:
        if type(found) is list:
            return [self._wrapped(each) for each in found]
        if hasattr(found, "__anext__"):
            return self._each(found)
        if iscoroutinefunction(found):
            return partial(self._call, found)
        if found is self._what:
            return self
        is_aio = type(found).__module__.startswith(("fmq.aio.", "fmq.aio.face."))
        return Awaited(self._finish, found) if is_aio else found

    def _each(self, found: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._call(found.__anext__)
            except StopAsyncIteration:
                return

    def __iter__(self) -> Iterator[Any]:
        if hasattr(self._what, "__aiter__"):
            return self._each(self._what.__aiter__())
        return map(self._wrapped, self._what)

    def __getitem__(self, place: Any) -> Any:
        return self._wrapped(self._what[place])

    def __delitem__(self, place: Any) -> None:
        del self._what[place]

    def __len__(self) -> int:
        if hasattr(self._what, "__len__"):
            return len(self._what)
        count: int = self._call(self._what.count)
        return count

    def __bool__(self) -> bool:
        return not isinstance(self._what, list) or bool(self._what)

    def __repr__(self) -> str:
        return repr(self._what)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._what.__reduce_ex__(protocol)

    def __enter__(self) -> Any:
        return self._call(self._what.__aenter__)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> Any:
        return self._call(self._what.__aexit__, kind, error, traceback)


def _bare(each: Any) -> Any:
    if isinstance(each, Awaited):
        return each._what
    return [*map(_bare, each)] if type(each) is list else each


class AwaitedEngine(Awaited):
    """A blocking front of an engine of fmq.aio: an engine of this process, or a client of one."""

    def __init__(self, served: Engine, clock: FakeClock, *, over_frames: bool) -> None:
        self._parts = served._door.parts  # tests look into the engine with `inside`
        self._served = served
        self._server = server = MemoryServer(served, clock) if over_frames else None
        self._loop = loop = LoopInMemory(clock, None if server is None else server.loop)
        engine: Any = served
        if server is not None:
            dial = partial(RingingWire, server)
            what = served.path, dial, server.draw, clock, RETRY_FOR
            engine = RemoteEngine(LinkDoor(*what, background=False))
        face = AsyncEngine(engine)
        super().__init__(loop.finish, face)
        self._call(face._door.use, loop, AtOnce(loop))

    def transaction(self, **named: Any) -> Any:
        """Return a transaction that has its id already, as a blocking transaction has."""
        return self._call(self._what.transaction, **named)

    def consumer(self, *args: Any, **named: Any) -> Any:
        """Return a consumer that has joined its group already, as a blocking consumer has."""
        return self._call(self._what.consumer, *args, **named).__enter__()

    def close(self) -> None:
        """Close the engine and the server. The loop stays, so that later calls raise Closed."""
        try:
            self._call(self._what.close)
        finally:
            if self._server is not None:
                self._server.close()
                self._served.close()

    def __exit__(self, *_: object) -> None:
        self.close()
