"""What recovery does where the sound records end. One table decides it, and no other code.

Bytes are "known durable" before the checkpoint's position, in a sealed segment, and below the
durable_to of a later sound record. Only there are wrong bytes damage. After that they may be what a
power cut left of a write that no call has acknowledged, which cannot be distinguished from damage.
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
    # The key: how the sound records end, and whether that place was known to be durable.
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
        # The sound records end inside an append, which is cut as a whole.
        return Verdict.CUT
    if verdict is Verdict.GOES_ON and ending.append_start != ending.position:
        return Verdict.DAMAGED
    return verdict


SOUND = (Verdict.GOES_ON, Verdict.ENDS, Verdict.CUT)


def refusal(file: str, ending: ScanEnd, verdict: Verdict, durable_to: int) -> FmqError:
    """Return the error to raise for a verdict that is not in SOUND."""
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
