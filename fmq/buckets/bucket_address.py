"""Addresses in object stores: `s3://bucket/shop?region=eu-west-1`.

The query says what the path does not: `endpoint_override`, `scheme` and `region`, as pyarrow names
them. So an address says on every machine what it says here. Credentials are no part of it.
"""

from __future__ import annotations

import os
from urllib.parse import parse_qsl, urlencode, urlsplit

SCHEMES = ("s3", "gs", "abfs", "abfss")
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION = "us-east-1"  # a store with an endpoint of its own mostly has none, and asks for one


def in_bucket(path: str) -> bool:
    """Return whether `path` is an address in an object store."""
    scheme, separator, _ = path.partition("://")
    return bool(separator) and scheme.lower() in SCHEMES


def is_pattern(path: str) -> bool:
    """Return whether `path` may stand for several directories. In an address a ? begins the
    query.
    """
    if in_bucket(path):
        return not {*"*["}.isdisjoint(path.partition("?")[0])
    return not {*"*?["}.isdisjoint(path)


def described(address: str) -> str:
    """Return `address` with all that this process knows about its store, but no secret."""
    front, _, query = address.partition("?")
    said = dict(parse_qsl(query))
    if address.lower().startswith("s3:"):
        endpoint = _first_of(ENDPOINTS)
        if endpoint and "endpoint_override" not in said:
            parts = urlsplit(endpoint)
            said |= {"scheme": parts.scheme, "endpoint_override": parts.netloc}
        if "region" not in said and (region := _first_of(REGIONS)):
            said["region"] = region
        if "endpoint_override" in said:
            said.setdefault("region", REGION)
    return f"{front.rstrip('/')}?{urlencode(said)}" if said else front.rstrip("/")


def _first_of(names: tuple[str, ...]) -> str | None:
    return next((os.environ[name] for name in names if os.environ.get(name)), None)
