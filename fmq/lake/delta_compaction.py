"""Merges small files of a Delta table, by a commit that has to follow the version that was read.

`optimize.compact` of deltalake is not used: of two that run at once both commit, and all rows are
there twice. Here the commit is an object of the log that is made only if no other has its name, so
whatever was committed meanwhile refuses it. That needs obstore, as deltalake has no call for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from time import time
from typing import Any
from uuid import uuid4

import obstore
import pyarrow as pa
import pyarrow.parquet as parquet
from deltalake import DeltaTable
from obstore.exceptions import AlreadyExistsError
from obstore.store import from_url

from fmq.lake.file_groups import SMALL_BYTES, grouped

KNOWN = 1, 2
"""What readers and writers of these versions have to know is all known here."""
STATED = ("store", "topic", "queue", "offset", "position")
"""Columns whose smallest and largest values are told, so that readers can leave files out."""
PREFIXES = ("aws_", "azure_", "google_")
LOCKED = "AWS_S3_LOCKING_PROVIDER"
CLIENT: Any = {"allow_http": True}
"""An endpoint without TLS is meant: deltalake has used it before."""
Listed = Mapping[str, Any]
"""A file as the table lists it."""


def merge_small_files(handle: DeltaTable, url: str, options: Mapping[str, str], least: int) -> int:
    """Merge the small files of the version of `handle`, if there are at least so many. Return how
    many there were; 0 if nothing was done, because of another commit or of what the table is.
    """
    protocol = handle.protocol()
    newer = (protocol.min_reader_version, protocol.min_writer_version) > KNOWN
    locked = LOCKED in options or LOCKED in os.environ  # then names are taken elsewhere
    if newer or locked or handle.metadata().partition_columns:
        return 0
    files = pa.table(handle.get_add_actions(flatten=True)).to_pylist()
    small = [file for file in files if file["size_bytes"] < SMALL_BYTES]
    if len(small) < max(2, least):
        return 0
    store, schema, now = _store_at(url, options), pa.schema(handle.schema().to_arrow()), _now()
    said: list[dict[str, Any]] = [{"commitInfo": {"timestamp": now, "operation": "OPTIMIZE"}}]
    for group in grouped(small, first=_position, size=lambda file: int(file["size_bytes"])):
        removed = {"deletionTimestamp": now, "dataChange": False}
        said += [{"remove": {"path": file["path"], **removed}} for file in group]
        said.append({"add": {**_merged(store, group, schema), "modificationTime": now}})
    commit = "\n".join(map(json.dumps, said)).encode()
    name = f"_delta_log/{handle.version() + 1:020d}.json"
    try:
        obstore.put(store, name, commit, mode="create", use_multipart=False)
    except AlreadyExistsError:
        return 0
    return len(small)


def _store_at(url: str, options: Mapping[str, str]) -> Any:
    known = {name.lower(): value for name, value in options.items()}
    config: Any = {
        name: value
        for name, value in known.items()
        if name.startswith(PREFIXES) and not name.endswith("allow_http")
    }
    if "://" not in url:
        return from_url(f"file://{url}")
    return from_url(url, config=config, client_options=CLIENT)


def _merged(store: Any, files: Sequence[Listed], schema: pa.Schema) -> Listed:
    """Write the rows of `files` into one. Return what the log says of it."""
    tables = [
        parquet.read_table(pa.BufferReader(bytes(obstore.get(store, file["path"]).bytes())))
        for file in files
    ]
    rows = pa.concat_tables(tables, promote_options="default").select(schema.names).cast(schema)
    made, path = BytesIO(), f"part-00000-{uuid4()}-c000.snappy.parquet"
    parquet.write_table(rows, made)
    obstore.put(store, path, made.getvalue())
    stats = {
        "numRecords": rows.num_rows,
        "minValues": _bounds(files, "min", min),
        "maxValues": _bounds(files, "max", max),
        "nullCount": {
            name: rows.column(name).null_count for name in STATED if name in schema.names
        },
    }
    said = {"path": path, "partitionValues": {}, "size": made.tell(), "dataChange": False}
    return {**said, "stats": json.dumps(stats)}


def _bounds(files: Sequence[Listed], kind: str, chosen: Any) -> dict[str, Any]:
    found = {name: [file.get(f"{kind}.{name}") for file in files] for name in STATED}
    return {name: chosen(values) for name, values in found.items() if None not in values}


def _position(file: Listed) -> int:
    return file.get("min.position") or 0


def _now() -> int:
    return int(time() * 1000)
