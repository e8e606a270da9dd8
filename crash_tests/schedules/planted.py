"""Bugs of schedules; the tier `schedules` finds them, or a test."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier schedules --rounds 3"
TESTS = "tests/delayed/test_schedules.py"

OF_SCHEDULES = (
    Mutant(
        "a due time is published, and moved on by another append",
        "            self._writer.send(records)\n",
        "            for record in records[::-1]:\n                self._writer.send([record])\n",
        STORIES,
    ),
    Mutant(
        "a schedule moves on, and its message follows in another append",
        "            self._writer.send(records)\n",
        "            for record in records:\n                self._writer.send([record])\n",
        STORIES,
    ),
    Mutant(
        "the next due time follows from the clock",
        "        after_us = due_us\n",
        "        after_us = now_us\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint carries no schedules",
        "[each.carried() for _, each in sorted(ledger.schedules.items())]",
        "[]",
        STORIES,
    ),
    Mutant(
        "a checkpoint forgets what was published last",
        "        return [self.topic, self.text(), self.next_us, self.last_us]\n",
        "        return [self.topic, self.text(), self.next_us, 0]\n",
        STORIES,
    ),
    Mutant(
        "what was missed is published although it is to be skipped",
        '            passed = schedule.missed == "skip"\n',
        "            passed = False\n",
        STORIES,
    ),
    Mutant(
        "all that was missed is published",
        "            after_us = now_us - GRACE_US - 1\n",
        "            after_us = due_us\n",
        STORIES,
    ),
    Mutant(
        "a schedule that is paused publishes",
        "return self.paused is None and NEVER < self.next_us <= now_us",
        "return NEVER < self.next_us <= now_us",
        STORIES,
    ),
    Mutant(
        "what was due in a pause is published after it",
        "        return [_changed(known._replace(paused=None, next_us=next_us))]\n",
        "        return [_changed(known._replace(paused=None))]\n",
        tests=f"{TESTS} -k passes_over",
    ),
    Mutant(
        "a time that comes twice is due twice",
        "            if (found := as_us(moment)) > after_us:\n",
        "            if found := as_us(moment):\n",
        tests=f"{TESTS} -k next_due_time",
    ),
    Mutant(
        "a schedule that is replaced is due again at what was published",
        "            if next_us and next_us <= known.last_us:\n",
        "            if False:\n",
        tests=f"{TESTS} -k replaced",
    ),
    Mutant(
        "the schedules of a deleted topic stay",
        "    schedule_changes.forget(ledger, change.topic)\n",
        "",
        tests=f"{TESTS} -k deleted",
    ),
    Mutant(
        "a schedule that is changed while it is published is published as it was",
        "            if self._ledger.schedules.get(schedule.name) is schedule:\n"
        "                records += own\n",
        "            if True:\n                records += own\n",
        tests=f"{TESTS} -k meanwhile",
    ),
    Mutant(
        "a schedule that fits no segment any more ends the engine",
        "                if own > 2 * self._bytes_max:\n",
        "                if False:\n",
        tests=f"{TESTS} -k fits_no_segment",
    ),
    Mutant(
        "a new schedule does not wake the thread",
        "    ledger.schedules[schedule.name] = schedule\n"
        "    # The thread that publishes due messages asks again for the next due time.\n"
        "    ledger.timers.sooner = True\n",
        "    ledger.schedules[schedule.name] = schedule\n",
        tests=f"{TESTS} -k thread",
    ),
)
