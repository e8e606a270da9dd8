"""Access keys: whether a request is signed by a client that knows the secret of its key.

RocketMQ's clients sign the date of each request:

    authorization: MQv2-HMAC-SHA1 Credential=KEY, SignedHeaders=x-mq-date-time, Signature=HEX

The signature is HMAC-SHA1 of the date under the secret. It does not cover the request, and clients
write the date in their own time zone. So it keeps out a client without a key, and TLS must hide it
from others.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fmq
from fmq_rocketmq.protocol import Code
from fmq_rocketmq.refusals import Refused

ALGORITHM = "MQv2-HMAC-SHA1"


def check_signature(keys: Mapping[str, str], metadata: Mapping[str, str]) -> None:
    """Raise Refused if the request is not signed with one of `keys`, a secret by each key."""
    algorithm, _, rest = metadata.get("authorization", "").partition(" ")
    parts = dict(each.strip().partition("=")[::2] for each in rest.split(","))
    # The credential may have further parts behind a slash.
    secret = keys.get(parts.get("Credential", "").partition("/")[0])
    made = _signature(secret or "", metadata.get("x-mq-date-time", ""))
    given = parts.get("Signature", "").lower()
    same = given.isascii() and hmac.compare_digest(made, given)
    if algorithm != ALGORITHM or secret is None or not same:
        raise Refused(
            Code.UNAUTHORIZED,
            "the request is not signed with an access key of this server. Nothing was changed; "
            "give the client its key and secret.",
        )


def authorization(key: str, secret: str, date: str) -> str:
    """Return what a client says in `authorization` for a request of this date."""
    said = f"Credential={key}, SignedHeaders=x-mq-date-time, Signature={_signature(secret, date)}"
    return f"{ALGORITHM} {said}"


def _signature(secret: str, date: str) -> str:
    return hmac.digest(secret.encode(), date.encode(), "sha1").hex()


def read_keys(path: str) -> dict[str, str]:
    """Return the keys of a file: a JSON object that has the secret of each key. Raises BadOption if
    other users may read the file.
    """
    file = Path(path)
    if file.stat().st_mode & 0o077:
        raise fmq.BadOption(
            f"{path}: other users may read it, and it has secrets. Nothing was opened; chmod 600."
        )
    said: Any = json.loads(file.read_text())
    keys = {
        key: secret
        for key, secret in (said.items() if isinstance(said, dict) else ())
        if key and secret and isinstance(secret, str)
    }
    if not keys or len(keys) != len(said):
        raise fmq.BadOption(
            f'{path}: must be a JSON object such as {{"key": "secret"}}. Nothing was opened.'
        )
    return keys
