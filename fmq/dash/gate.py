"""Who may ask, and whether a form is ours: tokens, cookies, the Host header and headers that tell a
browser what a page may do.

A reader shows the token once and gets a cookie, which scripts cannot read and other sites cannot
send. Each form has a token of its own, which is good once and for that cookie alone. Nothing about
a reader is kept but the tokens of forms that were used.

The Host header must be an address or a name that we were given. A page of another site can point a
name of its own at this machine, and a browser would then take us for that site. It cannot do so
with an address.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Collection
from hashlib import sha256
from http.cookies import CookieError, SimpleCookie
from ipaddress import ip_address
from threading import Lock

from fmq.basics.clock import Clock

SESSION_SECONDS = 12 * 3600
USED_MAX = 10_000
LOCAL_NAMES = frozenset({"localhost"})

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Gate:
    """Knows the token, and signs cookies and forms. Any thread may call it."""

    def __init__(self, token: str | None, hosts: Collection[str], clock: Clock) -> None:
        """Without a token each reader who reaches the page may read it: the program that has it
        lets in whom it wants. `hosts` are names that the Host header may have, besides addresses
        and localhost.
        """
        self._token = token
        self._hosts = {each.lower() for each in hosts} | LOCAL_NAMES
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = Lock()
        self._used: OrderedDict[str, None] = OrderedDict()

    @property
    def needs_token(self) -> bool:
        return self._token is not None

    def allows_host(self, header: str) -> bool:
        """Return whether the Host header is an address, or a name that we have."""
        host = header.lower()
        if host.startswith("["):
            name = host[1:].partition("]")[0]
        else:
            name = host.partition(":")[0]
        if name in self._hosts:
            return True
        try:
            ip_address(name)
        except ValueError:
            return False
        return True

    def is_token(self, given: str) -> bool:
        """Return whether `given` is the token. It takes as long for any other text."""
        wanted = "" if self._token is None else self._token
        return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())

    # --- cookies ---------------------------------------------------------------------------------

    def new_session(self, *, is_in: bool) -> str:
        """Return the value of a new cookie. `is_in` says that its reader has shown the token."""
        kind = "in" if is_in or self._token is None else "out"
        said = f"{kind}.{int(self._clock.monotonic())}.{secrets.token_urlsafe(18)}"
        return f"{said}.{self._sign('session', said)}"

    def session_of(self, cookies: str, name: str) -> str | None:
        """Return our session among the cookies of a request; None if there is no good one."""
        try:
            morsel = SimpleCookie(cookies).get(name)
        except CookieError:
            return None
        if morsel is None:
            return None
        said, _, signed = morsel.value.rpartition(".")
        if not hmac.compare_digest(signed.encode(), self._sign("session", said).encode()):
            return None
        age = self._clock.monotonic() - int(said.split(".")[1])
        return morsel.value if age < SESSION_SECONDS else None

    @staticmethod
    def is_in(session: str) -> bool:
        """Return whether the reader of a session, which is ours, has shown the token."""
        return session.startswith("in.")

    # --- forms -----------------------------------------------------------------------------------

    def form_token(self, session: str) -> str:
        """Return a token for one form of a session."""
        drawn = secrets.token_urlsafe(18)
        return f"{drawn}.{self._sign('form', f'{session} {drawn}')}"

    def takes_form(self, session: str, token: str) -> bool:
        """Return whether `token` is that of a form of this session that was not sent before."""
        drawn, _, signed = token.rpartition(".")
        wanted = self._sign("form", f"{session} {drawn}")
        if not hmac.compare_digest(signed.encode(), wanted.encode()):
            return False
        with self._lock:
            if drawn in self._used:
                return False
            self._used[drawn] = None
            if len(self._used) > USED_MAX:
                self._used.popitem(last=False)
        return True

    def _sign(self, what: str, said: str) -> str:
        return hmac.new(self._key, f"{what} {said}".encode(), sha256).hexdigest()
