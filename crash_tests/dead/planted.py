"""Bugs of dead letters; the tier `dead` finds them."""

from __future__ import annotations

from crash_tests.mutant import Mutant

STORIES = "--tier dead --rounds 12"

OF_DEAD_LETTERS = (
    Mutant(
        "a dead letter without its ack",
        "            append: Append = [acked, run]\n",
        "            append: Append = [run]\n",
        STORIES,
    ),
    Mutant(
        "an ack without its dead letter",
        "            append: Append = [acked, run]\n",
        "            append: Append = [acked]\n",
        STORIES,
    ),
    Mutant(
        "a reject by place acks without a dead letter",
        "[ack, *letter]",
        "[ack]",
        "--tier dead --rounds 1 --seed 2",
    ),
    Mutant(
        "a reject by place takes what is acked",
        "            return None\n        changes.check_decided(group, topic, number, offset, ",
        "            pass\n        changes.check_decided(group, topic, number, offset, ",
        "--tier dead --rounds 1 --seed 2",
    ),
    Mutant(
        "a dead letter is replayed twice",
        "        dead.closed.add(first, stop)\n        dead.moved.take(first, stop)\n",
        "        if change.value != REPLAYED:\n"
        "            dead.closed.add(first, stop)\n        dead.moved.take(first, stop)\n",
        STORIES,
    ),
    Mutant(
        "a purge is undone by a checkpoint",
        "        return [self.group, *self.closed.beyond(first), ",
        "        return [self.group, first, [], ",
        STORIES,
    ),
    Mutant(
        "dead letters go with their segments",
        "                    retention.carry_dead_letters(segments)\n",
        "",
        "--tier dead --rounds 1 --seed 5",
    ),
    Mutant(
        "what is carried forward is there twice",
        "        dead.closed.add(first, stop)\n        dead.moved.take(first, stop)\n",
        "        if change.value != CARRIED:\n"
        "            dead.closed.add(first, stop)\n        dead.moved.take(first, stop)\n",
        STORIES,
    ),
    Mutant(
        "a checkpoint forgets the numbers of what was carried forward",
        "        self.moved = Moved(moved)\n",
        "",
        STORIES,
    ),
    Mutant(
        "a STATE forgets which dead letters there are",
        '    if "dead" in state:',
        '    if "dead" in state and not ledger.floor:',
        STORIES,
    ),
    Mutant(
        "a checkpoint forgets what was replayed",
        "self.moved.runs(), sorted(self.again)]",
        "self.moved.runs(), []]",
        STORIES,
    ),
    Mutant(
        "a deleted group leaves its dead letters to the next of its name",
        "        return [*own, Changed(ChangeKind.DELETE_GROUP",
        "        return [Changed(ChangeKind.DELETE_GROUP",
        "--tier dead --rounds 60",
    ),
    Mutant(
        "what has expired is counted where it should be buried",
        "        if expired and self._burying is not None:\n",
        "        if False:\n",
        STORIES,
    ),
    Mutant(
        "a dead letter that was replayed expires again",
        "            and not is_internal(self.queue.topic)\n",
        "",
        "--tier dead --rounds 1 --seed 16",
    ),
)
