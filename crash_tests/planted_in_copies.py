"""Bugs planted in backups, restoring and salvage, in what passes over damage, and in the sizes of
segments and spares.
"""

from crash_tests.mutant import Mutant

IN_COPIES = (
    Mutant(
        "an interrupted restore leaves its files",
        "            except BaseException:\n                clear(directory)\n",
        "            except BaseException:\n",
        tests="tests/cli/test_interrupted_verbs.py -k restore",
    ),
    Mutant(
        "a prepared copy of an erased message may be back",
        "prepared.setdefault(run.body_position, set()).update(_erased(run, ledger))",
        "pass",
        tests="tests/test_erase.py -k older_copy",
    ),
    Mutant(
        "a copy of an erased message that was never published may be back",
        "    if is_as_before:\n",
        "    if False:\n",
        tests="tests/test_erase.py -k older_copy",
    ),
    Mutant(
        "a backup says what it holds before that is durable",
        "            copy(source, target, start - segment.base, end - segment.base, self._count)\n"
        "            target.sync()\n",
        "            copy(source, target, start - segment.base, end - segment.base, self._count)\n",
        tests="tests/copies/test_backups.py -k power_cut_leaves",
    ),
    Mutant(
        "a backup drops segments before it says that it has others",
        "            contents.write(target, made)\n            self._remove_dropped(made)\n",
        "            self._remove_dropped(made)\n            contents.write(target, made)\n",
        tests="tests/copies/test_backups.py -k power_cut_leaves",
    ),
    Mutant(
        "a backup does not keep retention from dropping",
        "if pin(source, segment_name(extents[0].segment.base), stack):",
        "if extents:",
        tests="tests/copies/test_backups.py -k while_a_backup",
    ),
    Mutant(
        "a backup overwrites another continuation of its journal",
        "        if (piece.epoch, piece.chain) != (extent.segment.epoch, chain) "
        "or piece.end > extent.end:\n",
        "        if piece.end > extent.end:\n",
        tests="tests/copies/test_backups.py -k overwrites",
    ),
    Mutant(
        "a restored journal gets its first name before the others are durable",
        "    for batch in (others, [first]):\n",
        "    for batch in ([*others, first],):\n",
        tests="tests/copies/test_backups.py -k cut_in_a_restore",
    ),
    Mutant(
        "an ordinary append takes a spare that a decision needs",
        "if spare.capacity >= size and (is_free or spare.capacity < self._enough):",
        "if spare.capacity >= size:",
        tests="tests/test_small_stores.py tests/test_trouble.py tests/store/test_spares.py",
    ),
    Mutant(
        "small spares count as room for a large decision",
        "len(self._ready) - bisect_left(self._ready, self._enough, key=capacity_of)\n",
        "len(self._ready)\n",
        tests="tests/test_small_stores.py",
    ),
    Mutant(
        "a salvaged journal gets its first name before the others are durable",
        "    for batch in (others, [first]):\n",
        "    for batch in ([*others, first],):\n",
        tests="tests/copies/test_salvages.py -k power_cut_in_a_salvage",
    ),
    Mutant(
        "a salvage is not told by the checkpoint what was lost",
        "        if any(self._gaps.values()):\n            state = ",
        "        if False:\n            state = ",
        tests="tests/copies/test_salvages.py",
    ),
    Mutant(
        "a salvage takes a torn tail for sound",
        "        if not self._is_last or start < self._proven:\n            return False\n",
        "        if not self._is_last or ending.finding is Finding.BAD:\n"
        "            return False\n",
        tests="tests/copies/test_salvages.py",
    ),
    Mutant(
        "nothing proves the last append of a salvaged journal",
        "return gaps or bool(found.damaged) or ledger.unsettled or self._begins_late",
        "return gaps or ledger.unsettled or self._begins_late",
        tests="tests/copies/test_salvages.py -k impaired",
    ),
    Mutant(
        "a hole makes decisions unknown only up to its beginning",
        "    end = hole.position + hole.size\n",
        "    end = hole.position\n",
        tests="tests/copies/test_salvages.py -k many_kinds",
    ),
    Mutant(
        "what no sync covers is passed over as if it had been durable",
        "        return self._proven > position\n",
        "        return True\n",
        tests="tests/recovery/test_past_damage.py -k no_sync_covers",
    ),
    Mutant(
        "an impaired transaction is committed as it was prepared",
        "if lost and kind == COMMIT and not without_lost:",
        "if False:",
        tests="tests/recovery/test_past_damage.py",
    ),
    Mutant(
        "a commit without what is lost counts what was prepared",
        "            self.decided.records = len(self.runs)\n",
        "",
        tests="tests/recovery/test_past_damage.py -k rest_of_an_impaired",
    ),
    Mutant(
        "a lost segment that a replay needs is passed over",
        "    if not missing or missing[-1][1] > checkpoint.scan_from:\n",
        "    if not missing:\n",
        tests="tests/recovery/test_past_damage.py",
    ),
    Mutant(
        "a segment that was cut short is taken for whole after a kill",
        "        replay.was_closed = checkpoint.clean and PAGE not in layout.names\n",
        "        replay.was_closed = True\n",
        tests="tests/recovery/test_past_damage.py -k cut_short",
    ),
    Mutant(
        "a damaged header is copied as it is",
        "            if header is not None:\n                target.write(0,",
        "            if False:\n                target.write(0,",
        tests="tests/recovery/test_past_damage.py -k header",
    ),
    Mutant(
        "retention waits for a lost segment",
        "                    continue  # the segment was lost, so no export can read it\n",
        "                    break\n",
        tests="tests/recovery/test_past_damage.py -k in_its_turn",
    ),
    Mutant(
        "a process that is being stopped takes new requests",
        "            for session in [*self.sessions.values()]:\n                session.drain()\n",
        "",
        tests="tests/remote/test_stop.py -k settle",
    ),
    Mutant(
        "a process that is being stopped does not wait for what is in hand",
        "        if busy and self.monotonic() < deadline:\n",
        "        if False:\n",
        tests="tests/remote/test_stop.py",
    ),
    Mutant(
        "a backup of an engine leaves out what no other process can see yet",
        '        self.change("checkpoint")  # the checkpoint proves durable what is visible now\n'
        "        return back_up(self.path, destination, progress, self._disk, self._clock)\n",
        "        return back_up(self.path, destination, progress, self._disk, self._clock)\n",
        tests="tests/copies/test_engine_backups.py",
    ),
    Mutant(
        "a bit that has turned is not written back",
        "    turn_back(directory, replay.segments, replay.turned)\n",
        "",
        tests="tests/recovery/test_past_damage.py -k turned",
    ),
    Mutant(
        "a bit of what was torn is turned back",
        "        if not self._is_durable(position):\n            return None\n        at = self",
        "        at = self",
        tests="tests/recovery/test_past_damage.py -k not_corrected",
    ),
    Mutant(
        "a piece gets its name before it is durable",
        "                at += len(block)\n            file.sync()\n",
        "                at += len(block)\n",
        tests="tests/copies/test_ships.py -k power_cut",
    ),
    Mutant(
        "retention does not wait for what is shipped",
        "            if behind <= holder.keep_bytes:\n"
        "                yield holder\n            elif holder",
        "            if behind > holder.keep_bytes and holder",
        tests="tests/copies/test_ships.py",
    ),
    Mutant(
        "retention waits for what is shipped without a limit",
        "            if behind <= holder.keep_bytes:\n",
        "            if True:\n",
        tests="tests/copies/test_ships.py",
    ),
    Mutant(
        "another continuation of the journal is shipped over the first",
        "        if here.damage or there.damage or here.chain != there.chain:\n",
        "        if False:\n",
        tests="tests/copies/test_ships.py -k overwrites",
    ),
    Mutant(
        "what a tool puts counts after another one has taken the place",
        "            return (int(match[1]), int(match[4])) <= (generation, end)\n",
        "            return True\n",
        tests="tests/copies/test_ships_to_buckets.py -k two_tools",
    ),
    Mutant(
        "a tool that was displaced goes on",
        '        if found["ETag"] != self._etag:\n',
        "        if False:\n",
        tests="tests/copies/test_ships_to_buckets.py -k two_tools",
    ),
    Mutant(
        "a place is taken without a condition",
        '        how = {"IfMatch": before} if before else {"IfNoneMatch": "*"}\n',
        "        how: dict[str, str] = {}\n",
        tests="tests/copies/test_ships_to_buckets.py -k two_tools",
    ),
    Mutant(
        "what was erased stays at the place until more is shipped",
        "        is_clean = not (self._stray or self._others)\n",
        "        is_clean = True\n",
        "--tier shipped --seed 0 --rounds 10",
    ),
    Mutant(
        "a tool that runs on does not look for what was erased",
        "            if now.erased.get(segment.base) != self._erased.get(segment.base):\n",
        "            if False:\n",
        tests="tests/copies/test_ships.py",
    ),
    Mutant(
        "the place drops a segment more than retention has dropped",
        "        while len(self._run) > 1 and self._run[1][0].base <= floor:\n",
        "        while len(self._run) > 1 and self._run[0][0].base <= floor:\n",
        "--tier shipped --seed 0 --rounds 10",
    ),
    Mutant(
        "an interrupted removal of an old segment leaves a place that cannot be restored",
        "        if found:\n            run.append(found)\n        elif run:\n            break\n",
        "        if not found:\n            break\n        run.append(found)\n",
        "--tier shipped --seed 1795896239 --rounds 1",
    ),
    Mutant(
        "a tool removes a file twice",
        "        names = dict.fromkeys([*self._others, *self._stray])\n",
        "        names = [*self._others, *self._stray]\n",
        "--tier shipped --seed 1795896248 --rounds 1",
    ),
    Mutant(
        "a place that is begun anew counts before it is whole",
        "        self._run, self._is_ready = [], False\n",
        "        self._run = []\n",
        "--tier shipped --seed 0 --rounds 10",
    ),
    Mutant(
        "the tier of shipping sees a piece that was named before it was durable",
        "                at += len(block)\n            file.sync()\n",
        "                at += len(block)\n",
        "--tier shipped --rounds 10",
    ),
)
