"""What a machine that stands by asks the owner of its home: signs of life, through the home."""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread

from fmq.basics.clock import Clock
from fmq.errors import Closed, FmqError, NotAllowed, ProtocolError
from fmq.home.home_follower import HomeFollower
from fmq.posix import RealDisk
from fmq.remote.dial import AddressDialer
from fmq.remote.link import Link
from fmq.wire.network import client_context, read_token

SILENCE_SECONDS = 2.0
TIMES = 4  # an owner goes on with its signs of life for so many intervals between two questions


class OwnerQuestion:
    """A thread that asks the owner, wherever the home says that it serves."""

    def __init__(
        self,
        follower: HomeFollower,
        every: float,
        clock: Clock,
        token_file: str | None,
        tls_ca: str | None,
    ) -> None:
        """It asks for an entry each `every` seconds. Raises BadOption or NotAllowed."""
        self._follower = follower
        self._every = every
        self._clock = clock
        self._token = None if token_file is None else read_token(token_file)
        self._context = None if tls_ca is None else client_context(tls_ca)
        self.refusal: FmqError | None = None
        """Why an owner that is alive does not listen to this machine."""
        self._unheard = 0  # questions in turn that nobody has answered
        self._stop = Event()
        self._thread = Thread(target=self._run, name="fmq standby", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.ask()
            self._stop.wait(self._every)

    def ask(self) -> None:
        """Ask once, if the owner has an address, and set `refusal`."""
        where = self._follower.owner.get("address")
        if where is None:
            return
        try:
            self._ask_at(where)
            self.refusal = None
        except (NotAllowed, ProtocolError) as error:
            self.refusal, self._unheard = error, 0
        except (FmqError, OSError):
            # Who has refused was alive, and may be well and serve again at once. But the one that
            # answers nobody is judged by its silence, also by a machine that it did not listen to.
            self._unheard += 1
            if self._unheard > TIMES:
                self.refusal = None

    def _ask_at(self, where: str) -> None:
        dial = AddressDialer(where, self._context, SILENCE_SECONDS).dial
        draw, clock = RealDisk.random, self._clock
        link = Link(where, dial, draw, clock, 0.0, list, lambda: None, self._token)
        try:
            link.call("beat", self._every, TIMES * self._every)
        finally:
            link.close(Closed(f"{where}: was asked"))

    def close(self) -> None:
        """Ask no more."""
        self._stop.set()
        with suppress(RuntimeError):
            self._thread.join(SILENCE_SECONDS)
