"""The column of a COMMIT or ROLLBACK that says: it is one of many, by one joint decision.

number 9: u64 position of the JOINT; u32 which ending of it this is, from 0; u32 how many there are;
then, if a mark moves with the decision, that mark as in a MARK.

So each ending knows the whole, also after retention has dropped the JOINT.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from fmq.store.bytes.extension import column_in, encode_extension
from fmq.store.bytes.forms import MARK, encode_mark
from fmq.store.bytes.kinds import MarkChange
from fmq.store.bytes.record import BadRecord

JOINT = 9
FRONT = Struct("<QII")


class EndingOf(NamedTuple):
    """Which ending of a joint decision a record is."""

    joint: int
    """The position of the JOINT."""
    place: int
    """How many endings are before it."""
    endings: int
    mark: MarkChange | None

    @property
    def is_last(self) -> bool:
        return self.place + 1 == self.endings


def with_joint(joint: int, place: int, endings: int, marks: Sequence[MarkChange]) -> bytes:
    """Return the extension of an ending."""
    said = FRONT.pack(joint, place, endings) + b"".join(map(encode_mark, marks))
    return encode_extension({JOINT: said})


def joint_in(extension: bytes) -> EndingOf | None:
    """Return what the extension of a decision says of a joint one; None if there is none. Raises
    BadRecord.
    """
    found = column_in(extension, JOINT) if extension else None
    if found is None:
        return None
    at, end = found
    try:
        joint, place, endings = FRONT.unpack_from(extension, at)
        at += FRONT.size
        mark = None
        if at < end:
            mark, at = MARK.decode(extension, at)
    except (StructError, IndexError, ValueError) as error:
        raise BadRecord(f"a joint decision of an unknown shape: {error}") from None
    if at != end or place >= endings:
        raise BadRecord(f"ending {place} of {endings} of a joint decision")
    return EndingOf(joint, place, endings, mark)
