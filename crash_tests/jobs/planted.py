"""Bugs of jobs of rows; the tier `jobs` finds them, or a test beside the code."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier jobs --rounds 40"
DECISION = '            self._engine.decide_many(ids, "commit", mark=mark)\n'
MOVES = """            if mark is not None:
                with self._engine.transaction() as tx:
                    tx.mark(mark[0], mark[1], expect=mark[2])
"""

OF_JOBS = (
    Mutant(
        "the mark of a job moves after its rows are committed",
        DECISION,
        DECISION.replace(", mark=mark", "") + MOVES,
        STORIES,
    ),
    Mutant(
        "the mark of a job moves before its rows are committed",
        DECISION,
        MOVES + DECISION.replace(", mark=mark", ""),
        STORIES,
    ),
    Mutant(
        "the parts of a job are committed one after the other",
        DECISION,
        "            for tx_id in ids[1:]:\n                self._engine.decide(tx_id, 'commit')\n"
        + DECISION.replace("ids", "ids[:1]"),
        STORIES,
    ),
    Mutant(
        "what a twin of a task has prepared is committed, too",
        DECISION,
        "            ids = [each.tx_id for each in self._left_behind()\n"
        "                   if each.tx_id.startswith(self._prefix)]\n" + DECISION,
        STORIES,
    ),
    Mutant(
        "a job that was committed is committed again",
        "if self._mark is not None and before == self._value:",
        "if False:",
        STORIES,
    ),
    Mutant(
        "a task of a committed job prepares its rows",
        "        if self.is_done():\n            return JobPart(skipped=True)\n",
        "",
        STORIES,
    ),
    Mutant(
        "what is left of a job stays undecided",
        "(value_of(each.tx_id) or 0) <= self._value:",
        "(value_of(each.tx_id) or 0) < 0:",
        STORIES,
    ),
    Mutant(
        "a job expects nothing of its mark",
        "(self._mark, self._value, before)\n",
        "(self._mark, self._value, None)\n",
        tests="tests/intake/test_write_job.py -k that_meet",
    ),
    Mutant(
        "an error while a job is settled is an error of the job",
        '        except FmqError as error:\n            LOG.warning("a later job rolls',
        '        except ZeroDivisionError as error:\n            LOG.warning("a later job rolls',
        tests="tests/intake/test_write_job.py -k cannot_be_settled",
    ),
    Mutant(
        "bodies that a transaction takes at once do not count",
        "        self._bytes, self.messages = size, count\n        return True\n",
        "        self.messages = count\n        return True\n",
        tests="tests/tx/test_many_bodies.py",
    ),
)
