"""A coordinator of two-phase commit, as small as one can be: stores, and a file of decisions.

A decision to commit is a line in the file, synced before the first store commits. A
transaction without a line was not decided, and is rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

FORMAT_ID = 7


class Coordinator:
    """Stores that have the verbs of PEP 249, by the name of their branch."""

    def __init__(
        self, decisions: Path, stores: dict[str, Any], step: Callable[[], None] = lambda: None
    ) -> None:
        """Call `step` before the first step, and after each."""
        self._decisions = decisions
        self._stores = stores
        self._step = step

    def run(self, gtrid: str, work: Callable[[], None]) -> None:
        """Do `work` as one global transaction over all stores."""
        self._step()
        for branch, store in self._stores.items():
            store.tpc_begin(store.xid(FORMAT_ID, gtrid, branch))
            self._step()
        work()
        self._step()
        self._all("tpc_prepare")
        self._decide(gtrid)
        self._step()
        self._all("tpc_commit")

    def recover(self) -> None:
        """End the branches that a crash left prepared, as the file of decisions says."""
        decided = set(self._decided())
        for branch, store in self._stores.items():
            for xid in store.tpc_recover():
                format_id, gtrid, of_branch = xid
                if (format_id, of_branch) == (FORMAT_ID, branch):
                    (store.tpc_commit if gtrid in decided else store.tpc_rollback)(xid)

    def _all(self, verb: str) -> None:
        for store in self._stores.values():
            getattr(store, verb)()
            self._step()

    def _decide(self, gtrid: str) -> None:
        with self._decisions.open("a") as file:
            file.write(f"{gtrid}\n")
            file.flush()
            os.fsync(file.fileno())

    def _decided(self) -> Iterable[str]:
        return self._decisions.read_text().split() if self._decisions.exists() else []
