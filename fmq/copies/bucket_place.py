"""A bucket of an object store that speaks S3, as a place to which a journal is shipped.

    PREFIX/SHIP                      JSON: the format, the store, and who ships, as below
    PREFIX/00000003/<name>           a piece that the run with the term 3 has put

No lock tells that another tool ships to the bucket. So each run *takes* the place by a conditional
put of SHIP: that draws the next number, its *term*, and says how far the pieces of each earlier
term count. What an earlier run puts from then on has its own term, is beyond that, and counts for
nothing. Before each put a run asks whether SHIP is still its own, and ends if it is not.
"""

from __future__ import annotations

import errno
import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from fmq.copies.ship_pieces import (
    FORMAT,
    PIECE,
    READY,
    SHIP,
    check_only_ours,
    store_said,
)
from fmq.errors import BackupRefused, Damaged
from fmq.machine.disk import Buffer

NOT_THERE, NOT_SO = (
    {"404", "NoSuchKey"},
    {"412", "PreconditionFailed", "409", "ConditionalRequestConflict"},
)
OBJECTS_READ_AHEAD = 2  # a restore reads a piece bit by bit, and the next one after it


class PlaceInBucket:
    """Implements ShippingPlace. Credentials, region and endpoint are those of the environment, as
    boto3 finds them.
    """

    directory = None

    def __init__(self, bucket: str, prefix: str) -> None:
        self.path = f"s3://{bucket}/{prefix}" if prefix else f"s3://{bucket}"
        self._bucket, self._prefix = bucket, f"{prefix}/" if prefix else ""
        config = Config(connect_timeout=10, read_timeout=60, retries={"mode": "standard"})
        with self._asking():
            self._client: Any = boto3.client("s3", config=config)
        self._said: dict[str, Any] = {}  # the content of SHIP
        self._etag = ""  # the ETag of the SHIP that this run has put
        self._keys: dict[str, list[str]] = {}  # name -> the keys that have it, the newest term last
        self._void: list[str] = []  # keys that do not count
        self._whole = lru_cache(OBJECTS_READ_AHEAD)(self._get)

    # --- the calls of a place ---------------------------------------------------------------------

    def names(self) -> list[str]:
        if not self._etag:
            self._read_ship()
        self._keys, self._void = {}, []
        for key in self._all_keys():
            term, _, name = key.removeprefix(self._prefix).rpartition("/")
            if name == SHIP and not term:
                self._keys[SHIP] = [key]
            elif term.isdecimal() and self._counts(int(term), name):
                self._keys.setdefault(name, []).append(key)
            else:
                self._void.append(key)
        return [*self._keys]

    def put(self, name: str, blocks: Iterable[Buffer]) -> None:
        self._check_is_ours()
        key = f"{self._prefix}{self._said['term']:08d}/{name}"
        # If the key is there already, an earlier try of this run has put it and lost the answer.
        # Its bytes are the same, because the name says which part of the journal it holds.
        self._put(key, b"".join(blocks), IfNoneMatch="*")
        self._keys.setdefault(name, []).append(key)

    def read(self, name: str, offset: int, size: int) -> bytes:
        return self._whole(self._keys[name][-1])[offset : offset + size]

    def remove(self, names: Iterable[str]) -> None:
        self._check_is_ours()
        for name in names:
            for key in self._keys.pop(name, ()):
                self._delete(key)

    def store(self) -> str | None:
        names = self.names()
        if SHIP in names:
            return store_said(json.dumps(self._said).encode())
        check_only_ours(self.path, [*names, *self._void])
        return None

    def take(self, store: str) -> None:
        before = self._read_ship()
        self.names()
        owner = secrets.token_hex(16)
        term = self._said.get("term", 0) + 1
        said = {
            "format": FORMAT, "store": store, "term": term, "owner": owner, "terms": self._ends(),
        }  # fmt: skip
        how = {"IfMatch": before} if before else {"IfNoneMatch": "*"}
        data = json.dumps(said).encode()
        etag = self._put(self._prefix + SHIP, data, **how)
        if etag is None:  # another run was faster, or this put was repeated after a lost answer
            etag = self._read_ship()
            if self._said.get("owner") != owner:
                raise self._taken()
        self._said, self._etag = said, etag
        if self._put(self._prefix + SHIP, data, IfNoneMatch="*") is not None:
            raise BackupRefused(
                f"{self.path}: this object store ignores conditions (If-None-Match), so two tools "
                "could mix what they ship. Nothing was shipped. Name another store, or a directory."
            )
        for key in self._void:
            self._delete(key)

    def close(self) -> None:
        self._client.close()

    # --- which pieces count -----------------------------------------------------------------------

    def _counts(self, term: int, name: str) -> bool:
        if term == self._said.get("term"):
            return True
        generation, end, ready = self._said.get("terms", {}).get(str(term), (0, 0, 0))
        if match := PIECE.fullmatch(name):
            return (int(match[1]), int(match[4])) <= (generation, end)
        match = READY.fullmatch(name)
        return match is not None and int(match[1]) <= int(ready)

    def _ends(self) -> dict[str, list[int]]:
        """Return three numbers for each term: the newest generation of its pieces, the position at
        which that generation ends, and the newest generation that is ready.
        """
        ends: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for name, keys in self._keys.items():
            for key in keys:
                end = ends[str(int(key.split("/")[-2]))] if name != SHIP else []
                if match := PIECE.fullmatch(name):
                    end[:2] = max(end[:2], [int(match[1]), int(match[4])])
                elif match := READY.fullmatch(name):
                    end[2] = max(end[2], int(match[1]))
        return dict(ends)

    def _check_is_ours(self) -> None:
        """Raise BackupRefused if another run has taken the place."""
        with self._asking():
            found = self._client.head_object(Bucket=self._bucket, Key=self._prefix + SHIP)
        if found["ETag"] != self._etag:
            raise self._taken()

    def _taken(self) -> BackupRefused:
        return BackupRefused(
            f"{self.path}: another process has begun to ship to this place. What it has is sound, "
            "and this one has added nothing since. Let one of them go on."
        )

    # --- requests ---------------------------------------------------------------------------------

    def _read_ship(self) -> str:
        """Read the object SHIP. Return its ETag; "" if there is no such object. Raises Damaged."""
        self._said = {}
        try:
            with self._asking():
                found = self._client.get_object(Bucket=self._bucket, Key=self._prefix + SHIP)
                data = found["Body"].read()
        except FileNotFoundError:
            return ""
        store_said(data)
        self._said = json.loads(data)
        if not isinstance(self._said.get("term"), int) or not isinstance(self._said["terms"], dict):
            raise Damaged(SHIP, 0, "it does not say who ships")
        return str(found["ETag"])

    def _all_keys(self) -> Iterator[str]:
        with self._asking():
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=self._prefix):
                yield from (each["Key"] for each in page.get("Contents", ()))

    def _put(self, key: str, data: bytes, **condition: str) -> str | None:
        """Put an object. Return its ETag; None if the condition does not hold."""
        try:
            with self._asking():
                made = self._client.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
        except FileExistsError:
            return None
        return str(made["ETag"])

    def _get(self, key: str) -> bytes:
        with self._asking():
            return bytes(self._client.get_object(Bucket=self._bucket, Key=key)["Body"].read())

    def _delete(self, key: str) -> None:
        with self._asking():
            self._client.delete_object(Bucket=self._bucket, Key=key)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Turn the errors of the client into those that a disk has."""
        try:
            yield
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code"))
            if code in NOT_THERE:
                raise FileNotFoundError(errno.ENOENT, str(error), self.path) from error
            if code in NOT_SO:
                raise FileExistsError(errno.EEXIST, str(error), self.path) from error
            raise OSError(errno.EPROTO, str(error), self.path) from error
        except BotoCoreError as error:
            raise OSError(errno.EPROTO, str(error), self.path) from error
