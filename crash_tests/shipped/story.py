"""A story: an engine sends, prepares and decides, and what it has written is shipped elsewhere.

The model has the state after each call. Whatever a crash leaves at the other place, a directory
made of it has one of these states as a whole, and none from before the last shipping that has
returned. Then the tool goes on, and the place has what the engine has.
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
    *("send", "send", "commit", "prepare", "decide", "fill", "checkpoint", "reopen"),
    *("ship", "ship", "ship", "ship"),
)
STEPS = 24


class State(NamedTuple):
    """What a user sees: the messages, and what is undecided."""

    bodies: tuple[bytes, ...]
    undecided: tuple[str, ...]


class Story:
    """An engine and the tool beside it, with what they do."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.options = fmq.Options(
            segment_bytes=4096, checkpoint_bytes=3000, topic_queues={"t": 1}, relocate_bytes=6000
        )
        self.engine = self._opened(self.disk)
        self.engine.create_topic("t")
        # The states after each call, and the one that the running call leads to.
        self.states = [State((), ())]
        self.shipped_at = -1  # the number of the state that the last shipping had to reach
        self.prepared: dict[str, bytes] = {}
        self.numbers = 0

    def _opened(self, disk: CrashDisk, path: str = PATH) -> fmq.Engine:
        return fmq.open(path, self.options, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Do all steps."""
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

    def _reopen(self) -> None:
        self.engine.close()
        self.engine = self._opened(self.disk)

    def _ship(self) -> None:
        fmq.ship(PATH, PLACE, disk=self.disk)
        self.shipped_at = len(self.states) - 1

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless what was shipped is one of the states, from the last one on that
        had to be there.
        """
        try:
            found = self._restored(disk, "restored")
        except (BackupRefused, NotAStore):
            if self.shipped_at >= 0:
                raise
        else:
            if found not in self.states[max(self.shipped_at, 0) :]:
                raise Violation("I1", "what was shipped is no state since the last shipping")
        if full:
            with self._opened(disk) as engine:
                now = state_of(engine)
                fmq.ship(PATH, PLACE, disk=disk)
            if self._restored(disk, "restored again") != now:
                raise Violation("I10", "the tool went on, and the place is not as the engine is")

    def _restored(self, disk: CrashDisk, path: str) -> State:
        fmq.restore(PLACE, path, disk=disk)
        with self._opened(disk, path) as engine:
            return state_of(engine)


def state_of(engine: fmq.Engine) -> State:
    found = engine.read("t", limit=9999) if engine.queues("t") else []
    return State(
        tuple(bytes(each.body) for each in found), tuple(each.tx_id for each in engine.undecided())
    )
