"""Bugs of groups and topics; the tier `groups` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier groups --rounds 40"

OF_GROUPS = (
    Mutant(
        "a seek leaves the acks above it",
        "        self._ranges.clear()\n",
        "",
        "--tier groups --rounds 150",
    ),
    Mutant(
        "what is in hand counts after a seek",
        "                holds.end_all()\n",
        "                pass\n",
        STORIES,
        (("            holds = self._holds.pop(key, None)\n", "            holds = None\n"),),
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
        "    _move(ledger, change)\n",
        "    ledger.subscribe(change.group, change.topic).filter = change.text\n",
        STORIES,
    ),
    Mutant(
        "messages of a deleted topic are found again",
        "    ledger.deleted[change.topic] = change.position\n",
        "",
        STORIES,
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
        "queues that are added are not replayed",
        "        topic.queues.append(Queue(topic.name, number))\n",
        "        topic.queues.append(Queue(topic.name, number)) if ledger.listener else None\n",
        STORIES,
    ),
)
