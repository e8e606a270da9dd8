"""Bugs to plant that no crash shows: each breaks a rule that a test states."""

from __future__ import annotations

from crash_tests.mutant import Mutant

BESIDE = "tests/test_check_beside_engines.py"
CLOSE = "tests/test_close.py"
END = "tests/test_end_of_process.py"
OTHER = "tests/test_other_store.py"

FOUND_BY_TESTS = (
    Mutant(
        "a record holds more than 65,536 messages",
        "RECORD_MESSAGES_MAX = 1 << 16",
        "RECORD_MESSAGES_MAX = 1 << 17",
        tests="tests/test_large_records.py -k 65536",
    ),
    Mutant(
        "a read builds more of a record than it returns",
        "return list(map(file.read, repeat(size, count)))",
        "return list(map(file.read, repeat(size, self._count)))[:count]",
        more=(
            (
                "        if count <= UNIFORM_COUNT_MAX:\n",
                "        if False:\n",
            ),
        ),
        tests="tests/test_large_records.py -k read_of_one",
    ),
    Mutant(
        "the undecided are listed under the lock",
        "            snapshot = self._schedule.snapshot()\n",
        "            snapshot = self._schedule.snapshot()\n"
        "            self._schedule.in_order(snapshot)\n"
        "            [undecided_view(each.entry) for each in self._schedule.oldest_first()]\n",
        tests="tests/test_steps.py -k undecided",
    ),
    Mutant(
        "a queue that was idle does not hear of a message",
        "        if queue.idle:\n            queue.end_idle()\n",
        "",
        tests="tests/test_steps.py -k message_in_any_queue",
    ),
    Mutant(
        "a queue that was idle does not hear that a lease has ended",
        "            heappush(self.lease_ends, (until, number))\n",
        "",
        tests="tests/test_steps.py -k redelivered",
    ),
    Mutant(
        "an idle poll looks at every queue",
        "        del self.numbers[i]\n",
        "        self.numbers.append(self.numbers.pop(i))\n",
        tests="tests/test_steps.py -k idle_poll",
    ),
    Mutant(
        "a thread that was served is taken for one that waits",
        "        self.thread = 0  # the thread may call again before it is out of the queue\n",
        "",
        tests="tests/store/test_commit_queue.py -k served_thread",
    ),
    Mutant(
        "what gives out offsets is all that checks them",
        "            if self.is_live:\n",
        "            if False:\n",
        tests="tests/tx/test_late_refusals.py",
    ),
    Mutant(
        "a record that no replay takes is written",
        "            if not error.is_first:\n                raise\n"
        "            changing.changed = False\n"
        "            raise IllegalRecord(append[0].kind, str(error)) from error\n",
        "            pass\n",
        tests="tests/tx/test_late_refusals.py",
    ),
    Mutant(
        "a change begins before all of it is checked",
        "        found.append(queue)\n    return found\n",
        "        found.append(queue)\n"
        "        ledger.acked_of(change.group, change.topic, number).move_to(offset)\n"
        "    return found\n",
        tests="tests/tx/test_late_refusals.py",
    ),
    Mutant(
        "a search by key looks at what is not durable yet",
        "min(queue.next, lane.next)",
        "lane.next",
        tests="tests/test_looks.py -k open",
    ),
    Mutant(
        "a look at marks shows one that is not durable yet",
        "        self.catch_up(self.ledger.marked_at)\n        with self.lock:\n"
        "            return self.ledger.marks.get(name)\n",
        "        with self.lock:\n            return self.ledger.marks.get(name)\n",
        tests="tests/test_looks.py -k commit",
    ),
    Mutant(
        "letters are moved though their group was deleted",
        "            if dead is not whose or dead is None:\n",
        "            if dead is None:\n",
        tests="tests/test_administering.py -k dead_letters",
    ),
    Mutant(
        "a send that is repeated is answered before it is durable",
        "            self._parts.writer.catch_up(done.position)\n",
        "            pass\n",
        tests="tests/remote/test_repeats_wait.py -k SEND",
    ),
    Mutant(
        "an ack that is repeated is answered before it is durable",
        "            self._parts.writer.catch_up(ledger.acked_at)\n",
        "            pass\n",
        tests="tests/remote/test_repeats_wait.py -k ACK",
    ),
    Mutant(
        "a retention carries the end of a queue that was deleted meanwhile",
        "                    if not self._is_gone(key[0], segment):\n",
        "                    if True:\n",
        tests="tests/test_administering.py -k made_again",
    ),
    Mutant(
        "a replay takes a queue for one that is new",
        "            queue.is_placed = not self.unsettled\n",
        "",
        tests="tests/test_administering.py -k added",
    ),
    Mutant(
        "a call of an engine imports what it needs",
        "        if isinstance(self.refusal, Forked):\n",
        "        import fractions  # noqa: F401\n        if isinstance(self.refusal, Forked):\n",
        tests="tests/test_imports.py",
    ),
    Mutant(
        "a check does not ask at its end who was here",
        "        locked = _locked_since(directory, before)\n",
        "        locked = None\n",
        tests=BESIDE,
    ),
    Mutant(
        "a check believes that an engine that has gone was not here",
        "    return None if same else _was_open(directory)\n",
        "    return None\n",
        tests=BESIDE,
    ),
    Mutant(
        "an engine waits for a reader that shares LOCK",
        "has_locks(kept[0]) and is_only_shared(kept[1])",
        "False",
        tests="tests/test_disk.py -k reader_shares",
    ),
    Mutant(
        "a lock stays that the machine refuses to release",
        "                    with contextlib.suppress(OSError):\n"
        "                        unlock(kept[-1])\n",
        "                    unlock(kept[-1])\n",
        tests=CLOSE,
    ),
    Mutant(
        "an ack strands the next message of its key",
        "            if key in self._lines:\n"
        "                heappush(self._free, (self._lines[key][0], key))\n",
        "            pass\n",
        tests="tests/consume/test_ordered.py -k next_message_of_a_key",
    ),
    Mutant(
        "a look whose messages are not passed over is not made again",
        "            elif offset < self.looked:\n",
        "            elif False:\n",
        tests="tests/consume/test_ordered.py -k interrupted",
    ),
    Mutant(
        "a claim that has lost a part gives nothing back",
        "        for low, high in reversed(self._holds.pieces(first, end)):\n"
        "            if self.is_held_by(low, high, owner):\n",
        "        for low, high in ((first, end),):\n"
        "            if self.is_held_by(low, high, owner):\n",
        tests="tests/consume/test_ordered.py -k strands",
    ),
    Mutant(
        "run waits for threads that have woken it",
        "        while busy := [number for number in everyone if number not in self._ended]:\n",
        "        while busy := [at for at in everyone if self._threads[at].is_alive()]:\n",
        tests="tests/consume/test_running.py -k last_worker",
    ),
    Mutant(
        "run waits for a handler that was given up",
        "            if has_ended(self._member) and all(map(self._was_given_up, busy)):\n",
        "            if has_ended(self._member) and not busy:\n",
        tests="tests/consume/test_running.py -k not_waited_for",
    ),
    Mutant(
        "a handler that takes too long keeps its lease",
        "            if not self._is_late(since):\n",
        "            if since or not since:\n",
        tests="tests/consume/test_running.py -k dead_letter",
    ),
    Mutant(
        "close raises a bare OSError",
        "    except OSError as error:\n        raise StorageError(\n",
        "    except ZeroDivisionError as error:\n        raise StorageError(\n",
        tests=CLOSE,
    ),
    Mutant(
        "close is silent about its own failed sync",
        "        if queue.broken() and not had_failed:\n",
        "        if False:\n",
        tests=CLOSE,
    ),
    Mutant(
        "the end of a process syncs nothing",
        "atexit.register(_process_ends)\n",
        "",
        tests=f"{END} -k decision",
    ),
    Mutant(
        "the end of a worker syncs nothing",
        "        util.Finalize(None, _process_ends, exitpriority=0)\n",
        "",
        tests=f"{END} -k worker",
    ),
    Mutant(
        "a call after the last sync does not wait",
        "if not (wait or self._ends) and",
        "if not wait and",
        tests=f"{END} -k handler",
    ),
    Mutant(
        "the end of a process stops at an engine that fails",
        "            stack.callback(engine.process_ends)\n",
        "            engine.process_ends()\n",
        tests=f"{END} -k every_engine",
    ),
    Mutant(
        "a checkpoint of another store is ignored",
        "        checkpoints.refuse_other_store(directory, store, newest.base)\n",
        "        pass\n",
        tests=OTHER,
    ),
    Mutant(
        "a table ignores a checkpoint of another store",
        "checkpoints.refuse_other_store(self._directory, self._store, layout.bases[-1])",
        "pass",
        tests=OTHER,
    ),
    Mutant(
        "segments of two stores are one journal",
        "        if before is not None and before.store != header.store:\n",
        "        if False:\n",
        tests=OTHER,
    ),
    Mutant(
        "a segment follows on another one than the checkpoint knows",
        "    if known and (previous.end,",
        "    if False and (previous.end,",
        tests=OTHER,
    ),
    Mutant(
        "an index is built from other records than the next segment names",
        "    if scan.chain != segment.chain:\n        raise",
        "    if False:\n        raise",
        tests=OTHER,
    ),
    Mutant(
        "a check does not compare records with the checkpoint",
        "        if known.get(segment.base, ending) != ending:\n",
        "        if False:\n",
        tests=OTHER,
    ),
)
