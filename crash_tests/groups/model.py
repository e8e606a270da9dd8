"""A model of the durable groups and topics, as a user sees them. It knows nothing of the engine."""

from __future__ import annotations

from typing import NamedTuple


class Place(NamedTuple):
    """A queue as a group sees it."""

    group: str
    topic: str
    queue: int


class Sent(NamedTuple):
    """A message: its tag, its body, which no other message has, its priority and its expiry."""

    tag: str
    body: bytes
    priority: int | None = None
    expires_us: int | None = None
    sent_us: int = 0

    def is_left(self, now_us: int) -> bool:
        """Return whether it has not expired."""
        return self.expires_us is None or now_us < self.expires_us


class Skipped(NamedTuple):
    """How many messages were skipped by a call, or dropped by retention. Messages that a filter may
    have passed over before count only in `most`.
    """

    least: int
    most: int


NONE = Skipped(0, 0)


class State:
    """The durable state, as a user knows it."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, int], list[Sent]] = {}  # the messages by topic and queue
        # Group and topic -> the filter, and what was skipped.
        self.groups: dict[tuple[str, str], tuple[str, Skipped]] = {}
        self.acked: dict[Place, set[int]] = {}
        self.may: dict[Place, set[int]] = {}  # offsets that may be acked, too
        self.paused: dict[tuple[str, str], str] = {}  # group or topic -> the reason of its pause
        self.limits: dict[str, int] = {}  # how many messages a group is handed at once
        self.codecs: dict[str, int] = {}  # topic -> the version of its codec
        self.retain_us: dict[str, int] = {}  # topic -> its own retention time
        self.first: dict[tuple[str, int], int] = {}  # messages below this offset are gone
        self.may_first: dict[tuple[str, int], int] = {}  # messages below this offset may be gone
        # How many messages each group has lost below `first`.
        self.lost: dict[tuple[str, str], Skipped] = {}

    def begin(self, group: str, topic: str, text: str, at: int | None = None) -> None:
        """Begin a group. With `at` -1 it begins at the end."""
        self.groups[group, topic] = text, NONE
        for (name, queue), sent in self.messages.items():
            if name == topic:
                upto = len(sent) if at == -1 else 0
                self.acked[Place(group, topic, queue)] = set(range(upto))
                self.may[Place(group, topic, queue)] = set()

    def skip(self, place: Place, offsets: range) -> None:
        """Note that a call passes over these offsets. Those that are not acked yet are counted."""
        acked, may = self.acked.setdefault(place, set()), self.may.get(place, set())
        left = set(offsets[self.first.get((place.topic, place.queue), 0) :]) - acked
        may = may | set(range(self.may_first.get((place.topic, place.queue), 0)))
        text, skipped = self.groups.get((place.group, place.topic), ("", NONE))
        counted = Skipped(skipped.least + len(left - may), skipped.most + len(left))
        self.groups[place.group, place.topic] = text, counted

    def lost_upto(self, first: dict[tuple[str, int], int]) -> dict[tuple[str, str], Skipped]:
        """Return how many messages each group has lost if the queues begin at `first`."""
        found = {}
        for group, topic in self.groups:
            least, most = self.lost.get((group, topic), NONE)
            for (name, queue), end in first.items():
                if name == topic:
                    place = Place(group, topic, queue)
                    gone = set(range(self.first.get((name, queue), 0), end))
                    gone -= self.acked.get(place, set())
                    most += len(gone)
                    least += len(gone - self.may.get(place, set()))
            found[group, topic] = Skipped(least, most)
        return found

    def begins(self, first: dict[tuple[str, int], int]) -> None:
        """Note where the queues begin now."""
        self.lost = self.lost_upto(first)
        self.first = first

    def passed(self, now_us: int) -> None:
        """Note which messages may be passed over, because a filter does not want them or they have
        expired, and which may be gone.
        """
        for (name, queue), sent in self.messages.items():
            if name in self.retain_us:
                until_us = now_us - self.retain_us[name]
                gone = sum(each.sent_us <= until_us for each in sent)
                self.may_first[name, queue] = max(self.may_first.get((name, queue), 0), gone)
        for (group, topic), (text, _) in self.groups.items():
            for (name, queue), sent in self.messages.items():
                if name == topic:
                    unwanted = {
                        n
                        for n, each in enumerate(sent)
                        if not wants(text, each.tag) or not each.is_left(now_us)
                    }
                    self.may.setdefault(Place(group, topic, queue), set()).update(unwanted)

    def forget(self, group: str = "", topic: str = "") -> None:
        """Forget what is known of a group, or of a topic."""
        for known in (self.acked, self.may):
            for place in [p for p in known if group in ("", p.group) and topic in ("", p.topic)]:
                del known[place]
        for counts in (self.first, self.may_first):
            for key in [key for key in counts if topic == key[0]]:
                del counts[key]
        self.retain_us.pop(topic, None)
        self.codecs.pop(topic, None)
        self.paused.pop((group, topic), None)
        self.limits.pop(group, None)
        for each in [each for each in self.lost if group == each[0]]:
            del self.lost[each]


def wants(text: str, tag: str) -> bool:
    """Return whether a group with this filter wants a message with this tag."""
    return not text or tag in text.removeprefix("tags:").split(" || ")
