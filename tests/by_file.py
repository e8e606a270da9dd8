"""Which process runs which tests: each file as a whole, in the order in which they were collected.

So what a file starts for all of its tests is started once, and if the files that take longest come
first, no process is left with one of them at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController


class ByFile(LoadScopeScheduling):
    """Deals out the files. What has run is forgotten: all that is kept is looked through each time
    that a test ends.
    """

    def __init__(self, config: Any, log: Any, unit_of: Callable[[str], str]) -> None:
        """`unit_of` names what is dealt out together with a test."""
        config.option.loadscopereorder = False
        super().__init__(config, log)
        self._unit_of = unit_of

    def _split_scope(self, nodeid: str) -> str:
        return self._unit_of(nodeid)

    def mark_test_complete(
        self, node: WorkerController, item_index: int, duration: float = 0
    ) -> None:
        self._forget(node, self.registered_collections[node][item_index])
        self._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Take a process out that has ended. Return the test in which it died: that runs no more,
        and others run what it had left.
        """
        died_in = next((each for unit in self.assigned_work[node].values() for each in unit), None)
        if died_in is not None:
            self._forget(node, died_in)
        super().remove_node(node)
        return died_in

    def _forget(self, node: WorkerController, nodeid: str) -> None:
        units = self.assigned_work[node]
        unit = self._unit_of(nodeid)
        del units[unit][nodeid]
        if not units[unit]:
            del units[unit]
