"""How the transactions of a job are called, whose rows many tasks prepare: fmq/intake writes them.

Their producer is `rows/` and the job's mark, their ids are `rows/VALUE/...`: the value to which
the mark moves when they are committed. So whoever looks at an undecided one sees whether its job
may still commit it.
"""

from __future__ import annotations

import re

PRODUCER = "rows/"
JOB_ID = re.compile(rf"{PRODUCER}(\d+)/")
ABANDONED_SECONDS = 24 * 3600
"""What was prepared so long ago belongs to a job that does not come back."""


def value_of(tx_id: str) -> int | None:
    """Return the value of the job that has prepared a transaction; None if it is of no job."""
    found = JOB_ID.match(tx_id)
    return None if found is None else int(found[1])
