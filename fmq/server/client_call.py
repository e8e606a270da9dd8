"""One request of a client that waits: its steps are carried out on the loop of the server.

What it writes is ordered, and shares a sync with what others order in this turn. While it waits for
messages, no thread waits for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from fmq.errors import FmqError, OutcomeUnknown
from fmq.loops.watch import LoopWatch
from fmq.server.host import Host
from fmq.server.load import Load, check_room_for
from fmq.steps.call_steps import Apart, Arrival, Durable, Steps
from fmq.wire.frames import Frame, Op

logger = logging.getLogger("fmq.server")

NAMES_AT: dict[int, int] = {Op.POLL: 3, Op.READ: 5, Op.WAIT: 2}
"""Where a request says by which name, a number, the client may cancel it."""


class Caller(Protocol):
    """What a call needs of the session of the client that made it."""

    host: Host
    load: Load
    waiting: set[ClientCall]
    """Its calls that wait for an arrival."""
    named: dict[int, ClientCall]
    """Those that the client may cancel."""
    client: bytes

    def answer(self, asked: Frame, payload: bytes) -> None: ...

    def failed(self, asked: Frame, error: Exception) -> None: ...


class ClientCall:
    """One request of a client, whose steps are carried out one after the other."""

    # Defaults of the class, because each request makes an object, and most set few of these
    # attributes.
    _answer: Any = None
    _watch: LoopWatch | None = None  # made when the call waits for the first time
    _is_woken = False  # True if the call was woken between its look and its waiting
    _name: int | None = None  # the number by which the client may cancel the call
    # What a turn of the loop asks of an order:
    work: Any = None
    sync: bool | None = None
    refusal: Exception | None = None

    def __init__(self, caller: Caller, asked: Frame, said: Any, steps: Steps[bytes]) -> None:
        """`steps` carry out what the client has `said`, and return the payload of the answer."""
        self._caller = caller
        self._asked = asked
        self._said = said
        self._steps = steps

    def go_on(self, error: BaseException | None = None) -> None:
        """Carry out steps until one has to wait, or answer. Raises nothing."""
        steps, answer = self._steps, self._answer
        step: Callable[[Any], Any] = steps.send
        if error is not None:
            step, answer = steps.throw, error
        try:
            while True:
                want = step(answer)
                step, answer = steps.send, None
                try:
                    if type(want) is Durable:
                        if (want.ahead or want.is_awaited) and self._is_now(want):
                            answer = self._write(want)
                        else:
                            self.work = self._plan, want
                            self.sync = want.sync
                            self._caller.host.order(self._caller.client, self)
                            return
                    elif type(want) is Arrival:
                        watch = self._watch or self._begin_watch()
                        if watch.listens and not self._is_woken:
                            self._wait(watch)
                            return
                        watch.stop()
                        self._is_woken = False
                        watch.listen(want)
                    elif type(want) is Apart:
                        self._caller.host.apart(want.work, self._done)
                        return
                    else:
                        answer = want()
                except Exception as raised:
                    step, answer = steps.throw, raised
        except StopIteration as done:
            if self._watch is not None:
                self._end(found=bool(done.value))
            self._caller.answer(self._asked, done.value)
        except Exception as raised:
            self._end(found=True)
            self._fail(raised)

    def _fail(self, error: Exception) -> None:
        if self.work is not None and not isinstance(error, FmqError):
            logger.exception("a request of a client was not ended as it should be")
            error = self.refusal or OutcomeUnknown(
                f"what this call wrote is durable, but it has no answer ({error!r}). Look at it "
                "with engine.read, or engine.outcome for a transaction."
            )
        self._caller.failed(self._asked, error)

    def _done(self, result: Any, error: BaseException | None) -> None:
        """Go on with what a thread has done."""
        self._answer = result
        self.go_on(error)
        self._caller.host.served()

    # --- writing --------------------------------------------------------------------------------

    def _is_now(self, want: Durable) -> bool:
        """Return whether to write the append of a step at once, because it needs no sync. Return
        False if the client has ordered something before, or if the loop would wait for another
        thread: then the append shares a sync with the others of the turn.
        """
        host = self._caller.host
        # Without `waits`, in the mode "interval", an order of this client costs no wait either: it
        # is planned first, and this one after it.
        waits = host.commit_queue.waits(None)
        if host.has_ordered(self._caller.client):
            if waits:
                return False
            host.commit()
        # What is posted is never waited for. What is written ahead is written by this thread, in
        # microseconds; but while another thread leads, `run` would wait for its write and a sync.
        # In the mode "interval" that is rare: a thread leads once in an interval.
        return want.is_awaited is not None or not host.commit_queue.is_led or not waits

    def _plan(self, want: Durable) -> None:
        self._answer = want.plan(want.what)

    def _write(self, want: Durable) -> Any:
        queue = self._caller.host.commit_queue
        if want.is_awaited is not None:
            return queue.post(want.plan, want.what, want.is_awaited)
        return queue.run(want.plan, want.what, wait=True, ahead=True)

    finish = go_on  # called when the append that it has ordered is durable

    def fail(self, make: Callable[[], BaseException]) -> None:
        """Go on with an error: what the call has ordered was refused, or the engine has failed."""
        self.go_on(make())

    # --- waiting --------------------------------------------------------------------------------

    def _begin_watch(self) -> LoopWatch:
        check_room_for("requests of one client that wait", self._caller.waiting)
        self._watch = LoopWatch(self._caller.host.waits, self._again)
        return self._watch

    def _wait(self, watch: LoopWatch) -> None:
        """Wait until it is worth to look again."""
        caller = self._caller
        watch.begin_to_wait()
        caller.waiting.add(self)
        at = NAMES_AT.get(self._asked.op)
        if at is not None and len(self._said) > at:
            self._name = self._said[at]
            caller.named[self._name] = self

    def _again(self) -> None:
        watch = self._watch
        if watch is None or self not in self._caller.waiting:
            # The call does not wait yet: its look is still being carried out, together with a
            # write. Remember the wakeup, so that the call looks again before it waits.
            self._is_woken = True
            return
        watch.stop()
        host = self._caller.host
        if not self._caller.load.is_choked:
            self._caller.waiting.discard(self)
            self.go_on()
        elif host.monotonic() < watch.deadline:
            watch.pass_on()  # take no messages while the client does not read its answers
            watch.wait_until(watch.deadline)
        else:
            self.give_up()
        host.served()

    def look_again(self) -> None:
        """Look soon: the client reads its answers again."""
        self._caller.host.loop.call_soon(self._again)

    def give_up(self) -> None:
        """Answer with nothing, now."""
        self.cancel()
        self._caller.answer(self._asked, b"")

    def cancel(self) -> None:
        """End without an answer. What the call has claimed is given back."""
        self._end(found=True)
        self._steps.close()

    def _end(self, *, found: bool) -> None:
        if self._watch is None:
            return
        self._watch.end(found=found)
        caller, name = self._caller, self._name
        caller.waiting.discard(self)
        if name is not None and caller.named.get(name) is self:
            del caller.named[name]
