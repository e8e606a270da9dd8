"""Bugs of messages that wait; the tier `delayed` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier delayed --rounds 2"
PUBLISH = '            self._writer.send([*records, Changed(ChangeKind.FIRE, "", "", places)])\n'
FIRE = '            self._writer.send([Changed(ChangeKind.FIRE, "", "", places)])\n'
MESSAGES = "            self._writer.send([*records])\n"

OF_TIMERS = (
    Mutant("published, and ended by another append", PUBLISH, MESSAGES + FIRE, STORIES),
    Mutant("ended, and published by another append", PUBLISH, FIRE + MESSAGES, STORIES),
    Mutant(
        "a recall is not replayed",
        "        ledger.timers.recall(Timing(change.value, number))\n",
        "        if ledger.listener is not None:\n"
        "            ledger.timers.recall(Timing(change.value, number))\n",
        STORIES,
    ),
    Mutant(
        "what waits goes with its segment",
        "                    if self._delays.carry_forward(segments[-1].limit):\n",
        "                    if False:\n",
        STORIES,
    ),
    Mutant(
        "early after a clock that went back",
        "            now = self._writer.clock.time_us()\n"
        "            taken = timers.due(now, self._at_once, self._bytes_max)\n",
        "            now = self._writer.now_us()\n"
        "            taken = timers.due(now, self._at_once, self._bytes_max)\n",
        tests="tests/delayed/test_delayed.py -k clock_that_goes_back",
    ),
    Mutant(
        "what retention writes again forgets its transaction",
        "timer = copy_of(run, TIMER)",
        "timer = copy_of(run, TIMER)\n    timer.tx_id = ''",
        STORIES,
    ),
    Mutant(
        "what is published forgets its transaction",
        "message = copy_of(run, MESSAGE)",
        "message = copy_of(run, MESSAGE)\n    message.tx_id = ''",
        STORIES,
    ),
    Mutant(
        "the older of two copies counts",
        "                entry = max(entry, run.head)\n",
        "                entry = min(entry, run.head)\n",
        "--tier delayed --rounds 1 --seed 1",
    ),
    Mutant(
        "a copy in another file is left there",
        "            while run.head is not None and run.head[KEY] == key:",
        "            while run.head is not None and run.head == entry:",
        "--tier delayed --rounds 1 --seed 6",
    ),
    Mutant(
        "what has ended is not carried by a checkpoint",
        "        self.gone = {gone[at : at + 8] for at in range(0, len(gone), 8)}\n",
        "        self.gone = set()\n",
        STORIES,
    ),
    Mutant(
        "a deleted topic gets what waited for it",
        "            if not self._writer.ledger.is_deleted(run.topic, due.number):\n",
        "            if True:\n",
        "--tier delayed --rounds 1 --seed 2",
    ),
    Mutant(
        "what waits is not looked for when its file is gone",
        "                self._timers_from = timers.known_from + HEADER_BYTES\n",
        "",
        STORIES,
    ),
    Mutant(
        "a prepared message does not wait",
        "copy_of(whole, TIMER if waits else TX_MESSAGE)",
        "copy_of(whole, TX_MESSAGE)",
        "--tier delayed --rounds 1 --seed 3",
    ),
    Mutant(
        "what is in memory is not noted by a checkpoint",
        '            "near": b"".join(near).hex(),\n',
        '            "near": b"".join(near[1:]).hex(),\n',
        "--tier delayed --rounds 1 --seed 0",
    ),
)
