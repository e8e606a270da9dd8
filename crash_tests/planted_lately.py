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
)
