"""Bugs to plant between clients, loops and leases, and in a checkpoint. A test states each rule
that they break.
"""

from __future__ import annotations

from crash_tests.mutant import Mutant

FOUND_LATELY = (
    Mutant(
        "one poll of a loop is woken for two messages",
        "                watch.end(found=bool(done.value))\n",
        "                watch.stop()\n",
        tests="tests/aio/test_waiting_sifted.py -k each_message",
    ),
    Mutant(
        "a poll of a loop that is cancelled keeps what it has claimed",
        "                yield partial(self.drop, poll)\n",
        "                pass\n",
        tests="tests/aio/test_cancellation.py -k cancelled_poll_holds",
    ),
    Mutant(
        "the attempt of a poll that was cancelled counts",
        "        if poll.claim is not None and poll.is_counted:\n",
        "        if False:\n",
        tests="tests/aio/test_cancellation.py -k cancelled_poll_holds",
    ),
    Mutant(
        "a dead client keeps what its open transaction held",
        "            for number, first, end in [*self._held]:\n"
        "                self.end_hold(number, first, end)\n",
        "            pass\n",
        tests="tests/remote/test_dead_clients.py",
    ),
    Mutant(
        "nothing waits after a lease",
        "hold.deadline + retry.delay(hold.count))",
        "hold.deadline)",
        tests="tests/consume/test_attempts.py -k after_each_lease",
    ),
    Mutant(
        "requests without an answer are forgotten",
        "oldest = known.done, request.sequence - request.waiting",
        "oldest = known.done, request.sequence",
        tests="tests/remote/test_repeats.py -k unanswered",
    ),
    Mutant(
        "what a client claims again is taken from others",
        "        if any(not self.is_held_by(low, high, FORMER) for low, high in pieces):\n"
        "            return False\n",
        "",
        tests="tests/remote/test_reclaim.py",
    ),
    Mutant(
        "a repeated batch with one id twice loses a receipt",
        "if first is not None and (key in met or first.position not in positions):",
        "if first is not None and first.position not in positions:",
        tests="tests/remote/test_repeats.py -k ids",
    ),
    Mutant(
        "the sync of one order of a loop is forgotten",
        "sync = True if True in syncs else None if None in syncs else False",
        "sync = None if None in syncs else False",
        tests="tests/aio/test_syncs.py",
    ),
    Mutant(
        "a second cancellation loses the answer",
        "        except CancelledError:\n"
        "            continue  # anyio cancels again at each await\n",
        "        except CancelledError:\n            break\n",
        tests="tests/aio/test_cancelled_twice.py",
    ),
    Mutant(
        "a checkpoint of what is not synced",
        "            if not clean and (\n"
        "                self._syncs or noted.checkpoint.applied_upto > self._journal.durable_to\n"
        "            ):\n",
        "            if False:\n",
        "--tier threads --workload checkpoint-of-unsynced --rounds 30",
    ),
    Mutant(
        "an opening leaves a joint decision as it is",
        "        if not left or joint is None:\n            return\n",
        "        if left or not left:\n            return\n",
        "--tier hand --workload joint-decision-over-segments",
    ),
    Mutant(
        "an opening writes only the next ending of a joint decision",
        "        for tx in joint.transactions[-left:]:\n",
        "        for tx in joint.transactions[-left:][:1]:\n",
        "--tier hand --workload joint-decision-over-segments",
    ),
    Mutant(
        "readers see a part of a joint decision",
        "        if not held and not (self._holds and type(first) is Joint):\n",
        "        if not held:\n",
        tests="tests/recovery/test_joint_crashes.py -k opening_completes",
    ),
    Mutant(
        "readers see a joint decision without its last ending",
        "len(held) > len(joint.transactions))",
        "len(held) >= len(joint.transactions))",
        tests="tests/recovery/test_joint_crashes.py -k last_ending",
    ),
    Mutant(
        "a joint decision does not look at its mark",
        "        check_marks(self._ledger, marks)\n        joint = ",
        "        joint = ",
        tests="tests/tx/test_joint_decisions.py -k mark_that_has_moved",
    ),
    Mutant(
        "what was decided without the mark counts as decided with it",
        "not alone or _mark_of(each) != marks[0][:2]",
        "not alone",
        tests="tests/tx/test_joint_decisions.py -k refused_whole",
    ),
    Mutant(
        "a table is read with a part of a joint decision",
        "    return whole_end(journal, start, end, stop, disk)\n",
        "    return end\n",
        tests="tests/recovery/test_joint_crashes.py -k in_batches",
    ),
    Mutant(
        "a tail ends inside of a joint decision",
        "flags & EXTENDED and self._goes_on(base, place - aligned(size))",
        "False",
        tests="tests/tx/test_joint_decisions.py -k tail_splits",
    ),
    Mutant(
        "a checkpoint forgets the codec of a topic",
        "for topic in ledger.made_topics() if topic.codec\n",
        "for topic in () if topic.codec\n",
        "--tier groups --rounds 6",
    ),
    Mutant(
        "a codec is stored although a newer one is there",
        "    if wanted.version < stored.version:\n        return False\n",
        "",
        tests="tests/tx/test_typed_topics.py",
    ),
    Mutant(
        "a body that cannot be decoded is tried for ever",
        " or is_about(error, delivery):\n            try:\n                delivery.reject(",
        ":\n            try:\n                delivery.reject(",
        tests="tests/tx/test_typed_topics.py",
    ),
    Mutant(
        "codecs of one version may have other fields",
        "        if brings != has:\n            what = (",
        "        if False:\n            what = (",
        tests="tests/test_codecs.py",
    ),
    Mutant(
        "tables and deliveries leave out the last run of each queue",
        "    high = lane.find(min(wanted.offset.high, lane.next - 1)) + 1\n",
        "    high = lane.find(min(wanted.offset.high, lane.next - 1))\n",
        tests="tests/lake/test_audit.py -k other_stores",
    ),
    Mutant(
        "an export to a bucket shows files before they are noted",
        "            moves[source] = target\n",
        "            moves[source] = target\n            self._bucket.copy(source, target)\n",
        tests="tests/export/test_in_bucket.py -k killed",
    ),
    Mutant(
        "an export to a bucket overwrites what another one has noted",
        '        mode: Any = "create" if self._seen is None else self._seen\n',
        '        mode: Any = "overwrite"\n',
        tests="tests/export/test_in_bucket.py -k two_exports",
    ),
    Mutant(
        "what a killed export has staged in a bucket is left there",
        "        self._bucket.remove(left)\n",
        "        pass\n",
        tests="tests/export/test_in_bucket.py -k killed",
    ),
)
