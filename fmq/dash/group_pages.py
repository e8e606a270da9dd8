"""The first page, which has a verdict about each group, and the page of one group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import fmq
from fmq.dash.dash_request import Query
from fmq.dash.dash_site import DashSite
from fmq.dash.frame import (
    DashPage,
    act,
    acts,
    ago,
    badge,
    edge,
    facts,
    pause_act,
    said,
    table,
    when,
)
from fmq.dash.markup import Child, Markup, join, link, tag
from fmq.dash.sparkline import sparkline
from fmq.findings.rates import disk_said, growth_said, rate_said, retention_said, undecided_said
from fmq.findings.text import brief, counted, plain
from fmq.findings.verdict import Remark, headline, place_said, remarks, worst

HELD_SHOWN = 200


def overview(site: DashSite, query: Query) -> DashPage:
    """Return the page with a verdict about each group, and what else needs a person."""
    top = site.pulse.journal()
    troubles = site.troubles
    # Those that need a person come first, and else they keep their order.
    groups = sorted(troubles.of_groups(), key=lambda row: not row["needs_you"])
    others = [*troubles.of_others()]
    live = join(
        tag("p", _summary([*groups, *others]), class_="summary"),
        _journal(site, top),
        table(
            ("group", "verdict", "why", "lag", "arrive#", "acked#", "in hand#", "members#"),
            [_group_row(site, row) for row in groups],
            "There is no group.",
            title="Groups",
        ),
        table(
            ("about", "verdict", "why"),
            [
                (
                    tag("a", row["about"], href=link("transactions"))
                    if row["about"] == "transactions"
                    else row["about"],
                    tag("span", row["state"], class_=f"badge {_color(row)}"),
                    said(row["text"]),
                )
                for row in others
            ],
            "Nothing else needs a person.",
            title="Besides groups",
        ),
        _topics(site),
    )
    return DashPage("Overview", live)


def _summary(rows: list[Mapping[str, Any]]) -> str:
    """Return in one sentence whether a person is needed, and for what."""
    needs = [row["about"] for row in rows if row["needs_you"]]
    if not needs:
        return "Nothing needs you."
    need = "needs" if len(needs) == 1 else "need"
    return f"{counted(len(needs), 'thing')} {need} you: {', '.join(map(plain, needs))}."


def _color(row: Mapping[str, Any]) -> str:
    return "bad" if row["needs_you"] else "plain"


def _journal(site: DashSite, top: Mapping[str, Any]) -> Markup:
    curve = site.pulse.curve("", "messages_per_second")
    return facts(
        [
            ("trouble", top["trouble"]),
            (
                "messages",
                [rate_said(top["messages_per_second"]), sparkline("messages a second", curve)],
            ),
            ("journal grows", growth_said(top["bytes_per_second"])),
            ("answers in", brief(top["answer_ms"] / 1000)),
            ("undecided", tag("a", undecided_said(top), href=link("transactions"))),
            ("dead letters", tag("a", top["dead_letters"], href=link("dead"))),
            ("delayed", tag("a", top["delayed"], href=link("delayed"))),
            ("clients", tag("a", top["clients"], href=link("clients"))),
            ("disk", tag("a", disk_said(top), href=link("disk"))),
            ("retention", retention_said(top)),
        ]
    )


def _group_row(site: DashSite, row: Mapping[str, Any]) -> list[Child]:
    name = row["group"]
    top = site.pulse.group(name)
    lag = site.pulse.curve(name, "lag")
    return [
        tag("a", name, href=link("group", name=name)),
        badge(row["state"], headline(row["state"], top)),
        row["text"],
        [top.get("lag", 0), sparkline(f"lag of {name}", lag)],
        rate_said(top.get("arrive_per_second")),
        rate_said(top.get("acks_per_second")),
        top.get("in_hand"),
        top.get("members"),
    ]


def _topics(site: DashSite) -> Markup:
    queues: dict[str, list[fmq.QueueInfo]] = {}
    for queue in site.engine.queues():
        queues.setdefault(queue.topic, []).append(queue)
    readers: dict[str, set[str]] = {}
    for info in site.engine.groups():
        readers.setdefault(info.topic, set()).add(info.group)
    return table(
        ("topic", "messages#", "queues#", "read by", "paused", ""),
        [
            (
                tag("a", topic, href=link("messages", topic=topic)),
                sum(each.next - each.first for each in found),
                len(found),
                sorted(readers.get(topic, ())) and ", ".join(map(plain, sorted(readers[topic]))),
                _pause_said(site, found[0].paused),
                pause_act(site, found[0].paused, topic=topic),
            )
            for topic, found in queues.items()
        ],
        "There is no topic.",
        title="Topics",
    )


def _pause_said(site: DashSite, pause: fmq.Pause | None) -> Child:
    if pause is None:
        return None
    return [f"by {pause.by}: {pause.reason}, ", when(site, pause.since)]


# --- one group ------------------------------------------------------------------------------------


def group(site: DashSite, query: Query) -> DashPage:
    """Return the page of one group. Raises UnknownGroup."""
    name = query.get("name", "")
    seen = site.troubles.seen(name)
    found = remarks(seen)
    site.pulse.beat()
    top = site.pulse.group(name)
    state = worst(found)
    infos = seen.infos
    live = join(
        tag("p", badge(state, headline(state, top))),
        [_remark(each) for each in found],
        _curves(site, name, top),
        _members(site, name, seen.members or [], seen.held or []),
        _former(site, seen.former),
        _in_hand(site, name, seen.held or []),
        _queues(site, name, infos),
        _counts(site, name, infos),
    )
    return DashPage(f"Group {plain(name)}", live, _group_acts(site, name, infos))


def _remark(each: Remark) -> Markup:
    """Return one sentence, with the commands that do what the links of this page do."""
    commands = [tag("li", tag("code", run), " ", why) for run, why in each.commands]
    return tag(
        "div",
        tag("p", each.text),
        tag("ul", commands, class_="commands") if commands else None,
        class_=f"remark {edge(each.state)}",
    )


def _curves(site: DashSite, name: str, top: Mapping[str, Any]) -> Markup:
    curve = site.pulse.curve
    rates = curve(name, "arrive_per_second"), curve(name, "acks_per_second")
    arrive, acked = top.get("arrive_per_second", 0.0), top.get("acks_per_second", 0.0)
    return tag(
        "div",
        tag(
            "figure",
            sparkline("messages that are not acked", curve(name, "lag"), wide=True),
            tag("figcaption", "lag ", top.get("lag", 0)),
        ),
        tag(
            "figure",
            sparkline("messages that arrive, and messages that are acked", *rates, wide=True),
            tag(
                "figcaption",
                tag("span", f"arrive {rate_said(arrive)}", class_="key-0"),
                " ",
                tag("span", f"acked {rate_said(acked)}", class_="key-1"),
            ),
        ),
        class_="curves",
    )


def _members(
    site: DashSite, name: str, members: list[fmq.MemberInfo], held: list[fmq.HeldMessages]
) -> Markup:
    holds: dict[str | None, int] = {}
    for each in held:
        holds[each.member] = holds.get(each.member, 0) + each.count
    return table(
        ("member", "process", "reads", "last seen", "holds#", ""),
        [
            (
                each.name,
                _process(each.pid, each.host, each.address),
                ", ".join(map(plain, each.topics)),
                f"{ago(each.seen_seconds)} ago",
                holds.get(each.name, 0),
                acts(
                    act(site, "release", "release", group=name, member=each.name),
                    act(site, "put_out", "put out", group=name, member=each.name),
                ),
            )
            for each in members
        ],
        "The group has no member now.",
        title="Members",
    )


def _former(site: DashSite, former: Sequence[fmq.FormerMember]) -> Markup | None:
    """Return a table of the members that went out last."""
    if not former:
        return None
    return table(
        ("member", "process", "out since", "why", "held#"),
        [
            (
                each.name,
                _process(each.pid, each.host, each.address),
                when(site, each.out_at),
                each.why if each.by is None else f"{each.why} by {each.by}: {each.reason}",
                each.held,
            )
            for each in former
        ],
        "",
        title="Members that are out",
    )


def _process(pid: int | None, host: str | None, address: str | None) -> str:
    parts = "" if pid is None else str(pid), host and f"on {host}", address and f"at {address}"
    return " ".join(filter(None, parts))


def _in_hand(site: DashSite, name: str, held: list[fmq.HeldMessages]) -> Markup:
    shown = held[:HELD_SHOWN]
    made = table(
        ("messages", "state", "member", "attempt#", "since", "until", ""),
        [
            (
                _range(each),
                each.state,
                tag("a", each.tx_id, href=link("tx", id=each.tx_id)) if each.tx_id else each.member,
                each.attempt,
                when(site, each.since),
                when(site, each.until),
                None if each.replayed else _skip(site, name, each),
            )
            for each in shown
        ],
        "It has nothing in hand, and nothing waits for another attempt.",
        title="In hand, and waiting for another attempt",
    )
    more = len(held) - len(shown)
    return join(made, tag("p", f"{more:,} more ranges") if more > 0 else None)


def _range(each: fmq.HeldMessages) -> Child:
    if each.replayed:
        return place_said(each)
    where = link("messages", topic=each.topic, queue=each.queue, start=each.offset)
    return tag("a", place_said(each), href=where)


def _skip(site: DashSite, name: str, each: fmq.HeldMessages) -> Markup | None:
    where = {"topic": each.topic, "queue": each.queue, "offset": each.offset}
    return act(site, "skip", "skip", group=name, **where, count=each.count)


def _queues(site: DashSite, name: str, infos: list[fmq.GroupInfo]) -> Markup:
    return table(
        (
            "queue",
            "not acked#",
            "acked below#",
            "behind",
            "lost#",
            "skipped#",
            "expired#",
            "filter",
        ),
        [
            (
                f"{plain(info.topic)}/{info.queue}",
                info.unread,
                info.acked_below,
                ago(info.behind_seconds or None),
                info.lost,
                info.skipped,
                info.expired,
                info.filter,
            )
            for info in infos
        ],
        "It has taken from no queue yet.",
        title="Progress",
    )


def _counts(site: DashSite, name: str, infos: list[fmq.GroupInfo]) -> Markup:
    counts = site.engine.stats().counts
    of = None if counts is None else counts.groups.get(name)
    rows: list[tuple[str, Child]] = []
    dead = max((info.dead_letters for info in infos), default=0)
    rows.append(("dead letters", tag("a", dead, href=link("dead", group=name))))
    if of is not None:
        rows += [
            ("attempts", of.attempts),
            ("retries", of.retries),
            ("failures", of.failures),
            ("99 % handed over within", ago(of.handed_over.within(0.99))),
            ("99 % handled within", ago(of.handled.within(0.99))),
        ]
    limit = next((info.limit for info in infos if info.limit is not None), None)
    if limit is not None and limit.since is not None:
        rows.append(("limit", f"{limit.in_words()}, set by {limit.by}: {limit.reason}"))
    return join(tag("h2", "Since the engine was opened"), facts(rows))


def _group_acts(site: DashSite, name: str, infos: list[fmq.GroupInfo]) -> Markup:
    if site.read_only:
        return Markup("")
    pause = next((info.paused for info in infos if info.paused is not None), None)
    own = pause if pause is not None and pause.of == "group" else None
    return join(
        tag("h2", "Acts"),
        tag("p", "Each shows first what it will do, and asks for a reason."),
        tag(
            "p",
            acts(
                pause_act(site, own, group=name),
                act(site, "limit", "limit", group=name),
                *_moves(site, name, infos),
            ),
        ),
    )


def _moves(site: DashSite, name: str, infos: list[fmq.GroupInfo]) -> Iterator[Markup | None]:
    for topic in dict.fromkeys(info.topic for info in infos):
        yield act(site, "purge", f"purge {plain(topic)}", group=name, topic=topic)
        yield act(site, "seek", f"seek in {plain(topic)}", group=name, topic=topic)
