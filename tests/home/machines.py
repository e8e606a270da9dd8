"""Machines that share a home in memory, each with a disk of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random

import fmq
from fmq.errors import EngineFailed, TakenOver
from fmq.home.home_disk import HomeDisk
from fmq.home.home_log import HomeLog
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.fake_home import FakeObjects

OPTIONS = fmq.Options(topic_queues={"t": 1}, segment_bytes=4096)


class Machine:
    """One machine, with a disk of its own and its own way to the home."""

    def __init__(self, home: dict[str, bytes], number: int) -> None:
        self.objects = FakeObjects(home)
        self.options = OPTIONS
        self.floor_slots = 1  # each checkpoint raises the floor
        self.disk = CrashDisk()
        self.number = number
        self.opened = 0
        self.acked: list[bytes] = []
        self.refused: list[bytes] = []

    def log(self) -> HomeLog:
        self.opened += 1
        said = {"host": f"machine {self.number}", "pid": 7}
        random = Random(self.number * 1000 + self.opened).randbytes
        return HomeLog(
            self.objects, random, FakeClock(), said, retry_seconds=5, floor_slots=self.floor_slots
        )

    def open(self) -> fmq.Engine:
        self.home_log = self.log()
        disk = HomeDisk(self.disk, self.home_log)
        self.engine = fmq.open("data", self.options, disk=disk, clock=FakeClock(), background=False)
        return self.engine

    def close(self) -> None:
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


def begun() -> tuple[dict[str, bytes], Machine, Machine]:
    home: dict[str, bytes] = {}
    first, second = Machine(home, 1), Machine(home, 2)
    first.open()
    first.work(b"begun")
    return home, first, second
