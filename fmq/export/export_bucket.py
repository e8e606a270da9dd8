"""The objects of an export in an object store, by the names that they have below its address.

Each is put whole or not at all. One of them, the manifest, is replaced only as it was seen last, so
another run that goes on here is noticed. Credentials are those of the environment, as obstore finds
them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from fmq.buckets import described
from fmq.errors import BadOption

# An endpoint may be one without TLS: then that is meant.
CLIENT: Any = {"connect_timeout": "10s", "timeout": "300s", "allow_http": True}
RETRY: Any = {"max_retries": 3}
QUERY = {"region", "scheme", "endpoint_override"}


class NotAsSeen(Exception):
    """The manifest is another than the one that was seen last."""


class ExportBucket:
    """What lies below `address`, such as s3://bucket/archive?region=eu-west-1."""

    def __init__(self, address: str, manifest: str) -> None:
        self.address = address
        self._manifest = manifest
        self._seen: Mapping[str, str] | None = None
        front, _, query = described(address).partition("?")
        config = _config(address, query)
        with self._asking():
            self._store: Any = obstore.store.from_url(
                front, config=config, client_options=CLIENT, retry_config=RETRY
            )

    def manifest(self) -> bytes | None:
        """Return the manifest as it is now."""
        try:
            with self._asking():
                found = obstore.get(self._store, self._manifest)
                self._seen = _version(found.meta)
                return bytes(found.bytes())
        except FileNotFoundError:
            self._seen = None
            return None

    def replace_manifest(self, data: bytes) -> None:
        """Put the manifest; durable on return. Raises NotAsSeen, and changes nothing, if it is not
        as it was seen last.
        """
        mode: Any = "create" if self._seen is None else self._seen
        try:
            with self._asking():
                made = obstore.put(
                    self._store, self._manifest, data, mode=mode, use_multipart=False
                )
                self._seen = _version(made)
        except NotAsSeen:
            # The store may have done it when it was asked first, and the answer was lost.
            if self.manifest() != data:
                raise

    def has_conditions(self) -> bool:
        """Return whether the store refuses to make an object that is there."""
        try:
            with self._asking():
                obstore.put(self._store, self._manifest, b"", mode="create", use_multipart=False)
        except NotAsSeen:
            return True
        return False

    def put(self, name: str, path: str) -> None:
        """Put the file at `path` under `name`, in parts if it is large."""
        with self._asking(), open(path, "rb") as file:
            obstore.put(self._store, name, file)

    def copy(self, source: str, target: str) -> None:
        """Copy within the store. Raises FileNotFoundError."""
        with self._asking():
            obstore.copy(self._store, source, target)

    def has(self, name: str) -> bool:
        try:
            with self._asking():
                obstore.head(self._store, name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str | None = None) -> Iterator[str]:
        """Yield the names below a folder, by default all."""
        with self._asking():
            for page in obstore.list(self._store, prefix=folder):
                yield from (each["path"] for each in page)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects. It is no error if one is missing."""
        for name in names:
            with self._asking(missing=True):
                obstore.delete(self._store, name)

    @contextmanager
    def _asking(self, *, missing: bool = False) -> Iterator[None]:
        """Turn the errors of the client into those of a file system."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise NotAsSeen from None
        except FileNotFoundError as error:
            if not missing:
                raise FileNotFoundError(errno.ENOENT, _line(error), self.address) from None
        except (BaseError, ValueError) as error:
            raise OSError(errno.EPROTO, _line(error), self.address) from error


def _config(address: str, query: str) -> Any:
    """Return what a query says, as obstore names it. Raises BadOption for what is unknown."""
    said = dict(parse_qsl(query))
    unknown = said.keys() - (QUERY if address.startswith("s3:") else set())
    if unknown:
        raise BadOption(
            f"{address}: {min(unknown)!r} is nothing that the query of this address may say. That "
            f"of s3:// may say {', '.join(sorted(QUERY))}; the rest is of the environment. Nothing "
            "was written."
        )
    found = {"region": said["region"]} if "region" in said else {}
    if "endpoint_override" in said:
        found["endpoint"] = f"{said.get('scheme', 'https')}://{said['endpoint_override']}"
    return found


def _version(said: Mapping[str, Any]) -> Mapping[str, str]:
    """Return what tells one version of an object from another: its tag, and its number if any."""
    return {name: said[name] for name in ("e_tag", "version") if said.get(name)}


def _line(error: Exception) -> str:
    """Return what `error` says, without its inner parts."""
    return " ".join(str(error).partition("Debug source:")[0].split())
