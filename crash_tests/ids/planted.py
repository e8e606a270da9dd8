"""Bugs of message ids; the tier `ids` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier ids --rounds 40"

PUBLISH = """\
        self._queue.run(plan, sent, sync)
        if not self.background:
"""
NO_LONGER = """\
            found = self._ledger.undecided.get(holder)
            tx_id = "?" if found is None else found.prepare.tx_id
"""

OF_IDS = (
    Mutant(
        "the ids of full segments are forgotten over a restart",
        "            older.append(table)\n",
        "",
        STORIES,
    ),
    Mutant(
        "ids go with their segments",
        "        return [IdsKept(table_of(0, rows).encode(), 0)] if rows else []\n",
        "        return []\n",
        STORIES,
    ),
    Mutant(
        "ids that were carried are not carried again",
        "                candidates += self._live(number, table, now_us)\n",
        "                candidates += [\n"
        "                    each for each in self._live(number, table, now_us)\n"
        "                    if each.position >= table.base\n"
        "                ]\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint leaves out the ids",
        "len(index.ids) > ids_saved else",
        "not saved else",
        STORIES,
    ),
    Mutant(
        "a rolled back transaction has taken its ids",
        "                ledger.held_ids.pop(key, None)\n",
        "                pass\n",
        STORIES,
        (("            tx_id = self._ledger.undecided[holder].prepare.tx_id\n", NO_LONGER),),
    ),
    Mutant(
        "an undecided transaction holds no ids after a restart",
        "            ledger.held_ids.update(dict.fromkeys(id_keys_of(run).keys, prepare.tx))\n",
        "            if ledger.listener is not None:\n"
        "                ledger.held_ids.update(dict.fromkeys(id_keys_of(run).keys, prepare.tx))\n",
        STORIES,
    ),
    Mutant(
        "a repeat does not wait for the first message",
        PUBLISH,
        "        if message_id is not None:\n"
        "            known = self.parts.ledger.id_window.known\n"
        "            keys = [key for run in sent for key in run.id_keys.keys]\n"
        "            sync = False if any(key in known for key in keys) else sync\n" + PUBLISH,
        STORIES,
    ),
    Mutant(
        "a commit by references takes no ids",
        "        run.extension = ids_only(pre.extension)\n",
        "        pass\n",
        STORIES,
    ),
    Mutant(
        "a deleted topic keeps its ids",
        "        if found.position < deleted or self._is_old(found.time_us, now_us):\n",
        "        if self._is_old(found.time_us, now_us):\n",
        STORIES,
    ),
    Mutant(
        "the newest ids are dropped",
        "            if newer < self._kept and not",
        "            if newer < self._kept // 2 and not",
        STORIES,
    ),
)
