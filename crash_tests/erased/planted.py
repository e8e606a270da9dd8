"""Bugs of erasing; the tier `erased` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier erased --rounds 40"

OF_ERASING = (
    Mutant(
        "records are overwritten before that is durable elsewhere",
        "        erasure_file.begin(self._directory, self._store, part)\n",
        "",
        STORIES,
    ),
    Mutant(
        "an interrupted erasure is not carried on before the journal is read",
        "        erasure_file.carry_on(directory)\n",
        "",
        STORIES,
    ),
    Mutant(
        "an interrupted erasure is not recorded",
        "        if self._ledger.erasures.number != found.number:\n",
        "        if False:\n",
        STORIES,
    ),
    Mutant(
        "what was prepared is not erased",
        "                if run.kind != REF_MESSAGE:\n",
        "                if run.kind not in (REF_MESSAGE, PRE_MESSAGE):\n",
        STORIES,
    ),
    Mutant(
        "the headers of an erased message stay",
        "    if opened.headers is not None:\n        counts, names, values = opened.headers.all()\n"
        "        ends",
        "    if False:\n        counts, names, values = opened.headers.all()\n        ends",
        STORIES,
    ),
    Mutant(
        "an erased head gets another checksum",
        "    _keep_crc(head, seed)\n",
        "    head[4:8] = U32.pack(zlib.crc32(head[PREFIX_BYTES:], seed))\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint leaves out what was erased",
        '    ledger.erasures.carry(state.get("erased", []))',
        "    pass",
        tests="tests/test_erase.py -k reach_no_group",
    ),
    Mutant(
        "an erased message is delivered",
        "            _pass_over(ledger, AckRange(group, *each.key()[1:]))\n",
        "            pass\n",
        STORIES,
    ),
    Mutant(
        "an undecided transaction is erased",
        "                        self._refuse_open(run)\n",
        "",
        STORIES,
    ),
    Mutant(
        "a backup takes over segments in which something was erased",
        "erased_since = self._journal.erased.get(base, -1) >= since",
        "erased_since = False",
        tests="tests/test_erase.py -k backup",
    ),
)
