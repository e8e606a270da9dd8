"""Explores many workloads, in this process or in several. The result is the same.

Neighbours have most of their steps in common: they share what has been tried, so they go to one
process. What is drawn depends on the seed and the disk alone, and results are taken in the order
of the workloads. So what is tried, counted and found does not depend on how many processes there
are; what two of them come upon is tried twice, and counted once.
"""

from __future__ import annotations

import gc
import json
import signal
import warnings
from array import array
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import get_context
from typing import NamedTuple

from crash_tests.explore import Depth, Explorer
from crash_tests.memory import Memory
from crash_tests.tally import Tally
from crash_tests.workload import Workload

NEIGHBOURS = 16  # how many short workloads one process takes at once
AHEAD = 4  # how many taken workloads wait for each process
MEMORIES_MAX = 2
YOUNG_OBJECTS_MAX = 5_000  # an engine is some hundred objects that refer to each other


@dataclass(frozen=True, slots=True)
class How:
    """How much is tried with each workload."""

    seed: int
    depth: Depth
    crash_at: int | None = None
    last_step_only: bool = False


class Explored(NamedTuple):
    """What was found for one workload. States are identified by numbers that are equal in all
    processes.
    """

    workload: Workload
    tally: Tally
    # The states that its crashes left, if they were new in the process that explored it.
    states: array[int]
    deeper: array[int]
    failed: str  # the first failure, told; empty if there is none


class Explorers:
    """Makes the explorers of one process. Those with the same options share a memory."""

    def __init__(self, how: How) -> None:
        self._how = how
        self._memories: dict[str, Memory] = {}

    def explorer(self, workload: Workload) -> Explorer:
        """Return the next explorer. The one before it is done."""
        since = len(workload.steps) - 1 if self._how.last_step_only else None
        memory = self._memory(workload)
        return Explorer(workload, self._how.seed, self._how.depth, since=since, memory=memory)

    def _memory(self, workload: Workload) -> Memory:
        key = json.dumps([workload.all_options(), sorted(workload.groups())])
        memory = self._memories.pop(key, None) or Memory()
        memory.make_room()
        self._memories[key] = memory
        if len(self._memories) > MEMORIES_MAX:
            del self._memories[next(iter(self._memories))]
        return memory

    def explore(self, workload: Workload) -> Explored:
        explorer = self.explorer(workload)
        explorer.explore(self._how.crash_at)
        return self.done(explorer)

    def done(self, explorer: Explorer) -> Explored:
        """Return what the explorer has done."""
        fresh = explorer.take_fresh()
        states, deeper = fresh & explorer.states, fresh - explorer.states
        tally = explorer.tally
        if tally.failures:
            self._memories.clear()  # it was tried before, and must fail again now
        return Explored(
            explorer.workload,
            tally,
            array("q", map(hash, states)),
            array("q", map(hash, deeper)),
            str(tally.failures[0]) if tally.failures else "",
        )


@cache
def spare_the_collector() -> None:
    """Let the garbage collector look only at new objects, and less often: most objects are freed
    without it.

    Once in a process: what is garbage when it is called is kept for ever.
    """
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, 20, 20)


def in_processes(workloads: Iterable[Workload], how: How, jobs: int) -> Iterator[Explored]:
    """Yield the results of all workloads, in order, from `jobs` processes."""
    # Not by fork: the display has a thread. All have one server, so their hashes are the same.
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__])
    each = iter(workloads)
    size = NEIGHBOURS if how.last_step_only else 1
    waiting: deque[Future[list[Explored]]] = deque()
    pool = ProcessPoolExecutor(jobs, context, _begin, (how,))
    try:
        while chunk := list(islice(each, size)):
            waiting.append(pool.submit(_explore, chunk))
            if len(waiting) >= AHEAD * jobs:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


_of_this_process: list[Explorers] = []


def _begin(how: How) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    warnings.simplefilter("ignore", ResourceWarning)
    _of_this_process.append(Explorers(how))
    spare_the_collector()


def _explore(workloads: list[Workload]) -> list[Explored]:
    (explorers,) = _of_this_process
    return [_portable(explorers.explore(workload)) for workload in workloads]


def _portable(explored: Explored) -> Explored:
    """Return the result without the failures: they hold exceptions, and are easily found again."""
    explored.tally.failures.clear()
    return explored
