"""A Delta table, written with deltalake. A commit has the position of a store as app transaction.

Two rules keep rows from being doubled. A commit goes through the very handle whose version was
asked for the position: opened by its path, the table would be the newest one, in which nothing
conflicts. And the position is asked again of the handle before each commit, never remembered: after
a commit the handle may already be at the version of another loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from fmq.errors import ExtraMissing
from fmq.lake.dataset_rows import DatasetRows
from fmq.lake.lake_batch import LakeBatch
from fmq.lake.lake_errors import OtherTable, TableMoved, check_rows, no_table
from fmq.lake.table_topics import TOPICS, check_topics, topics_in
from fmq.lake.urls import located_at

APP = "fmq/"
SCHEMES = ("s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss", "adl")
FORGETS = "delta.setTransactionRetentionDuration"


class DeltaLakeTable:
    """The table at an address."""

    def __init__(
        self,
        url: str,
        schema: pa.Schema,
        options: Mapping[str, str],
        topics: str | None = None,
    ) -> None:
        self._url = located_at(url, SCHEMES)
        self._topics = topics
        self._schema = schema
        self._options = dict(options) or None
        self._handle: DeltaTable | None = None

    def positions(self, stores: Iterable[str]) -> dict[str, int]:
        if self._handle is None:
            self._handle = self._opened()
        else:
            self._handle.update_incremental()
        found = ((store, self._handle.transaction_version(APP + store)) for store in stores)
        return {store: position for store, position in found if position is not None}

    def _opened(self) -> DeltaTable:
        try:
            table = DeltaTable(self._url, storage_options=self._options)
        except TableNotFoundError:
            table = self._made()
        names = [field.name for field in table.schema().fields]
        check_rows(self._url, "Delta table", self._schema, names)
        configuration = table.metadata().configuration
        check_topics(self._url, self._topics, configuration.get(TOPICS))
        if FORGETS in configuration:
            raise OtherTable(
                f"{self._url}: the table has the property {FORGETS}, by which it may forget how "
                "far it has a journal, and all rows would be added again. Nothing was written; "
                "remove the property."
            )
        return table

    def _made(self) -> DeltaTable:
        # The table is first made without rows. Two loops that make it together then disagree about
        # rows only in commits that can be refused.
        try:
            return DeltaTable.create(
                self._url,
                self._schema,
                mode="error",
                configuration=None if self._topics is None else {TOPICS: self._topics},
                raise_if_key_not_exists=False,
                storage_options=self._options,
            )
        except DeltaError:
            # Another loop may have made the table meanwhile. If not, this call raises what is
            # wrong.
            return DeltaTable(self._url, storage_options=self._options)

    def append(self, batch: LakeBatch) -> None:
        assert self._handle is not None, "positions() was asked first"
        transactions = [Transaction(APP + part.store, part.end) for part in batch.ranges]
        handle, self._handle = self._handle, None
        try:
            write_deltalake(
                handle,
                batch.reader(),
                mode="append",
                commit_properties=CommitProperties(app_transactions=transactions),
            )
        except CommitFailedError as error:
            raise TableMoved(self._url, error) from error
        self._handle = handle

    def compact(self, least: int) -> int:
        try:
            from fmq.lake.delta_compaction import merge_small_files
        except ImportError as error:
            raise ExtraMissing("a compaction of Delta", "obstore", "delta") from error
        handle, self._handle = self._handle or self._opened(), None
        return merge_small_files(handle, self._url, self._options or {}, least)

    def close(self) -> None:
        self._handle = None


class DeltaRows(DatasetRows):
    """The version of a table that is the newest when it is opened."""

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        where = located_at(url, SCHEMES)
        try:
            self._table = DeltaTable(where, storage_options=dict(options) or None)
        except TableNotFoundError as error:
            raise no_table(where, "Delta table") from error
        super().__init__(self._table.to_pyarrow_dataset())

    @property
    def topics(self) -> frozenset[str] | None:
        return topics_in(self._table.metadata().configuration.get(TOPICS))

    def position(self, store: str) -> int | None:
        return self._table.transaction_version(APP + store)
