"""A relay into a web service: each message is a POST, at least once.

A web service keeps no place, so the place is a mark of the directory: a relay that dies behind the
POSTs and before the mark sends them again. Each has the same `webhook-id` then, by which the
service drops it.
"""

from __future__ import annotations

import base64
import hmac
import json
from collections import Counter
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import time
from typing import Any, Unpack
from urllib.parse import quote, urlsplit

from fmq.errors import BadOption
from fmq.relay.envelope import Envelope, Enveloped, EnvelopeShape, attributes_of
from fmq.relay.mark_place import MarkPlace
from fmq.relay.relay_errors import MessageRefused, Unsure
from fmq.relay.target import RelayBatch, RelayPlace

SECONDS = 30  # how long an answer may take until the relay is in doubt
LATER = 408, 425, 429  # what a service answers that may take the message later, as it does by 5xx
TEXT_MAX = 100
SAFE = "".join(map(chr, range(0x21, 0x7F))).replace('"', "").replace("%", "")
"""What the HTTP binding of CloudEvents leaves as it is in a header."""


class HttpTarget:
    """A web service at one URL, for the relay `name` of `engine`."""

    atomic = False

    def __init__(
        self,
        engine: Any,
        url: str,
        name: str = "relay",
        *,
        secret: bytes = b"",
        tries: int | None = None,
        **shape: Unpack[EnvelopeShape],
    ) -> None:
        """With a `secret`, each POST is signed, as the Standard Webhooks specification says. A
        message that the service has failed at `tries` times in a row is refused.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadOption(f"{url!r}: a web service is at http://HOST/... or https://HOST/...")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=SECONDS)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = MarkPlace(engine, name)
        self._envelope = Envelope(**shape)
        self._secret = secret
        self._tries = tries
        self._failures = Counter[str]()  # of the message that is tried now
        # What the service has of a batch that is not there as a whole yet.
        self._taken: set[str] = set()

    def claim(self) -> RelayPlace | None:
        """Raise the mark, and return the place that it has."""
        return self._place.claim()

    def deliver(self, batch: RelayBatch) -> None:
        """Post the messages one by one, and then keep the place. Messages that the service took
        before an error are not posted again by this object.
        """
        for enveloped in self._envelope.headers(batch):
            (_, name), *_ = enveloped.headers
            if name not in self._taken:
                self._post(enveloped, name)
                self._taken.add(name)
                self._failures.clear()
        self._place.keep(batch.place)
        self._taken.clear()

    def _post(self, enveloped: Enveloped, name: str) -> None:
        """Post a message. Raises Unsure if the service may take it later, or has it."""
        try:
            headers = self._headers(enveloped, name)
            self._connection.request("POST", self._path, enveloped.message.body, headers)
            answer = self._connection.getresponse()
            text = answer.read()[:TEXT_MAX].decode(errors="replace")
        except (HTTPException, OSError) as error:
            self._connection.close()  # the next request opens it again
            said = f"the web service gave no answer to {name}: {type(error).__name__} {error}"
            if isinstance(error, TimeoutError):  # it may be because of this message
                self._count_failure(enveloped, name, said)
            raise Unsure(said) from error
        if 200 <= answer.status < 300:
            return
        said = f"the web service answered {answer.status} {answer.reason} {text!r}"
        if answer.status in LATER or answer.status >= 500:
            self._count_failure(enveloped, name, said)
            raise Unsure(f"{said} to {name}")
        raise MessageRefused(enveloped.message, said)

    def _count_failure(self, enveloped: Enveloped, name: str, said: str) -> None:
        self._failures[name] += 1
        if self._failures[name] == self._tries:
            self._failures.clear()
            raise MessageRefused(enveloped.message, f"after {self._tries} tries: {said}")

    def _headers(self, enveloped: Enveloped, name: str) -> dict[str, str]:
        message, topic, beside = enveloped
        ours = dict(beside)
        # As JSON in ASCII, so that no header of a message can be one of HTTP.
        said: dict[str, Any] = {
            "topic": topic,
            "queue": message.queue,
            "offset": message.offset,
            "time": int(ours["fmq-time"]),
            "tx": ours.get("fmq-tx"),
            "tx-count": int(ours.get("fmq-tx-count", 0)) or None,
            "key": message.key,
            "tag": message.tag,
            "message-id": message.message_id,
            "headers": message.headers or None,
        }
        headers = {
            "content-type": "application/octet-stream",
            "idempotency-key": name,
            "webhook-id": name,
            "fmq-message": json.dumps(
                {key: value for key, value in said.items() if value is not None}
            ),
        }
        if self._envelope.cloudevents:
            said = attributes_of(message, name, topic)
            headers |= {f"ce-{what}": quote(text, SAFE) for what, text in said.items()}
        if self._secret:
            now = str(int(time()))
            signed = f"{name}.{now}.".encode() + message.body
            digest = base64.b64encode(hmac.digest(self._secret, signed, "sha256")).decode()
            headers |= {"webhook-timestamp": now, "webhook-signature": f"v1,{digest}"}
        return headers

    def status(self) -> RelayPlace | None:
        """Return the place that the mark has."""
        return self._place.status()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
