"""Bugs to plant in what carries out the steps of calls: a thread, a loop, and a server."""

from __future__ import annotations

from crash_tests.mutant import Mutant

DRIVERS = "tests/test_drivers.py"
SYNCS = "tests/remote/test_slow_syncs.py"

IN_DRIVERS = (
    Mutant(
        "each join shares the queues out",
        "        elif room.strategy is not None:\n            self._unshared.add(room)\n",
        "        elif room.strategy is not None:\n            self._share_out(room)\n",
        tests="tests/remote/test_herd.py -k thousand",
    ),
    Mutant(
        "a thread does not look again once it listens",
        "            return None  # look once more\n",
        "            pass\n",
        tests=DRIVERS,
    ),
    Mutant(
        "a request does not look again once it listens",
        "                        watch.listen(want)\n",
        "                        watch.listen(want)\n"
        "                        self._wait(watch)\n"
        "                        return\n",
        tests=DRIVERS,
    ),
    Mutant(
        "requests of one turn get each other's answers",
        "        self._answer = want.plan(want.what)\n",
        "        type(self)._answer = want.plan(want.what)\n",
        tests=f"{SYNCS} -k own_answer",
    ),
    Mutant(
        "a request that ends wakes no other one",
        "        if found or self._monotonic() < self.deadline:\n",
        "        if False:\n",
        tests="tests/remote/test_herd.py -k without_looking",
    ),
    Mutant(
        "a request that is woken twice goes on twice",
        "            self._is_woken = True\n            return\n",
        "            pass\n",
        tests=f"{SYNCS} -k twice",
    ),
    Mutant(
        "the loop of a server waits for a slow sync",
        "                queue.submit(self._plan, orders, partial(self._written, batch), sync)\n"
        "                return\n",
        "                queue.run(self._plan, orders, sync)\n",
        tests=f"{SYNCS} -k another",
    ),
    Mutant(
        "a take that is cancelled does not say what became of it",
        "            await end_of(order, cancelled, written)\n",
        "            await end_of(order, cancelled)\n",
        tests="tests/aio/test_cancellation.py -k take",
    ),
    Mutant(
        "what a take was refused stays held",
        "                member.try_give_back(claim, first, end)\n",
        "                pass\n",
        tests="tests/consume/test_take.py",
    ),
    Mutant(
        "a member that drains waits for its turn to be woken",
        "            self._wake_stirred()\n            self.wake_next()\n",
        "            self.wake_next()\n",
        tests="tests/aio/test_drained_polls.py",
    ),
    Mutant(
        "a wake-up while a look is written is lost",
        "                        if watch.listens and not self._is_woken:\n",
        "                        if watch.listens:\n",
        tests="tests/test_drivers.py -k while_its_look",
    ),
)
