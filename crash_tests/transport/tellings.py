"""Runs a story once for each blow. Each time it must end as it does without one."""

from __future__ import annotations

from collections.abc import Iterator

from crash_tests.oracle import Violation
from crash_tests.transport.blow import Blow
from crash_tests.transport.looks import Content, Looks
from crash_tests.transport.server import BreakingServer
from crash_tests.transport.story import End, Plot, Step, Story
from crash_tests.transport.survey import Blows

# What a client may have done of a call in which it dies.
BEGUN = {
    "commit": "prepare",
    "rollback": "prepare",
    "ack": "ack one",
    "settle": "settle one",
    "herd": "herd without acks",
    "cancelled send": "send before",
    "two cancellations": "send before",
    "advance": "ack one",
    "release": "take",
    "take for good": "take one for good",
    "reject": "reject one",
    "replay": "replay of one topic",  # each topic has an append of its own
}


class Tellings:
    """One story, run again and again: each time with another blow."""

    def __init__(self, plot: Plot) -> None:
        self._plot = plot
        self._steps = plot.steps
        self._looks = Looks()
        self._known: dict[tuple[Step, ...], Content] = {}  # the contents at the end without a blow

    def blows(self) -> list[list[Blow]]:
        """Return all blows that may fall, in groups of those that end alike."""
        blows = Blows()
        self._known[self._steps] = Story(self._plot, self._looks).tell(blows).content
        return [*blows.alike.values()]

    def tell(self, blow: Blow) -> BreakingServer:
        """Run the story with a blow. Raises Violation unless it ends as it does without one."""
        end = self.end_of(blow)
        expected = [*self._ends(end.died_at)]
        if not any(
            all(each[what] == found for what, found in end.content.items()) for each in expected
        ):
            raise Violation("I5", f"ends with {end.content}, not with {expected[0]}")
        return end.server

    def end_of(self, blow: Blow) -> End:
        """Return how the story ends with a blow. Raises Violation for what must never be."""
        end = Story(self._plot, self._looks, blow).tell()
        assert end.server.has_fallen, f"{blow} did not fall"
        return end

    def _ends(self, died_at: int) -> Iterator[Content]:
        """Yield the ways in which the story may end. A dead client has made all of its call, a part
        of it, or none.
        """
        if died_at < 0:
            yield self._without_blow(self._steps)
            return
        last = self._steps[died_at]
        before, after = self._steps[:died_at], self._steps[died_at + 1 :]
        rest = tuple(each for each in after if each.client != last.client)
        yield self._without_blow((*before, last, *rest))
        yield self._without_blow((*before, *rest))
        if last.kind in BEGUN:
            yield self._without_blow((*before, last._replace(kind=BEGUN[last.kind]), *rest))

    def _without_blow(self, steps: tuple[Step, ...]) -> Content:
        if steps not in self._known:
            plot = self._plot._replace(steps=steps)
            self._known[steps] = Story(plot, self._looks).tell().content
        return self._known[steps]
