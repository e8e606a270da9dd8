"""Machines that share a home in memory, each with a disk of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from threading import Event, Thread
from time import monotonic, sleep

import fmq
from fmq.errors import EngineFailed, TakenOver
from fmq.home.home_calls import slot_key
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import FLOOR_BYTES, HomeLog
from fmq.home.home_owner import HomeOwner
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fake_home import MANY_BYTES, FakeObjects

OPTIONS = fmq.Options(topic_queues={"t": 1}, segment_bytes=4096)


class Machine:
    """One machine, with a disk of its own and its own way to the home."""

    def __init__(
        self, home: dict[str, bytes], number: int, *, object_bytes_max: int = MANY_BYTES
    ) -> None:
        self.objects = FakeObjects(home, object_bytes_max=object_bytes_max)
        self.options = OPTIONS
        self.floor_slots = 1  # each checkpoint raises the floor
        self.floor_bytes = FLOOR_BYTES
        self.disk = CrashDisk()
        self.number = number
        self.opened = 0
        self.home_clock = FakeClock()
        self.acked: list[bytes] = []
        self.refused: list[bytes] = []

    def log(self) -> HomeLog:
        self.opened += 1
        said = {"host": f"machine {self.number}", "pid": 7}
        random = Random(self.number * 1000 + self.opened).randbytes
        what = self.objects, random, self.home_clock, said
        slots, size = self.floor_slots, self.floor_bytes
        return HomeLog(*what, retry_seconds=5, floor_slots=slots, floor_bytes=size)

    def open(self) -> fmq.Engine:
        """Open the home, again and again while others take over at the same moment."""
        while True:
            self.home_log = self.log()
            disk, clock = HomeDisk(self.disk, self.home_log), FakeClock()
            with suppress(TakenOver):
                self.engine = fmq.open(
                    "data", self.options, disk=disk, clock=clock, background=False
                )
                return self.engine

    @property
    def owner(self) -> HomeOwner:
        assert self.home_log.owner is not None
        return self.home_log.owner

    def close(self) -> None:
        self.objects.before = lambda what: None
        if hasattr(self, "engine"):
            with suppress(EngineFailed):
                self.engine.close()

    def send(self, body: bytes) -> None:
        try:
            self.engine.send("t", body)
        except TakenOver:
            self.refused.append(body)
        else:
            self.acked.append(body)

    def work(self, name: bytes) -> None:
        """Send, let the floor rise, and send again."""
        self.send(name + b" first")
        with suppress(EngineFailed):
            self.engine.checkpoint()
        self.send(name + b" second")

    def send_two(
        self, first: bytes, second: bytes, between: Callable[[], None] = lambda: None
    ) -> None:
        """Send both at once. `between` is called while the entry of the first is on its way, and
        that of the second is in the home.
        """
        n, landed = self.owner.history.next, Event()
        other, earlier = Thread(target=self.send, args=(second,)), self.objects.before

        def before(what: str) -> None:
            earlier(what)
            if what == f"create {slot_key(n)}" and other.ident is None:
                other.start()
                self._until(landed.is_set)
                assert landed.is_set(), "the second entry waits for the first"
                between()

        def after(what: str) -> None:
            if what == f"create {slot_key(n + 1)}":
                landed.set()

        self.objects.before, self.objects.after = before, after
        self.send(first)
        self.objects.before, self.objects.after = earlier, lambda what: None
        if other.ident is not None:
            self._until(lambda: not other.is_alive())

    def _until(self, done: Callable[[], bool]) -> None:
        """Let time pass for another thread, which waits for a home without an answer."""
        ends = monotonic() + 60
        while not done() and monotonic() < ends:
            sleep(0.001)
            self.home_clock.advance(0.01)

    def at_call(self, number: int, do: Callable[[], None]) -> None:
        """Let `do` happen while this machine is paused before its call with this number."""

        def before(_: str) -> None:
            if self.objects.calls == number:
                self.objects.before = lambda what: None
                do()

        self.objects.before = before


def check(home: dict[str, bytes], *machines: Machine) -> None:
    """A machine that knows nothing finds all that was acknowledged, once, and nothing else."""
    engine = Machine(home, 99).open()
    found = [bytes(each.body) for each in engine.read("t", offset=0, limit=999)]
    acked = [body for each in machines for body in each.acked]
    refused = [body for each in machines for body in each.refused]
    assert sorted(found) == sorted(acked)
    assert not {*found} & {*refused}
    engine.close()
    for each in machines:
        each.close()


def begun(object_bytes_max: int = MANY_BYTES) -> tuple[dict[str, bytes], Machine, Machine]:
    home: dict[str, bytes] = {}
    first, second = (Machine(home, n, object_bytes_max=object_bytes_max) for n in (1, 2))
    first.open()
    first.work(b"begun")
    return home, first, second


def overtake_at(call: str, first: Machine, second: Machine) -> None:
    """Let `first` work. It is paused before this call to the home, while `second` takes over."""

    def others(what: str) -> None:
        if what == call:
            first.objects.before = lambda what: None
            second.open()
            second.work(b"second")

    first.objects.before = others
    first.work(b"paused")
    assert second.acked
