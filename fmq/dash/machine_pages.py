"""The pages about the machine and its people: clients, disk and retention, and what was done."""

from __future__ import annotations

import fmq
from fmq.dash.dash_request import Query, number_of
from fmq.dash.dash_site import DashSite
from fmq.dash.frame import DashPage, facts, table, when
from fmq.dash.markup import Markup, join, link, tag
from fmq.findings.action_log import actions
from fmq.findings.rates import disk_said, growth_said, rate_said, retention_said
from fmq.findings.text import duration, exact, plain, size

LOG_BYTES = 16 << 20
LOG_SHOWN = 200
RETENTION = ("retain_bytes", "retain_seconds", "retain_acked_bytes", "keep_unread")


def clients(site: DashSite, query: Query) -> DashPage:
    """Return the page with all clients of the serving process."""
    there = site.engine.clients()
    named = sorted({group for each in there for group, _ in each.members})
    members = {(name, member) for name in named for member in _members_of(site, name)}
    live = table(
        ("client", "since", "calls#", "rate#", "waiting#", "consumers", "transactions"),
        [
            (
                f"{each.pid} on {each.host}" + (f" at {each.address}" if each.address else ""),
                when(site, each.since),
                each.calls,
                rate_said(each.calls_per_second),
                each.waiting,
                ", ".join(
                    f"{plain(member)} of {plain(group)}"
                    + ("" if (group, member) in members else " (not a member now)")
                    for group, member in each.members
                ),
                [[tag("a", tx_id, href=link("tx", id=tx_id)), " "] for tx_id in each.transactions],
            )
            for each in there
        ],
        "No other process is connected.",
    )
    return DashPage("Clients", live)


def _members_of(site: DashSite, group: str) -> list[str]:
    """Return the names of the members that a group has now. A consumer whose member is out may not
    know it yet.
    """
    try:
        return [member.name for member in site.engine.group(group).members()]
    except fmq.errors.UnknownGroup:
        return []


def disk(site: DashSite, query: Query) -> DashPage:
    """Return the page about the disk: is it filling, and when does retention begin?"""
    top, stats = site.pulse.journal(), site.engine.stats()
    full, soon = top["seconds_to_full"], top["seconds_to_retention"]
    live = join(
        facts(
            [
                ("trouble", top["trouble"]),
                ("disk", disk_said(top)),
                ("grows", growth_said(top["bytes_per_second"])),
                ("full in", None if full is None else f"{duration(full)} at this rate"),
                ("retention", retention_said(top)),
                ("its limit is reached in", None if soon is None else duration(soon)),
                ("segments", stats.segments),
                ("spare segments", stats.spares),
                ("journal from", exact(stats.first_position)),
                ("to position", exact(stats.position)),
                ("checkpoint covers", exact(stats.checkpointed_upto)),
            ]
        ),
        table(
            ("kept by",),
            [(each,) for each in stats.kept_by],
            "No segment has to wait now. The line retention says what would stay.",
            title="What retention waits for",
        ),
        table(
            ("option", "value", "set by"),
            [
                (each.name, _limit(each), each.source)
                for each in site.engine.settings()
                # The limit of acked bytes counts only while there is no other limit.
                if each.name in RETENTION
                and (each.name != "retain_acked_bytes" or top["retain_acked_bytes"] is not None)
            ],
            "",
            title="Limits",
        ),
    )
    return DashPage("Disk and retention", live)


def _limit(setting: fmq.Setting) -> str:
    value = setting.value
    if value is None:
        return "none"
    return f"{value} ({size(value)})" if setting.name.endswith("_bytes") else str(value)


def log(site: DashSite, query: Query) -> DashPage:
    """Return what people have done, as the newest part of the journal has it."""
    stats = site.engine.stats()
    end = number_of(query["upto"], "upto") if "upto" in query else stats.position
    start = max(end - LOG_BYTES, stats.first_position)
    with site.files() as directory:
        if directory is None:
            said = "The files are on another machine: there fmq records DIR --kind CHANGE has it."
            return DashPage("Action log", Markup(""), tag("p", said))
        found = actions(directory, start, LOG_SHOWN)
    still = join(
        table(
            ("when", "what", "topic", "what was done, by whom and why", "position#"),
            [
                (
                    when(site, row["time"]),
                    row["what"],
                    row["topic"],
                    row["text"],
                    exact(row["position"]),
                )
                for row in found
                if row["position"] < end
            ],
            "Nobody has done anything here.",
        ),
        tag(
            "p",
            f"From position {start} to {end}. ",
            tag("a", "further back", href=link("log", upto=start), class_="act")
            if start > stats.first_position
            else None,
        ),
    )
    return DashPage("Action log", Markup(""), still)
