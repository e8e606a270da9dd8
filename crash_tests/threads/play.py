"""One run of several threads under one schedule, and the moments at which it could crash."""

from __future__ import annotations

from contextlib import suppress
from functools import partial

import fmq
from crash_tests.engines import PATH, abandon, rules_of
from crash_tests.explore import Depth, Explorer, Moment
from crash_tests.look import look_at
from crash_tests.run import Run
from crash_tests.threads.promised import ThreadsOracle
from crash_tests.threads.scheduler import Abandoned, Chooser, Scheduler
from crash_tests.threads.steps import do
from crash_tests.verdict import check
from crash_tests.workload import Step, Workload
from fmq.testing import PowerLoss

NAMES = "ABCDEFGH"
ENGINES_THREADS = 2  # the committer, and the thread that runs chores
STEPS_APART = 100  # between the numbers of the steps of one thread and those of the next


class Play:
    """Threads on an engine of their own."""

    def __init__(
        self, workload: Workload, chooser: Chooser, *, lines: bool, honest: bool = True
    ) -> None:
        self.scheduler = Scheduler(chooser, lines=lines)
        self.oracle = ThreadsOracle(rules_of(workload))
        self.moments: list[Moment] = []
        self.places: list[
            tuple[int, str]
        ] = []  # for each moment: the number of switches before it, and what comes next
        self._workload = workload
        self._known = (-1, 0)
        self._runs: list[Run] = []
        self._disk = Explorer(workload, depth=Depth(honest=honest)).start_disk()
        self._done = False

    def go(self) -> None:
        """Run to the end of all threads, and of the engine. Raises Violation if something
        goes wrong.
        """
        try:
            self._open()
            self._first()
            self._disk.watch(self._note)
            self.scheduler.on_switch = partial(self._note, "")
            for number, steps in enumerate(self._workload.threads):
                if not steps:
                    continue  # the thread has no steps after shrinking; the others keep their names
                at = STEPS_APART * (number + 1)
                work = partial(self._work, self._a_run(), at, steps)
                self.scheduler.start(NAMES[number], work)
            self.scheduler.run()
            self.scheduler.start("end", self._end)
            self.scheduler.run()
            self._note("the end")
            self._done = True
        finally:
            self._let_go()

    def _open(self) -> None:
        background = self._workload.background

        def begin() -> None:
            self._main = self._a_run()
            self._main.engine = fmq.open(
                PATH,
                self._main.options,
                disk=self._disk,
                clock=self.scheduler.clock,
                background=background,
            )

        self.scheduler.adopt(begin, count=ENGINES_THREADS if background else 0)

    def _a_run(self) -> Run:
        """Return a run for the steps of one thread, with deliveries and transactions of its own."""
        run = Run(self._workload, self._disk, self.oracle)
        run.clock = self.scheduler.clock
        if self._runs:
            run.engine = self._runs[0].engine
        self._runs.append(run)
        return run

    def _first(self) -> None:
        self._work(self._main, 0, self._workload.steps)

    def _work(self, run: Run, first: int, steps: list[Step]) -> None:
        for at, step in enumerate(steps, first):
            do(run, at, step)

    def _end(self) -> None:
        """Check, after all threads, that the engine shows what their calls returned, no more."""
        oracle, engine = self.oracle, self._main.live
        oracle.begin_step()
        if not self._is_closed():
            for run in self._runs:
                for consumer in run.consumers.values():
                    consumer.close()
            engine.sync()
            oracle.synced()
            check(oracle.copy(), look_at(engine, oracle.tx_names(), oracle.acking()))
        engine.close()
        oracle.synced()
        for run in self._runs:
            run.unfollow()

    def _is_closed(self) -> bool:
        return any(step == ["close"] for steps in self._workload.threads for step in steps)

    def _note(self, operation: str) -> None:
        """Note a moment, unless it is like the last one."""
        known = self._disk.operations, self.oracle.promises()
        if operation or known != self._known:
            self._known = known
            self.moments.append(self.now())
            self.places.append((len(self.scheduler.switches), operation))

    def now(self) -> Moment:
        """Return the present moment of the run."""
        return Moment(self._disk.stopped(), self.oracle.copy())

    def _let_go(self) -> None:
        self._disk.watch(None)
        if self._done or self._main.engine is None:
            return
        self.scheduler.on_switch = lambda: None
        self.scheduler.abandon()
        self._disk.stop()
        parts = self._main.engine._door.parts
        # Otherwise it would note the failure on a disk that has no power.
        with parts.lock, suppress(PowerLoss):
            parts.commit_queue.fail(Abandoned())
        abandon(self._main.engine)
