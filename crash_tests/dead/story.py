"""Rejects, replays and purges messages while retention drops the segments that they are in.

The model knows nothing of the engine: it has what is durable after the last call that returned, and
what the call that is running leaves, step by step. A crash leaves one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.oracle import Violation
from fmq.basics.clock import as_datetime
from fmq.consume.groups.expiry import REASON
from fmq.errors import LeaseLost, UnknownGroup, UsageError
from fmq.store.bytes.internal import replay_topic
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside
from fmq.tx.ledger.acks import AckSet

OPTIONS = fmq.Options(segment_bytes=2048, checkpoint_bytes=1024, retain_bytes=6144)
TOPICS, GROUPS = ("s", "t"), ("g", "h")
BURYING, EXPIRING = "x", "e"  # a group, and its topic, whose messages expire
KINDS = (
    *("send", "send", "ack", "reject", "reject", "reject", "reject many", "release"),
    *("replay", "replay", "replay all", "purge", "purge old", "purge all"),
    *("fill", "fill", "fill", "fill", "checkpoint", "reopen", "delete group", "delete topic"),
    *("expire", "expire"),
)
BY_PLACE = ("reject by place",) * 6
STEPS = 24
TRIED_SECONDS_MAX = 700.0  # longer than the longest delay of a message that was tried often


class Dead(NamedTuple):
    """A dead letter as the model knows it."""

    topic: str
    offset: int
    body: bytes
    reason: str
    died_us: int


class State:
    """The durable state, as a user knows it."""

    def __init__(self) -> None:
        self.messages: dict[str, list[bytes]] = {}  # the messages of each topic
        self.groups: dict[str, set[str]] = {}  # the topics of each group
        self.acked: dict[tuple[str, str], set[int]] = {}  # the acked offsets, by group and topic
        # By group and by the number of letters before it.
        self.dead: dict[str, dict[int, Dead]] = {}
        self.died = 0
        # Replayed and not acked yet, by group and topic.
        self.again: dict[tuple[str, str], list[Dead]] = {}

    def bury(self, group: str, dead: Dead) -> None:
        """Add a dead letter."""
        self.dead.setdefault(group, {})[self.died] = dead
        self.died += 1


class Hand(NamedTuple):
    """A delivery that was neither acked nor rejected yet."""

    delivery: fmq.Delivery
    group: str
    place: int
    again: Dead | None  # if it was replayed


class Story:
    """Drives an engine through random steps, and states what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.engine = self._opened(self.disk)
        self.done = State()
        self.running: list[State] = [self.done]
        self.hand: list[Hand] = []
        self.consumers: dict[tuple[str, str], fmq.Consumer] = {}
        self.kinds = (*KINDS, *BY_PLACE) if seed % 4 == 2 else KINDS
        self.sent = 0
        # Dead letters of the model -> their numbers in the engine.
        self.numbers: dict[int, int] = {}

    def _opened(self, disk: CrashDisk) -> fmq.Engine:
        return fmq.open(PATH, OPTIONS, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps. A refused one changes nothing."""
        for kind in ["send", "send", "reject", *self.random.choices(self.kinds, k=STEPS)]:
            self.clock.advance(1)
            getattr(self, f"_{kind.replace(' ', '_')}")()
        self.engine.close()

    def _call(self, call: Callable[[], Any], *effects: Callable[[State], None]) -> Any:
        """Make a call of the engine that has these effects, one append after the other."""
        self.running = [deepcopy(self.done)]
        for effect in effects:
            self.running.append(deepcopy(self.running[-1]))
            effect(self.running[-1])
        try:
            found = call()
        except UsageError:
            self.running = [self.done]
            return None
        self.done = self.running[-1]
        self.running = [self.done]
        return found

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        self._send_to(self._usual(TOPICS))

    def _send_to(self, topic: str, **more: Any) -> None:
        self.sent += 1
        body = b"%d:" % self.sent + bytes(self.random.choice((10, 300)))

        def effect(state: State) -> None:
            state.messages.setdefault(topic, []).append(body)

        said = {"key": "k", "headers": {"h": "v"}, **more}
        self._call(lambda: self.engine.send(topic, body, **said), effect)

    def _expire(self) -> None:
        """Send what expires, and let a group bury it in its polls."""
        soon = as_datetime(self.clock.time_us() + 1_000_000)
        for _ in range(self.random.randint(1, 2)):
            self._send_to(EXPIRING, expires_at=soon)
        self.clock.advance(2)
        consumer, now, found = self._consumer(BURYING, EXPIRING), self.clock.time_us(), []
        sent, acked = self.done.messages[EXPIRING], self.done.acked[BURYING, EXPIRING]

        def poll() -> None:
            while more := consumer.poll():
                found.extend(more)
            self.engine.sync()

        def effect(state: State, offset: int) -> None:
            state.acked[BURYING, EXPIRING].add(offset)
            state.bury(BURYING, Dead(EXPIRING, offset, sent[offset], REASON, now))

        left = [offset for offset in range(len(sent)) if offset not in acked]
        self._call(poll, *(partial(effect, offset=offset) for offset in left))
        self._learn(BURYING)
        self._note(BURYING, EXPIRING, found)

    def _fill(self) -> None:
        """Send what retention drops old segments for."""
        self.engine.send("filler", bytes(1200))

    def _consumer(self, group: str, topic: str) -> fmq.Consumer:
        found = self.consumers.get((group, topic))
        if found is None:
            # What retention has dropped before the group was there counts as acked.
            first = sum(info.first for info in self.engine.queues(topic))

            def effect(state: State) -> None:
                if topic not in state.groups.setdefault(group, set()):
                    state.groups[group].add(topic)
                    state.acked[group, topic] = set(range(first))

            how: dict[str, Any] = {"group": group, "expired": "dead_letter"}
            made = lambda: self.engine.consumer(topic, **how)  # noqa: E731
            found = self.consumers[group, topic] = self._call(made, effect)
        return found

    def _take(self) -> None:
        group, topic = self._usual(GROUPS), self._usual(TOPICS)
        try:
            found = self._consumer(group, topic).poll(limit=self.random.randint(1, 3))
        except UsageError:
            del self.consumers[group, topic]  # the group was deleted
            return
        self._note(group, topic, found)

    def _note(self, group: str, topic: str, found: list[fmq.Delivery]) -> None:
        """Take what a poll has returned in hand."""
        for each in found:
            place, end = each._offsets()
            assert end == place + 1
            again = None
            if each._claim.queue.topic != topic:
                again = self._replayed(group, topic, each)
            elif each.body != self.done.messages[topic][each.offset]:
                raise Violation("I2", f"{each!r} is {each.body[:9]!r}")
            elif each.offset in self.done.acked[group, topic]:
                raise Violation("I7", f"{group} is handed {each!r}, which it has acked")
            self.hand.append(Hand(each, group, place, again))

    def _replayed(self, group: str, topic: str, each: fmq.Delivery) -> Dead:
        for dead in self.done.again.get((group, topic), []):
            if (dead.offset, dead.body) == (each.offset, each.body):
                return dead
        raise Violation("I7", f"{group} is handed {each!r}, which was not replayed")

    def _picked(self) -> Hand | None:
        self._take()
        return self.hand.pop(self.random.randrange(len(self.hand))) if self.hand else None

    def _is_over(self, state: State, hand: Hand) -> None:
        """Note that the group has handled it here."""
        topic = hand.delivery.topic
        if hand.again is None:
            state.acked[hand.group, topic].add(hand.place)
        else:
            state.again[hand.group, topic].remove(hand.again)

    def _ack(self) -> None:
        hand = self._picked()
        if hand is not None:
            with suppress(LeaseLost):
                self._call(hand.delivery.ack, lambda state: self._is_over(state, hand))
            self.running = [self.done]

    def _release(self) -> None:
        hand = self._picked()
        if hand is not None:
            with suppress(LeaseLost, UsageError):
                hand.delivery.release()

    def _reject(self) -> None:
        hand = self._picked()
        if hand is None:
            return
        each, reason = hand.delivery, f"r{self.random.randrange(99)}"
        dead = Dead(each.topic, each.offset, each.body, reason, self.clock.time_us())

        def effect(state: State) -> None:
            self._is_over(state, hand)
            state.bury(hand.group, dead)

        with suppress(LeaseLost):
            self._call(lambda: each.reject(reason), effect)
        self.running = [self.done]
        self._learn(hand.group)

    def _reject_by_place(self) -> None:
        """Reject a message that the group need not have polled. If it has acked it, nothing
        changes.
        """
        group, topic = self._usual(GROUPS), self._usual(TOPICS)
        sent = self.done.messages.get(topic)
        if not sent or topic not in self.done.groups.get(group, ()):
            return
        left = [n for n in range(len(sent)) if n not in self.done.acked[group, topic]]
        offset = self.random.choice(
            left if left and self.random.random() < 0.8 else range(len(sent))
        )
        reason = f"r{self.random.randrange(99)}"
        dead = Dead(topic, offset, sent[offset], reason, self.clock.time_us())

        def effect(state: State) -> None:
            if offset not in state.acked[group, topic]:
                state.acked[group, topic].add(offset)
                state.bury(group, dead)

        found = self.engine.group(group)
        self._call(lambda: found.reject(topic, 0, offset, reason=reason), effect)
        self._learn(group)

    def _reject_many(self) -> None:
        group, topic = self._usual(GROUPS), self._usual(TOPICS)
        try:
            batch = self._consumer(group, topic).poll_batch(limit=3)
        except UsageError:
            del self.consumers[group, topic]
            return
        if batch is None:
            return
        now, is_again = self.clock.time_us(), batch._claim.queue.topic != topic

        def effect(state: State) -> None:
            for each in batch.messages:
                assert each.offset is not None
                dead = Dead(topic, each.offset, each.body, "many", now)
                if is_again:
                    old = next(
                        known
                        for known in state.again[group, topic]
                        if (known.offset, known.body) == (each.offset, each.body)
                    )
                    state.again[group, topic].remove(old)
                else:
                    state.acked[group, topic].add(each.offset)
                state.bury(group, dead)

        self._call(lambda: batch.reject("many"), effect)
        self._learn(group)

    def _learn(self, group: str) -> None:
        """Note the numbers of the dead letters of a group. They stay for ever."""
        known = self.done.dead.get(group)
        if known:
            there = [each.number for each in self.engine.dead_letters(group)]
            self.numbers.update(zip(known, there, strict=True))

    def _letters(self) -> tuple[str, list[int]]:
        """Return a group, and some of its dead letters."""
        group = self._usual([*self.done.groups] or ["g"])
        known = sorted(self.done.dead.get(group, {}))
        return group, self.random.sample(known, min(len(known), self.random.randint(1, 2)))

    def _replay(self, *, all_of_them: bool = False) -> None:
        group, letters = self._letters()
        if all_of_them:
            letters = [*self.done.dead.get(group, {})]
        asked = None if all_of_them else [self.numbers[each] for each in letters]
        if letters:
            effects = self._replays(group, sorted(letters))
            self._call(lambda: self.engine.dead_letters(group).replay(asked), *effects)

    def _replays(self, group: str, letters: list[int]) -> list[Callable[[State], None]]:
        """Return the effects of a replay. Letters whose numbers and places follow each other have
        one append for each topic. Where they lie, retention decides, and no public call tells.
        """
        known = self.done.dead[group]
        places = inside(self.engine).ledger.dead[group].moved
        runs: list[list[int]] = []
        for each in letters:
            here, last = self.numbers[each], self.numbers[runs[-1][-1]] if runs else -1
            after = places.offset_of(here - 1) if here == last + 1 else None
            if runs and after is not None and after + 1 == places.offset_of(here):
                runs[-1].append(each)
            else:
                runs.append([each])
        effects: list[Callable[[State], None]] = []
        for run in runs:
            for topic in dict.fromkeys(known[each].topic for each in run):
                part = [each for each in run if known[each].topic == topic]

                def effect(state: State, part: list[int] = part, topic: str = topic) -> None:
                    for each in part:
                        dead = state.dead[group].pop(each)
                        state.again.setdefault((group, topic), []).append(dead)

                effects.append(effect)
        return effects

    def _replay_all(self) -> None:
        self._replay(all_of_them=True)

    def _purge(self) -> None:
        group, letters = self._letters()
        if letters:
            asked = [self.numbers[each] for each in letters]
            self._call(
                lambda: self.engine.dead_letters(group).purge(asked),
                lambda state: self._drop(state, group, letters),
            )

    @staticmethod
    def _drop(state: State, group: str, letters: list[int]) -> None:
        for each in letters:
            del state.dead[group][each]

    def _purge_old(self) -> None:
        group, _ = self._letters()
        before = self.clock.time_us() - 5_000_000
        old = [n for n, dead in self.done.dead.get(group, {}).items() if dead.died_us < before]
        if group in self.done.groups:
            self._call(
                lambda: self.engine.dead_letters(group).purge(before=as_datetime(before)),
                lambda state: self._drop(state, group, old),
            )

    def _purge_all(self) -> None:
        if self.random.random() < 0.7:
            return  # otherwise few dead letters would be left for other steps
        group, _ = self._letters()
        if group in self.done.groups:
            self._call(
                lambda: self.engine.dead_letters(group).purge(all=True),
                lambda state: state.dead.update({group: {}}),
                lambda state: self._drop_replayed(state, group),
            )
            self.hand = [each for each in self.hand if each.group != group or not each.again]

    @staticmethod
    def _drop_replayed(state: State, group: str) -> None:
        for key in [key for key in state.again if key[0] == group]:
            state.again[key] = []

    def _checkpoint(self) -> None:
        self.engine.checkpoint()

    def _reopen(self) -> None:
        self.engine.close()
        self.hand.clear()
        self.consumers.clear()
        self.engine = self._opened(self.disk)

    def _delete_group(self) -> None:
        group, _ = self._letters()
        if group not in self.done.groups or self.random.random() < 0.5:
            return

        def effect(state: State) -> None:
            del state.groups[group]
            state.dead.pop(group, None)
            for known in (state.acked, state.again):
                for key in [key for key in known if key[0] == group]:
                    del known[key]

        self._call(lambda: self.engine.group(group).delete(), effect)
        self.hand = [each for each in self.hand if each.group != group]
        for key in [key for key in self.consumers if key[0] == group]:
            self.consumers.pop(key).close()

    def _delete_topic(self) -> None:
        topic = self._usual(TOPICS)
        if topic not in self.done.messages or self.random.random() < 0.5:
            return

        def effect(state: State) -> None:
            del state.messages[topic]
            for key in state.acked:
                if key[1] == topic:
                    state.acked[key] = set()

        self._call(lambda: self.engine.topic(topic).delete(), effect)
        self.hand = [each for each in self.hand if each.delivery.topic != topic or each.again]

    def _usual(self, names: Any) -> str:
        """Return mostly the first name, so that much happens in one place."""
        return names[min(len(names) - 1, self.random.random() < 0.25)]  # type: ignore[no-any-return]

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows one of the allowed states."""
        engine = self._opened(disk)
        try:
            faults = [self._fault(engine, state) for state in self.running]
            if all(faults):
                raise Violation("I7", " | ".join(faults))
            state = self.running[faults.index("")]
            if full:
                self._consume(engine, state)
        finally:
            engine.close()
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I0", f"{problems}")

    def _fault(self, engine: fmq.Engine, state: State) -> str:
        """Return how what the engine has differs from `state`; "" if it does not."""
        ledger = inside(engine).ledger
        for group, topics in state.groups.items():
            try:
                letters = engine.dead_letters(group).list(limit=999)
            except UnknownGroup:
                return f"there is no group {group}"
            want = state.dead.get(group, {})
            got = [(each.topic, each.offset, each.body, each.reason) for each in letters]
            if got != [dead[:4] for dead in want.values()]:
                return f"{group} has the dead letters {_short(got)}, not {_short(want.values())}"
            for each, died in zip(letters, want, strict=True):
                if self.numbers.get(died, each.number) != each.number:
                    return f"the dead letter {self.numbers[died]} has the number {each.number} now"
            if len(engine.dead_letters(group)) != len(want):
                return f"{group} counts {len(engine.dead_letters(group))} dead letters"
            for topic in topics:
                acked = ledger.acked.get((group, topic, 0))
                end = len(state.messages.get(topic, ()))
                first = sum(info.first for info in engine.queues(topic))
                found = {n for n in range(end) if n < first or (acked is not None and n in acked)}
                if found != state.acked[group, topic]:
                    return f"{group} has acked {found} of {topic}, not {state.acked[group, topic]}"
        for (group, topic), waiting in state.again.items():
            name = replay_topic(group, topic)
            queue, acked = ledger.queue(name, 0), ledger.acked.get((group, name, 0)) or AckSet()
            left = 0 if queue is None else acked.count_gaps(queue.first, queue.next)
            if left != len(waiting):
                return f"{left} replayed of {topic} wait for {group}, not {len(waiting)}"
        ends = {info.topic: info.next for info in engine.queues() if info.topic != "filler"}
        if ends != {topic: len(sent) for topic, sent in state.messages.items()}:
            return f"topics {ends}"
        return ""

    def _consume(self, engine: fmq.Engine, state: State) -> None:
        """Raise Violation unless each group gets what it has not handled, and what was replayed,
        once.
        """
        for group, topics in state.groups.items():
            for topic in topics:
                sent = state.messages.get(topic, [])
                left = set(range(len(sent))) - state.acked[group, topic]
                new = sorted([(offset, sent[offset]) for offset in left])
                want = new if topic != EXPIRING else []
                want += [(dead.offset, dead.body) for dead in state.again.get((group, topic), ())]
                got = []
                with engine.consumer(topic, group=group) as consumer:
                    # What was tried twice waits for a while, as after each failure.
                    while deliveries := consumer.poll(timeout=TRIED_SECONDS_MAX):
                        for each in deliveries:
                            got.append((each.offset, each.body))
                            each.ack()
                if topic == EXPIRING:  # some may not have expired yet
                    got = [each for each in got if each not in new]
                if sorted(got) != sorted(want):
                    raise Violation("I7", f"{group} gets {_all(got)} of {topic}, not {_all(want)}")


def _short(letters: Iterable[tuple[Any, ...]]) -> list[Any]:
    return [(topic, at, body[:4]) for topic, at, body, *_ in letters]


def _all(messages: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return sorted((offset, body[:4]) for offset, body in messages)
