"""Tests engines on real file systems that are full or read-only, or become so while the engine
runs.

A full disk refuses messages whole, and never a decision; one that can only be read can be read;
and none of them loses what was acknowledged. Each scenario runs on a fresh file system, with
sizes out of the seed.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import fmq
from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real.filesystem import KINDS, FileSystem, scratch_below, why_not
from crash_tests.real.lies import FULL_IS_SILENT, disk_that
from crash_tests.real.tally import Tally
from fmq.errors import CheckpointLost, EngineFailed, FmqError, StorageFull

MIB = 1 << 20
OPTIONS = fmq.Options(segment_bytes=MIB)
FEW = 30

Engine = fmq.Engine | fmq.ReadOnlyEngine


class Room:
    """A store on a file system whose room can be taken and given back."""

    def __init__(self, files: FileSystem, seed: int, lie: str = "") -> None:
        self.files = files
        self._lie = lie
        random = Random(seed)
        self._store = files.point / "store"
        self._ballast, self._rest = files.point / "ballast", files.point / "rest"
        self._spare_bytes = random.randint(3, 8) * MIB
        self._body = random.randbytes(random.choice((5_000, 20_000, 100_000, 300_000)))
        self.undecided = [f"tx-{number}" for number in range(random.randint(1, 4))]
        self.sent: list[bytes] = []

    def open(self, *, background: bool = True) -> fmq.Engine:
        disk = disk_that(self._lie)
        return fmq.open(self._store, OPTIONS, disk=disk, background=background)

    def look(self) -> fmq.ReadOnlyEngine:
        return fmq.open(self._store, read_only=True)

    @contextmanager
    def dying(self) -> Iterator[fmq.Engine]:
        """Run an engine whose file system goes away during the block, and mount that again."""
        engine = self.open()
        try:
            yield engine
        finally:
            engine.close()
        self.files.unmount()
        self.files.mount()

    def fill(self) -> None:
        """Leave only a little room."""
        status = os.statvfs(self.files.point)
        size = status.f_bfree * status.f_frsize - self._spare_bytes  # root may use all
        with self._ballast.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            os.fsync(file.fileno())

    def take_the_rest(self) -> None:
        """Leave no room at all, as another program may."""
        with self._rest.open("ab") as file:
            at, size = file.tell(), MIB
            while size >= 1024:
                try:
                    os.posix_fallocate(file.fileno(), at, size)
                    at += size
                except OSError:
                    size //= 2
            os.fsync(file.fileno())

    def free(self) -> None:
        self._ballast.unlink()
        self._rest.unlink(missing_ok=True)

    def send(self, engine: fmq.Engine, number: int) -> None:
        for _ in range(number):
            body = b"%d " % len(self.sent)
            engine.send("t", body)
            self.sent.append(body)

    def large(self, number: int) -> bytes:
        return b"%d " % number + self._body

    def send_until_full(self, engine: fmq.Engine) -> None:
        most = (self._spare_bytes + 3 * MIB) // len(self._body)  # segments made before
        with suppress(StorageFull):
            while len(self.sent) <= most:
                body = self.large(len(self.sent))
                engine.send("t", body)
                self.sent.append(body)
        expect(0 < len(self.sent) <= most, "I1", f"{len(self.sent)} messages found room")

    def killed_when_full(self) -> None:
        """Let another process fill the disk with undecided transactions and sends, and die."""
        reads, writes = os.pipe()
        child = os.fork()
        if not child:
            with suppress(BaseException):
                engine = self.open(background=False)
                self.prepare(engine)
                self.fill()
                self.send_until_full(engine)
                os.write(writes, b"%d" % len(self.sent))
                while True:  # to the last byte that is not set aside
                    engine.send("small", b"")
            os.kill(os.getpid(), signal.SIGKILL)
        os.close(writes)
        os.waitpid(child, 0)
        with os.fdopen(reads, "rb") as told:
            self.sent = [self.large(number) for number in range(int(told.read() or b"0"))]
        expect(self.sent, "alive", "the process that was to fill the disk did not")

    def prepare(self, engine: fmq.Engine) -> None:
        for name in self.undecided:
            tx = engine.transaction(tx_id=name)
            tx.send("decided", name.encode())
            tx.prepare()

    def decide(self, engine: fmq.Engine) -> None:
        """Decide all undecided transactions: commit every second one."""
        for number, name in enumerate(self.undecided):
            engine.decide(name, "rollback" if number % 2 else "commit")
        seen = [body.decode() for body in bodies(engine, "decided")]
        wanted = self.undecided[::2]
        expect(seen == wanted, "I3", f"committed are {wanted}, and seen {seen}")

    def shows_all(self, engine: Engine) -> None:
        expect(bodies(engine, "t") == self.sent, "I1", "what was acknowledged is not what is there")

    def is_sound(self) -> None:
        problems = fmq.check(self._store).problems
        expect(not problems, "I10", "; ".join(map(str, problems)))


def expect(true: object, invariant: str, otherwise: str) -> None:
    if not true:
        raise Violation(invariant, otherwise)


def bodies(engine: Engine, topic: str) -> list[bytes]:
    return [bytes(message.body) for message in engine.read(topic, limit=100_000)]


def a_full_disk_refuses_messages_whole_and_takes_decisions(room: Room) -> None:
    """Test that room for decisions is kept, freed room is used at once, and nothing acknowledged is
    lost.
    """
    with room.open() as engine:
        room.prepare(engine)
        room.fill()
        room.send_until_full(engine)
        room.decide(engine)
        room.shows_all(engine)
        room.free()
        room.send(engine, 1)
    room.is_sound()
    with room.open() as engine:
        room.shows_all(engine)


def a_kill_on_a_full_disk_takes_no_room_from_decisions(room: Room) -> None:
    """Test that a recovery may use room that was set aside for decisions, and makes up for
    it first.
    """
    room.killed_when_full()
    room.take_the_rest()
    with room.open(background=False) as engine:
        room.take_the_rest()
        room.shows_all(engine)
        room.decide(engine)
    room.free()
    with room.open() as engine:
        room.shows_all(engine)
    room.is_sound()


def a_power_cut_of_a_full_disk_loses_nothing(room: Room) -> None:
    """Test that the directory can be read as it is. Writes may raise StorageFull until
    there is room.
    """
    with room.dying() as engine:
        room.prepare(engine)
        room.fill()
        room.send_until_full(engine)
        room.files.cut(flush_log=False)
    # If the power failed while a checkpoint was written, a reader refuses until the next opening.
    with suppress(CheckpointLost), room.look() as looking:
        # The last group of appends is shown only if a later record proves it durable.
        shown = bodies(looking, "t")
        expect(shown in (room.sent, room.sent[:-1]), "I1", "a reader is shown something else")
    with suppress(StorageFull), room.open() as engine:
        room.shows_all(engine)
    room.free()
    with room.open() as engine:
        room.shows_all(engine)
        room.decide(engine)
    room.is_sound()


def a_read_only_file_system_can_be_read_after_a_power_cut(room: Room) -> None:
    """Test that opening for writing is a typed error that changes nothing, and that reading
    works.
    """
    with room.dying() as engine:
        room.send(engine, FEW)
        room.prepare(engine)
        room.files.cut(flush_log=False)
    room.files.remount("ro")
    try:
        room.open().close()
    except FmqError as error:
        expect("Read-only file system" in str(error), "typed errors", f"it says {error}")
    else:
        raise Violation("typed errors", "it could be opened for writing")
    with room.look() as looking:
        room.shows_all(looking)
        # A transaction that no later record proves durable may be hidden until a recovery.
        seen = [tx.tx_id for tx in looking.undecided()]
        expect(seen in (room.undecided, room.undecided[:-1]), "I4", f"undecided are {seen}")
    room.files.unmount()
    room.files.mount()
    with room.open() as engine:
        expect([tx.tx_id for tx in engine.undecided()] == room.undecided, "I4", "not all undecided")
        room.send(engine, 1)
        room.shows_all(engine)
        room.decide(engine)
    room.is_sound()


def a_file_system_that_goes_read_only_ends_the_engine_and_loses_nothing(room: Room) -> None:
    """Test that what was visible can still be read. ext4 goes read-only when it meets damage."""
    with room.dying() as engine:
        room.send(engine, FEW)
        room.files.remount("abort")
        for _ in range(2):
            try:
                engine.send("t", b"refused")
            except EngineFailed:
                continue
            raise Violation("typed errors", "it took a message, which no disk keeps")
        room.shows_all(engine)
    with room.open() as engine:
        seen = bodies(engine, "t")[:FEW]
        expect(seen == room.sent, "I1", "what was acknowledged is not what is there")
    room.is_sound()


Scenario = Callable[[Room], None]

BOTH: tuple[Scenario, ...] = (
    a_full_disk_refuses_messages_whole_and_takes_decisions,
    a_kill_on_a_full_disk_takes_no_room_from_decisions,
    a_power_cut_of_a_full_disk_loses_nothing,
    a_read_only_file_system_can_be_read_after_a_power_cut,
)
SCENARIOS: dict[str, tuple[Scenario, ...]] = {
    # xfs cannot be told to go read-only.
    "ext4": (*BOTH, a_file_system_that_goes_read_only_ends_the_engine_and_loses_nothing),
    "xfs": BOTH,
}
SHARE = sum(map(len, SCENARIOS.values()))


class Full:
    """The tier. A round is one scenario on one kind of file system. All pairs take turns."""

    name = "full and read-only file systems"

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        missing = {kind: reason for kind in KINDS if (reason := why_not(kind)) is not None}
        said = "; ".join(f"{kind}: {reason}" for kind, reason in missing.items())
        if len(missing) == len(KINDS):
            tally.not_run = said
            return tally
        tally.note = f"NOT RUN: {said}" if missing else ""
        with scratch_below(budget.directory, "full") as scratch:
            kinds = [kind for kind in KINDS if kind not in missing]
            plan = [(kind, scenario) for kind in kinds for scenario in SCENARIOS[kind]]
            with tally.found_out(FULL_IS_SILENT):
                play(*plan[0], scratch, budget.seed, FULL_IS_SILENT)
            while budget.allows(tally.rounds, SHARE):
                kind, scenario = plan[tally.rounds % len(plan)]
                self._round(kind, scenario, scratch, budget, tally)
        tally.stop()
        return tally

    def _round(
        self, kind: str, scenario: Scenario, scratch: Path, budget: Budget, tally: Tally
    ) -> None:
        seed = budget.seed + tally.rounds
        tally.stores += 1
        try:
            tally.promises += play(kind, scenario, scratch, seed)
        except Violation as violation:
            what = f"{scenario.__name__} on {kind}, seed {seed}: {violation.what}"
            tally.failures.append(Violation(violation.invariant, what))
        tally.add_round(budget)


def play(kind: str, scenario: Scenario, scratch: Path, seed: int, lie: str = "") -> int:
    """Run one scenario on a fresh file system. Return how many messages were promised."""
    with FileSystem(kind, scratch) as files:
        files.make()
        room = Room(files, seed, lie)
        try:
            scenario(room)
        except FmqError as error:
            raise Violation("alive", repr(error)) from error
        return len(room.sent)


FULL = Full()
