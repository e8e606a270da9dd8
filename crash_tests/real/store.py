"""One store through many lives. A seed chooses each life, the tier ends it, and a check follows."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from copy import copy
from pathlib import Path
from random import Random

import fmq
from crash_tests.oracle import Violation
from crash_tests.real.life import NEVER, Moment, some_moment, spend
from crash_tests.real.load import Life
from crash_tests.real.plan import QUEUES
from crash_tests.real.promises import Kept, Promises
from crash_tests.real.watcher import Watcher

KIB, MIB = 1 << 10, 1 << 20
EVENTS_MAX = 400  # how many events a life may report, at most
ASKED = 200  # transactions whose outcomes are compared each time


class Store:
    """A directory that lives, crashes and lives on. Its steps can be printed when it fails."""

    def __init__(
        self,
        seed: int,
        path: Path,
        evidence: Path,
        lie: str = "",
        watcher: Watcher | None = None,
    ) -> None:
        """`watcher` looks at the directory between two lives."""
        self.path = path
        self.story = [f"seed {seed}{lie and f', and a lie: {lie}'}"]
        self._evidence = evidence
        self._lie = lie
        self._watcher = watcher
        self._random = random = Random(seed)
        self._threads = random.randint(1, 4)
        self._background = random.random() < 0.8
        self._options = options = some_options(random)
        self.promises = Promises(seed, Kept(options.retain_bytes, options.segment_bytes))
        self._lives = 0

    def live(
        self,
        what: str,
        end: Callable[[], float] | None = None,
        *,
        moment: Moment | None = None,
        linger: bool = False,
    ) -> None:
        """Run one more life up to some moment. `end` ends it then, and returns the time at which
        that began. `what` is its name.
        """
        moment = moment or some_moment(self._random, EVENTS_MAX)
        self._spend(moment, what, end, linger=linger)

    def twin(self, why: str) -> Store:
        """Return the same store in another future."""
        twin = copy(self)
        twin.promises, twin.story = self.promises.copy(), [*self.story, why]
        return twin

    def finish(self) -> None:
        """Run a last life that ends by closing the store, and another one that looks at it."""
        for units_max in (5, 0):
            if not self._spend(NEVER, "close", units_max=units_max):
                raise Violation("I9", "the store could not be closed")

    def _spend(
        self,
        moment: Moment,
        what: str,
        end: Callable[[], float] | None = None,
        *,
        linger: bool = False,
        units_max: int = 1 << 30,
    ) -> bool:
        self._keep_evidence()
        self.story.append(f"life {self._lives}: {what}, {moment}{', lingering' * linger}")
        life = Life(
            str(self.path),
            self._options,
            self.promises.seed,
            self._lives,
            self._threads,
            units_max,
            self.promises.transactions(ASKED),
            self._random.random() < 0.3,
            self._background,
            self._lie,
        )
        self._lives += 1
        watched = self._random.random() < 0.3
        closed = spend(life, moment, self.promises, end, linger=linger, watched=watched)
        if self._watcher is not None:
            for place, body in self._watcher.look():
                self.promises.shown(place, body)
        return closed

    def _keep_evidence(self) -> None:
        """Copy the directory as the last crash left it, in case the next life finds a fault."""
        shutil.rmtree(self._evidence, ignore_errors=True)
        if self.path.is_dir():
            shutil.copytree(self.path, self._evidence)

    def save(self, violation: Violation, folder: Path) -> Violation:
        """Save all that is known of a failure in `folder`. Return the violation with the steps that
        led to it.
        """
        text = "\n".join((violation.what, *self.story, f"kept in {folder}"))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "story.txt").write_text(f"{violation.invariant}: {text}\n")
        if self._evidence.is_dir():
            shutil.copytree(self._evidence, folder / "directory")
        return Violation(violation.invariant, text)


def some_options(random: Random) -> fmq.Options:
    """Return options with small limits, so that a second of work meets rolls, checkpoints,
    relocation and retention.
    """
    return fmq.Options(
        segment_bytes=MIB,
        checkpoint_bytes=random.choice((64 * KIB, 256 * KIB, 1 * MIB)),
        checkpoint_idle_seconds=random.choice((0.02, 1.0)),
        retain_bytes=random.choice((None, 3 * MIB, 5 * MIB)),
        relocate_bytes=1 * MIB,
        reference_bytes_min=random.choice((1, 4 * KIB)),
        compress_bytes_min=random.choice((None, 1000)),
        topic_queues=QUEUES,
    )
