"""A place in an object store that is exported to, such as s3://bucket/archive.

    _fmq/export.json                             the manifest, with the run that has put it last
    _fmq/staging/RUN/part=.../FILE               what a run has made of a chunk
    topic=orders/date=2026-01-31/CHUNK-FILE      as in a directory

It is done as in a directory, and without a lock: files are made here, put into the staging of the
run, written down, and then copied to their places. Each run begins with a manifest of its own, put
in the place of the very one that it has read. So a run that another one has overtaken can write
nothing down; and what it still copies is only what both of them copy.
"""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from fmq.errors import Locked
from fmq.export.destination import STAGING, busy, other_files, staged_files, taken_away
from fmq.export.errors import ExportFailed
from fmq.export.export_bucket import ExportBucket, NotAsSeen
from fmq.export.layout import FolderLayout
from fmq.export.manifest import FOLDER, NAME, Manifest, Publishing, decoded, encoded
from fmq.export.plan import Chunk
from fmq.export.shape import Shape

CHUNK_BYTES_MAX = 512 << 20  # of journals: so much lies in a temporary folder of this machine
COPY_BYTES_MAX = 5 << 30  # S3 copies no larger object in one request
MANIFEST = f"{FOLDER}/{NAME}"


class BucketDestination:
    """Implements Destination."""

    chunk_bytes_max = CHUNK_BYTES_MAX

    def __init__(self, bucket: ExportBucket, state: Manifest, folder: str) -> None:
        self.out = bucket.address
        self.state = state
        self.staging = os.path.join(folder, "staging")
        self._bucket = bucket
        self._run = secrets.token_hex(8)

    def clear_staging(self) -> None:
        shutil.rmtree(self.staging, ignore_errors=True)

    def note(self, state: Manifest) -> None:
        try:
            self._bucket.replace_manifest(encoded(state, run=self._run).encode())
        except NotAsSeen:
            raise self._overtaken() from None
        self.state = state

    def _overtaken(self) -> Locked:
        return busy(
            self.out,
            "goes on here. What this one has added before is there once, and nothing is added now. "
            "Let one of them run.",
        )

    def begin(self) -> None:
        """Take the place for this run, and remove what earlier runs have left."""
        self.note(self.state)
        if not self._bucket.has_conditions():
            raise ExportFailed(
                f"{self.out}: this object store ignores conditions (If-None-Match), so two exports "
                "could mix their files. Export to a directory, or to another store."
            )
        counted = self.state.publishing.moves if self.state.publishing else {}
        left = [name for name in self._bucket.names(f"{STAGING}/") if name not in counted]
        self._bucket.remove(left)

    def publish(self, chunk: Chunk, layout: FolderLayout) -> tuple[int, int]:
        made = dict(staged_files(self.staging, layout, self.state.chunks, self.out))
        size, moves = 0, {}
        for name, target in made.items():
            source, path = f"{STAGING}/{self._run}/{name}", os.path.join(self.staging, name)
            self._bucket.put(source, path)
            size += _checked_size(path, target)
            moves[source] = target
        self.note(replace(self.state, publishing=Publishing(moves, chunk.reached)))
        self.clear_staging()
        self.finish()
        return len(moves), size

    def finish(self) -> None:
        if self.state.publishing is None:
            return
        moves = self.state.publishing.moves
        for source, target in moves.items():
            try:
                self._bucket.copy(source, target)
            except FileNotFoundError:
                # Another run, which has overtaken this one, may have copied and removed it.
                if not self._bucket.has(target):
                    raise taken_away(f"{self.out}: {source}", target) from None
        self.note(self.state.published())
        self._bucket.remove([*moves])


@contextmanager
def opened_in_bucket(address: str, shape: Shape) -> Iterator[BucketDestination]:
    """Return the place at `address`, begun if nothing is there. Raises Locked or NotAnExport."""
    bucket = ExportBucket(address, MANIFEST)
    said = bucket.manifest()
    if said is None:
        other = next((name for name in bucket.names() if not name.startswith(f"{FOLDER}/")), None)
        if other is not None:
            raise other_files(address, other)
        state = Manifest(shape)
    else:
        state = decoded(said, f"{address}/{MANIFEST}")
    with tempfile.TemporaryDirectory(prefix="fmq-export-") as folder:
        place = BucketDestination(bucket, state, folder)
        place.begin()
        yield place


def _checked_size(path: str, target: str) -> int:
    size = os.path.getsize(path)
    if size > COPY_BYTES_MAX:
        raise ExportFailed(
            f"{target}: has {size} bytes, and object stores copy no file of more than "
            f"{COPY_BYTES_MAX}. What was exported before is there as it was. Take a smaller "
            "chunk_bytes than 512 MiB, or Parquet, or a directory."
        )
    return size
