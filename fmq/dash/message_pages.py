"""The pages about messages: those of a topic, one with its body, dead letters, and what waits."""

from __future__ import annotations

from collections import Counter

import fmq
from fmq.dash.dash_request import Query, number_of, time_of
from fmq.dash.dash_site import DashSite
from fmq.dash.frame import DashPage, act, acts, body_shown, facts, pause_act, table, when
from fmq.dash.markup import Child, Markup, join, link, tag
from fmq.errors import BadOption
from fmq.findings.body_values import codec_of
from fmq.findings.text import exact, plain, size

MESSAGES_SHOWN = 50
LETTERS_SHOWN = 100
LETTERS_COUNTED = 1000
DELAYED_SHOWN = 200


def messages(site: DashSite, query: Query) -> DashPage:
    """Return messages of a topic: from an offset or a time on, or those of a key."""
    topic = query.get("topic", "")
    queues = site.engine.queues(topic) if topic else []
    form = _search(site, query)
    if not topic:
        return DashPage("Messages", Markup(""), form)
    if not queues:
        raise fmq.UnknownTopic(topic)
    queue = number_of(query.get("queue") or str(queues[0].queue), "queue")
    if key := query.get("key"):
        found = site.engine.find(topic, key=key, limit=MESSAGES_SHOWN)
        return DashPage("Messages", Markup(""), join(form, _listed(site, found)))
    where = next((each for each in queues if each.queue == queue), None)
    if where is None:
        raise BadOption(f"topic {topic!r} has no queue {queue}. Nothing was changed.")
    start = _start(site, where, query.get("start", ""))
    batch = site.engine.read_batch(topic, queue=queue, offset=start, limit=MESSAGES_SHOWN)
    found = [] if batch is None else batch.messages
    last = start if batch is None else batch.next
    around = acts(
        _turn("earlier", topic, queue, max(start - MESSAGES_SHOWN, where.first))
        if start > where.first
        else None,
        _turn("later", topic, queue, last) if last < where.next else None,
    )
    said = f"Queue {queue} has the offsets {where.first} to {where.next - 1}."
    return DashPage(
        "Messages", Markup(""), join(form, tag("p", said), _listed(site, found), around)
    )


def _turn(says: str, topic: str, queue: int, start: int) -> Markup:
    where = link("messages", topic=topic, queue=queue, start=start)
    return tag("a", says, href=where, class_="act")


def _start(site: DashSite, queue: fmq.QueueInfo, said: str) -> int:
    """Return the offset that the reader means: an offset, a time, or by default the last ones."""
    if not said:
        return max(queue.next - MESSAGES_SHOWN, queue.first)
    if said.isascii() and said.isdigit():
        return max(int(said), queue.first)
    return site.engine.offset_at(queue.topic, queue.queue, time_of(said))


def _search(site: DashSite, query: Query) -> Markup:
    topics = dict.fromkeys(each.topic for each in site.engine.queues())
    chosen = query.get("topic")
    options = [tag("option", each, value=each, selected=each == chosen) for each in topics]
    fields = (
        ("queue", "queue", "0"),
        ("start", "from offset or time", "the last ones"),
        ("key", "or of this key", ""),
    )
    return tag(
        "form",
        tag("label", "topic ", tag("select", options, name="topic")),
        [
            tag(
                "label",
                f"{says} ",
                tag("input", name=name, value=query.get(name, ""), placeholder=hint, size=12),
            )
            for name, says, hint in fields
        ],
        tag("button", "show"),
        method="get",
        action=link("messages"),
        class_="ask",
    )


def _listed(site: DashSite, found: list[fmq.Message]) -> Markup:
    return table(
        ("message", "sent", "key", "tag", "transaction", "size#", "body"),
        [
            (
                f"{plain(each.topic)}/{each.queue}/{each.offset}",
                when(site, each.time),
                each.key,
                each.tag,
                None
                if each.tx_id is None
                else tag("a", each.tx_id, href=link("tx", id=each.tx_id)),
                size(len(each.body)),
                tag(
                    "a",
                    "show",
                    href=link("message", topic=each.topic, queue=each.queue, offset=each.offset),
                ),
            )
            for each in found
        ],
        "There is no such message.",
    )


def message(site: DashSite, query: Query) -> DashPage:
    """Return the page of one message, with its body. Raises OffsetGone or UnknownTopic."""
    topic = query.get("topic", "")
    queue, offset = (
        number_of(query.get("queue", ""), "queue"),
        number_of(query.get("offset", ""), "offset"),
    )
    found = site.engine.read(topic, queue=queue, offset=offset, limit=1)
    if not found or found[0].offset != offset:
        raise BadOption(f"{topic}/{queue} has no message {offset}. Nothing was changed.")
    title = f"Message {plain(topic)}/{queue}/{offset}"
    return DashPage(
        title, Markup(""), join(_facts(site, found[0]), _body(site, topic, found[0].body))
    )


def _facts(site: DashSite, each: fmq.Message) -> Markup:
    return facts(
        [
            ("sent", when(site, each.time)),
            ("key", each.key),
            ("tag", each.tag),
            ("id", each.message_id),
            ("producer", each.producer),
            ("transaction", each.tx_id and tag("a", each.tx_id, href=link("tx", id=each.tx_id))),
            ("headers", each.headers or None),
            ("priority", each.priority),
            ("expires", when(site, each.expires_at)),
            ("size", size(len(each.body))),
        ]
    )


def _body(site: DashSite, topic: str, body: bytes) -> Markup:
    return join(tag("h2", "Body"), body_shown(body, codec_of(site.engine, topic)))


# --- dead letters --------------------------------------------------------------------------------


def dead(site: DashSite, query: Query) -> DashPage:
    """Return the dead letters of all groups, or those of one, by reason. Raises UnknownGroup."""
    name = query.get("group")
    if name is None:
        return DashPage("Dead letters", Markup(""), _all_dead(site))
    if number := query.get("number"):
        letter = site.engine.dead_letters(name).get(number_of(number, "number"))
        still = join(
            facts([("reason", letter.reason), ("attempts", letter.attempts)]),
            _facts(site, letter.message),
            _body(site, letter.topic, letter.body),
            _dead_acts(site, name, number=letter.number),
        )
        return DashPage(f"Dead letter {letter.number} of {plain(name)}", Markup(""), still)
    letters = site.engine.dead_letters(name).list(limit=LETTERS_COUNTED)
    reasons = Counter(each.reason for each in letters)
    chosen = query.get("reason")
    shown = [each for each in letters if chosen in (None, each.reason)][-LETTERS_SHOWN:]
    still = join(
        table(
            ("reason", "letters#", ""),
            [
                (
                    tag("a", reason or "none given", href=link("dead", group=name, reason=reason)),
                    count,
                    _dead_acts(site, name, reason=reason, upto=letters[-1].number),
                )
                for reason, count in reasons.most_common()
            ],
            "It has no dead letters.",
            title="By reason",
        ),
        tag("p", f"the first {LETTERS_COUNTED:,}") if len(letters) == LETTERS_COUNTED else None,
        table(
            ("letter#", "was at", "died", "attempts#", "reason", "key", "size#", "body"),
            [_letter(site, name, each) for each in reversed(shown)],
            "There are none.",
            title="The newest" if chosen is None else f"Those with the reason {plain(chosen)}",
        ),
    )
    return DashPage(f"Dead letters of {plain(name)}", Markup(""), still)


def _all_dead(site: DashSite) -> Markup:
    counts = {info.group: info.dead_letters for info in site.engine.groups()}
    return table(
        ("group", "dead letters#"),
        [
            (tag("a", name, href=link("dead", group=name)), count)
            for name, count in counts.items()
            if count
        ],
        "No group has dead letters.",
    )


def _dead_acts(site: DashSite, name: str, **which: object) -> Markup | None:
    """Return links to acts on dead letters: on one, or on those up to a number."""
    return acts(
        act(site, "replay", "replay", group=name, **which),
        act(site, "drop", "drop", group=name, **which),
    )


def _letter(site: DashSite, name: str, each: fmq.DeadLetter) -> list[Child]:
    return [
        exact(each.number),
        f"{plain(each.topic)}/{each.queue}/{each.offset}",
        when(site, each.died_at),
        each.attempts,
        each.reason,
        each.key,
        size(len(each.body)),
        tag("a", "show", href=link("dead", group=name, number=each.number)),
    ]


# --- what waits ----------------------------------------------------------------------------------


def delayed(site: DashSite, query: Query) -> DashPage:
    """Return what waits for its time, and what is published again and again."""
    live = join(
        table(
            ("schedule", "when", "topic", "next", "last", "made by", "paused", ""),
            [
                (
                    each.name,
                    f"{each.cron} in {each.timezone}",
                    each.topic,
                    when(site, each.next),
                    when(site, each.last),
                    each.by,
                    each.paused and f"by {each.paused.by}: {each.paused.reason}",
                    acts(
                        act(site, "run", "run now", schedule=each.name),
                        pause_act(site, each.paused, schedule=each.name),
                    ),
                )
                for each in site.engine.schedules()
            ],
            "Nothing is published again and again.",
            title="Periodic",
        ),
        table(
            ("queue", "messages#", "due", "position#"),
            [
                (
                    f"{plain(each.topic)}/{each.queue}",
                    each.count,
                    when(site, each.due),
                    exact(each.position),
                )
                for each in site.engine.delayed(limit=DELAYED_SHOWN)
            ],
            "No message waits for its time.",
            title=f"Delayed, the first {DELAYED_SHOWN}",
        ),
    )
    return DashPage("Delayed and periodic", live)
