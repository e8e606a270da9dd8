"""The pages as an application of ASGI: requests become values, and answers become messages.

A call of the engine may wait, so each request is answered in a thread. A page that is open gets its
live part again and again as server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

import fmq
from fmq.basics.clock import Clock, SystemClock
from fmq.dash.dash_answers import LIVE, OVERVIEW, PAGES, DashAnswers, failed
from fmq.dash.dash_request import DashReply, DashRequest, fields_of
from fmq.dash.dash_site import DashSite
from fmq.dash.gate import HEADERS, SESSION_SECONDS, Gate
from fmq.dash.pulse import EVERY_SECONDS, Pulse
from fmq.findings.verdict import PATIENCE_SECONDS

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

FORM_BYTES_MAX = 64 << 10
STREAMS_MAX = 64


def router(
    engine: fmq.WritingEngine,
    token: str,
    *,
    directory: str | None = None,
    hosts: Collection[str] = (),
    read_only: bool = False,
    by: str = "",
    patience: float = PATIENCE_SECONDS,
    clock: Clock | None = None,
) -> DashApp:
    """Return the pages about `engine` as an application of ASGI, to be mounted anywhere. It asks
    each reader for `token`. `engine` may be a client, and its process is never held up.

    `directory` is where its files are, if they are on this machine: the stories of transactions and
    the action log are read from them. `hosts` are the names by which readers reach the application,
    besides addresses and localhost. With `read_only` they can do nothing but look. `by` is who
    acts, unless a form says otherwise. A state that lasts longer than `patience` seconds needs a
    person. Raises BadOption for a token of fewer than 16 characters.
    """
    clock = SystemClock() if clock is None else clock
    pulse = Pulse(engine, clock)
    site = DashSite(engine, directory, patience, pulse, clock, read_only, by)
    return DashApp(DashAnswers(site, Gate(token, hosts, clock)))


class DashApp:
    """The application. It starts no thread of its own, and needs nothing to be closed."""

    def __init__(self, answers: DashAnswers) -> None:
        self._answers = answers
        self._streams = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as ASGI defines it."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
        if scope["type"] != "http":
            return
        path, root = scope["path"], scope.get("root_path", "")
        page = path[len(root) :] if root and path.startswith(root) else path
        if page == "":
            # Without the slash each link would be one level too high.
            await _send(send, scope, DashReply(307, b"", location=f"{root}/"))
            return
        request = await _request(scope, page.removeprefix("/") or OVERVIEW, receive)
        if request is None:
            await _send(send, scope, DashReply(413, b"too long\n", "text/plain"))
        elif request.page.startswith(LIVE):
            await self._stream(scope, request, receive, send)
        else:
            try:
                reply = await asyncio.to_thread(self._answers.answer, request)
            except Exception as error:
                reply = failed(error)
            await _send(send, scope, reply)

    async def _stream(
        self, scope: Scope, request: DashRequest, receive: Receive, send: Send
    ) -> None:
        """Send the live part of a page whenever it has changed, until the reader leaves."""
        page = request.page.removeprefix(LIVE) or OVERVIEW
        if page not in PAGES or not self._answers.lets_in(request):
            await _send(send, scope, DashReply(404, b"nothing is live here\n", "text/plain"))
            return
        if self._streams >= STREAMS_MAX:
            await _send(send, scope, DashReply(503, b"too many pages are open\n", "text/plain"))
            return
        self._streams += 1
        gone = asyncio.ensure_future(_gone(receive))
        try:
            headers = _headers(scope, DashReply(200, b"", "text/event-stream"))
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            last = ""
            while not gone.done() and self._answers.lets_in(request):
                said = await asyncio.to_thread(self._answers.live, page, request.query)
                # A comment shows a browser that we are there.
                event = ":\n\n" if said == last else f"data: {said}\n\n"
                body = {"type": "http.response.body", "body": event.encode(), "more_body": True}
                await send(body)
                last = said
                await asyncio.wait([gone], timeout=EVERY_SECONDS)
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            self._streams -= 1


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _request(scope: Scope, page: str, receive: Receive) -> DashRequest | None:
    """Return the request; None if its form is too long."""
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
    form = b""
    while scope["method"] == "POST":
        message = await receive()
        form += message.get("body", b"")
        if len(form) > FORM_BYTES_MAX:
            return None
        if not message.get("more_body"):
            break
    return DashRequest(
        method=scope["method"],
        page=page,
        query=fields_of(scope["query_string"].decode("latin-1")),
        form=fields_of(form.decode("latin-1")),
        host=headers.get("host", ""),
        session=_cookies(headers.get("cookie", "")).get(_cookie_name(scope), ""),
    )


def _cookies(header: str) -> dict[str, str]:
    # http.cookies gives up at a cookie that it does not like, and all programs of a host share one
    # header.
    pairs = (each.partition("=") for each in header.split(";"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def _cookie_name(scope: Scope) -> str:
    """Return a name for each port: browsers send a cookie to all ports of a host."""
    server = scope.get("server") or ("", 0)
    return f"fmq-dash-{server[1] or 0}"


async def _send(send: Send, scope: Scope, reply: DashReply) -> None:
    headers = _headers(scope, reply)
    headers.append((b"content-length", b"%d" % len(reply.body)))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else reply.body
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope, reply: DashReply) -> list[tuple[bytes, bytes]]:
    said = {**HEADERS, "content-type": reply.kind}
    if reply.location is not None:
        said["location"] = reply.location
    if reply.session is not None:
        cookie = f"{_cookie_name(scope)}={reply.session}; Max-Age={SESSION_SECONDS}"
        cookie += f"; Path={scope.get('root_path', '')}/; HttpOnly; SameSite=Lax"
        said["set-cookie"] = cookie + ("; Secure" if scope.get("scheme") == "https" else "")
    return [(name.encode(), value.encode("latin-1", "replace")) for name, value in said.items()]
