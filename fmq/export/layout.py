"""The part, and the folder, of each row of an export. Folders are named as Hive and Spark name
them.

A part is all that has the topic and the day (of UTC) in common. While files are being made it has
a plain name, `3.2026-01-31`: what a topic is called need not suit whoever makes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fmq.errors import BadName

DAY_US = 86_400_000_000
# The column that decides to which day a row belongs, by view.
TIME_OF = {"messages": "time", "records": "time", "transactions": "decided"}
TIME_OF |= dict.fromkeys(("marks", "acks", "attempts", "dead_letters"), "time")
ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | set(map(chr, range(1, 32)))
FOLDER_BYTES_MAX = 255


class FolderLayout(NamedTuple):
    """The parts of one view. `topics` are numbered in their order, if there is a part for each
    topic.
    """

    view: str
    topics: tuple[str, ...]

    def parts_of(self, batch: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
        """Return the parts that rows of `batch` belong to, and the index among them for each
        row.
        """
        times = batch.column(TIME_OF[self.view]).cast(pa.int64())
        codes = times.to_numpy() // DAY_US
        if self.topics:
            codes = codes * len(self.topics) + self._numbers(batch.column("topic"))
        found, numbers = np.unique(codes, return_inverse=True)
        return [self._part(code) for code in found.tolist()], numbers

    def _numbers(self, topics: pa.Array) -> NDArray[np.int64]:
        encoded = topics.dictionary_encode()
        known = {topic: number for number, topic in enumerate(self.topics)}
        numbers = [known[topic] for topic in encoded.dictionary.to_pylist()]
        made: NDArray[np.int64] = np.array(numbers, np.int64)[encoded.indices.to_numpy()]
        return made

    def _part(self, code: int) -> str:
        if not self.topics:
            return _date(code)
        day, topic = divmod(code, len(self.topics))
        return f"{topic}.{_date(day)}"

    def folder_of(self, part: str) -> str:
        """Return the folder of a part, below the directory of the export."""
        if not self.topics:
            return f"date={part}"
        number, _, date = part.partition(".")
        return f"{topic_folder(self.topics[int(number)])}/date={date}"


def _date(day: Any) -> str:
    return str(np.datetime64(day, "D"))


def topic_folder(topic: str) -> str:
    """Return the folder of a topic, such as `topic=orders`, escaped as Hive does. Raises BadName if
    it is too long.
    """
    folder = "topic=" + "".join(f"%{ord(c):02X}" if c in ESCAPED else c for c in topic)
    if len(folder.encode()) > FOLDER_BYTES_MAX:
        raise BadName(
            f"topic {topic[:40]!r}...: a folder named after it would have more than "
            f"{FOLDER_BYTES_MAX} bytes, which no file system takes. Nothing was written; export "
            "the view `records`, whose parts are days."
        )
    return folder
