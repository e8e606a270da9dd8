"""Threads that share a CommitQueue, step by step: the writer waits at a gate of the test."""

from __future__ import annotations

import errno
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from fmq.basics.clock import SystemClock
from fmq.basics.lock_owner import is_mine
from fmq.machine.disk import Buffer, Directory, Disk, File
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.kinds import Record
from fmq.store.journal.commit_queue import CommitQueue
from fmq.store.journal.committer import Committer
from fmq.testing import CrashDisk, Loss
from tests.interrupts import PATIENCE_SECONDS
from tests.store.journals import Found, append_notes, make_journal, note, text_of

GAP_SECONDS = 0.05  # after which a far file takes the write before for lost


class Gate:
    """Where a write waits while the gate is shut."""

    def __init__(self, arrived: Callable[[], None], *, only_syncs: bool = False) -> None:
        """`arrived` is called for each write that comes to the shut gate. With `only_syncs` those
        pass that are not synced.
        """
        self.waiting = 0
        self.only_syncs = only_syncs
        self._shut = False
        self._arrived = arrived
        self._passes = threading.Semaphore(0)

    def shut(self) -> None:
        self._shut = True

    def open(self) -> None:
        self._shut = False
        self.let_one_pass()

    def let_one_pass(self) -> None:
        self._passes.release()

    def pass_through(self) -> None:
        if self._shut:
            self.waiting += 1
            self._arrived()
            assert self._passes.acquire(timeout=PATIENCE_SECONDS), "the gate stays shut"
            self.waiting -= 1


class GatedFile:
    """A file whose writes pass a gate; everything else is the file's own."""

    def __init__(self, file: File, gate: Gate) -> None:
        self._file = file
        self._gate = gate

    def write(self, offset: int, buffers: Sequence[Buffer], *, sync: bool) -> None:
        if sync or not self._gate.only_syncs:
            self._gate.pass_through()
        self._file.write(offset, buffers, sync=sync)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class GatedFarFile(GatedFile):
    """Of it two writes may be on their way; the second is done after the first."""

    def __init__(self, file: File, gate: Gate) -> None:
        super().__init__(file, gate)
        self._last = threading.Event()
        self._last.set()

    def begin(self, offset: int, buffers: Sequence[Buffer]) -> Callable[[], None]:
        data = [bytes(each) for each in buffers]
        before, self._last = self._last, threading.Event()
        done = self._last

        def write() -> None:
            if not before.wait(GAP_SECONDS):
                raise OSError(errno.ETIMEDOUT, "the write before was never made")
            self.write(offset, data, sync=True)
            done.set()

        return write


class GatedDirectory:
    def __init__(self, directory: Directory, gate: Gate, kind: type[GatedFile]) -> None:
        self._directory = directory
        self._gate = gate
        self._kind = kind

    def open(self, name: str, *, write: bool = False) -> GatedFile:
        return self._kind(self._directory.open(name, write=write), self._gate)

    def create(self, name: str) -> GatedFile:
        return self._kind(self._directory.create(name), self._gate)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._directory, name)


class GatedDisk:
    """Passes everything on to `disk`, and writes only through the gate."""

    def __init__(self, disk: Disk, gate: Gate, kind: type[GatedFile] = GatedFile) -> None:
        self._disk = disk
        self._gate = gate
        self._kind = kind

    def random(self, size: int) -> bytes:
        return self._disk.random(size)

    def directory(self, path: str, *, make: bool) -> Any:
        return GatedDirectory(self._disk.directory(path, make=make), self._gate, self._kind)


class Call:
    """One thread's call of CommitQueue.run, and what came of it: `answer`, once there is one."""

    def __init__(self, work: Callable[[], object], changed: Callable[[], None]) -> None:
        self.answer: object = None
        self.answers = 0
        self.planned = False
        self._work = work
        self._changed = changed
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.call = self  # type: ignore[attr-defined]
        self._thread.start()

    def _run(self) -> None:
        try:
            self.answer = self._work()
        except BaseException as error:
            self.answer = error
        self.answers += 1
        self._changed()

    def join(self, seconds: float) -> None:
        self._thread.join(seconds)

    def ended(self) -> object:
        """Return the answer of the call. If it hangs, the test fails."""
        self._thread.join(PATIENCE_SECONDS)
        assert self.answers == 1, "a call without an answer"
        return self.answer


class Answers:
    """What a callback was given, and what was durable at that moment."""

    def __init__(self, lock: threading.RLock, durable: Callable[[], list[str]]) -> None:
        self.given: list[tuple[BaseException | None, list[str]]] = []
        self._lock = lock
        self._durable = durable

    def add(self, failure: BaseException | None) -> None:
        assert is_mine(self._lock)
        self.given.append((failure, self._durable()))


class Shared:
    """A commit queue, its journal on a disk of ours, and what has been published."""

    def __init__(
        self,
        disk: Disk | None = None,
        *,
        synced: bool = True,
        committer: bool = False,
        far: bool = False,
    ) -> None:
        """With `committer`, start one. The test must end it with `let_go`. With `far`, two writes
        may be on their way.
        """
        self.disk = disk or CrashDisk()
        self._news = threading.Condition()
        self.gate = Gate(self._changed)
        self.lock = threading.RLock()
        kind = GatedFarFile if far else GatedFile
        self.journal = make_journal(GatedDisk(self.disk, self.gate, kind))
        self.published: list[str] = []
        self._planned: deque[tuple[int, list[str]]] = deque()  # by position, until it is published
        self.queue = CommitQueue(self.lock, self.journal, self._show, synced=synced)
        self.committer = Committer(self.queue, SystemClock(), is_far=far) if committer else None
        if self.committer is not None:
            self.committer.start()
        self.waited = True  # whether every call of `send` was to wait until it was durable

    def let_go(self) -> None:
        """End the committer."""
        if self.committer is not None:
            self.committer.stop()

    def _show(self, upto: int) -> None:
        assert is_mine(self.lock)
        while self._planned and self._planned[0][0] < upto:
            self.published += self._planned.popleft()[1]

    def send(self, text: str, *, wait: bool = True, force: bool = False, size: int = 0) -> str:
        """Append a note; `text` once it is durable."""
        self.waited &= wait
        return self.queue.run(self._plan(size), text, True if force else None, wait=wait)

    def submit(self, text: str) -> Answers:
        """Append a note without waiting; return what it is called back with."""
        answers = Answers(self.lock, self.durable)
        assert self.queue.submit(self._plan(0), text, answers.add) == text
        return answers

    def _plan(self, size: int) -> Callable[[str], str]:
        journal = self.journal

        def plan(text: str) -> str:
            records: list[Record] = [note(text, size)]
            if not journal.fits(measured(records)):
                journal.roll(0, ordinary=True)
            position = journal.position
            append_notes(journal, records)
            self._planned.append((position, [*map(text_of, records)]))
            call = getattr(threading.current_thread(), "call", None)
            if call is not None:
                call.planned = True
                self._changed()
            return text

        return plan

    def call(self, work: Callable[[], object]) -> Call:
        """A thread that does `work`."""
        return Call(work, self._changed)

    def waiting(self, *texts: str) -> list[Call]:
        """Calls that send `texts`, one after the other, and wait by now; or have ended."""
        calls = []
        for text in texts:
            calls.append(self.call(partial(self.send, text)))
            self.wait_for_plan(calls[-1])
        return calls

    def wait_for_plan(self, call: Call) -> None:
        """Until `call` has planned, and waits or leads if it has to; or until it has ended."""
        self._wait_until(lambda: call.planned or call.answers > 0, "somebody does not plan")
        assert self.lock.acquire(timeout=PATIENCE_SECONDS), "somebody keeps the lock"
        self.lock.release()

    @contextmanager
    def writing(self, work: Callable[[], object]) -> Iterator[Call]:
        """While the block runs, `work` leads and stands at the gate with its write."""
        self.gate.shut()
        leader = self.call(work)
        try:
            self.wait_for_a_write(leader)
            yield leader
        finally:
            self.gate.open()

    def wait_for_a_write(self, call: Call) -> None:
        """Until a thread stands at the gate, or `call` has ended instead."""
        self._wait_until(lambda: self.gate.waiting > 0 or call.answers > 0, "nobody writes")

    def _changed(self) -> None:
        with self._news:
            self._news.notify_all()

    def _wait_until(self, happened: Callable[[], bool], otherwise: str) -> None:
        with self._news:
            assert self._news.wait_for(happened, PATIENCE_SECONDS), otherwise

    def durable(self) -> list[str]:
        """Return what is found after a power cut: what was surely durable, and no more."""
        disk = self.disk
        while not isinstance(disk, CrashDisk):
            disk = disk.disk  # type: ignore[attr-defined]
        return texts_on(disk.after(Loss()))


def texts_on(disk: Disk) -> list[str]:
    """Return the texts of the journal on `disk`."""
    return [text for append in Found(disk).texts for text in append]
