"""A process that places orders, and reports over a pipe what became of each, until it is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

import fmq
import fmq.bind
from crash_tests.bound.database import Database
from crash_tests.bound.halves import Halves
from crash_tests.bound.steps import Blow, Stage, Step
from crash_tests.bound.ways import PRODUCER, Refused, Shop, Way
from crash_tests.real.load import Teller
from fmq.errors import AlreadyDecided

SETTLE_SECONDS = 60.0
AGAIN_SECONDS = 0.01  # how long to wait after an order that was not placed


@dataclass(frozen=True, slots=True)
class Life:
    """What a process needs to know to run one life."""

    store: str
    database: Database
    way: Way
    number: int
    threads: int
    blow: Blow
    step: Step | None  # None: at any moment
    nth: int  # the order at whose step it happens


def main(life: Life, pipe: Connection) -> None:
    """Run the whole process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has started it will kill it
    producer = Producer(life, pipe)
    guarded(producer.live, producer.tell)
    os._exit(0)


def guarded(work: Callable[[], None], tell: Callable[..., None]) -> None:
    """Run a thread's work. Only the end of the process may end it."""
    try:
        work()
    except BaseException:
        tell("broke", traceback.format_exc())


class Producer:
    """The producer of one life."""

    def __init__(self, life: Life, pipe: Connection) -> None:
        self.life = life
        self.tell = Teller(pipe).tell
        self.over = threading.Event()
        self._pipe = pipe
        self._go_on = threading.Event()
        self._stage = Stage(life.step, life.nth, self._happen)
        self._tills: list[Till] = []
        self._check = life.way.checker(life.database)

    def live(self) -> None:
        """Recover, place orders in all threads at once, settle when told to, and close."""
        threading.Thread(target=self._listen, daemon=True).start()
        with fmq.open(self.life.store, disk=Halves(self._stage)) as self.engine:
            self.engine.checker(PRODUCER)(self._checker)
            self.engine.settle()
            nothing = Stage(None, 0, self._happen)
            self._tills = [
                Till(self, number, nothing if number else self._stage)
                for number in range(self.life.threads)
            ]
            threads = [
                threading.Thread(target=guarded, args=(till.work, self.tell))
                for till in self._tills
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.tell("settled", settle(self.engine))
        self.tell("closed")

    def _listen(self) -> None:
        while self._pipe.recv() != "end":
            self._go_on.set()
        self.over.set()

    def _checker(self, question: fmq.Question) -> fmq.Answer:
        self._stage.asked(Step.ASKED)
        answer = self._check(question)
        self._stage.asked(Step.FENCED)
        self.tell("answered", answer)
        return answer

    def _happen(self) -> None:
        """Strike the blow now: in this process, or let the parent do it and wait for its report."""
        life, connection = self.life, self._tills[0].connection if self._tills else None
        match life.blow:
            case Blow.CONNECTION:
                # What is sent inside a commit arrives, and its answer does not.
                life.database.cut(connection, answers_only=life.step is Step.COMMITTING)
                self.tell("at", 0)
            case Blow.ASKED:
                self.engine.settle()
                self.tell("at", 0)
            case _:
                self.tell("at", connection and life.database.process_of(connection))
                self._go_on.wait()


def settle(engine: fmq.Engine) -> list[str]:
    """Ask about every undecided transaction. Return what is undecided then, and what was unknown
    again.
    """
    until = time.monotonic() + SETTLE_SECONDS
    while True:
        found = engine.settle()
        left = [*found.unknown, *found.unasked]
        if not left or time.monotonic() > until:
            return left


class Till:
    """A thread that places orders, over one connection after another."""

    def __init__(self, producer: Producer, number: int, stage: Stage) -> None:
        self._producer = producer
        self._number = number
        self._stage = stage
        self.connection: Any = None

    def work(self) -> None:
        producer = self._producer
        for number in count():
            if producer.over.is_set():
                return
            if not self._place(f"{producer.life.number}-{self._number}-{number}"):
                self.connection = None
                producer.over.wait(AGAIN_SECONDS)

    def _place(self, order: str) -> bool:
        """Place an order. Return whether it was placed."""
        producer, database = self._producer, self._producer.life.database
        if self.connection is None:
            try:
                self.connection = database.connect(self._stage)
            except database.error:
                return False
        self._stage.begin()
        shop = Shop(producer.engine, database, self.connection, self._stage)
        try:
            producer.life.way.place(shop, order)
        except fmq.bind.InDoubt as error:
            producer.tell("doubt", order, error.outcome and error.outcome.state)
            return False
        except AlreadyDecided as error:  # the database had committed, and a checker said no
            producer.tell("doubt", order, error.outcome.state)
            return False
        except (Refused, fmq.bind.Fenced, database.error) as error:
            producer.tell("refused", order, repr(error))
            return False
        self._stage.reached(Step.CONFIRMED)
        producer.tell("placed", order)
        return True
