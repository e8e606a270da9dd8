"""A home in a bucket of an object store that speaks S3: `s3://bucket/shop`.

    PREFIX/slots/N  PREFIX/floors/N  PREFIX/pieces/...  PREFIX/probes/...      an object each

An object is put under the condition that its key is free (If-None-Match). Credentials, region and
endpoint are those of the environment, as boto3 finds them.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
)

from fmq.home.objects import READ_TOGETHER, KeyTaken, NoAnswer, read_together

TAKEN, MISSING = "PreconditionFailed", "NoSuchKey"
# The store is asked again after these, and after each error of the server's own (5xx). A 409 says
# that another put was on its way to the same key: it does not say that one of them arrived.
NO_ANSWERS = {"ConditionalRequestConflict", "SlowDown", "RequestTimeout"}
PERHAPS_SENT = (
    *(ConnectionError, HTTPClientError, IncompleteReadError),
    *(CredentialRetrievalError, MetadataRetrievalError),  # the service of a role is away
)


class BucketObjects:
    """Implements Objects. A request that has no answer is repeated by the caller, not by boto3."""

    object_bytes_max = 64 << 20

    def __init__(self, bucket: str, prefix: str) -> None:
        self.address = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        once = {"mode": "standard", "total_max_attempts": 1}
        times = {"connect_timeout": 5, "read_timeout": 20, "retries": once}
        config = Config(max_pool_connections=READ_TOGETHER, **times)
        with self._asking():
            self._client: Any = boto3.client("s3", config=config)

    def create(self, key: str, data: bytes) -> None:
        with self._asking():
            self._client.put_object(**self._named(key), Body=data, IfNoneMatch="*")

    def read(self, key: str) -> bytes | None:
        try:
            with self._asking():
                return bytes(self._client.get_object(**self._named(key))["Body"].read())
        except FileNotFoundError:
            return None

    def read_run(self, keys: Sequence[str]) -> list[bytes]:
        return read_together(self.read, keys)

    def names(self, folder: str) -> list[str]:
        start, found = f"{self._prefix}{folder}/", []
        with self._asking():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=start):
                found += [each["Key"].removeprefix(start) for each in page.get("Contents", ())]
        return sorted(found)

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self._asking():
                self._client.delete_object(**self._named(key))

    def close(self) -> None:
        self._client.close()

    def _named(self, key: str) -> dict[str, str]:
        return {"Bucket": self._bucket, "Key": self._prefix + key}

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the errors of the client into those of Objects. An OSError means that the store has
        refused, for example because this user may not do so.
        """
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            if code == TAKEN or status == 412:
                raise KeyTaken from None
            if code == MISSING:
                raise FileNotFoundError(errno.ENOENT, str(error), self.address) from error
            if code in NO_ANSWERS or status == 409 or status >= 500:
                raise NoAnswer(str(error)) from error
            raise OSError(errno.EACCES, str(error), self.address) from error
        except BotoCoreError as error:
            if isinstance(error, PERHAPS_SENT):
                raise NoAnswer(str(error)) from error
            raise OSError(errno.EACCES, str(error), self.address) from error
