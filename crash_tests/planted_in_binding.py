"""Bugs in asking and purging the databases that producers are bound to; tests find them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

DATABASES = "tests/bind/test_databases.py"
POSTED = "tests/tx/test_posted.py"

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
    Mutant(
        "an outbox of Django's shows its messages before the block has committed",
        "        try:\n            commit()\n        except BaseException as failed:\n"
        "            self._failed(",
        "        sending[0].tx.confirm()\n"
        "        try:\n            commit()\n        except BaseException as failed:\n"
        "            self._failed(",
        more=(
            (
                "                each.tx.confirm()\n            except BaseException:\n",
                "                pass\n            except BaseException:\n",
            ),
        ),
        tests="tests/bind/test_django_kill.py -k True",
    ),
    Mutant(
        "the messages are shown before the database has committed",
        "            self._binding.commit()\n        except BaseException as failed:",
        "            self.confirm()\n"
        "            self._binding.commit()\n        except BaseException as failed:",
        tests="tests/bind/test_sqlite.py",
    ),
    Mutant(
        "a block that has committed confirms nothing",
        "self._step(Phase.COMMITTED, self._manager.confirm_prepared)",
        "self._step(Phase.COMMITTED, lambda _: list)",
        tests=POSTED,
    ),
    Mutant(
        "nobody writes what was posted",
        "        return posted is seen is self._journal.pending\n",
        "        return False\n",
        tests="tests/store/test_posts.py",
    ),
    Mutant(
        "a look does not wait for what was posted",
        "                self.run(_nothing, None, wait=True, here=False)",
        "                pass",
        tests=POSTED,
    ),
    Mutant(
        "a consumer that waits is not told of what was posted",
        "                if is_awaited() or self",
        "                if self",
        tests=POSTED,
    ),
    Mutant(
        "receipts are given before they are durable",
        "        self._sync = False  # a later commit() has to wait until this commit is durable\n",
        "",
        tests=POSTED,
    ),
    Mutant(
        "a rollback of SQLite that a listener swallows is taken for a commit",
        "        if self._has_savepoint and not driver.in_transaction:\n",
        "        if False:\n",
        tests="tests/bind/test_sqlalchemy.py -k swallows",
    ),
)
