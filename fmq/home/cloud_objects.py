"""A home in Azure's blobs, `az://container/shop`, or Google's objects, `gs://bucket/shop`.

An object is put under the condition that its name is free. Account and credentials are those of the
environment, as obstore finds them (AZURE_STORAGE_..., GOOGLE_...).
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    JoinError,
    PreconditionError,
)

from fmq.home.objects import KeyTaken, NoAnswer, read_together

# An endpoint of the environment may be one without TLS: then that is meant.
CLIENT: Any = {"connect_timeout": "5s", "timeout": "20s", "allow_http": True}
ONCE: Any = {"max_retries": 0}


class CloudObjects:
    """Implements Objects. A request without an answer is repeated by the caller, not by obstore."""

    object_bytes_max = 64 << 20

    def __init__(self, address: str) -> None:
        self.address = address
        with self._asking():
            self._store: Any = obstore.store.from_url(
                address, client_options=CLIENT, retry_config=ONCE
            )

    def create(self, key: str, data: bytes) -> None:
        with self._asking():
            obstore.put(self._store, key, data, mode="create", use_multipart=False)

    def read(self, key: str) -> bytes | None:
        try:
            with self._asking():
                return bytes(obstore.get(self._store, key).bytes())
        except FileNotFoundError:
            return None

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        return read_together(self.read, keys)

    def names(self, folder: str) -> list[str]:
        start, found = f"{folder}/", list[str]()
        with self._asking():
            for page in obstore.list(self._store, prefix=start):
                found += [each["path"].removeprefix(start) for each in page]
        return sorted(found)

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            with suppress(FileNotFoundError), self._asking():
                obstore.delete(self._store, key)

    def close(self) -> None:
        """Do nothing: obstore closes its connections when they are idle."""

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the errors of the client into those of Objects."""
        try:
            yield
        except (AlreadyExistsError, PreconditionError):
            raise KeyTaken from None
        except (GenericError, JoinError) as error:
            raise NoAnswer(_line(error)) from error
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, _line(error), self.address) from error
        except (BaseError, OSError, ValueError) as error:
            raise OSError(errno.EACCES, _line(error), self.address) from error


def _line(error: Exception) -> str:
    """Return what `error` says, without its inner parts."""
    return " ".join(str(error).partition("Debug source:")[0].split())
