"""The tiers of producers that are bound to sqlite3 and to a real PostgreSQL, killed at every step
and anywhere.

A round is a life that is hit once. Every second one is hit at a named step, all of them in turn,
and the others at any moment, under load.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from crash_tests.bound import server
from crash_tests.bound.database import Database, Sqlite
from crash_tests.bound.lives import Story
from crash_tests.bound.promises import Promises
from crash_tests.bound.server import Server
from crash_tests.bound.steps import AT_ANY_MOMENT, Blow, Step, may_happen
from crash_tests.bound.ways import NO_MARKER, PLAIN_SELECT, RAISED, RIGHT, Way
from crash_tests.budget import Budget
from crash_tests.oracle import Violation
from crash_tests.real.filesystem import scratch_below
from crash_tests.real.tally import Tally

SHARE = 30  # how many lives a run without a budget has
LIVES_OF_ONE = 20
CONTROL_LIVES_MAX = 20

Round = tuple[Blow, Step | None]


@dataclass(frozen=True, slots=True)
class Place:
    """The place for stories: a folder for each, and the server, if there is one."""

    scratch: Path
    server: Server | None

    def story(self, seed: int, way: Way = RIGHT) -> Story:
        database = self._database(seed)
        return Story(self.scratch / "story", database, seed, way, self.server)

    def _database(self, seed: int) -> Database:
        if self.server is None:
            return Sqlite(str(self.scratch.absolute() / "story" / "shop.db"), wal=seed % 2 == 0)
        from crash_tests.bound.postgres import Postgres  # imported here, because it needs psycopg

        return Postgres(self.server.address)


@dataclass(slots=True)
class Seen:
    """What has happened, as producers and checkers saw it."""

    rounds: Counter[Round] = field(default_factory=Counter)
    doubts: int = 0
    committed: int = 0
    refused: int = 0
    unknown: int = 0

    def add(self, promises: Promises) -> None:
        self.doubts += len(promises.doubtful)
        self.committed += promises.committed
        self.refused += len(promises.refused)
        self.unknown += promises.answers["unknown"]

    def __str__(self) -> str:
        named = {each: times for each, times in self.rounds.items() if each[1] is not None}
        return (
            f"{self.refused} refused, {self.doubts} in doubt ({self.committed} had committed), "
            f"{self.unknown} answers unknown; {sum(named.values())} at named steps, {len(named)}"
        )


class Bound:
    """The tier of one kind of database."""

    def __init__(
        self,
        name: str,
        blows: tuple[Blow, ...],
        controls: tuple[Way, ...],
        begin_server: Callable[[], Server] | None = None,
        why_not: Callable[[], str | None] = lambda: None,
    ) -> None:
        self.name = f"producers bound to {name}"
        self._blows = blows
        self._controls = controls
        self._begin_server = begin_server
        self._why_not = why_not

    def run(self, budget: Budget) -> Tally:
        tally = Tally(self.name)
        tally.not_run = self._why_not()
        if tally.not_run is not None:
            return tally
        seen = Seen()
        with self._place(budget) as place:
            for way in self._controls:
                self._control(place, way, budget.seed, tally)
            plan = self.plan(Random(budget.seed))
            while budget.allows(tally.rounds, SHARE):
                seed = budget.seed * 1_000_000 + tally.stores
                self._story(place.story(seed), plan, budget, tally, seen)
        tally.note = f"{seen} of {len(self.named())}"
        tally.stop()
        return tally

    @contextlib.contextmanager
    def _place(self, budget: Budget) -> Iterator[Place]:
        name = "bound" if self._begin_server is None else "bound-server"
        with scratch_below(budget.directory, name) as scratch, contextlib.ExitStack() as stack:
            begun = self._begin_server and stack.enter_context(self._begin_server())
            yield Place(scratch, begun)

    def named(self) -> list[tuple[Blow, Step]]:
        """Return all pairs of a blow and a named step."""
        return [(blow, step) for blow in self._blows for step in Step if may_happen(blow, step)]

    def plan(self, random: Random) -> Iterator[Round]:
        """Yield without end what happens to each life, one after another."""
        anywhere = [blow for blow in AT_ANY_MOMENT if blow in self._blows]
        while True:
            named = self.named()
            random.shuffle(named)
            for each in named:
                yield each
                yield random.choice(anywhere), None

    def _story(
        self,
        story: Story,
        plan: Iterator[Round],
        budget: Budget,
        tally: Tally,
        seen: Seen,
    ) -> None:
        tally.stores += 1
        try:
            for _ in tally.rounds_of(budget, SHARE, LIVES_OF_ONE):
                blow, step = next(plan)
                story.live(blow, step)
                seen.rounds[blow, step] += 1
            story.look()
        except Violation as violation:
            tally.failures.append(story.save(violation, budget.failures / f"bound-{story.seed}"))
        tally.promises += story.promises.number
        seen.add(story.promises)

    def _control(self, place: Place, way: Way, seed: int, tally: Tally) -> None:
        """Check that the comparison finds out a wrong `way`."""
        assert way.shown_by is not None
        with tally.found_out(way.name):
            story = place.story(seed, way)
            for _ in range(CONTROL_LIVES_MAX):
                story.live(*way.shown_by)


SQLITE = Bound("sqlite3", (Blow.PRODUCER, Blow.ASKED), (NO_MARKER, PLAIN_SELECT))
POSTGRES = Bound(
    "PostgreSQL", tuple(Blow), (NO_MARKER, PLAIN_SELECT, RAISED), Server, server.why_not
)
