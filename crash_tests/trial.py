"""One disk that a crash left: its recovery, and everything that must be true from then on."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from itertools import islice
from random import Random
from typing import Any

import fmq
from crash_tests.directories import (
    INDEXES,
    check_cut_is_kept,
    check_directory,
    journal,
    with_lost_slots,
    without_derived,
)
from crash_tests.engines import PATH, abandon, open_engine
from crash_tests.failure import Event, power
from crash_tests.follower import Follower
from crash_tests.look import Lanes, read_lanes
from crash_tests.memory import Memory
from crash_tests.opening import Opened, Opening
from crash_tests.oracle import Oracle, Violation
from crash_tests.run import Run
from crash_tests.workload import Step, Workload
from fmq.arguments.options import Options
from fmq.errors import CheckpointLost
from fmq.testing import CrashDisk, Loss, PowerLoss

DEEP_POINTS = 2  # operations of a recovery at which it is crashed, of each state so chosen
DEEP_STATES = 2  # states of each such crash that are tried, besides the one that loses everything
CHAIN_STATES = 4
# Limit of states of each crash, inside a recovery that is crashed everywhere.
TWICE_STATES_MAX = 100
LIFE_TX = "life"  # the transaction that is begun after a recovery
LOSSES_MAX = 200


class Trial:
    """One disk that a crash left, and what must be true of it."""

    def __init__(
        self,
        options: Options,
        state: CrashDisk,
        oracle: Oracle,
        path: list[Event],
        seed: int,
        memory: Memory | None = None,
    ) -> None:
        self._options = options
        self._state = state
        self._before = oracle
        self._seed = seed
        self._memory = Memory() if memory is None else memory
        self._opening = Opening(options, self._memory)
        self._closes = True
        self.path = path
        self.cut: tuple[CrashDisk, Loss] | None = None  # the last power cut in what follows

    def check(self) -> None:
        """Check that the disk opens, and that every promise is kept."""
        self._opening.check(self._state, self._before)

    @cached_property
    def opened(self) -> Opened:
        """Check as `check` does. Return what recovery has made of the disk."""
        return self._opening.open(self._state.after_kill(), self._before, closes=self._closes)

    def go(self, *, full: bool, chain: bool, twice: bool = False) -> None:
        """Recover the disk, and try everything that follows and was not tried from there yet.

        With `twice` recovery crashes before each of its operations, in every way that there is.
        """
        if twice and self._memory.is_new("twice", self._state, self._before):
            self.every_crash_in_recovery()
        if not (full or chain) or not self._memory.is_new(f"{full}", self._state, self._before):
            self.check()
            return
        self._closes = full  # the checks below need no disk that was closed
        _ = self.opened  # do this first: a failure here is not the fault of the checks below
        if full:
            self.read_only()
            self.recovery_crashes()
        leads_on = self._memory.is_new(f"{full} on", self.opened.killed, self.opened.oracle)
        if full and leads_on:
            self.close_and_recover_again()
            self.kill_and_recover_again()
            self.rebuild()
            self.lose_slots()
            self.live_on()
            self.power_loss_after_life()
        if chain and leads_on:
            self.power_loss_after_showing()
        if twice and self._memory.is_new("first send", self.opened.killed, self.opened.oracle):
            self.power_loss_after_first_send()

    # --- and once more --------------------------------------------------------------------------

    def close_and_recover_again(self) -> None:
        """Check that a clean close changes nothing, and a second one not one byte of the
        journal.
        """
        with self._then({"do": "recover, close"}):
            closed = self.opened.closed
            again = self._opening.open(closed.after_kill(), self.opened.oracle)
            if journal(closed) != journal(again.closed):
                raise Violation("I8", "closing twice gives other bytes than closing once")
            check_directory(closed)

    def kill_and_recover_again(self) -> None:
        """Check that a recovery that is killed at its end and repeated gives the same."""
        with self._then({"do": "recover, kill"}):
            killed = self.opened.killed
            again = self._opening.open(killed.after_kill(), self.opened.oracle, closes=False)
            if journal(killed) != journal(again.killed):
                raise Violation("I8", "recovering twice gives other bytes than recovering once")

    def rebuild(self) -> None:
        """Check that the journal without indexes and checkpoints says the same."""
        with self._then({"do": "derived files removed"}):
            self._opening.check(without_derived(self.opened.closed, INDEXES), self.opened.oracle)
            self._opening.check(without_derived(self.opened.closed), self.opened.oracle)

    def read_only(self) -> None:
        """Check that a reader sees a prefix of what recovery will show, also if the power fails
        first, and writes nothing. The reader lives on beside the recovery.
        """
        with self._then({"do": "read only"}):
            disk = self._state.after_kill()
            before = disk.fingerprint()
            follower = Follower(disk, self._options)
            lanes = follower.lanes()
            check_prefix(lanes, self.opened.seen.lanes)
            if disk.fingerprint() != before:
                raise Violation("I6", "a reader changed the directory")
            if lanes and disk.pending():
                for loss in self._some_losses(disk, DEEP_STATES):
                    cut = self._opening.open(disk.after(loss), self._before, closes=False)
                    check_prefix(lanes, cut.seen.lanes)
            engine = open_engine(disk, self._options)
            check_prefix(follower.lanes(), self.opened.seen.lanes)
            follower.close()
            disk.stop()
            abandon(engine)

    def lose_slots(self) -> None:
        """Check that a reader of a directory at rest without its checkpoints misses nothing, or
        gets an error.
        """
        with self._then({"do": "checkpoints lost"}):
            shown = self.opened.seen.lanes
            for disk in with_lost_slots(self.opened.closed):
                with contextlib.suppress(CheckpointLost):
                    with fmq.open(PATH, self._options, read_only=True, disk=disk) as reader:
                        lanes = read_lanes(reader)
                    if lanes != shown:
                        raise Violation("I1", f"a reader shows {lanes} of {shown}")

    def as_table(self) -> None:
        """Check that a table shows what engines show. Only the tier `tables` does, because it needs
        an extra.
        """
        from crash_tests.as_table import check_table

        with self._then({"do": "as a table"}):
            check_table(self._state, self._options, self._before.tx_names())

    # --- life goes on ---------------------------------------------------------------------------

    def live_on(self) -> None:
        """Check what follows: decide what is undecided, send, checkpoint, kill, close, reopen.

        Then the whole journal is read once more: a checkpoint hides what was wrong before it.
        """
        killed, oracle = self._life
        with self._then(LIFE):
            closed, closed_oracle = self._life_closed
            self._opening.check(closed.after_kill(), closed_oracle)
            self._opening.check(killed.after_kill(), oracle)
            check_directory(closed)
            self._opening.check(without_derived(closed), closed_oracle)

    @cached_property
    def _life(self) -> tuple[CrashDisk, Oracle]:
        """Return the disk after some more calls, as a kill leaves it, and what is promised then."""
        with self._then(LIFE):
            run = self._live(self.life_steps())
            killed, oracle = run.disk.after_kill(), run.oracle.copy()
            assert run.engine is not None
            run.engine.close()
            run.oracle.synced()
            self._life_closed = run.disk, run.oracle
            return killed, oracle

    def life_steps(self) -> list[Step]:
        """Return the steps by which life goes on after recovery."""
        steps: list[Step] = [["send", "a", 0, 33], ["lazy", "b", 1, 20]]
        for i, name in enumerate(self.opened.oracle.undecided()):
            steps.append(["decide", name, ("commit", "rollback")[i % 2]])
        steps += [
            ["prepare", LIFE_TX, [["a", 0, 1, 90]], "g"],
            ["checkpoint"],
            ["commit", LIFE_TX],
            ["send", "b", 0, 300],
            ["sync"],
        ]
        return steps

    def _live(self, steps: list[Step], watcher: Callable[[Run], None] | None = None) -> Run:
        workload = Workload("life", steps, _options_dict(self._options))
        run = Run(workload, self.opened.killed.after_kill(), self.opened.oracle.copy())
        run.options = self._options
        run.first_step = LIFE_STEP
        if watcher is not None:
            run.watch(watcher)
        run.go()
        return run

    # --- crashes inside recovery ----------------------------------------------------------------

    def _moments_of_recovery(self) -> list[CrashDisk]:
        """Return the disk as it is before each operation of a recovery."""
        moments: list[CrashDisk] = []
        disk = self._state.after_kill()
        disk.watch(lambda _: moments.append(disk.stopped()))
        engine = open_engine(disk, self._options)
        disk.stop()
        abandon(engine)
        return moments

    def every_crash_in_recovery(self) -> None:
        """Crash before each operation of the recovery, and try what each crash leaves."""
        for point, moment in enumerate(self._moments_of_recovery()):
            if not self._memory.is_new("inside", moment, self._before):
                continue
            seed = self._random_for(moment).randrange(1 << 30)
            for loss in islice(moment.losses(seed), TWICE_STATES_MAX):
                self._after_crash_in_recovery(point, moment, loss)
            self._after_kill_in_recovery(point, moment)

    def recovery_crashes(self) -> None:
        """Check that a crash inside recovery is recovered from like the first one."""
        moments = self._moments_of_recovery()
        random = self._random_for(self._state)
        chosen = random.sample(range(len(moments)), min(DEEP_POINTS, len(moments)))
        for point in chosen:
            for loss in self._some_losses(moments[point], DEEP_STATES):
                self._after_crash_in_recovery(point, moments[point], loss)
            self._after_kill_in_recovery(point, moments[point])

    def _after_crash_in_recovery(self, point: int, inner: CrashDisk, loss: Loss) -> None:
        with self._then(crash_in_recovery(point), power(loss)):
            disk = self._after(inner, loss)
            # Otherwise the power cut may have taken the bytes that seem to be cut.
            if not self._state.pending():
                check_cut_is_kept(self._state.files(PATH), disk)
            self._opening.check(disk, self._before)

    def _after_kill_in_recovery(
        self, point: int, inner: CrashDisk, loss: Loss | None = None
    ) -> None:
        """Kill a recovery. Check that what the next one has shown survives `loss`, or any loss."""
        with self._then(crash_in_recovery(point), KILL):
            disk = inner.after_kill()
            if loss is None and not self._memory.is_new("kill", disk, self._before):
                return
            opened = self._opening.open(disk, self._before, closes=False)
            losses = self._some_losses(opened.killed, DEEP_STATES) if loss is None else [loss]
            for loss in losses:
                with self._then(power(loss)):
                    self._opening.check(self._after(opened.killed, loss), opened.oracle)

    def _some_losses(self, disk: CrashDisk, count: int) -> list[Loss]:
        random = self._random_for(disk)
        found = list(islice(disk.losses(random.randrange(1 << 30)), LOSSES_MAX))
        return [found[0], *random.sample(found[1:], min(count, len(found) - 1))]

    def _random_for(self, disk: CrashDisk) -> Random:
        """Return a random generator that depends only on the disk, whatever was tried before."""
        return Random(f"{self._seed} {disk.fingerprint()}")

    # --- a power cut after what was shown -------------------------------------------------------

    def power_loss_after_showing(self) -> None:
        """Check that what the recovered engine showed survives a power cut."""
        for loss in self._some_losses(self.opened.killed, CHAIN_STATES):
            self._after_showing(loss)

    def power_loss_after_life(self) -> None:
        """Check that the calls which it acknowledges afterwards survive a power cut."""
        for loss in self._some_losses(self._life[0], CHAIN_STATES):
            self._after_living(loss)

    def power_loss_after_first_send(self) -> None:
        """Check that the first message after a recovery survives before any other call has synced
        names.
        """
        for loss in self._some_losses(self._first_send[0], CHAIN_STATES):
            self._after_first_send(loss)

    @cached_property
    def _first_send(self) -> tuple[CrashDisk, Oracle]:
        """Return the disk right after the message was written and synced. With a thread for chores
        the send has returned then. Here chores run first, and would sync the names before it
        returns.
        """
        found: list[tuple[CrashDisk, Oracle]] = []

        def note(run: Run) -> None:
            tried = FIRST_NAME in run.oracle.units
            if tried and WRITTEN.fullmatch(run.disk.history[-1]):
                oracle = run.oracle.copy()
                oracle.returned(FIRST_NAME)
                found.append((run.disk.stopped(), oracle))

        with self._then(FIRST_SEND):
            run = self._live([FIRST_STEP], note)
            note(run)
            run.disk.stop()
            abandon(run.engine)
        return found[-1]

    def _after_first_send(self, loss: Loss) -> None:
        killed, oracle = self._first_send
        with self._then(FIRST_SEND, power(loss)):
            self._opening.check(self._after(killed, loss), oracle)

    def _after_showing(self, loss: Loss) -> None:
        with self._then(RECOVER, power(loss)):
            disk = self._after(self.opened.killed, loss)
            check_cut_is_kept(self._state.files(PATH), disk)
            self._opening.check(disk, self.opened.oracle)

    def _after_living(self, loss: Loss) -> None:
        killed, oracle = self._life
        with self._then(LIFE, power(loss)):
            self._opening.check(self._after(killed, loss), oracle)

    # --- and how it came to be ------------------------------------------------------------------

    def _after(self, disk: CrashDisk, loss: Loss) -> CrashDisk:
        self.cut = disk, loss
        return disk.after(loss)

    @contextlib.contextmanager
    def _then(self, *events: Event) -> Iterator[None]:
        """Run the block, which follows `events`. If it fails, `path` has the events."""
        before = self.path
        self.path = [*before, *events]
        yield
        self.path = before

    def replay(self, rest: list[Event]) -> None:
        """Repeat what `rest` says, as it was done when it failed."""
        match rest:
            case []:
                self.check()
            case [{"do": "recover", "crash_at": int(point)}, {"do": "power"} as lost]:
                self._after_crash_in_recovery(
                    point, self._crash_recovery(point), Loss.from_json(lost)
                )
            case [{"do": "recover", "crash_at": int(point)}, {"do": "kill"}, *after]:
                loss = Loss.from_json(after[0]) if after else None
                self._after_kill_in_recovery(point, self._crash_recovery(point), loss)
            case [{"do": "recover"}, {"do": "power"} as lost]:
                self._after_showing(Loss.from_json(lost))
            case [{"do": "first send"}, {"do": "power"} as lost]:
                self._after_first_send(Loss.from_json(lost))
            case [{"do": "life"}, {"do": "power"} as lost]:
                self._after_living(Loss.from_json(lost))
            case [{"do": how}]:
                AGAIN[how](self)
            case _:
                raise AssertionError(rest)

    def _crash_recovery(self, point: int) -> CrashDisk:
        disk = self._state.after_kill(crash_at=point)
        with contextlib.suppress(PowerLoss):
            abandon(open_engine(disk, self._options))
        return disk


LIFE: Event = {"do": "life"}
FIRST_SEND: Event = {"do": "first send"}
FIRST_STEP: Step = ["sure", "a", 0, 33]
LIFE_STEP = 10_000  # the number of the first step after a recovery
FIRST_NAME = f"send {LIFE_STEP}"
WRITTEN = re.compile(r"write \S+\.seg \S+ sync|sync \S+\.seg")
RECOVER: Event = {"do": "recover", "crash_at": None}
KILL: Event = {"do": "kill", "written": True}
AGAIN = {
    "recover, close": Trial.close_and_recover_again,
    "recover, kill": Trial.kill_and_recover_again,
    "derived files removed": Trial.rebuild,
    "checkpoints lost": Trial.lose_slots,
    "read only": Trial.read_only,
    "as a table": Trial.as_table,
    "life": Trial.live_on,
    "first send": Trial.power_loss_after_first_send,
}


def check_prefix(lanes: Lanes, recovered: Lanes) -> None:
    """Raise Violation unless what was read is what recovery shows, or the beginning of it."""
    for lane, (first, bodies) in lanes.items():
        start, shown = recovered.get(lane, (0, []))
        skip = max(0, start - first)
        if shown[: len(bodies) - skip] != bodies[skip:]:
            raise Violation("I6", f"a reader of {lane} saw what recovery does not show")


def crash_in_recovery(point: int) -> Event:
    return {"do": "recover", "crash_at": point}


def _options_dict(options: Options) -> dict[str, Any]:
    names = ("retain_bytes", "segment_bytes", "sync")
    return {name: getattr(options, name) for name in names}
