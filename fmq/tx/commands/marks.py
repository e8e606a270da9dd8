"""The marks that an open transaction sets or removes.

A mark is a number and a few bytes under a name. A program that copies from elsewhere commits its
place there with what it copied, so it goes on where it was.
"""

from __future__ import annotations

from fmq.arguments.names import as_index, check_name
from fmq.errors import BadOption, MarkMoved, TooLarge, TooMany
from fmq.store.bytes.content import as_bytes
from fmq.store.bytes.forms import encode_mark
from fmq.store.bytes.kinds import MarkChange
from fmq.tx.ledger.ledger import Ledger

MARKS_MAX = 100_000
DATA_BYTES_MAX = 64
VALUE_MAX = (1 << 64) - 1
NO_MARK = -1
"""What a caller expects of a mark that is not there yet."""


class MarkBuffer:
    """The changes of marks by name, each with the value that the caller expects before it."""

    __slots__ = ("_changes", "expected")

    def __init__(self) -> None:
        self._changes: dict[str, MarkChange] = {}
        self.expected: dict[str, int] = {}

    def __bool__(self) -> bool:
        return bool(self._changes)

    def changes(self) -> tuple[MarkChange, ...]:
        """Return the changes, in the order in which each mark was first changed."""
        return tuple(self._changes.values())

    def set(self, name: str, value: int, data: bytes, expect: int | None) -> int:
        """Set a mark; return how many bytes that adds to what the transaction writes."""
        value = as_index("value", value)
        if not 0 <= value <= VALUE_MAX:
            raise BadOption(f"value={value}: from 0 to {VALUE_MAX}. Nothing was changed.")
        data = as_bytes(data)
        if len(data) > DATA_BYTES_MAX:
            raise TooLarge("the data of a mark", len(data), DATA_BYTES_MAX, "fixed by the format")
        return self._add(MarkChange(check_name("mark", name), value, data), expect)

    def remove(self, name: str, expect: int | None) -> int:
        """Remove a mark; return how many bytes that adds to what the transaction writes."""
        return self._add(MarkChange(check_name("mark", name), 0, None), expect)

    def _add(self, change: MarkChange, expect: int | None) -> int:
        if expect is not None:
            expect = as_index("expect", expect)
            # Here the mark has the value that this transaction set before, not that of the journal.
            if change.name not in self._changes:
                self.expected[change.name] = expect
        before = self._changes.get(change.name)
        self._changes[change.name] = change
        size = len(encode_mark(change))
        return 2 * (size if before is None else max(size - len(encode_mark(before)), 0))

    def copy(self) -> MarkBuffer:
        """Return a buffer with the same changes."""
        copy = MarkBuffer()
        copy._changes, copy.expected = {**self._changes}, {**self.expected}
        return copy


def check_marks(ledger: Ledger, marks: MarkBuffer) -> None:
    """Raise MarkMoved if a mark does not have the value that the caller expects, or if an undecided
    transaction changes it. Raises TooMany if there would be too many marks.
    """
    new = 0
    for change in marks.changes():
        name = change.name
        if name in ledger.held_marks:
            raise MarkMoved(name, undecided=ledger.undecided[ledger.held_marks[name]].prepare.tx_id)
        found = ledger.marks.get(name)
        expected = marks.expected.get(name)
        if expected is not None and expected != (NO_MARK if found is None else found.value):
            raise MarkMoved(name, expected, found)
        new += found is None
    if new and len(ledger.marks) + new > MARKS_MAX:
        raise TooMany("marks", len(ledger.marks) + new, MARKS_MAX, "fixed by fmq")
