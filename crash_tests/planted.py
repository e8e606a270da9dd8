"""Bugs to plant in fmq, each with the workload that meets it."""

from __future__ import annotations

from crash_tests.calls.planted import OF_CALLS
from crash_tests.dead.planted import OF_DEAD_LETTERS
from crash_tests.delayed.planted import OF_TIMERS
from crash_tests.erased.planted import OF_ERASING
from crash_tests.groups.planted import OF_GROUPS
from crash_tests.home.planted import OF_A_HOME
from crash_tests.ids.planted import OF_IDS
from crash_tests.jobs.planted import OF_JOBS
from crash_tests.mutant import Mutant
from crash_tests.planted_at_rest import FOUND_BY_TESTS
from crash_tests.planted_in_binding import FOUND_IN_BINDING
from crash_tests.planted_in_copies import IN_COPIES
from crash_tests.planted_in_drivers import IN_DRIVERS
from crash_tests.planted_lately import FOUND_LATELY
from crash_tests.planted_mending import MENDING
from crash_tests.schedules.planted import OF_SCHEDULES
from crash_tests.threads.planted import BETWEEN_THREADS
from crash_tests.transport.planted import BETWEEN_PROCESSES
from crash_tests.tries.planted import OF_TRIES

MUTANTS = (
    Mutant(
        "acknowledge before the sync",
        "journal.write(taken, sync=self._synced)",
        "journal.write(taken, sync=False)",
        "--workload send",
    ),
    Mutant(
        "readers elsewhere are told before the sync",
        "journal.write(taken, sync=self._synced)",
        "journal.page[8] = journal.page[9] = taken.end\n"
        "                journal.write(taken, sync=self._synced)",
        "--workload send",
    ),
    Mutant(
        "readers elsewhere are told what is not synced",
        "self.durable_to = self.page[DURABLE_TO] = self.page[AGAIN] = end",
        "self.durable_to = end\n        self.page[DURABLE_TO] = self.page[AGAIN] = taken.end",
        "--workload never",
    ),
    Mutant(
        "a page whose engine was killed is not believed",
        "or (not is_held and said != (self._store, page.identity()))",
        "or not is_held",
        "--workload send",
    ),
    Mutant(
        "delivery before the sync",
        "self._writing.write(part.start - part.segment.base, buffers, sync=sync)",
        "self._writing.write(part.start - part.segment.base, buffers, sync=len(self.segments) < 2)",
        "--workload roll",
    ),
    Mutant(
        "no directory sync after a roll",
        "        # Until the directory is synced, the segment's name may be lost with the power.\n"
        "        self._directory.sync()\n",
        "",
        "--workload roll",
    ),
    Mutant(
        "tail in place",
        "copied = failed or header is not None or not proven or not tail_is_zeros(directory, last)",
        "copied = False",
        "--workload kill",
    ),
    Mutant(
        "an append that is cut in its middle",
        "segment.end = ending.append_start",
        "segment.end = ending.position",
        "--workload two-phase --seed 1",
    ),
    Mutant(
        "no check of the bodies",
        "    if zlib.crc32(memoryview(data)[start:end]) != bodies_crc:",
        "    if False:",
        "--workload large",
    ),
    Mutant(
        "a checkpoint that ignores open transactions",
        "applied if oldest is None else min(applied, oldest),",
        "applied,",
        "--workload checkpoint",
    ),
    Mutant(
        "a reader that hides what only a lost checkpoint proves",
        "if sound_to <= proven_to or not slots.unusable or _has_writer(directory):",
        "if True:",
        "--workload checkpoint",
    ),
    Mutant(
        "a reader that believes the older slot when the newer one is lost",
        "if sound_to <= proven_to or not slots.unusable or _has_writer(directory):",
        "if sound_to <= proven_to or slots.newest or _has_writer(directory):",
        "--workload checkpoint",
    ),
    Mutant(
        "a checkpoint in one slot",
        "name = SLOTS[checkpoint.generation % 2]",
        "name = SLOTS[0]",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "a roll back that is not logged",
        "            forget(ledger, entry)\n        if decided.kind == COMMIT:\n",
        "            if decided.kind == COMMIT:\n                forget(ledger, entry)\n"
        "        if decided.kind == COMMIT:\n",
        "--workload two-phase",
    ),
    Mutant(
        "acks of a transaction are dropped",
        "            for ack in self.acks:\n                ack_applied(ledger, ack)",
        "            pass",
        "--workload ack",
    ),
    Mutant(
        "retention before its STATE is durable",
        "                    if not retention.carry_over(segments):\n",
        "                    if False:\n",
        "--workload retention",
    ),
    Mutant(
        "a checkpoint at the last byte of a segment needs it",
        "        if base not in layout.bases and checkpoint.applied_upto not in layout.bases:\n",
        "        if base not in layout.bases:\n",
        "--workload retention-behind-a-full-segment",
    ),
    Mutant(
        "retention removes several at once",
        "            self._directory.sync()\n            self.doomed.pop(0)",
        "            self.doomed.pop(0)",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "retention forgets a removal that failed",
        "            segment = self.doomed[0]\n",
        "            segment = self.doomed.pop(0)\n",
        "--tier faults --workload retention-after-a-pin",
        (
            (
                "            self._directory.sync()\n            self.doomed.pop(0)",
                "            self._directory.sync()",
            ),
        ),
    ),
    Mutant(
        "a full disk at the first segment is any error",
        "        if not is_full(error):\n"
        "            raise Unreadable(directory.path, error, begun=True) from error\n"
        "        raise StorageFull(\n"
        '            f"{directory.path}: no room for the first',
        '        raise OSError(0, "no room")\n'
        "        raise StorageFull(\n"
        '            f"{directory.path}: no room for the first',
        "--tier faults --workload send",
    ),
    Mutant(
        "retention ignores undecided transactions",
        "for each in entries if each.prepare.position < limit]",
        "for each in entries if False]",
        "--workload retention-after-a-pin",
    ),
    Mutant(
        "retention ignores who has not read",
        "if self.only_acked or self._options.keep_unread:",
        "if False:",
        "--workload retention-of-several",
    ),
    Mutant(
        "by default retention drops what no group reads",
        "            yield from self._without_group(segment, lanes)\n",
        "            pass\n",
        "--workload retention-spares-a-log",
    ),
    Mutant(
        "by default retention drops what is not acked",
        "if self.only_acked or self._options.keep_unread:",
        "if self._options.keep_unread and not self.only_acked:",
        "--workload retention-of-acked",
    ),
    Mutant(
        "a checkpoint and a STATE do not have the options",
        '"options": dict(ledger.options),',
        '"options": {},',
        "--workload options-outlive-their-segments",
    ),
    Mutant(
        "an option that is reset is there again",
        "        ledger.options.pop(name, None)\n",
        "        pass\n",
        "--workload options",
    ),
    Mutant(
        "a group that is made while segments are chosen loses them",
        "            if self.kept is not None:\n                return True\n",
        "            self.kept = None\n",
        tests="tests/retention/test_acked.py -k while_segments",
    ),
    Mutant(
        "a stored option does not reach the engine that runs",
        "        overwrite(self.options, {name: getattr(counts, name) for name in AT_ONCE})\n",
        "",
        tests="tests/test_stored_options.py",
    ),
    Mutant(
        "an opening changes what is stored",
        "if name not in stored or (not only_new and stored[name] != value)",
        "if name not in stored or stored[name] != value",
        tests="tests/test_stored_options.py",
        more=(
            (
                "if value != DEFAULTS[name] and name not in stored and name not in NOT_BY_OPENING",
                "if value != DEFAULTS[name] and name not in NOT_BY_OPENING",
            ),
        ),
    ),
    Mutant(
        "retention ignores who has not acked yet in a queue",
        "        done = self._ledger.acked.get((group, topic, number)) or AckSet()\n",
        "        done = self._ledger.acked.get((group, topic, number)) or AckSet()\n"
        "        if done.is_empty:\n"
        "            done = AckSet(lane.next)\n",
        "--workload retention-of-another-queue",
    ),
    Mutant(
        "replay applies below the checkpoint",
        "            if position >= self.applied_from:\n",
        "            if position >= self.scan_from:\n",
        "--workload checkpoint",
    ),
    Mutant(
        "a checkpoint behind a full segment has the next one's chain",
        "return next(each.chain for each in reversed(journal.segments) if each.end == applied)",
        "return journal.segment_of(applied).chain",
        "--workload roll-of-a-full-segment",
    ),
    Mutant(
        "undecided are dropped by a checkpoint",
        "                collect(ledger, append)",
        "                pass",
        "--workload checkpoint",
    ),
    Mutant(
        "a failed write is no reason to stop",
        "        if first:\n            self.failure = error",
        "        pass",
        "--tier faults --workload two-phase",
    ),
    Mutant(
        "a sync with nothing to sync",
        "        if self._unsynced:\n            self._writing.sync()",
        "        if True:\n            self._writing.sync()",
        "--tier faults --workload sync-twice",
        (("            self.directory.create(FAILED).close()\n", "            pass\n"),),
    ),
    Mutant(
        "the directory's own name is not made durable",
        "                    parent.sync()",
        "                    pass",
        "--workload send",
    ),
    Mutant(
        "published before it is written",
        "                journal.write(taken, sync=self._synced)\n",
        "                with self.lock:\n"
        "                    self._show(taken.end)\n"
        "                journal.write(taken, sync=self._synced)\n",
        "--tier faults --workload two-phase",
    ),
    Mutant(
        "recovery goes on where a write has failed",
        "    failed = FAILED in layout.names\n",
        "    failed = False\n",
        "--tier faults --workload send",
    ),
    Mutant(
        "a spare has its name before it is known to be sound",
        "        file.sync()\n        directory.rename(unproven, name)\n",
        "        directory.rename(unproven, name)\n        file.sync()\n",
        "--tier faults --workload relocation",
    ),
    Mutant(
        "a header is written into what is a spare still",
        "        unproven = spare.name + UNPROVEN\n"
        "        self._rename(spare.name, unproven, roll)\n",
        "        unproven = spare.name\n",
        "--tier faults --workload roll",
    ),
    Mutant(
        "a send that is to be durable, and is not",
        "_queue.run(plan, sent, sync)\n        if not self.background",
        "_queue.submit(plan, sent, None)\n        if not self.background",
        "--workload asked-to-sync",
    ),
    Mutant(
        "a commit that refers is to be durable, and is not",
        "Durable(self.plan, ending, sync, is_awaited=is_awaited)",
        "Durable(self.plan, ending, None, is_awaited=is_awaited)",
        "--workload asked-to-sync",
    ),
    Mutant(
        "a commit that is to be durable, and is not",
        "        plan, what, done = self.committing(transaction)\n"
        "        self._commit_queue.run(plan, what, sync)\n",
        "        plan, what, done = self.committing(transaction)\n"
        "        self._commit_queue.run(plan, what, None)\n",
        "--workload asked-to-sync",
    ),
    Mutant(
        "records vouch for what is not durable",
        "records, start, now, journal.durable_to, journal.seed",
        "records, start, now, start, journal.seed",
        "--workload never",
    ),
    Mutant(
        "the copy of a tail is not synced",
        "target.write(0, (header.encode(),), sync=False)\n            target.sync()\n",
        "target.write(0, (header.encode(),), sync=False)\n",
        "--workload kill",
    ),
    Mutant(
        "what is cut is not kept",
        "        cut = _quarantine(directory, segment, source)",
        "        cut = 0",
        "--workload send",
    ),
    Mutant(
        "what is cut is kept in a file that is not synced",
        "file.write(offset - start, (cut,), sync=True)\n            file.sync()",
        "file.write(offset - start, (cut,), sync=False)",
        "--workload one-phase",
    ),
    Mutant(
        "a relocated transaction keeps its place among the undecided",
        "entry = ledger.undecided.pop(prepare.tx, None)",
        "entry = ledger.undecided.get(prepare.tx)",
        "--workload relocation",
    ),
    Mutant(
        "a relocation forgets what is acked",
        "        old.acks,\n",
        "        (),\n",
        "--workload relocation-of-acks",
    ),
    Mutant(
        "a part of an index lacks what came since the last",
        '        part = b"" if index.is_empty else encode_unsaved(index, self._store)\n'
        "        index.mark_saved()\n",
        "        index.mark_saved()\n"
        '        part = b"" if index.is_empty else encode_unsaved(index, self._store)\n',
        "--workload checkpoint",
    ),
    Mutant(
        "the index of a sealed segment is not synced, and believed",
        "        file.write(0, (data,), sync=True)\n        file.sync()\n",
        "        file.write(0, (data,), sync=False)\n",
        "--workload roll",
        (("            return self._rebuild(base)", "            return SegmentIndex(base)"),),
    ),
    Mutant(
        "retention ignores exports",
        "                if not file.pin(exclusive=True):\n                    locks.pop()",
        "                if False:\n                    locks.pop()",
        "--workload export",
    ),
    Mutant(
        "a decision does not look at the seal",
        "            if seal is not None and seal != seal_text(entry.prepare.seal):",
        "            if False:",
        "--workload checkpoint",
    ),
    Mutant(
        "the outcome window is too short",
        "age_us <= self._window_seconds * 1_000_000",
        "age_us <= self._window_seconds * 100_000",
        "--workload window",
    ),
    Mutant(
        "an index that is built again lacks the outcomes",
        "            index.add_outcome(record)",
        "            pass",
        "--workload roll",
    ),
    Mutant(
        "a TOPIC record is lost",
        "0) for topic in new.values()]",
        "0) for topic in [*new.values()][1:]]",
        "--workload topics",
    ),
    Mutant(
        "a transaction in one phase begins with its topics",
        "[*made, *append], start + measured(made)",
        "[*made, *append], start",
        "--workload one-phase",
    ),
    Mutant(
        "what was prepared is committed without its acks",
        "acks = [Acks(entry.prepare.acks, 0, entry.tx)] if entry.prepare.acks else []",
        "acks: list[Acks] = []",
        "--workload ack-in-two-phases",
    ),
    Mutant(
        "a checkpoint forgets topics without messages",
        "for topic in ledger.made_topics()\n        }",
        "for topic in ledger.made_topics()\n"
        "            if any(queue.next for queue in topic.queues)\n        }",
        "--workload topics",
    ),
    Mutant(
        "nobody is asked about what a crash left",
        "self._schedule.add(entry, now)  # the process",
        'self._schedule.add(entry, float("inf"))  # the process',
        "--workload two-phase",
    ),
    Mutant(
        "a dropped segment becomes a spare with its old bytes",
        "                with contextlib.suppress(FileNotFoundError):\n"
        "                    self._directory.remove(name)\n"
        "            # Sync after each",
        "                if name == segment.name:\n"
        '                    self._directory.rename(name, f"9{segment.base:020d}.spare")\n'
        "            # Sync after each",
        "--workload retention",
        (
            (" and all_zeros(file, size)\n", "\n"),
            (" and all_zeros(file, capacity):", ":"),
        ),
    ),
    Mutant(
        "a table leaves out the first records of a segment",
        "np.searchsorted(places, (start, stop))",
        "np.searchsorted(places, (start + 65, stop))",
        "--tier tables --rounds 3",
    ),
    Mutant(
        "a table leaves out the undecided",
        "undecided_rows(undecided_of(journal, permissive=permissive, disk=disk))",
        "undecided_rows([])",
        "--tier tables --rounds 3",
    ),
    Mutant(
        "a table gives references the bodies that lie with them",
        "                holding, columns = self._run(piece, holder, stop)",
        "                holding, columns = self._run(piece, int(entries.holders[0]), stop)",
        "--tier tables --rounds 3",
    ),
    *MENDING,
    *BETWEEN_THREADS,
    *BETWEEN_PROCESSES,
    *OF_GROUPS,
    *OF_DEAD_LETTERS,
    *OF_TRIES,
    *OF_IDS,
    *OF_ERASING,
    *OF_A_HOME,
    *OF_TIMERS,
    *OF_SCHEDULES,
    *OF_JOBS,
    *FOUND_BY_TESTS,
    *FOUND_LATELY,
    *IN_COPIES,
    *IN_DRIVERS,
    *OF_CALLS,
    *FOUND_IN_BINDING,
)
