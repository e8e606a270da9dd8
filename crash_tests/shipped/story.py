"""An engine sends, prepares, decides, erases and drops old messages. Its journal is shipped to a
place.

The model has the state after each call. Whatever a crash leaves at the other place, a directory
made of it has one of these states as a whole, and none from before the last shipping that has
returned. Then the tool goes on, and the place has what the engine has.

Two things may be older than the rest. Retention has dropped what is old before or has not yet, and
drops nothing else. What was erased is erased at the place from the first shipping after the next
checkpoint on.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.errors import BackupRefused, NotAStore
from fmq.testing import CrashDisk, FakeClock

PLACE = "place"
KINDS = (
    *("send", "send", "commit", "prepare", "decide", "fill", "fill", "checkpoint", "reopen"),
    *("ship", "ship", "ship", "ship", "erase", "wait"),
)
STEPS = 26
RETAIN_SECONDS = 100
ERASED = b""


class State(NamedTuple):
    """What a user sees: the messages, and the undecided transactions."""

    bodies: tuple[bytes, ...]
    undecided: tuple[str, ...]
    first: int = 0
    """The offset of the first one. Those before it were dropped."""


class Story:
    """An engine and the tool that ships its journal, with their steps."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.options = fmq.Options(
            segment_bytes=4096,
            checkpoint_bytes=3000,
            topic_queues={"t": 1},
            relocate_bytes=6000,
            retain_seconds=RETAIN_SECONDS,
        )
        self.engine = self._opened(self.disk)
        self.engine.create_topic("t")
        # The states after each call, and the one that the running call leads to.
        self.states = [State((), ())]
        self.young_from = 0  # the offset of the first message that retention must keep
        # Offsets: of what was erased, what of it a checkpoint has, and what of that was shipped.
        self.erased: set[int] = set()
        self.noted: set[int] = set()
        self.forgotten: set[int] = set()
        self.shipped_at = -1  # the number of the state that the last shipping had to reach
        self.prepared: dict[str, bytes] = {}
        self.numbers = 0

    def _opened(self, disk: CrashDisk, path: str = PATH) -> fmq.Engine:
        return fmq.open(path, self.options, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps."""
        for kind in ["send", *self.random.choices(KINDS, k=STEPS)]:
            getattr(self, f"_{kind}")()
        self.engine.close()

    def _body(self) -> bytes:
        self.numbers += 1
        return b"%d " % self.numbers + self.random.randbytes(self.random.choice((9, 300, 900)))

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        body = self._body()
        now = self.states[-1]
        self.states.append(now._replace(bodies=(*now.bodies, body)))
        self.engine.send("t", body)

    def _commit(self) -> None:
        bodies = self._body(), self._body()
        now = self.states[-1]
        self.states.append(now._replace(bodies=(*now.bodies, *bodies)))
        with self.engine.transaction() as tx:
            for body in bodies:
                tx.send("t", body)

    def _prepare(self) -> None:
        body = self._body()
        now = self.states[-1]
        tx = self.engine.transaction(tx_id=f"T{self.numbers}")
        self.prepared[tx.tx_id] = body
        self.states.append(now._replace(undecided=(*now.undecided, tx.tx_id)))
        tx.send("t", body)
        tx.prepare()

    def _decide(self) -> None:
        now = self.states[-1]
        if not now.undecided:
            return
        tx_id, *others = now.undecided
        then = now._replace(undecided=tuple(others))
        if self.random.random() < 0.5:
            self.states.append(then)
            self.engine.decide(tx_id, "rollback")
        else:
            self.states.append(then._replace(bodies=(*now.bodies, self.prepared[tx_id])))
            self.engine.decide(tx_id, "commit")

    def _fill(self) -> None:
        self.engine.send_many("others", [bytes(900)] * 3)

    def _checkpoint(self) -> None:
        self.engine.checkpoint()
        self.noted |= self.erased

    def _reopen(self) -> None:
        self.engine.close()
        self.noted |= self.erased
        self.engine = self._opened(self.disk)

    def _wait(self) -> None:
        """Let everything become old, and let retention drop what it may."""
        self.young_from = len(self.states[-1].bodies)
        self.clock.advance(2 * RETAIN_SECONDS)
        self._fill()

    def _erase(self) -> None:
        first, end = self.engine.queues("t")[0].first, len(self.states[-1].bodies)
        if first == end:
            return
        offset = self.random.randrange(first, end)
        self.erased.add(offset)
        self.engine.erase("t", 0, offset)

    def _ship(self) -> None:
        noted = self.noted.copy()
        # Retention waits for the shipping, or goes on without it.
        keep_bytes = self.random.choice((1, 1 << 30))
        fmq.ship(PATH, PLACE, disk=self.disk, keep_bytes=keep_bytes)
        self.shipped_at = len(self.states) - 1
        self.forgotten |= noted
        self._check_forgotten(self.disk, "shipped")

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless the place has one of the states, from the last one on that had to
        be there.
        """
        try:
            found = self._restored(disk, "restored")
        except (BackupRefused, NotAStore):
            if self.shipped_at >= 0:
                raise
        else:
            if not any(self._is(found, each) for each in self.states[max(self.shipped_at, 0) :]):
                raise Violation("I1", "what was shipped is no state since the last shipping")
        if full:
            noted = self.noted.copy()
            with self._opened(disk) as engine:
                engine.checkpoint()
                noted |= {i for i in self.erased if i in gone_of(engine)}
                now = state_of(engine)
                fmq.ship(PATH, PLACE, disk=disk)
            if not same(self._restored(disk, "restored again"), now):
                raise Violation("I10", "the tool went on, and the place is not as the engine is")
            self._check_forgotten(disk, "shipped again", noted)

    def _is(self, found: State, state: State) -> bool:
        """Return whether `found` is `state`. Old messages that retention may drop do not matter."""
        first = found.first
        if found.undecided != state.undecided or first > self.young_from:
            return False
        if first + len(found.bodies) != len(state.bodies):
            return False
        for offset, body in enumerate(found.bodies, first):
            whole = body == state.bodies[offset] and offset not in self.forgotten
            if not whole and not (body == ERASED and offset in self.erased):
                return False
        return True

    def _check_forgotten(self, disk: CrashDisk, when: str, offsets: set[int] | None = None) -> None:
        """Raise Violation if the place has bytes of an erased message."""
        bodies = self.states[-1].bodies
        contents = [file.content() for file in disk.files(PLACE).values()]
        for offset in self.forgotten if offsets is None else offsets:
            if any(bodies[offset] in content for content in contents):
                raise Violation("I1", f"{when}, and the place has the erased message {offset}")

    def _restored(self, disk: CrashDisk, path: str) -> State:
        """Return the state of a directory that is restored from the place. Retention drops nothing
        in it.
        """
        fmq.restore(PLACE, path, disk=disk)
        with self._opened(disk, path) as engine:
            return state_of(engine)


def state_of(engine: fmq.Engine) -> State:
    found = seen_in(engine)
    return State(
        tuple(bytes(each.body) for each in found),
        tuple(each.tx_id for each in engine.undecided()),
        engine.queues("t")[0].first if engine.queues("t") else 0,
    )


def gone_of(engine: fmq.Engine) -> set[int | None]:
    """Return the offsets of messages that are erased."""
    return {each.offset for each in seen_in(engine) if each.erased}


def seen_in(engine: fmq.Engine) -> list[fmq.Message]:
    queues = engine.queues("t")
    return engine.read("t", offset=queues[0].first, limit=9999) if queues else []


def same(one: State, other: State) -> bool:
    """Return whether two states differ only by messages that retention has dropped in one
    of them.
    """
    first = max(one.first, other.first)
    one, other = (
        each._replace(bodies=each.bodies[first - each.first :], first=first)
        for each in (one, other)
    )
    return one == other
