"""Bugs of groups and topics; the tier `groups` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier groups --rounds 40"

OF_GROUPS = (
    Mutant(
        "a seek leaves the acks above it",
        "        self.is_empty = False\n        self._ranges.clear()\n",
        "        self.is_empty = False\n",
        "--tier groups --rounds 150",
    ),
    Mutant(
        "an ack of all below an offset leaves out the last one",
        "[AckRange(group, topic, number, *gap) for gap in gaps]",
        "[AckRange(group, topic, number, low, max(low, high - 1)) for low, high in gaps]",
        STORIES,
    ),
    Mutant(
        "what is in hand counts after a seek",
        "            holds.end_all()\n",
        "            pass\n",
        STORIES,
        (("        holds = self.by_queue.pop(key, None)\n", "        holds = None\n"),),
    ),
    Mutant(
        "a filter is not carried by a checkpoint",
        "subscription.filter, subscription.skipped, subscription.lost = wanted, skipped, lost",
        "_, subscription.skipped, subscription.lost = wanted, skipped, lost",
        STORIES,
    ),
    Mutant(
        "a deleted group keeps its acks",
        "    for place in [key for key in ledger.acked if key[0] == change.group]:\n",
        "    for place in []:\n",
        STORIES,
    ),
    Mutant(
        "a group begins at the earliest wherever it was made",
        "    ledger.subscribe(change.group, change.topic).filter = change.text\n"
        "    _move(ledger, change, queues)\n",
        "    ledger.subscribe(change.group, change.topic).filter = change.text\n",
        STORIES,
    ),
    Mutant(
        "messages of a deleted topic are found again",
        "    ledger.deleted[change.topic] = change.position\n",
        "",
        "--tier groups --seed 120 --rounds 10",
    ),
    Mutant(
        "a rebuilt index has the lanes of a deleted topic",
        "                index.forget(record.topic)\n",
        "                pass\n",
        STORIES,
    ),
    Mutant(
        "one message too many is passed over",
        "            found.append((at, offset))\n",
        "            found.append((at, min(offset + 1, end)))\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint carries no priorities",
        "        ledger.spans_of(topic.queues[number]).carry(spans)\n",
        "",
        STORIES,
        (("        topic.has_priorities = topic.has_priorities or bool(spans[0])\n", ""),),
    ),
    Mutant(
        "what a reference publishes has no priority",
        'publish_run(ledger, run, said.get(run.body_position, b""))',
        "publish_run(ledger, run)",
        tests="tests/consume/test_priorities.py -k transaction",
    ),
    Mutant(
        "a span with a priority seems to have no message without one",
        "            mask |= LOWEST\n",
        "            pass\n",
        STORIES,
    ),
    Mutant(
        "an expired message is handed out if it is the first of its claim",
        "                if matches and expires_us > now_us:\n",
        "                if matches and (expires_us > now_us or not found):\n",
        STORIES,
    ),
    Mutant(
        "queues that are added are not replayed",
        "    ledger.grow(topic, change.value)\n",
        "    if ledger.listener:\n        ledger.grow(topic, change.value)\n",
        STORIES,
    ),
    Mutant(
        "a group does not count what its topic's retention takes",
        "                subscription.lost += acked.drop_below(first)\n",
        "                acked.drop_below(first)\n",
        STORIES,
    ),
    Mutant(
        "a queue begins where it was trimmed only until a restart",
        "        ledger.raise_first(queue, offset)\n",
        "        ledger.raise_first(queue, offset if ledger.listener else 0)\n",
        STORIES,
    ),
    Mutant(
        "a pause is not carried by a checkpoint",
        "[[*key, *pause] for key, pause in sorted(ledger.pauses.items())]",
        "[]",
        STORIES,
    ),
    Mutant(
        "a paused group is handed messages",
        '        if (group, "") in pauses:\n            return ()\n',
        "",
        STORIES,
    ),
    Mutant(
        "a topic that is made again is still paused",
        '    ledger.pauses.pop(("", change.topic), None)\n',
        "",
        tests="tests/consume/test_pauses.py -k ends_with",
    ),
    Mutant(
        "a second pause keeps the first reason",
        "    ledger.pauses[key] = PauseMet(*said_by(change), change.time_us)\n",
        "    ledger.pauses.setdefault(key, PauseMet(*said_by(change), change.time_us))\n",
        tests="tests/consume/test_pauses.py -k second",
    ),
    Mutant(
        "a limit is not carried by a checkpoint",
        "[group, limit.text(), limit.time_us] for group, limit in sorted(ledger.limits.items())",
        "[group, limit.text(), limit.time_us] for group, limit in ()",
        STORIES,
    ),
    Mutant(
        "a group is handed more at once than its limit",
        "limit.concurrency - in_hand",
        "limit.concurrency",
        tests="tests/consume/test_limits.py -k no_more",
    ),
    Mutant(
        "a limit outlives its group",
        "    ledger.limits.pop(change.group, None)\n",
        "",
        tests="tests/consume/test_limits.py -k ends_with",
    ),
    Mutant(
        "an ack wakes no poll that waits because of a limit",
        "                holds.limiter.freed()\n",
        "                pass\n",
        tests="tests/consume/test_limited_polls.py",
    ),
    Mutant(
        "what clients of the server before may have in hand is not counted",
        "        for holds in self._holds_of(group):\n            limiter.count(holds)\n",
        "",
        tests="tests/remote/test_reclaim.py -k limit",
    ),
    Mutant(
        "what was in hand at a later attempt is not kept for its client after a kill",
        "for first, end, _, due_us in found if due_us > now_us]",
        "for first, end, _, due_us in found]",
        tests="tests/remote/test_reclaim.py -k third",
    ),
    Mutant(
        "what is in hand of a key in other queues is not counted",
        "rooms.in_hand[key] += 1",
        "pass",
        tests="tests/consume/test_limits_by_key.py -k in_all_queues",
    ),
    Mutant(
        "a key that was taken from is the next one again",
        "self._turns[key] = line",
        "self._turns = {key: line, **self._turns}",
        tests="tests/consume/test_limits_by_key.py -k turns",
    ),
    Mutant(
        "what was given back loses its attempts where keys take turns",
        "turns.wait_again(offset, due.count)",
        "turns.wait_again(offset, 0)",
        tests="tests/consume/test_limits_by_key.py -k turn",
    ),
    Mutant(
        "a rate begins anew with each process",
        "limiter = self._make(group, found_at=now - age)",
        "limiter = self._make(group, found_at=-math.inf)",
        tests="tests/consume/test_limits.py -k over_a_restart",
    ),
    Mutant(
        "a resume wakes no poll",
        "            ChangeKind.RESUME: self._resume,\n",
        "",
        tests="tests/consume/test_paused_polls.py",
    ),
    Mutant(
        "a purge passes over all that there is",
        "            first, end = max(acked.floor, queue.first), min(find(queue), queue.end)\n",
        "            first, end = max(acked.floor, queue.first), queue.end\n",
        tests="tests/consume/test_evictions.py -k purged",
    ),
    Mutant(
        "a member that is put out comes back with its next poll",
        "                member.refusal = MemberPutOut(group, name, by, reason)\n",
        "",
        tests="tests/consume/test_evictions.py -k who_and_why",
    ),
)
