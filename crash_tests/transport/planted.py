"""Bugs between clients and their server; the tier `transport` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier transport --rounds 2"

BETWEEN_PROCESSES = (
    Mutant(
        "a reply before the sync",
        "            order.refusal = refusal_of(*order.work)\n",
        "            order.refusal = refusal_of(*order.work) or order.finish()\n",
        STORIES,
        (
            ("                order.finish()\n", "                pass\n"),
            ("        self._answers.append(answer)\n", "        self._send(answer)\n"),
        ),
    ),
    Mutant(
        "a sequence is lost over a restart",
        '    ledger.requests.carry(state.get("requests", []))\n',
        "",
        tests="tests/remote/test_repeats.py -k if_the_engine_process_is_killed",
    ),
    Mutant(
        "a claim is not given back when its connection ends",
        "        for member in self._members.values():\n            member.lose()\n",
        "",
        STORIES,
    ),
    Mutant(
        "what a client has in hand is not noted for the next server",
        "        self._note(claim.queue.topic, claim.queue.number, end)\n",
        "",
        "--tier transport --rounds 1 --seed 19",
    ),
    Mutant(
        "a request that is repeated is carried out again",
        "        if not asked.flags & AGAIN:\n            return []\n",
        "        return []\n",
        STORIES,
    ),
    Mutant(
        "what was taken for good is taken again if its answer is lost",
        "            if done:\n"
        "                parts.writer.catch_up(done[-1].position)\n"
        "                return self._read_again(*done)\n",
        "",
        "--tier transport --rounds 1 --seed 30",
    ),
    Mutant(
        "a client does not say again what it has no answer to",
        "            again += [repeated(asked.frame) for asked in",
        "            [repeated(asked.frame) for asked in",
        STORIES,
    ),
    Mutant(
        "an id is released again when a transaction that has ended is dropped",
        "        transaction.if_id_dropped.detach()\n",
        "        pass\n",
        tests="tests/remote/test_remote_engine.py -k dropped",
    ),
    Mutant(
        "a loop forgets what it would have to wait to send",
        "        self._backlog += requests\n",
        "",
        "--tier transport --rounds 1 --seed 2",
    ),
    Mutant(
        "a client does not say again what it consumes",
        "            again = [frame(Op.JOIN, 0, said, handle=handle)"
        " for handle, said in self._joined()]\n",
        "            again: list[bytes] = []\n",
        STORIES,
    ),
)
