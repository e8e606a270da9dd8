"""Bugs in asking and purging the databases that producers are bound to; tests find them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

DATABASES = "tests/bind/test_databases.py"

FOUND_IN_BINDING = (
    Mutant(
        "a decision needs the lease of its question",
        "            question = self._find(asked.tx_id)\n"
        "            if question is not None:\n"
        "                if question.entry.tx",
        "            question = self._find_leased(asked)\n"
        "            if question is not None:\n"
        "                if question.entry.tx",
        tests="tests/feedback/test_answering.py",
    ),
    Mutant(
        "the engine purges the marker of an undecided transaction",
        "    undecided = frozenset(tx.tx_id for tx in engine.undecided())\n",
        "    undecided: frozenset[str] = frozenset()\n",
        tests=f"{DATABASES} -k rows_go_when",
    ),
    Mutant(
        "a database that cannot be reached is not told of",
        '            database.note("reached", driver_message(error))\n',
        "",
        tests=f"{DATABASES} -k address",
    ),
)
