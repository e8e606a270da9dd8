"""Says in words what holds a group up: which member has what, since when, and which command frees
it.

It is told what a group says of itself, and asks nobody.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

import fmq
from fmq.findings.text import counted, duration, moment, plain

PATIENCE_SECONDS = 30.0
"""What takes longer than this needs a person. It is half of `member_timeout_seconds`, after
which the engine puts a silent member out: before that, people must see who has what."""
HELD_SHOWN = 3
SILENT_SECONDS_MIN = 5.0  # a member may work for so long between two calls, whatever the patience

PAUSED, STUCK, UNREAD, BEHIND, WORKING, DONE = (
    *("paused", "stuck", "nobody reads it", "falls behind", "working", "up to date"),
)
"""What may be said of a group, the worst first."""
RESTART = "Restart its workers; no command of fmq starts them"
PROBLEMS = (PAUSED, STUCK, UNREAD, BEHIND)


@dataclass(frozen=True, slots=True)
class Remark:
    """One sentence about a group, and what to do: commands, each with its reason."""

    state: str
    text: str
    since: datetime | None = None
    commands: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What is known of a group. `members` and `held` are None if no process serves the directory.
    `writer` is the process that has it open. A state that lasts longer than `patience` seconds
    needs a person. The engine puts out a member that makes no call for `member_timeout` seconds.
    `connected` are the clients that have a consumer of the group, if it has no member, and `former`
    are its last members. An engine that was opened at `opened_at` knows of no earlier ones.
    """

    path: str
    group: str
    infos: list[fmq.GroupInfo]
    members: list[fmq.MemberInfo] | None
    held: list[fmq.HeldMessages] | None
    writer: str | None
    now: datetime
    patience: float = PATIENCE_SECONDS
    member_timeout: float = fmq.Options().member_timeout_seconds
    connected: tuple[fmq.ClientInfo, ...] = ()
    former: tuple[fmq.FormerMember, ...] = ()
    opened_at: datetime | None = None

    @property
    def unread(self) -> int:
        return sum(info.unread for info in self.infos)

    @property
    def oldest(self) -> datetime | None:
        """Return when the oldest unread message was sent; None if that is not known."""
        return min((info.oldest for info in self.infos if info.oldest), default=None)

    def command(self, verb: str, *words: object, reason: str | None = None) -> str:
        said = () if reason is None else ("--reason", reason)
        return shlex.join(["fmq", *verb.split(), self.path, self.group, *map(str, words), *said])


def remarks(seen: Seen) -> list[Remark]:
    """Return what there is to say about a group, the worst first."""
    found = [
        *_paused(seen),
        *_limited(seen),
        *_held(seen),
        *_silent(seen),
        *_read_by_nobody(seen),
        *_given_up(seen),
    ]
    is_paused = all(info.paused for info in seen.infos) and bool(seen.infos)
    if not is_paused and not any(each.state == UNREAD for each in found):
        found.append(_progress(seen))
    order = (PAUSED, STUCK, UNREAD, BEHIND, WORKING, DONE)
    return sorted(found, key=lambda each: order.index(each.state))


def _paused(seen: Seen) -> Iterator[Remark]:
    for info in seen.infos:
        pause = info.paused
        if pause is not None:
            what = seen.group if pause.of == "group" else info.topic
            text = (
                f"{pause.of.capitalize()} {plain(what)} is paused by {plain(pause.by)} since "
                f"{_when(pause.since, seen)}, because: {plain(pause.reason)}. {_unread(seen)}."
            )
            frees = shlex.join(["fmq", "resume", seen.path, f"--{pause.of}", what])
            yield Remark(PAUSED, text, pause.since, ((frees, "goes on with it"),))
            return


def _limited(seen: Seen) -> Iterator[Remark]:
    limit = seen.infos[0].limit if seen.infos else None
    if limit is None or limit.since is None or not seen.unread:
        return
    text = (
        f"It has a limit ({limit.in_words()}), set by {plain(limit.by)} since "
        f"{_when(limit.since, seen)}, because: {plain(limit.reason)}."
    )
    if seen.held is not None and limit.concurrency is not None:
        now = sum(each.count for each in seen.held if each.state not in ("waits", "behind"))
        text = f"{text[:-1]}; {now:,} in hand now."
    ends = shlex.join(["fmq", "limit", seen.path, seen.group, "--none", "--reason", "..."])
    yield Remark(WORKING, text, limit.since, ((ends, "ends the limit"),))


def _read_by_nobody(seen: Seen) -> Iterator[Remark]:
    if not seen.unread:
        return
    waits = _unread(seen)
    if seen.members is None:
        serve = shlex.join(["fmq", "serve", seen.path])
        if seen.writer is not None:
            who = f"{seen.writer} has the directory open and does not serve it"
            text = f"Only its own process knows who reads it ({plain(who)}): {waits}."
            why = "or engine.serve() in that process, and ask again"
            yield Remark(_progress(seen).state, text, seen.oldest, ((serve, why),))
            return
        text = f"Nobody reads it, as no process has the directory open: {waits}."
        why = "lets consumers in other processes read it"
        yield Remark(UNREAD, text, seen.oldest, ((serve, why),))
        return
    if not seen.members:
        text = f"Nobody reads it, as it has no member now: {waits}. {_since(seen)}"
        text += f"{_still_connected(seen)}{RESTART}."
        lost = counted(seen.unread, "unread message")
        reason = f"only if nobody will ever read it: {lost} lose this reader for good"
        deletes = seen.command("group delete"), reason
        since = seen.former[0].out_at if seen.former else seen.opened_at
        yield Remark(UNREAD, text, since or seen.oldest, (*_ends(seen), _show(seen), deletes))
        return
    read = {topic for member in seen.members for topic in member.topics}
    for topic in sorted({info.topic for info in seen.infos if info.unread} - read):
        unread = sum(info.unread for info in seen.infos if info.topic == topic)
        text = f"None of its members reads topic {plain(topic)}: {unread:,} not acked. {RESTART}."
        yield Remark(UNREAD, text, seen.oldest, (_show(seen),))
    owned = {queue for member in seen.members for queue in member.owns}
    if any(member.strategy for member in seen.members):
        for info in seen.infos:
            if info.unread and info.topic in read and (info.topic, info.queue) not in owned:
                text = (
                    f"Queue {plain(info.topic)}/{info.queue} belongs to no member yet. {RESTART}."
                )
                yield Remark(UNREAD, text, seen.oldest, (_show(seen),))


def _since(seen: Seen) -> str:
    """Say since when a group has no member, and how its last one went."""
    if seen.former:
        last = seen.former[0]
        held = counted(last.held, "message")
        how = f"{out_said(last, seen.member_timeout)} at {_when(last.out_at, seen)}"
        return f"Its last member, {_who(last.name, last)}, {how}; it held {held}. "
    if seen.opened_at is None:
        return ""
    return f"No member has come since the engine was opened at {_when(seen.opened_at, seen)}. "


def out_said(each: fmq.FormerMember, timeout: float) -> str:
    """Say why a member is out of its group."""
    if each.why == "put out":
        return f"was put out by {plain(each.by)}, because: {plain(each.reason)},"
    return {
        "left": "left, as its program has closed it,",
        "disconnected": "was cut off, as the connection of its process has ended,",
        "silent": f"went out, as it made no call for {duration(timeout)},",
        "replaced": "was replaced by another consumer of its name",
    }[each.why]


def _still_connected(seen: Seen) -> str:
    """Say which clients still have a consumer of the group, which was put out or never polled."""
    return "".join(
        f"Process {each.pid} on {plain(each.host)} is connected, and its consumer {plain(name)} is "
        "out. "
        for each in seen.connected
        for group, name in each.members
        if group == seen.group
    )


def _ends(seen: Seen) -> list[tuple[str, str]]:
    """Return the commands that end processes whose consumer of the group is out."""
    return [
        (f"kill {each.pid}", f"on {plain(each.host)}: it is out and may hang. Then start it anew")
        for each in seen.connected
        if any(group == seen.group for group, _ in each.members) and not _serves(seen, each.pid)
    ]


def _serves(seen: Seen, pid: int | None) -> bool:
    """Return whether it is the process of the engine itself, which other clients need."""
    return pid is None or str(pid) in re.findall(r"\d+", seen.writer or "")


def _show(seen: Seen) -> tuple[str, str]:
    return seen.command("group show"), "its members, once its workers are restarted"


def _held(seen: Seen) -> Iterator[Remark]:
    held = seen.held or []
    oldest = sorted(held, key=lambda each: each.since or each.until or seen.now)
    for state, said in SAYS.items():
        these = [each for each in oldest if each.state == state]
        for each in these[:HELD_SHOWN]:
            yield said(seen, each, len(these))


def _silent(seen: Seen) -> Iterator[Remark]:
    """Say that all members are silent, though there are messages, and none of them has any."""
    members = seen.members or []
    if not seen.unread or not members or any(each.state == "held" for each in seen.held or ()):
        return
    if min(member.seen_seconds for member in members) < max(seen.patience, SILENT_SECONDS_MIN):
        return
    last = min(members, key=lambda member: member.seen_seconds)
    text = (
        f"No member takes messages (it has {len(members):,}): {_who(last.name, last)} was last "
        f"seen {duration(last.seen_seconds)} ago. {_unread(seen)}."
    )
    commands = [(seen.command("group put-out", last.name, reason="..."), "its queues go to others")]
    if not _serves(seen, last.pid):
        commands.append((f"kill {last.pid}", f"on {plain(last.host)}: then start it anew"))
    since = seen.now - timedelta(seconds=last.seen_seconds)
    yield Remark(STUCK, text, since, tuple(commands))


def _by_member(seen: Seen, each: fmq.HeldMessages, count: int) -> Remark:
    """Return what there is to say about messages that a member holds."""
    silent = next((m.seen_seconds for m in seen.members or () if m.name == each.member), 0.0)
    text = f"{place_said(each)} {_is(each)} held by {_who(each.member, each)}"
    if each.since is not None:
        text += f" since {_when(each.since, seen)}"
    text += f", attempt {max(each.attempt, 1)}"
    behind = sum(other.count for other in seen.held or () if other.state == "behind")
    if behind:
        text += f"; {counted(behind, 'message')} of the same keys wait behind what is held"
    if silent >= seen.patience:
        text += f"; that member was last seen {duration(silent)} ago"
    text += _freed(seen, each, silent)
    age = 0.0 if each.since is None else (seen.now - each.since).total_seconds()
    state = STUCK if max(age, silent) >= seen.patience else WORKING
    commands = []
    if state == STUCK:
        act = partial(seen.command, reason="...")
        is_alone = len(seen.members or ()) == 1
        others = "gives back what it holds; there is no other member yet: start one"
        others = others if is_alone else "others get what it holds; it may go on"
        commands = [
            (act("group release", each.member), others),
            (act("group put-out", each.member), "the same, and it gets nothing any more"),
        ]
        if not _serves(seen, each.pid):
            commands.append((f"kill {each.pid}", f"on {each.host}: others get what it holds"))
        commands.append(_skip(seen, each))
    return Remark(state, text + ".", each.since, tuple(commands))


def _freed(seen: Seen, each: fmq.HeldMessages, silent: float) -> str:
    """Say when others get what a member holds: at the end of its lease, or once it is put out."""
    # One that waits in a poll is not silent. It is not put out, whatever else it holds.
    out = seen.now + timedelta(seconds=seen.member_timeout - silent) if silent else None
    if out is not None and (each.until is None or out < each.until):
        timeout = duration(seen.member_timeout)
        return (
            f"; unless it makes a call, others get it at {moment(out)}, as a member is out after "
            f"{timeout} without one"
        )
    if each.until is None:
        return ""
    return f"; unless it extends, others get it at {moment(each.until)}"


def _by_transaction(seen: Seen, each: fmq.HeldMessages, count: int) -> Remark:
    if each.tx_id is None:
        return Remark(WORKING, f"{place_said(each)} {_is(each)} acked by an open transaction.")
    text = f"{place_said(each)} {_is(each)} acked by the undecided transaction {plain(each.tx_id)}."
    show = shlex.join(["fmq", "explain", seen.path, each.tx_id])
    decide = shlex.join(["fmq", "tx", "decide", seen.path, each.tx_id, "commit", "--reason", "..."])
    commands = ((show, "its story"), (decide, "or rollback: then they are delivered again"))
    return Remark(STUCK, text, each.since, commands)


def _waiting(seen: Seen, each: fmq.HeldMessages, count: int) -> Remark:
    were, wait = ("was", "waits") if each.count == 1 else ("were", "wait")
    tried = f"{were} handed out {counted(each.attempt, 'time')} and {_is(each)} not acked"
    text = f"{place_said(each)} {tried if each.attempt else f'{were} given back'}, and {wait} "
    if each.until is not None:
        text += f"for the next attempt until {moment(each.until)}"
    else:
        text += f"for {'its' if each.count == 1 else 'their'} turn"
    is_late = each.until is not None and (each.until - seen.now).total_seconds() > seen.patience
    text += f" (one of {count:,} such ranges)." if count > 1 else "."
    return Remark(STUCK if is_late else WORKING, text, None, (_skip(seen, each),))


def _reserved(seen: Seen, each: fmq.HeldMessages, count: int) -> Remark:
    text = f"{place_said(each)} {_is(each)} kept for a client of a server that was killed"
    text += f" until {moment(each.until)}." if each.until is not None else "."
    return Remark(WORKING, text, each.since)


SAYS = {
    "held": _by_member,
    "transaction": _by_transaction,
    "waits": _waiting,
    "reserved": _reserved,
}


def _given_up(seen: Seen) -> Iterator[Remark]:
    dead = max((info.dead_letters for info in seen.infos), default=0)
    if dead:
        text = f"It has given up {counted(dead, 'message')}, which holds nothing up."
        commands = (
            (seen.command("dead list"), "each with its reason"),
            (seen.command("dead replay", "--all"), "tries them again"),
        )
        yield Remark(WORKING if seen.unread else DONE, text, None, commands)
    # One count for each topic, which each of its queues repeats.
    lost = sum(
        max(info.lost for info in infos)
        for _, infos in groupby(sorted(seen.infos, key=_topic), key=_topic)
    )
    if lost:
        text = f"Retention has taken {counted(lost, 'message')} before it acked them."
        yield Remark(WORKING if seen.unread else DONE, text)


def _progress(seen: Seen) -> Remark:
    if not seen.unread:
        return Remark(DONE, "It has acked all messages.")
    text = _unread(seen)
    late = seen.oldest is not None and (seen.now - seen.oldest).total_seconds() >= seen.patience
    if late and seen.members:
        text += f", and it has {counted(len(seen.members), 'member')}"
    if not late:
        return Remark(WORKING, text + ".", seen.oldest)
    top = shlex.join(["fmq", "top", seen.path])
    more = (top, "shows whether it catches up; more members, if not")
    return Remark(BEHIND, text + ".", seen.oldest, (more,))


def _topic(info: fmq.GroupInfo) -> str:
    return info.topic


def _unread(seen: Seen) -> str:
    return f"{counted(seen.unread, 'message')} not acked{_oldest(seen)}"


def _oldest(seen: Seen) -> str:
    if seen.oldest is None:
        return ""
    age = duration((seen.now - seen.oldest).total_seconds())
    return f", the oldest sent {seen.oldest:%Y-%m-%d %H:%M:%S} ({age} ago)"


def _when(time: datetime, seen: Seen) -> str:
    age = max((seen.now - time).total_seconds(), 0.0)
    return f"{moment(time)} ({duration(age)} ago)"


def place_said(each: fmq.HeldMessages) -> str:
    """Return which messages of which queue are meant, as in `orders/0/4–5`."""
    last = each.offset + each.count - 1
    span = f"{each.offset}" if each.count == 1 else f"{each.offset}–{last}"
    replayed = " (replayed)" if each.replayed else ""
    return f"{plain(each.topic)}/{each.queue}/{span}{replayed}"


def _is(each: fmq.HeldMessages) -> str:
    return "is" if each.count == 1 else "are"


def _who(name: str | None, each: fmq.HeldMessages | fmq.FormerMember | fmq.MemberInfo) -> str:
    where = [
        "" if each.pid is None else f"process {each.pid}",
        "" if each.host is None else f"on {plain(each.host)}",
        "" if each.address is None else f"at {plain(each.address)}",
    ]
    place = " ".join(filter(None, where))
    return f"{plain(name)}{f' ({place})' if place else ''}"


def _skip(seen: Seen, each: fmq.HeldMessages) -> tuple[str, str]:
    count = ("--count", each.count) if each.count > 1 else ()
    command = seen.command("group skip", each.topic, each.queue, each.offset, *count)
    what = "it" if each.count == 1 else "one of them"
    return command, f"only if {what} is the cause: the group never gets {place_said(each)}"


def headline(state: str, rates: Mapping[str, Any]) -> str:
    """Return the verdict in some words. `rates` is what `rates.compared` says of the group, if it
    does yet.
    """
    if state == BEHIND and rates.get("acks_per_second") is not None:
        soon = rates["seconds_to_catch_up"]
        return f"{state}: " + (
            "does not catch up" if soon is None else f"{duration(soon)} to catch up"
        )
    return f"healthy: {state}" if state in (WORKING, DONE) else state


def worst(found: Iterable[Remark]) -> str:
    """Return the state of a group: the state in the first remark, which is the worst."""
    return next(iter(found)).state
