"""DashAnswers requests: lets in those with the token, finds the page, and shows errors as pages.

Any thread may call it, and a call may wait for the engine.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib.resources import files

from fmq.dash.dash_acts import ACTS, Why
from fmq.dash.dash_request import DashReply, DashRequest, Query
from fmq.dash.dash_site import DashSite
from fmq.dash.frame import DashPage, act_form, bare, document, said
from fmq.dash.gate import Gate
from fmq.dash.group_pages import group, overview
from fmq.dash.live_parts import LiveParts
from fmq.dash.machine_pages import clients, disk, log
from fmq.dash.markup import Markup, join, link, tag
from fmq.dash.message_pages import dead, delayed, message, messages
from fmq.dash.transaction_pages import story, transactions
from fmq.errors import (
    BadOption,
    FmqError,
    OffsetGone,
    UnknownDeadLetter,
    UnknownGroup,
    UnknownMember,
    UnknownSchedule,
    UnknownTopic,
    UnknownTransaction,
    UsageError,
)
from fmq.findings.text import plain

OVERVIEW = "./"
PAGES: dict[str, Callable[[DashSite, Query], DashPage]] = {
    OVERVIEW: overview,
    "group": group,
    "transactions": transactions,
    "tx": story,
    "messages": messages,
    "message": message,
    "dead": dead,
    "delayed": delayed,
    "clients": clients,
    "disk": disk,
    "log": log,
}
LIVE = "live/"
ENTER = "enter"
ACT = "act"
STATIC = {
    "dash.css": "text/css; charset=utf-8",
    "dash.js": "text/javascript; charset=utf-8",
    "dash.svg": "image/svg+xml",
}
TITLES = {
    400: "This is not possible",
    403: "This is not allowed",
    404: "Not there",
    503: "The engine does not answer",
}
NOT_FOUND = (
    *(OffsetGone, UnknownDeadLetter, UnknownGroup, UnknownMember, UnknownSchedule),
    *(UnknownTopic, UnknownTransaction),
)
logger = logging.getLogger("fmq.dash")


class DashAnswers:
    """DashAnswers the requests about one site."""

    def __init__(self, site: DashSite, gate: Gate) -> None:
        self._site = site
        self._gate = gate
        self._parts = LiveParts(self._make_live, site.clock)
        folder = files("fmq.dash").joinpath("static")
        self._static = {name: folder.joinpath(name).read_bytes() for name in STATIC}

    def answer(self, request: DashRequest) -> DashReply:
        """Return the answer to a request. Whatever fails becomes a page that says so."""
        if not self._gate.allows_host(request.host):
            why = "This name is not one of ours. Open the address that `fmq dash` has printed."
            return _page(403, bare("Not here", tag("p", said(why))))
        if request.page in self._static:
            return DashReply(200, self._static[request.page], STATIC[request.page])
        if request.page == ENTER:
            return self._enter(request)
        if not self.lets_in(request):
            return _page(401, _door(request))
        if request.page == ACT:
            return self._shown(request, self._act)
        if request.method not in ("GET", "HEAD"):
            return _page(405, bare("This page only looks", tag("p", "Nothing was changed.")))
        return self._shown(request, self._look)

    def lets_in(self, request: DashRequest) -> bool:
        """Return whether a request is of a reader who has shown the token."""
        return self._gate.allows_host(request.host) and self._gate.is_session(request.session)

    def live(self, page: str, query: Query) -> str:
        """Return the live part of a page as JSON: its markup, or what the trouble is."""
        return self._parts.get(page, query)

    def _make_live(self, page: str, query: Query) -> str:
        try:
            return json.dumps({"live": PAGES[page](self._site, query).live})
        except (FmqError, OSError) as error:
            return json.dumps({"trouble": str(error)})

    def _enter(self, request: DashRequest) -> DashReply:
        """Give a cookie to a reader who shows the token, and lead to the page that was asked."""
        given = request.form.get("token") or request.query.get("token", "")
        if not self._gate.is_token(given):
            return _page(401, _door(request, "This is not the token."))
        to = {**request.query, **request.form}.get("to", OVERVIEW)
        # Only to a page of ours: what else a link names may be another site.
        page, _, query = to.partition("?")
        location = to if page in PAGES and "\n" not in query and "\r" not in query else OVERVIEW
        return DashReply(303, b"", location=location, session=self._gate.new_session())

    def _shown(self, request: DashRequest, make: Callable[[DashRequest], DashReply]) -> DashReply:
        """Return what `make` returns, or its error as a page."""
        try:
            return make(request)
        except NOT_FOUND as error:
            return self._trouble(404, request, str(error))
        except UsageError as error:
            return self._trouble(400, request, str(error))
        except (FmqError, OSError) as error:
            return self._trouble(503, request, str(error))

    def _look(self, request: DashRequest) -> DashReply:
        make = PAGES.get(request.page)
        if make is None:
            return self._trouble(404, request, "There is no such page.")
        page = make(self._site, request.query)
        name = "" if request.page == OVERVIEW else request.page
        live = link(f"{LIVE}{name}", **request.query) if page.live else None
        return _page(200, document(self._site, page, request.page, live))

    def _act(self, request: DashRequest) -> DashReply:
        """Show what an act will do, or carry it out if its form is ours."""
        make = ACTS.get(request.query.get("do", ""))
        if make is None:
            return self._trouble(404, request, "There is no such act. Nothing was changed.")
        if self._site.read_only:
            return self._trouble(403, request, "These pages only look. Nothing was changed.")
        act = make(self._site, request.query)
        if request.method != "POST":
            form = act_form(act, request.query, self._gate.form_token(request.session), self._site)
            return _page(200, document(self._site, DashPage(act.title, Markup(""), form), "", None))
        if not self._gate.takes_form(request.session, request.form.get("form", "")):
            said_before = "This form was sent before, or is not one of ours. Nothing was changed."
            return self._trouble(403, request, said_before)
        why = Why(request.form.get("reason", "").strip(), request.form.get("by", "").strip())
        if not (why.reason and why.by):
            raise BadOption("an act needs a reason and your name. Nothing was changed.")
        done = act.carry_out(request.form, why)
        logger.info("%s, by %s: %s. %s", act.title, plain(why.by), plain(why.reason), done)
        shown = join(tag("p", done, class_="done"), tag("p", tag("a", "go on", href=act.back)))
        return _page(200, document(self._site, DashPage(act.title, Markup(""), shown), "", None))

    def _trouble(self, status: int, request: DashRequest, why: str) -> DashReply:
        title = TITLES[status]
        page = DashPage(title, Markup(""), tag("p", why, class_="trouble"))
        return _page(status, document(self._site, page, request.page, None))


def _door(request: DashRequest, why: str | None = None) -> Markup:
    """Return the page that asks for the token."""
    query = {name: value for name, value in request.query.items() if name != "token"}
    to = query.get("to") or (link(request.page, **query) if request.page in PAGES else OVERVIEW)
    return bare(
        "Token, please",
        tag("p", why, class_="trouble") if why else None,
        tag("p", said("`fmq dash` has printed it, with an address that has it already.")),
        tag(
            "form",
            tag("input", type="hidden", name="to", value=to),
            tag(
                "label",
                "token ",
                tag(
                    "input",
                    name="token",
                    type="password",
                    autocomplete="current-password",
                    required=True,
                    autofocus=True,
                ),
            ),
            tag("button", "enter"),
            method="post",
            action=link(ENTER),
            class_="ask",
        ),
    )


def _page(status: int, markup: Markup) -> DashReply:
    return DashReply(status, join(markup).encode(errors="replace"))


def failed(error: Exception) -> DashReply:
    """Return the page for an error that nobody expects, and log it."""
    logger.error("a page has failed", exc_info=error)
    why = "This page has failed. Nothing was changed; the log fmq.dash says why."
    return _page(500, bare("A mistake of ours", tag("p", why)))
