"""Calls that change groups and topics, one after another, and checks of what a crash leaves of
them.

The model knows nothing of the engine. It has the state after the last call that returned, and that
after the call that is running; a crash leaves one of the two. What a filter passes over is acked
without a sync of its own, so it may be acked or not. So is what has expired. What a topic keeps no
more is gone at some later call: once it is, it stays so, and a group's `lost` counts it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, NamedTuple

import fmq
from crash_tests.engines import PATH
from crash_tests.groups.model import NONE, Place, Sent, State, wants
from crash_tests.oracle import Violation
from fmq import filters
from fmq.basics.clock import as_datetime
from fmq.errors import UsageError
from fmq.testing import CrashDisk, FakeClock
from fmq.testing.inside import inside

OPTIONS = fmq.Options(segment_bytes=2048, checkpoint_bytes=1024)
TOPICS, GROUPS, TAGS = ("s", "t"), ("g", "h"), ("paid", "open", "void")
FILTERS = ("", "tags:paid", "tags:open || paid", "tags:void")
KINDS = (
    *("send", "send", "send", "ack", "ack", "ack", "ack in tx", "take", "release"),
    *("take", "seek", "seek", "seek", "drop", "drop"),
    *("make", "skip", "filter", "delete", "queues", "checkpoint", "reopen", "wait"),
)
WITH_RETENTION = (*KINDS, *("retain", "retain", "wait", "wait", "wait", "send", "send"))
PAUSES = ("pause", "pause", "resume", "resume", "resume", "take", "take")
LIMITS = ("limit", "limit", "limit", "no limit", "take", "take", "take", "take", "ack")
CODECS = ("codec", "codec", "codec", "checkpoint", "reopen")
ACKS_BELOW = ("ack below", "ack below", "ack below", "take")
STEPS = 24


class Hand(NamedTuple):
    """A delivery that was not acked yet, and how often its group had been moved before."""

    delivery: fmq.Delivery
    group: str
    moves: int


class Story:
    """Drives an engine through random steps, and states what must be there after each crash."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.disk, self.clock = CrashDisk(), FakeClock()
        self.engine = self._opened(self.disk)
        self.done, self.running = State(), State()
        self.hand: list[Hand] = []
        # How often each group was moved in each topic.
        self.moves: Counter[tuple[str, str]] = Counter()
        self.sent = 0
        self.was_refused = False  # True if the last call was refused
        self.kinds = KINDS if seed % 3 else WITH_RETENTION
        if seed % 5 == 4:
            self.kinds = (*self.kinds, *PAUSES)
        if seed % 5 == 3:
            self.kinds = (*self.kinds, *LIMITS)
        if seed % 5 == 2:
            self.kinds = (*self.kinds, *CODECS)
        if seed % 5 == 1:
            self.kinds = (*self.kinds, *ACKS_BELOW)
        self.consumers: dict[tuple[str, str], fmq.Consumer] = {}

    def _opened(self, disk: CrashDisk) -> fmq.Engine:
        return fmq.open(PATH, OPTIONS, disk=disk, clock=self.clock, background=False)

    def tell(self) -> None:
        """Make all steps. A refused one changes nothing."""
        for kind in ["send", "send", "ack", *self.random.choices(self.kinds, k=STEPS)]:
            getattr(self, f"_{kind.replace(' ', '_')}")()
        self.engine.close()

    def _call(self, call: Callable[[], Any], effect: Callable[[State], None]) -> Any:
        """Make a call of the engine that has this effect."""
        self.done.passed(self.clock.time_us())
        self.running = deepcopy(self.done)
        effect(self.running)
        self.running.passed(self.clock.time_us())
        try:
            found = call()
        except UsageError:
            self.was_refused, self.running = True, deepcopy(self.done)
            return None
        self.was_refused = False
        self.done = deepcopy(self.running)
        self.done.begins({(q.topic, q.queue): q.first for q in self.engine.queues()})
        return found

    # --- the steps ------------------------------------------------------------------------------

    def _send(self) -> None:
        topic, tag = self._usual(TOPICS), self.random.choice(TAGS)
        queues = [queue for name, queue in self.done.messages if name == topic] or [0]
        queue = self.random.choice(queues)

        self.sent += 1
        body = b"%d:" % self.sent + bytes(self.random.choice((10, 900)))
        priority = self.random.choice((None, None, 0, 5, 9))
        expires_us = self.clock.time_us() + 10_000_000 if self.random.random() < 0.3 else None
        sent = Sent(tag, body, priority, expires_us, self.clock.time_us())
        more: dict[str, Any] = {"tag": tag, "queue": queue, "priority": priority}
        if expires_us is not None:
            more["expires_at"] = as_datetime(expires_us)

        def effect(state: State) -> None:
            state.messages.setdefault((topic, queue), []).append(sent)

        def prepared() -> None:
            with self.engine.transaction() as tx:
                tx.send(topic, body, **more)
                tx.prepare()

        send = partial(self.engine.send, topic, body, **more)
        # The first prepare would make the topic before there is a message.
        two_phases = (topic, queue) in self.done.messages and self.random.random() < 0.2
        self._call(prepared if two_phases else send, effect)

    def _take(self) -> None:
        group, topic = self._usual(GROUPS), self._usual(TOPICS)
        text = self.random.choice(FILTERS)

        def effect(state: State) -> None:
            if (group, topic) not in state.groups:
                state.begin(group, topic, text)

        if (group, topic) not in self.consumers:
            asked = None
            if (group, topic) not in self.done.groups:
                asked = filters.tags(text.removeprefix("tags:"))
            made = self._call(
                lambda: self.engine.consumer(topic, group=group, filter=asked), effect
            )
            self.consumers[group, topic] = made
        try:
            found = self.consumers[group, topic].poll(limit=self.random.randint(1, 3))
        except UsageError:
            del self.consumers[group, topic]  # the group was deleted
            return
        if found and not self.done.paused.keys().isdisjoint([(group, ""), ("", topic)]):
            raise Violation("I7", f"{group} is handed {found}, and is paused: {self.done.paused}")
        if found and group in self.done.limits:
            self._check_limit(self.engine, group, self.done.limits[group])
        for each in found:
            sent = self.done.messages[topic, each.queue][each.offset]
            if each.body != sent.body:
                raise Violation("I2", f"{each!r} is {each.body[:9]!r}, not {sent.body[:9]!r}")
            if not wants(self.done.groups[group, topic][0], sent.tag):
                raise Violation("I1", f"{group} is handed {each!r}, which it does not want")
            if not sent.is_left(self.clock.time_us()):
                raise Violation("I1", f"{group} is handed {each!r}, which has expired")
            if each.message.priority != sent.priority:
                raise Violation("I2", f"{each!r} has the priority {each.message.priority}")
            if each.offset in self.done.acked.get(Place(group, topic, each.queue), ()):
                raise Violation("I7", f"{group} is handed {each!r}, which it has acked")
        self.hand += [Hand(each, group, self.moves[group, topic]) for each in found]

    def _ack(self) -> None:
        self._take()
        if self.hand:
            hand = self._picked()
            self._ack_by(hand, hand.delivery.ack)

    def _picked(self) -> Hand:
        return self.hand.pop(self.random.randrange(len(self.hand)))

    def _ack_in_tx(self) -> None:
        self._take()
        if self.hand:
            hand = self._picked()

            def commit() -> None:
                with self.engine.transaction() as tx:
                    tx.ack(hand.delivery)

            self._ack_by(hand, commit)

    def _ack_by(self, hand: Hand, call: Callable[[], None]) -> None:
        group, topic, queue = hand.group, hand.delivery.topic, hand.delivery.queue
        is_lost = hand.moves != self.moves[group, topic]

        def effect(state: State) -> None:
            if not is_lost:
                place = Place(group, topic, queue)
                state.acked.setdefault(place, set()).add(hand.delivery.offset)

        try:
            self._call(call, effect)
        except fmq.errors.LeaseLost:
            self.running = deepcopy(self.done)
        else:
            if is_lost and not self.was_refused:
                raise Violation("I7", f"{group} acks {hand.delivery!r} after a move")

    def _release(self) -> None:
        self._take()
        if self.hand:
            with suppress(fmq.errors.LeaseLost, UsageError):
                self._picked().delivery.release()

    def _make(self) -> None:
        group, topic = self.random.choice(GROUPS), self.random.choice(TOPICS)
        at, text = self.random.choice(("earliest", "latest")), self.random.choice(FILTERS)
        asked = filters.tags(text.removeprefix("tags:"))
        self._call(
            lambda: self.engine.create_group(group, topic, at=at, filter=asked),
            lambda state: state.begin(group, topic, text, -1 if at == "latest" else None),
        )

    def _seek(self) -> None:
        group, topic = self._group()
        offset = self.random.randint(0, 4)

        def effect(state: State) -> None:
            place = Place(group, topic, 0)
            state.skip(place, range(offset))
            state.acked[place], state.may[place] = set(range(offset)), set()

        self._call(lambda: self.engine.group(group).seek(topic, queue=0, offset=offset), effect)
        if not self.was_refused:
            self.hand = [
                each
                for each in self.hand
                if (each.group, each.delivery.topic) != (group, topic) or not each.delivery.queue
            ]  # deliveries of other queues stay valid, but they are not used any more
            self.moves[group, topic] += 1

    def _skip(self) -> None:
        group, topic = self._group()
        offset = self.random.randint(0, 4)

        def effect(state: State) -> None:
            place = Place(group, topic, 0)
            state.skip(place, range(offset, offset + 1))
            state.acked[place].add(offset)

        self._call(lambda: self.engine.group(group).skip(topic, 0, offset), effect)

    def _ack_below(self) -> None:
        group, topic = self._group()
        offset = self.random.randint(0, 4)

        def effect(state: State) -> None:
            state.acked.setdefault(Place(group, topic, 0), set()).update(range(offset))

        self._call(lambda: self.engine.group(group).ack_below(topic, 0, offset), effect)

    def _filter(self) -> None:
        group, topic = self._group()
        text = self.random.choice(FILTERS)
        wanted = filters.tags(text.removeprefix("tags:"))

        def effect(state: State) -> None:
            state.groups[group, topic] = text, state.groups.get((group, topic), ("", NONE))[1]

        self._call(lambda: self.engine.group(group).set_filter(topic, wanted), effect)

    def _delete(self) -> None:
        group, _ = self._group()

        def effect(state: State) -> None:
            state.forget(group=group)
            for key in [key for key in state.groups if key[0] == group]:
                del state.groups[key]

        self._call(lambda: self.engine.group(group).delete(), effect)
        for topic in () if self.was_refused else TOPICS:
            self.moves[group, topic] += 1
        for key in [key for key in self.consumers if key[0] == group]:
            self.consumers.pop(key).close()

    def _queues(self) -> None:
        topic = self.random.choice(TOPICS)
        count = sum(name == topic for name, _ in self.done.messages)

        def effect(state: State) -> None:
            state.messages[topic, count] = []

        if count < 3:
            self._call(lambda: self.engine.topic(topic).add_queues(1), effect)

    def _drop(self) -> None:
        topic = self._usual(TOPICS)

        def effect(state: State) -> None:
            state.forget(topic=topic)
            for key in [key for key in state.messages if key[0] == topic]:
                del state.messages[key]

        self._call(lambda: self.engine.topic(topic).delete(), effect)
        for group in () if self.was_refused else GROUPS:
            self.moves[group, topic] += 1

    def _checkpoint(self) -> None:
        self._call(self.engine.checkpoint, lambda state: None)

    def _wait(self) -> None:
        self.clock.advance(6)
        for state in (self.done, self.running):
            state.passed(self.clock.time_us())

    def _retain(self) -> None:
        topic, seconds = self._usual(TOPICS), self.random.choice((None, 5, 5, 15))

        def effect(state: State) -> None:
            state.retain_us.pop(topic, None)
            if seconds is not None:
                state.retain_us[topic] = seconds * 1_000_000

        self._call(lambda: self.engine.topic(topic).retain(seconds), effect)

    def _codec(self) -> None:
        """Name a codec, which makes a topic that is not there. A lower version changes nothing."""
        topic, version = self._usual(TOPICS), self.random.randint(1, 9)

        def effect(state: State) -> None:
            if not any(name == topic for name, _ in state.messages):
                state.messages[topic, 0] = []
            state.codecs[topic] = max(version, state.codecs.get(topic, 0))

        codec = fmq.codecs.json(version=version)
        self._call(lambda: self.engine.topic(topic, codec=codec), effect)

    def _pause(self) -> None:
        reason = self.random.choice(("slow", "at night"))
        self._paused(lambda found: found.pause(reason=reason), reason)

    def _resume(self) -> None:
        self._paused(lambda found: found.resume(), "")

    def _paused(self, call: Callable[[Any], object], reason: str) -> None:
        """Pause a group or a topic for this reason; without one, resume it."""
        (group, topic), is_group = self._group(), self.random.random() < 0.5

        def effect(state: State) -> None:
            key = (group, "") if is_group else ("", topic)
            state.paused.pop(key, None)
            if reason:
                state.paused[key] = reason

        self._call(
            lambda: call(self.engine.group(group) if is_group else self.engine.topic(topic)), effect
        )

    def _limit(self) -> None:
        (group, _), most = self._group(), self.random.randint(1, 3)

        def effect(state: State) -> None:
            state.limits[group] = most

        self._call(lambda: self.engine.group(group).limit(concurrency=most), effect)

    def _no_limit(self) -> None:
        group, _ = self._group()

        def effect(state: State) -> None:
            state.limits.pop(group, None)

        self._call(lambda: self.engine.group(group).limit(), effect)

    @staticmethod
    def _check_limit(engine: fmq.Engine, group: str, most: int) -> None:
        """Raise Violation if the group, which was handed a message, has more than `most` in
        hand.
        """
        held = [each for each in engine.group(group).in_hand() if each.state != "waits"]
        if sum(each.count for each in held) > most:
            raise Violation("I7", f"{group} has {held} in hand, and {most} at once are its limit")

    def _reopen(self) -> None:
        self.engine.close()
        self.hand.clear()
        self.consumers.clear()
        self.engine = self._opened(self.disk)

    def _usual(self, names: tuple[str, ...]) -> str:
        """Return mostly the first name, so that much happens in one place."""
        return names[self.random.random() < 0.25]

    def _group(self) -> tuple[str, str]:
        usual = self._usual(GROUPS), self._usual(TOPICS)
        known = sorted(self.done.groups)
        return self.random.choice(known) if known and usual not in known else usual

    # --- what a crash leaves --------------------------------------------------------------------

    def judge(self, disk: CrashDisk, *, full: bool) -> None:
        """Raise Violation unless an engine shows one of the allowed states."""
        for state in (self.done, self.running):
            state.passed(self.clock.time_us())  # also since the last call
        engine = self._opened(disk)
        try:
            faults = [self._fault(engine, state) for state in (self.done, self.running)]
            if all(faults):
                raise Violation("I7", f"{faults[0]}; with the call that was running: {faults[1]}")
            state = self.running if faults[0] else self.done
            if full:
                self._consume(engine, state)
        finally:
            engine.close()
        if full and (problems := fmq.check(PATH, disk=disk).problems):
            raise Violation("I0", f"{problems}")

    def _fault(self, engine: fmq.Engine, state: State) -> str:
        """Return how what the engine has differs from `state`; "" if it does not."""
        ledger = inside(engine).ledger
        groups = {key: (each.filter, each.skipped) for key, each in ledger.subscriptions.items()}
        if {key: text for key, (text, _) in groups.items()} != {
            key: text for key, (text, _) in state.groups.items()
        }:
            return f"groups {groups}, not {state.groups}"
        for key, (_, skipped) in groups.items():
            counted = state.groups[key][1]
            if not counted.least <= skipped <= counted.most:
                return f"{key} has skipped {skipped}, not {counted}"
        paused = {key: pause.reason for key, pause in ledger.pauses.items()}
        if paused != state.paused:
            return f"paused is {paused}, not {state.paused}"
        limits = {group: limit.concurrency for group, limit in ledger.limits.items()}
        if limits != state.limits:
            return f"limits are {limits}, not {state.limits}"
        codecs = {each.name: each.codec.version for each in ledger.made_topics() if each.codec}
        if codecs != state.codecs:
            return f"codecs are {codecs}, not {state.codecs}"
        ends = {(q.topic, q.queue): q.next for q in engine.queues()}
        if ends != {key: len(sent) for key, sent in state.messages.items()}:
            return f"queues {ends}"
        first = {(q.topic, q.queue): q.first for q in engine.queues()}
        for place_of, begin in first.items():
            least, most = state.first.get(place_of, 0), state.may_first.get(place_of, 0)
            if not least <= begin <= max(least, most):
                return f"{place_of} begins at {begin}, not at {least} to {most}"
        for key, counts in state.lost_upto(first).items():
            if not counts.least <= ledger.subscriptions[key].lost <= counts.most:
                return f"{key} has lost {ledger.subscriptions[key].lost}, not {counts}"
        for group, topic in groups:
            for queue in range(sum(name == topic for name, _ in ends)):
                place = Place(group, topic, queue)
                acked = ledger.acked.get((group, topic, queue))
                end = ends[topic, queue]
                there = {*range(first[topic, queue], end)}
                got = {n for n in there if acked is not None and n in acked}
                must, may = state.acked.get(place, set()), state.may.get(place, set())
                if not must & there <= got <= must | may:
                    return f"{place} has acked {got}, not {must} and perhaps {may}"
        return ""

    def _consume(self, engine: fmq.Engine, state: State) -> None:
        """Raise Violation unless each group gets what it wants and has not acked, and
        nothing else.
        """
        for (group, topic), (text, _) in state.groups.items():
            expected = {
                (queue, offset)
                for (name, queue), sent in state.messages.items()
                for offset, each in enumerate(sent)
                if name == topic
                and offset >= state.first.get((name, queue), 0)
                and wants(text, each.tag)
                and each.is_left(self.clock.time_us())
                and offset not in state.acked.get(Place(group, topic, queue), ())
            }
            # What was tried twice waits for a while, as after each failure.
            waits = {
                (queue, offset)
                for (who, name, queue), tried in inside(engine).ledger.tried.items()
                for first, end, count, _ in tried.all()
                for offset in range(first, end)
                if (who, name) == (group, topic) and count > 1
            }
            found, is_new = [], True
            with engine.consumer(topic, group=group) as consumer:
                # Pauses that the loop above has not ended.
                for key in {(group, ""), ("", topic)} & inside(engine).ledger.pauses.keys():
                    if consumer.poll():
                        raise Violation("I7", f"{group} is handed something of {topic}: {key}")
                    (engine.group(group) if key[0] else engine.topic(topic)).resume()
                limit = inside(engine).ledger.limits.get(group)
                if limit is not None and limit.concurrency is not None:
                    held = consumer.poll()
                    self._check_limit(engine, group, limit.concurrency)
                    for each in held:
                        each.release(count=False)
                    engine.group(group).limit()
                while deliveries := consumer.poll():
                    found += [(each.queue, each.offset) for each in deliveries]
                    for each in deliveries:
                        is_new = is_new and each.attempt == 1
                        if each.body != state.messages[topic, each.queue][each.offset].body:
                            raise Violation("I2", f"{each!r} has another body")
            maybe = waits | {
                (place.queue, offset)
                for place, offsets in state.may.items()
                if (place.group, place.topic) == (group, topic)
                for offset in offsets
            }
            maybe |= {
                (queue, offset)
                for (name, queue), end in state.may_first.items()
                if name == topic
                for offset in range(end)
            }
            levels = [state.messages[topic, queue][offset].priority or 0 for queue, offset in found]
            if is_new and levels[:9] != sorted(levels, reverse=True)[:9]:  # the tenth is the oldest
                raise Violation("I7", f"{group} gets the priorities {levels} of {topic}")
            if len(found) != len(set(found)) or not expected - maybe <= set(found) <= expected:
                raise Violation("I7", f"{group} gets {sorted(found)}, not {sorted(expected)}")
