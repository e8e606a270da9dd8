"""One disk that a crash left: recovery of it, and everything that must be true from then on."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import fmq
from crash_tests.failure import Event, power
from crash_tests.look import look, read_lanes
from crash_tests.oracle import Oracle, Violation
from crash_tests.run import PATH, Run, abandon, open_engine
from crash_tests.workload import Step, Workload
from fmq.disk import Directory
from fmq.errors import NotAStore
from fmq.options import Options
from fmq.recovery.checkpoint import SLOTS, decode
from fmq.recovery.layout import QUARANTINE
from fmq.testing import CrashDisk, Loss, PowerLoss

DEEP_POINTS = 3  # operations of a recovery at which it is crashed, of each state so chosen
DEEP_STATES = 4  # states looked at of each such crash
CHAIN_STATES = 4
LOSSES_MAX = 200


class Trial:
    """One disk that a crash left, and what must be true of it."""

    def __init__(
        self,
        options: Options,
        state: CrashDisk,
        oracle: Oracle,
        path: list[Event],
        random: Random,
    ) -> None:
        self._options = options
        self._state = state
        self._before = oracle
        self._oracle = oracle
        self._random = random
        self.path = path
        self.recoveries = 0

    def recover(self) -> None:
        """It opens, and keeps every promise; what is seen now is promised from now on."""
        disk = self._state.after_kill()
        self._oracle = self._open_and_check(disk, self._before)

    def _open_and_check(self, disk: CrashDisk, before: Oracle) -> Oracle:
        oracle = before.copy()
        self.recoveries += 1
        found = disk.after_kill()
        engine = open_engine(disk, self._options)
        try:
            self._seen = look(engine, oracle)
            oracle.check(self._seen)
            self._recovered = disk.after_kill()
            check_cut_is_kept(found, self._recovered)
        finally:
            abandon(engine)
        self._closed = disk
        return oracle

    def close_and_recover_again(self) -> None:
        """A clean close changes nothing, and a second one not one byte of the journal."""
        with self._then({"do": "recover, close"}):
            closed = self._closed
            disk = closed.after_kill()
            self._open_and_check(disk, self._oracle)
            if journal_bytes(closed) != journal_bytes(disk):
                raise Violation("I8", "closing twice gives other bytes than closing once")
            check_directory(closed)

    def kill_and_recover_again(self) -> None:
        """Recovery that is killed when it is done, and done again, gives the same."""
        self.recover()
        with self._then({"do": "recover, kill"}):
            first = journal_bytes(self._recovered)
            self._open_and_check(self._recovered, self._oracle)
            if first != journal_bytes(self._recovered):
                raise Violation("I8", "recovering twice gives other bytes than recovering once")

    def rebuild(self) -> None:
        """The journal is the truth: without indexes and checkpoints it says the same."""
        closed = self._closed
        with self._then({"do": "derived files removed"}):
            self._open_and_check(without_derived(closed, INDEXES), self._oracle)
            self._open_and_check(without_derived(closed), self._oracle)

    def read_only(self) -> None:
        """Who only reads sees a prefix of what recovery will show, and writes nothing."""
        with self._then({"do": "read only"}):
            disk = self._state.after_kill()
            before = disk.fingerprint()
            with contextlib.suppress(NotAStore):
                with fmq.open(PATH, self._options, read_only=True, disk=disk) as engine:
                    lanes = read_lanes(engine)
                for lane, (first, bodies) in lanes.items():
                    start, shown = self._seen.lanes.get(lane, (0, []))
                    skip = max(0, start - first)
                    if shown[: len(bodies) - skip] != bodies[skip:]:
                        raise Violation("I6", f"a reader of {lane} saw what recovery does not show")
            if disk.fingerprint() != before:
                raise Violation("I6", "a reader changed the directory")

    def live_on(self) -> None:
        """Life goes on: decide what is undecided, send, checkpoint, kill, close, reopen.

        Then the whole journal is read once more: a checkpoint hides what was wrong before it.
        """
        run = self._live()
        with self._then(LIFE):
            assert run.engine is not None
            killed = run.disk.after_kill()
            run.engine.close()
            run.oracle.synced()
            self._open_and_check(run.disk, run.oracle)
            self._open_and_check(killed, run.oracle)
            check_directory(run.disk)
            self._open_and_check(without_derived(run.disk), run.oracle)

    def _life(self, disk: CrashDisk) -> Run:
        steps: list[Step] = [["send", "a", 0, 33], ["lazy", "b", 1, 20]]
        for i, name in enumerate(self._oracle.undecided()):
            steps.append(["decide", name, ("commit", "rollback")[i % 2]])
        steps += [
            ["prepare", "life", [["a", 0, 1, 90]], "g"],
            ["checkpoint"],
            ["commit", "life"],
            ["send", "b", 0, 300],
            ["sync"],
        ]
        workload = Workload("life", steps, _options_dict(self._options))
        run = Run(workload, disk, self._oracle.copy())
        run.options = self._options
        run.first_step = 10_000
        run.go()
        return run

    def recovery_crashes(self) -> None:
        """A crash inside recovery is recovered from like the first one."""
        disk = self._state.after_kill()
        engine = open_engine(disk, self._options)
        total = disk.operations
        abandon(engine)
        for point in self._random.sample(range(total), min(DEEP_POINTS, total)):
            inner = self._crash_recovery(point)
            for loss in self._some_losses(inner, DEEP_STATES):
                self._after_crash_in_recovery(point, inner, loss)
            self._after_kill_in_recovery(point, inner, None)
            for loss in self._some_losses(self._recovered, DEEP_STATES):
                self._after_kill_in_recovery(point, inner, loss)

    def _crash_recovery(self, point: int) -> CrashDisk:
        disk = self._state.after_kill(crash_at=point)
        with contextlib.suppress(PowerLoss):
            abandon(open_engine(disk, self._options))
        return disk

    def _after_crash_in_recovery(self, point: int, inner: CrashDisk, loss: Loss) -> None:
        with self._then(crash_in_recovery(point), power(loss)):
            self._open_and_check(inner.after(loss), self._before)

    def _after_kill_in_recovery(self, point: int, inner: CrashDisk, loss: Loss | None) -> None:
        with self._then(crash_in_recovery(point), KILL):
            oracle = self._open_and_check(inner.after_kill(), self._before)
            if loss is not None:
                with self._then(power(loss)):
                    self._open_and_check(self._recovered.after(loss), oracle)

    def _some_losses(self, disk: CrashDisk, count: int) -> list[Loss]:
        found = list(islice(disk.losses(self._random.randrange(1 << 30)), LOSSES_MAX))
        return [found[0], *self._random.sample(found[1:], min(count, len(found) - 1))]

    def power_loss_after_showing(self) -> None:
        """What the recovered engine showed, and acknowledges after, survives a power cut."""
        self.recover()
        for loss in self._some_losses(self._recovered, CHAIN_STATES):
            self._after_showing(loss)
        run = self._live()
        for loss in self._some_losses(run.disk, CHAIN_STATES):
            self._after_living(run, loss)
        abandon(run.engine)

    def _after_showing(self, loss: Loss) -> None:
        with self._then(RECOVER, power(loss)):
            self.recover()
            disk = self._recovered.after(loss)
            self._open_and_check(disk, self._oracle)
            check_cut_is_kept(self._state, disk)

    def _live(self) -> Run:
        with self._then(LIFE):
            self.recover()
            return self._life(self._recovered.after_kill())

    def _after_living(self, run: Run, loss: Loss) -> None:
        with self._then(LIFE, power(loss)):
            self._open_and_check(run.disk.after(loss), run.oracle)

    @contextlib.contextmanager
    def _then(self, *events: Event) -> Iterator[None]:
        """What happens in the block comes after `events`; if it fails, `path` says so."""
        before = self.path
        self.path = [*before, *events]
        yield
        self.path = before

    def replay(self, rest: list[Event]) -> None:
        """Do again what `rest` says, as it was done when it failed."""
        match rest:
            case []:
                self.recover()
            case [{"do": "recover", "crash_at": int(point)}, {"do": "power"} as lost]:
                inner = self._crash_recovery(point)
                self._after_crash_in_recovery(point, inner, Loss.from_json(lost))
            case [{"do": "recover", "crash_at": int(point)}, {"do": "kill"}, *after]:
                loss = Loss.from_json(after[0]) if after else None
                self._after_kill_in_recovery(point, self._crash_recovery(point), loss)
            case [{"do": "recover"}, {"do": "power"} as lost]:
                self._after_showing(Loss.from_json(lost))
            case [{"do": "life"}, {"do": "power"} as lost]:
                self._after_living(self._live(), Loss.from_json(lost))
            case [{"do": how}]:
                self.recover()
                AGAIN[how](self)
            case _:
                raise AssertionError(rest)


LIFE: Event = {"do": "life"}
RECOVER: Event = {"do": "recover", "crash_at": None}
KILL: Event = {"do": "kill", "written": True}
AGAIN = {
    "recover, close": Trial.close_and_recover_again,
    "recover, kill": Trial.kill_and_recover_again,
    "derived files removed": Trial.rebuild,
    "read only": Trial.read_only,
    "life": Trial.live_on,
}


def crash_in_recovery(point: int) -> Event:
    return {"do": "recover", "crash_at": point}


def _options_dict(options: Options) -> dict[str, Any]:
    names = ("retain_bytes", "segment_bytes", "sync")
    return {name: getattr(options, name) for name in names}


def check_directory(disk: CrashDisk) -> None:
    """Violation if fmq.check finds something."""
    report = fmq.check(PATH, disk=disk.after_kill())
    if not report.ok:
        raise Violation("I10", "; ".join(map(str, report.problems)))


def check_has_checkpoint(disk: CrashDisk) -> None:
    """Violation if no slot is sound: then all of the journal would have to be replayed."""
    directory = disk.directory(PATH, make=False)
    slots = (contents(directory, name) for name in SLOTS if name in directory.names())
    if not any(decode(slot) for slot in slots):
        raise Violation("I9", "no checkpoint is left")


def check_cut_is_kept(before: CrashDisk, after: CrashDisk) -> None:
    """Violation if bytes of a segment are gone and not in quarantine/."""
    new, old = journal_bytes(after), journal_bytes(before)
    for name in old.keys() & new.keys():
        left, had = new[name].rstrip(b"\0"), old[name].rstrip(b"\0")
        shorter = left != had and had.startswith(left)
        if shorter and not any(is_cut(had, left, kept) for kept in quarantined(after)):
            raise Violation("I11", f"{name} was cut, and nothing keeps what was cut off")


def is_cut(had: bytes, left: bytes, kept: bytes) -> bool:
    """Whether `had` is what is left and, behind its padding, what was kept of it."""
    return bool(kept) and had.endswith(kept) and had[: -len(kept)].rstrip(b"\0") == left


def quarantined(disk: CrashDisk) -> list[bytes]:
    """What recovery has cut so far."""
    directory = disk.directory(PATH, make=False)
    if QUARANTINE not in directory.names():
        return []
    folder = directory.subdirectory(QUARANTINE, make=False)
    return [contents(folder, name) for name in folder.names()]


def contents(directory: Directory, name: str) -> bytes:
    file = directory.open(name)
    try:
        return file.read(0, file.size())
    finally:
        file.close()


INDEXES = (".idx", ".part")


def without_derived(
    disk: CrashDisk, endings: tuple[str, ...] = (*INDEXES, ".0", ".1")
) -> CrashDisk:
    """A copy of the disk without indexes, and by default without checkpoints."""
    copy = disk.after_kill()
    directory = copy.directory(PATH, make=False)
    for name in directory.names():
        if name.endswith(endings):
            directory.remove(name)
    directory.sync()
    return copy


def journal_bytes(disk: CrashDisk) -> dict[str, bytes]:
    """The bytes of the journal's files; of none, if it was never begun."""
    try:
        directory = disk.directory(PATH, make=False)
    except NotAStore:
        return {}
    found = {}
    for name in directory.names():
        if name.endswith(".seg"):
            found[name] = contents(directory, name)
    return found
