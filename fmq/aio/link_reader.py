"""A loop that reads the connection of a client. So answers come without a thread in between.

Steps that would have to wait are done by a thread: connecting, and sending more than fits into the
socket.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from contextlib import suppress
from functools import partial
from threading import get_ident

from fmq.aio.threads import Threads
from fmq.errors import FmqError
from fmq.remote.link import Link
from fmq.remote.wires import Line

# After this time a loop checks that another loop still reads for it.
LOOK_SECONDS = 0.5


class LoopReader:
    """Implements LoopReads with an event loop."""

    def __init__(self, link: Link, loop: AbstractEventLoop, threads: Threads) -> None:
        self._link = link
        self._threads = threads
        self._loop = loop
        self._thread = get_ident()
        self._line: Line | None = None  # the connection that the loop watches
        self._is_connecting = False
        self._heard = loop.time()  # when the last bytes came, by the clock of the loop
        self._timer: TimerHandle | None = None
        self._watcher: TimerHandle | None = None

    def begin(self) -> None:
        """Read the connection from now on, unless another loop does. Then check now and then that
        the other one still runs.
        """
        link = self._link
        reads: object = link.loop
        if reads is self:
            return
        if self not in link.loops:
            link.loops.append(self)
        if isinstance(reads, LoopReader) and reads.is_running:
            if self._watcher is None:
                self._watcher = self._loop.call_later(LOOK_SECONDS, self._look_at_reader)
            return
        link.be_read_by(self)

    def _look_at_reader(self) -> None:
        self._watcher = None
        if self in self._link.loops:
            self.begin()

    def end(self) -> None:
        """Stop reading. Another loop takes over, or the next call reads by itself."""
        link = self._link
        if self in link.loops:
            link.loops.remove(self)
        if self._watcher is not None:
            self._watcher.cancel()
        if link.loop is self:
            self._unwatch()
            others = (each for each in [*link.loops] if isinstance(each, LoopReader))
            link.be_read_by(next((each for each in others if each.is_running), None))

    @property
    def is_running(self) -> bool:
        """Return whether the loop runs, and so reads the connection."""
        return self._loop.is_running()

    # --- what the link calls --------------------------------------------------------------------

    def reads_for(self, thread: int) -> bool:
        """Return whether `thread` may wait for this loop to read. The loop's own thread may not."""
        return thread != self._thread and self.is_running

    def met(self, line: Line) -> None:
        """Read a new connection from now on. Any thread may call this."""
        self._soon(self._watch, line)

    def drop(self, line: Line) -> bool:
        """Close a connection that the loop reads. Any thread may call this."""
        if self._loop.is_closed():
            return False
        self._soon(self._close, line)
        return True

    def _soon(self, call: object, line: Line) -> None:
        if get_ident() == self._thread:
            call(line)  # type: ignore[operator]
            return
        with suppress(RuntimeError):  # the loop was closed meanwhile
            self._loop.call_soon_threadsafe(call, line)  # type: ignore[arg-type]

    # --- by the loop's thread -------------------------------------------------------------------

    def _watch(self, line: Line) -> None:
        self._unwatch()
        if self._link.loop is self and self._link.has(line):
            self._line = line
            self._loop.add_reader(line.wire.fileno(), self._readable, line)
            self._heard = self._loop.time()
            self._timer = self._loop.call_later(self._link.silence, self._listen, line)

    def _listen(self, line: Line) -> None:
        """Ask the engine process for a sign of life if it was silent, because it may be stopped."""
        silence, now = self._link.silence, self._loop.time()
        if now - self._heard >= silence:
            self._heard = now
            self._threads.alone(partial(self._link.look_for_server, line))
        self._timer = self._loop.call_later(silence, self._listen, line)

    def _unwatch(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._loop.remove_reader(line.wire.fileno())
        if self._timer is not None:
            self._timer.cancel()

    def _readable(self, line: Line) -> None:
        self._heard = self._loop.time()
        self._link.read_now(line)
        self.look()

    def _close(self, line: Line) -> None:
        if self._line is line:
            self._unwatch()
        line.wire.close()
        self.look()

    def look(self) -> None:
        """Connect again if requests wait for a connection."""
        if self._link.waits and not self._is_connecting:
            self._is_connecting = True
            self._threads.alone(self._connect)

    def _connect(self) -> None:
        with suppress(FmqError):  # the error goes to each waiting request
            self._link.reconnect()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._connected)

    def _connected(self) -> None:
        self._is_connecting = False
        self.look()
