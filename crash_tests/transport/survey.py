"""Finds where blows may fall in a story, and which of them leave the same. Those end alike.

A server that has died is what its successor finds on the disk. So where two recoveries come to the
same, while all clients have sent and heard the same, one story tells how both end. A cut that
lets the same whole frames through leaves the same, too.
"""

from __future__ import annotations

import pickle
from hashlib import blake2b

from crash_tests.engines import recover_on
from crash_tests.transport.blow import PARTS, Blow, crashes, part_of
from crash_tests.transport.server import OPTIONS, BreakingServer
from fmq.recovery.layout import QUARANTINE
from fmq.testing import CrashDisk
from fmq.wire.frames import Splitter


class Blows:
    """Implements Survey: the blows of one story, by what they leave."""

    def __init__(self) -> None:
        self.alike: dict[str, list[Blow]] = {}
        self.step = 0  # the step in which the blows fall; one client acts in it
        self._asked = 0  # frames that clients have sent
        self._made = 0  # pieces of answers
        self._heard = 0  # frames of answers that have arrived
        self._found: dict[str, str] = {}  # the result of a recovery, by disk

    def begin(self, server: BreakingServer) -> None:
        """Note everything that happens from now on."""
        server.survey = self
        server.disk.watch(lambda _: self._operation(server))

    def _note(self, blow: Blow, what: str) -> None:
        self.alike.setdefault(what, []).append(blow)

    def _operation(self, server: BreakingServer) -> None:
        for blow, left in crashes(server.disk):
            self._note(blow, self._left_to(server, left))

    def _left_to(self, server: BreakingServer, disk: CrashDisk) -> str:
        return f"{server.pieces} {server.answers} {self._found_on(disk)}"

    def _found_on(self, disk: CrashDisk) -> str:
        """Return a text for the result of a recovery. It is equal for disks with equal results."""
        key = f"{disk.loss is None} {disk.fingerprint()}"
        if key not in self._found:
            found = recover_on(disk, OPTIONS).locked.found
            # Leave out the report, the last part, which only says how the rest was found.
            known = blake2b(pickle.dumps(found[:-1], -1), digest_size=16).hexdigest()
            self._found[key] = f"{known} {disk.fingerprint(but=QUARANTINE)}"
        return self._found[key]

    def piece(self, server: BreakingServer, data: bytes) -> None:
        """Note a piece of data that a client has sent."""
        at = server.pieces
        for part in PARTS[:-1]:
            asked = self._asked + _frames(data, part)
            self._note(Blow(at, f"ask {part}"), self._cut(asked, self._heard))
            self._note(Blow(at, f"leave {part}"), self._left_by(asked))
        self._note(Blow(at, "die before"), self._left_to(server, server.disk.after_kill()))
        self._asked += _frames(data)

    def served(self, server: BreakingServer, *, is_answered: bool) -> None:
        """Note that the piece was served."""
        at = server.pieces
        for part in ("all", "at once"):
            how = "" if is_answered else f", {part} of {at} waits"
            self._note(Blow(at, f"ask {part}"), self._cut(self._asked, self._heard) + how)
            self._note(Blow(at, f"leave {part}"), self._left_by(self._asked) + how)
        self._note(Blow(at, "die after"), f"die after {at}")

    def answer(self, server: BreakingServer, data: bytes) -> None:
        """Note a piece that is about to arrive at a client."""
        at = server.answers
        self._made += 1
        for part in PARTS:
            heard = self._heard + _frames(data, part)
            self._note(Blow(at, f"answer {part}"), self._cut(self._asked, heard))
        self._heard += _frames(data)

    def _cut(self, asked: int, heard: int) -> str:
        return f"cut in step {self.step}: {asked} asked, {self._made} answers, {heard} heard"

    def _left_by(self, asked: int) -> str:
        return f"left in step {self.step}: {asked} asked, {self._made} answers"


def _frames(data: bytes, part: str = "all") -> int:
    """Return how many whole frames come through."""
    return len(Splitter(1 << 30).feed(part_of(data, part)))
