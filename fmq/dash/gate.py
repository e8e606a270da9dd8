"""Who may ask, and whether a form is ours: the token, cookies, forms, the Host header and headers
that tell a browser what a page may do.

A reader shows the token once and gets a cookie, which scripts cannot read and which other sites
cannot send with a form. Each form has a token of its own, which is good once and for that cookie
alone. Nothing about a reader is kept but the tokens of forms that were used.

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
from ipaddress import ip_address
from threading import Lock

from fmq.basics.clock import Clock
from fmq.errors import BadOption

SESSION_SECONDS = 12 * 3600
USED_MAX = 10_000
TOKEN_CHARACTERS_MIN = 16
LOCAL_NAMES = frozenset({"localhost"})

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def new_token() -> str:
    """Return a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


class Gate:
    """Knows the token, and signs cookies and forms. Any thread may call it."""

    def __init__(self, token: str, hosts: Collection[str], clock: Clock) -> None:
        """`hosts` are names that the Host header may have, besides addresses and localhost. Raises
        BadOption for a token that is too short.
        """
        if len(token) < TOKEN_CHARACTERS_MIN:
            raise BadOption(
                f"token: must have at least {TOKEN_CHARACTERS_MIN} characters, as everybody who "
                "guesses it sees all messages. Nothing is served."
            )
        self._token = token.encode(errors="replace")
        self._hosts = {each.lower() for each in hosts} | LOCAL_NAMES
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._lock = Lock()
        self._used: OrderedDict[str, None] = OrderedDict()

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
        return hmac.compare_digest(given.encode(errors="replace"), self._token)

    # --- cookies ---------------------------------------------------------------------------------

    def new_session(self) -> str:
        """Return the value of a cookie for a reader who has shown the token."""
        said = f"{int(self._clock.monotonic())}.{secrets.token_urlsafe(18)}"
        return f"{said}.{self._sign('session', said)}"

    def is_session(self, given: str) -> bool:
        """Return whether `given` is the value of a cookie of ours that is not too old."""
        said, _, signed = given.rpartition(".")
        if not self._is_signed("session", said, signed):
            return False
        return self._clock.monotonic() - int(said.partition(".")[0]) < SESSION_SECONDS

    # --- forms -----------------------------------------------------------------------------------

    def form_token(self, session: str) -> str:
        """Return a token for one form of a session."""
        drawn = secrets.token_urlsafe(18)
        return f"{drawn}.{self._sign('form', f'{session} {drawn}')}"

    def takes_form(self, session: str, token: str) -> bool:
        """Return whether `token` is that of a form of this session that was not sent before."""
        drawn, _, signed = token.rpartition(".")
        if not self._is_signed("form", f"{session} {drawn}", signed):
            return False
        with self._lock:
            if drawn in self._used:
                return False
            self._used[drawn] = None
            if len(self._used) > USED_MAX:
                self._used.popitem(last=False)
        return True

    def _sign(self, what: str, said: str) -> str:
        text = f"{what} {said}".encode(errors="replace")
        return hmac.new(self._key, text, sha256).hexdigest()

    def _is_signed(self, what: str, said: str, signed: str) -> bool:
        wanted = self._sign(what, said).encode()
        return hmac.compare_digest(signed.encode(errors="replace"), wanted)
