"""A relay into a web service: each message is a POST, at least once.

A web service keeps no place, so the place is a mark of the directory: a relay that dies behind the
POSTs and before the mark sends them again. Each has the same `webhook-id` then, by which the
service drops it.
"""

from __future__ import annotations

import base64
import hmac
import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from time import time
from typing import Any
from urllib.parse import urlsplit

from fmq.basics.message import Message
from fmq.errors import BadOption
from fmq.relay.mark_place import MarkPlace
from fmq.relay.relay_errors import MessageRefused, Unsure
from fmq.relay.target import RelayBatch, RelayPlace, fmq_id

SECONDS = 30  # how long an answer may take until the relay is in doubt
LATER = 408, 425, 429  # what a service answers that may take the message later, as it does by 5xx
TEXT_MAX = 100


class HttpTarget:
    """A web service at one URL, for the relay `name` of `engine`."""

    atomic = False

    def __init__(self, engine: Any, url: str, name: str = "relay", *, secret: bytes = b"") -> None:
        """With a `secret`, each POST is signed, as the Standard Webhooks specification says."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadOption(f"{url!r}: a web service is at http://HOST/... or https://HOST/...")
        kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._connection = kind(parts.hostname, parts.port, timeout=SECONDS)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._place = MarkPlace(engine, name)
        self._secret = secret
        # What the service has of a batch that is not there as a whole yet.
        self._taken: set[str] = set()

    def claim(self) -> RelayPlace | None:
        """Raise the mark, and return the place that it has."""
        return self._place.claim()

    def deliver(self, batch: RelayBatch) -> None:
        """Post the messages one by one, and then keep the place. Messages that the service took
        before an error are not posted again by this object.
        """
        for message in batch.messages:
            name = fmq_id(message, batch.place.store)
            if name not in self._taken:
                self._post(message, name)
                self._taken.add(name)
        self._place.keep(batch.place)
        self._taken.clear()

    def _post(self, message: Message, name: str) -> None:
        """Post a message. Raises Unsure if the service may take it later, or has it."""
        try:
            self._connection.request("POST", self._path, message.body, self._headers(message, name))
            answer = self._connection.getresponse()
            text = answer.read()[:TEXT_MAX].decode(errors="replace")
        except (HTTPException, OSError) as error:
            self._connection.close()  # the next request opens it again
            what = f"{type(error).__name__} {error}"
            raise Unsure(f"the web service gave no answer to {name}: {what}") from error
        if 200 <= answer.status < 300:
            return
        said = f"the web service answered {answer.status} {answer.reason} {text!r}"
        if answer.status in LATER or answer.status >= 500:
            raise Unsure(f"{said} to {name}")
        raise MessageRefused(message, said)

    def _headers(self, message: Message, name: str) -> dict[str, str]:
        origin = message.origin
        assert origin is not None, "it was read"
        # As JSON in ASCII, so that no header of a message can be one of HTTP.
        said = {
            "topic": origin.topic,
            "queue": origin.queue,
            "offset": message.offset,
            "time": origin.time_us,
            "tx": origin.tx_id,
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
