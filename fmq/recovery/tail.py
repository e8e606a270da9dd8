"""The tail: what recovery does where the sound records end. One table decides it, and no other
code.

A scan reads records until one is not sound. What follows is either the free room of the segment, or
the remains of a write that a power cut tore, or damage. The bytes alone do not tell a torn write
from damage. What tells is whether this place was *known to be durable*. It was, if it lies

    below the position of the checkpoint                  everything before it was synced first
    in a sealed segment                                   it was synced before the next one began
    below the `durable_to` of a later sound record        what was synced when that was planned

There, wrong bytes are damage, and the engine refuses to open. Elsewhere no call has returned that
wrote these bytes. They are cut, and a copy is kept.

An example. Three sends are written at 4096, 4224 and 4352, each after the sync of the one before,
and the machine loses its power during the third sync. The checkpoint says 4096.

    found                                              verdict
    4352 has a wrong checksum                          BAD, not durable: cut at 4352
    4352 is zeros                                      ZEROS, not durable: the journal ends there
    4352 is sound, 4224 has a wrong checksum           the record at 4352 says durable_to = 4352:
                                                       BAD, durable: refuse, and change nothing
    4352 is the first half of an append of two         cut at 4352: an append is there as a whole
    records                                            or not at all

A file that is too short is damage anywhere: a segment has its full length, durably, before it gets
its name.
"""

from __future__ import annotations

from enum import Enum

from fmq.errors import Damaged, FmqError, NewerFormat
from fmq.store.journal.scan import Finding, ScanEnd


class Verdict(Enum):
    """What recovery does with the journal."""

    GOES_ON = "the next segment follows"
    ENDS = "the journal ends here"
    CUT = "cut here, keeping a copy of what is cut"
    SHORTER = "refuse: shorter than promised"
    DAMAGED = "refuse: damaged"
    MISPLACED = "refuse: sound bytes in the wrong place"
    NEWER = "refuse: newer format"


TAIL = {
    # How the sound records end, and whether that place was known to be durable.
    (Finding.END, False): Verdict.ENDS,
    (Finding.END, True): Verdict.GOES_ON,
    (Finding.SHORT, False): Verdict.SHORTER,
    (Finding.SHORT, True): Verdict.SHORTER,
    (Finding.ZEROS, False): Verdict.ENDS,
    (Finding.ZEROS, True): Verdict.SHORTER,
    (Finding.BAD, False): Verdict.CUT,
    (Finding.BAD, True): Verdict.DAMAGED,
    (Finding.MISPLACED, False): Verdict.MISPLACED,
    (Finding.MISPLACED, True): Verdict.MISPLACED,
    (Finding.NEWER, False): Verdict.NEWER,
    (Finding.NEWER, True): Verdict.NEWER,
}


def judge(ending: ScanEnd, durable_to: int) -> Verdict:
    """Return what to do about `ending` if the journal is known durable up to `durable_to`."""
    verdict = TAIL[ending.finding, ending.append_start < durable_to]
    if verdict is Verdict.ENDS and ending.append_start != ending.position:
        # The sound records end inside of an append. It is cut as a whole.
        return Verdict.CUT
    if verdict is Verdict.GOES_ON and ending.append_start != ending.position:
        return Verdict.DAMAGED
    return verdict


SOUND = (Verdict.GOES_ON, Verdict.ENDS, Verdict.CUT)


def refusal(file: str, ending: ScanEnd, verdict: Verdict, durable_to: int) -> FmqError:
    """Return the error for a verdict that is not in SOUND."""
    if verdict is Verdict.NEWER:
        return NewerFormat(file, ending.position, ending.reason)
    reason = ending.reason or "an append is cut short"
    if ending.finding is Finding.SHORT:
        reason = f"{reason}, which has its full length before it has its name"
    elif verdict is Verdict.SHORTER:
        reason = f"{reason}, and data up to {durable_to} had been durable"
    elif verdict is Verdict.DAMAGED:
        reason = f"{reason}; this part had been durable"
    return Damaged(file, ending.position, reason)
