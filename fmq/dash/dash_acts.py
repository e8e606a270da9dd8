"""What a reader can do: each act is one public call of the engine, with a page that asks first.

An act says what it will do before it does it, asks who wants it and why, and then carries it out.
What is named by a query is named again by the form, so what was shown is what is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple, Protocol, TypedDict

import fmq
from fmq.dash.dash_request import Query, number_of, time_of
from fmq.dash.dash_site import DashSite
from fmq.dash.markup import DashLink, Markup, link, tag
from fmq.errors import BadOption
from fmq.findings.bound import bound_said
from fmq.findings.text import counted, duration, plain
from fmq.findings.troubles import HELD_MAX

LETTERS_MAX = 1000


class Why(NamedTuple):
    """Who wants an act, and why."""

    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class Act:
    """One act, about to be carried out."""

    title: str
    """What it does, as an order: "Pause group mail"."""
    effect: str
    """What it will do, in some sentences."""
    button: str
    carry_out: Callable[[Query, Why], str]
    """Does it, with what the form says, and returns what was done."""
    back: DashLink
    """Where its reader came from."""
    inputs: tuple[Markup, ...] = ()
    """What its form asks besides."""
    is_final: bool = False
    """Whether nothing takes it back."""


class Pausable(Protocol):
    """A group, a topic or a schedule."""

    def pause(self, *, reason: str, by: str | None = None) -> None: ...

    def resume(self, *, reason: str = "", by: str | None = None) -> None: ...


def pause(site: DashSite, query: Query) -> Act:
    """Pause a group, a topic or a schedule."""
    what, name, handle, back = _pausable(site, query)
    effect = {
        "group": "It is handed nothing, until somebody resumes it. What is in hand may be acked.",
        "topic": "No group is handed anything of it, until somebody resumes it. Sends go on.",
        "schedule": "It publishes nothing, until somebody resumes it.",
    }[what]

    def carry_out(form: Query, why: Why) -> str:
        handle.pause(reason=why.reason, by=why.by)
        return f"{what.capitalize()} {plain(name)} is paused."

    return Act(f"Pause {what} {plain(name)}", effect, "pause", carry_out, back)


def resume(site: DashSite, query: Query) -> Act:
    """End the pause of a group, a topic or a schedule."""
    what, name, handle, back = _pausable(site, query)

    def carry_out(form: Query, why: Why) -> str:
        handle.resume(reason=why.reason, by=why.by)
        return f"{what.capitalize()} {plain(name)} goes on."

    return Act(f"Resume {what} {plain(name)}", "It goes on at once.", "resume", carry_out, back)


def _pausable(site: DashSite, query: Query) -> tuple[str, str, Pausable, DashLink]:
    """Return what may be paused: its kind, its name and its handle. Raises if it is not there."""
    engine = site.engine
    if name := query.get("group"):
        return "group", name, _group(site, name), link("group", name=name)
    if name := query.get("schedule"):
        schedule = engine.scheduled(name)
        schedule.info()
        return "schedule", name, schedule, link("delayed")
    name = query.get("topic", "")
    if not engine.queues(name):
        raise fmq.UnknownTopic(name)
    return "topic", name, engine.topic(name), link("./")


def _group(site: DashSite, name: str) -> fmq.Group:
    """Return a group. Raises UnknownGroup."""
    group = site.engine.group(name)
    group.infos()
    return group


def run(site: DashSite, query: Query) -> Act:
    """Publish the message of a schedule now."""
    name = query.get("schedule", "")
    topic = site.engine.scheduled(name).info().topic

    def carry_out(form: Query, why: Why) -> str:
        site.engine.scheduled(name).run_now(reason=why.reason, by=why.by)
        return f"Its message is in topic {plain(topic)}."

    effect = f"Its message is published in topic {plain(topic)} once more. Its due times stay."
    return Act(f"Run schedule {plain(name)} now", effect, "run", carry_out, link("delayed"))


# --- groups --------------------------------------------------------------------------------------


def release(site: DashSite, query: Query) -> Act:
    """Give to others what a member holds."""
    group, member, held = _member(site, query)

    def carry_out(form: Query, why: Why) -> str:
        count = site.engine.group(group).release(member, reason=why.reason, by=why.by)
        return f"{counted(count, 'message')} went back."

    effect = (
        f"Others get the {counted(held, 'message')} that it holds, and it stays in the group. What "
        "its handler does with them now is done twice. Only the log of the engine has it."
    )
    title = f"Release what {plain(member)} holds"
    return Act(title, effect, "release", carry_out, link("group", name=group))


def put_out(site: DashSite, query: Query) -> Act:
    """Put a member out of its group."""
    group, member, held = _member(site, query)

    def carry_out(form: Query, why: Why) -> str:
        count = site.engine.group(group).put_out(member, reason=why.reason, by=why.by)
        return f"{plain(member)} is out, and {counted(count, 'message')} went back."

    effect = (
        f"Others get its queues and the {counted(held, 'message')} that it holds. Its next poll "
        "fails, with your reason, and so does an ack of what it held. What its handler does now is "
        "done twice. Only the log of the engine has it."
    )
    title = f"Put {plain(member)} out of group {plain(group)}"
    return Act(title, effect, "put out", carry_out, link("group", name=group))


def _member(site: DashSite, query: Query) -> tuple[str, str, int]:
    """Return a group, its member, and how many messages that holds. Raises UnknownMember."""
    name, member = query.get("group", ""), query.get("member", "")
    group = site.engine.group(name)
    if all(each.name != member for each in group.members()):
        raise fmq.UnknownMember(name, member)
    held = group.in_hand(limit=HELD_MAX)
    return name, member, sum(each.count for each in held if each.member == member)


def skip(site: DashSite, query: Query) -> Act:
    """Pass over some messages of a queue."""
    name, topic = query.get("group", ""), query.get("topic", "")
    queue, offset = (number_of(query.get(each, ""), each) for each in ("queue", "offset"))
    count = number_of(query.get("count", "1"), "count")
    _group(site, name)

    def carry_out(form: Query, why: Why) -> str:
        site.engine.group(name).skip(topic, queue, offset, count=count)
        return "They are passed over." if count > 1 else "It is passed over."

    many = counted(count, "message")
    effect = (
        f"Group {plain(name)} never gets {many} of {plain(topic)}/{queue} from offset {offset} on. "
        "Other groups do. The journal has it, without you and your reason: the log of these pages "
        "has them."
    )
    title, back = f"Skip {many} of {plain(topic)}/{queue}", link("group", name=name)
    return Act(title, effect, "skip", carry_out, back, is_final=True)


class _To(TypedDict, total=False):
    """Where a group goes on."""

    offset: int
    time: datetime
    to: str


def _to(said: str) -> _To:
    """Return what a reader has typed: "latest", "earliest", an offset or a time."""
    if said in ("latest", "earliest"):
        return {"to": said}
    if said.isascii() and said.isdigit():
        return {"offset": number_of(said, "offset")}
    return {"time": time_of(said)}


def purge(site: DashSite, query: Query) -> Act:
    """Pass over the backlog of a topic."""
    name, topic, unread = _backlog(site, query)

    def carry_out(form: Query, why: Why) -> str:
        group = site.engine.group(name)
        before = _skipped(group, topic)
        group.purge(topic, **_to(form.get("to", "")), reason=why.reason, by=why.by)
        return f"{counted(_skipped(group, topic) - before, 'message')} were passed over."

    effect = (
        f"Group {plain(name)} never gets what lies before that place: up to "
        f"{counted(unread, 'message')} now. Other groups do."
    )
    title = f"Purge {plain(topic)} for group {plain(name)}"
    back = link("group", name=name)
    place = _place("pass over what lies before", "latest")
    return Act(title, effect, "purge", carry_out, back, (place,), is_final=True)


def seek(site: DashSite, query: Query) -> Act:
    """Move a group in a topic."""
    name, topic, _ = _backlog(site, query)

    def carry_out(form: Query, why: Why) -> str:
        site.engine.group(name).seek(topic, **_to(form.get("to", "")))
        return f"The group goes on there, in all queues of {plain(topic)}."

    effect = (
        "It gets everything from that place on, also what it has acked; what lies before it is "
        "passed over. The journal has it, without you and your reason: the log of these pages has "
        "them."
    )
    title = f"Move group {plain(name)} in {plain(topic)}"
    back = link("group", name=name)
    return Act(title, effect, "move", carry_out, back, (_place("go on at", ""),), is_final=True)


def _backlog(site: DashSite, query: Query) -> tuple[str, str, int]:
    """Return a group, a topic, and how much the group has not acked of it. Raises UnknownTopic."""
    name, topic = query.get("group", ""), query.get("topic", "")
    infos = [each for each in site.engine.group(name).infos() if each.topic == topic]
    if not infos:
        raise fmq.UnknownTopic(topic)
    return name, topic, sum(each.unread for each in infos)


def _skipped(group: fmq.Group, topic: str) -> int:
    return max(each.skipped for each in group.infos() if each.topic == topic)


def _place(says: str, value: str) -> Markup:
    hint = "latest, earliest, an offset, or a time such as 2026-11-24T12:00:00Z"
    field = tag("input", name="to", value=value, required=True, size=30, aria_describedby="to-is")
    return tag("label", f"{says} ", field, tag("small", hint, id="to-is"))


COUNTS = {
    "concurrency": "so many messages in hand at once",
    "rate": "so many messages a second",
    "concurrency_by_key": "so many of one key in hand at once",
    "rate_by_key": "so many of one key a second",
}


def limit(site: DashSite, query: Query) -> Act:
    """Set or end the limit of a group."""
    name = query.get("group", "")
    infos = site.engine.group(name).infos()
    now = next((each.limit for each in infos if each.limit is not None), fmq.Limit())

    def carry_out(form: Query, why: Why) -> str:
        group = site.engine.group(name)
        group.limit(
            concurrency=_count(form, "concurrency"),
            rate=_rate(form, "rate"),
            concurrency_by_key=_count(form, "concurrency_by_key"),
            rate_by_key=_rate(form, "rate_by_key"),
            fair="fair" in form,
            reason=why.reason,
            by=why.by,
        )
        found = next((each.limit for each in group.infos() if each.limit is not None), None)
        words = "" if found is None else found.in_words()
        return f"Its limit is now: {words}." if words else "It has no limit."

    fields = tuple(
        tag("label", f"{says} ", tag("input", name=field, value=_typed(getattr(now, field))))
        for field, says in COUNTS.items()
    )
    turns = tag("input", name="fair", type="checkbox", value="1", checked=now.fair)
    effect = (
        "All its members together are handed no more than that, from now on; what is in hand stays "
        "so. Fields that are empty limit nothing. It replaces the limit that there is."
    )
    back = link("group", name=name)
    inputs = (*fields, tag("label", turns, " keys take turns", class_="check"))
    return Act(f"Limit group {plain(name)}", effect, "limit", carry_out, back, inputs)


def _typed(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def _count(form: Query, name: str) -> int | None:
    return number_of(form[name], name) if form.get(name) else None


def _rate(form: Query, name: str) -> float | None:
    try:
        return float(form[name]) if form.get(name) else None
    except ValueError:
        raise BadOption(
            f"{name} {form[name][:40]!r}: must be a number. Nothing was changed."
        ) from None


# --- dead letters --------------------------------------------------------------------------------


def replay(site: DashSite, query: Query) -> Act:
    """Give dead letters back to their group."""
    name, numbers, which = _letters(site, query)

    def carry_out(form: Query, why: Why) -> str:
        count = site.engine.dead_letters(name).replay(numbers)
        return f"{counted(count, 'message')} will be delivered again."

    effect = f"Group {plain(name)} alone gets them again, and their attempts begin anew."
    title, back = f"Replay {which} of group {plain(name)}", link("dead", group=name)
    return Act(title, effect, "replay", carry_out, back)


def drop(site: DashSite, query: Query) -> Act:
    """Drop dead letters for good."""
    name, numbers, which = _letters(site, query)

    def carry_out(form: Query, why: Why) -> str:
        count = site.engine.dead_letters(name).purge(numbers)
        return f"{counted(count, 'dead letter')} {'is' if count == 1 else 'are'} gone."

    title, back = f"Drop {which} of group {plain(name)}", link("dead", group=name)
    effect = f"Group {plain(name)} never gets them, and the list forgets them."
    return Act(title, effect, "drop", carry_out, back, is_final=True)


def _letters(site: DashSite, query: Query) -> tuple[str, list[int], str]:
    """Return a group, the numbers of those of its dead letters that are meant, and their name.

    Letters that come after the page was shown are not meant. Raises UnknownDeadLetter.
    """
    name = query.get("group", "")
    dead = site.engine.dead_letters(name)
    if said := query.get("number"):
        letter = dead.get(number_of(said, "number"))
        return name, [letter.number], f"dead letter {letter.number}"
    upto = number_of(query["upto"], "upto") if "upto" in query else None
    reason = query.get("reason")
    numbers = [
        each.number
        for each in dead.list(limit=LETTERS_MAX)
        if reason in (None, each.reason) and (upto is None or each.number <= upto)
    ]
    if not numbers:
        raise BadOption(f"group {name!r} has no such dead letters any more. Nothing was changed.")
    why = "" if reason is None else f" with the reason {plain(reason) or 'none'}"
    return name, numbers, f"{counted(len(numbers), 'dead letter')}{why}"


# --- transactions --------------------------------------------------------------------------------


def decide(site: DashSite, query: Query) -> Act:
    """Commit or roll back an undecided transaction, in place of its producer."""
    tx = _undecided(site, query)
    if tx.bound:
        raise BadOption(bound_said(site.path, tx))
    is_commit = query.get("decision") == "commit"
    decision: Literal["commit", "rollback"] = "commit" if is_commit else "rollback"

    def carry_out(form: Query, why: Why) -> str:
        outcome = site.engine.decide(
            tx.tx_id, decision, reason=why.reason, decided_by=why.by, seal=tx.seal
        )
        return f"Transaction {plain(tx.tx_id)} is {outcome.state}."

    does = (
        "publishes them for all to see"
        if is_commit
        else "lets nobody ever see them, and what it acks is delivered again"
    )
    age = duration((site.now - tx.prepared_at).total_seconds())
    effect = (
        f"{plain(tx.producer or 'A producer without a name')} has prepared "
        f"{counted(tx.messages, 'message')} {age} ago. This {does}. Only its producer "
        "knows what is right: ask it first."
    )
    title = f"{'Commit' if is_commit else 'Roll back'} transaction {plain(tx.tx_id)}"
    button = "commit" if is_commit else "roll back"
    return Act(title, effect, button, carry_out, link("tx", id=tx.tx_id), is_final=True)


def ask(site: DashSite, query: Query) -> Act:
    """Ask the checker of an undecided transaction now."""
    tx = _undecided(site, query)

    def carry_out(form: Query, why: Why) -> str:
        site.engine.feedback.resume(tx.tx_id)
        return (
            "Its checkers are asked now. If the page of the transaction is the same in 5 seconds, "
            "none has answered: no process that is connected has one, or it fails or is slow."
        )

    effect = (
        f"The checkers of {plain(tx.producer or 'its producer')} are asked now, also if they have "
        "said unknown too often. They may decide it. The log of these pages has it."
    )
    title = f"Ask about transaction {plain(tx.tx_id)}"
    return Act(title, effect, "ask", carry_out, link("tx", id=tx.tx_id))


def _undecided(site: DashSite, query: Query) -> fmq.UndecidedTransaction:
    """Return an undecided transaction. Raises UnknownTransaction, or BadOption if it is decided, or
    is another one of that name than the page has shown.
    """
    tx_id, seal = query.get("id", ""), query.get("seal")
    found = next((tx for tx in site.engine.undecided() if tx.tx_id == tx_id), None)
    if found is None:
        state = site.engine.outcome(tx_id).state
        raise BadOption(f"transaction {tx_id!r} is {state} by now. Nothing was changed.")
    if seal is not None and found.seal != seal:
        raise BadOption(
            f"transaction {tx_id!r} is not the one that was shown. Nothing was changed; look at it "
            "again."
        )
    return found


ACTS: Mapping[str, Callable[[DashSite, Query], Act]] = {
    "pause": pause,
    "resume": resume,
    "run": run,
    "release": release,
    "put_out": put_out,
    "skip": skip,
    "purge": purge,
    "seek": seek,
    "limit": limit,
    "replay": replay,
    "drop": drop,
    "decide": decide,
    "ask": ask,
}
