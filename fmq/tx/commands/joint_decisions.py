"""Joint decisions: one decision over many prepared transactions.

It is planned in one step: the JOINT, which says what is decided, and then the endings of all its
transactions, each an append of its own. So one write has all of them, and they are shown at one
instant. A crash may leave the JOINT without some of its endings: then opening writes these.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Literal

from fmq.arguments.names import check_tx_id
from fmq.errors import AlreadyDecided, BadOption, Impaired, TooLarge, UnknownTransaction
from fmq.steps.call_steps import Durable, Steps, all_shown, nothing
from fmq.store.bytes.encoding import measured
from fmq.store.bytes.joint_column import joint_in, with_joint
from fmq.store.bytes.kinds import COMMIT, Decided, Joint, Kind, MarkChange
from fmq.tx.commands.appends import Ending, decision_on
from fmq.tx.commands.decisions import Decisions
from fmq.tx.commands.marks import MarkBuffer, check_marks
from fmq.tx.commands.writer import Writer
from fmq.tx.ledger.ledger import Entry
from fmq.tx.looks.outcomes import Outcomes, outcome_of

logger = logging.getLogger("fmq.engine")
NAMED_MAX = 10  # so many transactions are named in an error

PlainDecision = Literal["commit", "rollback"]
MarkMove = tuple[str, int, int | None]
"""The name of a mark, its new value, and the value that is expected before; None for any."""


class JointDecisions:
    """The joint decisions of one engine."""

    def __init__(self, writer: Writer, outcomes: Outcomes, decisions: Decisions) -> None:
        self._writer = writer
        self._ledger, self._commit_queue = writer.ledger, writer.commit_queue
        self._outcomes = outcomes
        self._decisions = decisions

    def deciding(
        self, tx_ids: Iterable[str], decision: PlainDecision, mark: MarkMove | None = None
    ) -> Steps[None]:
        """Decide all `tx_ids` at once, for a caller that may not block. Do nothing if they were
        decided so before.

        Its waits for syncs are steps; its reads of the disk are not, see `Decisions._deciding`.
        """
        ids, kind, marks = check_ids(tx_ids), _kind_of(decision), _buffer_of(mark)
        self._decisions.refuse_nested()
        while True:
            with self._commit_queue.lock:
                self._commit_queue.check()
                entries = [self._ledger.by_tx_id.get(tx_id) for tx_id in ids]
                undecided = [entry for entry in entries if entry is not None]
                newest = max((entry.prepare.position for entry in undecided), default=-1)
            # Wait for their PREPAREs to be durable, as the calls that prepare them do.
            if newest >= self._ledger.shown_to:
                yield all_shown(self._commit_queue)
            ended = [tx_id for tx_id, entry in zip(ids, entries, strict=True) if entry is None]
            found = [self._outcomes.find(tx_id) for tx_id in ended]
            if None in found:
                with self._commit_queue.lock:
                    if any(tx_id in self._ledger.by_tx_id for tx_id in ended):
                        continue  # another call has prepared one of them meanwhile
                unknown = [tx_id for tx_id, known in zip(ended, found, strict=True) if not known]
                why = self._outcomes.unknown(unknown[0])
                raise UnknownTransaction(f"{_some(unknown)} of {len(ids)} cannot be decided: {why}")
            before = [decided for decided in found if decided is not None]
            self._check_before(before, kind, marks.changes(), alone=not undecided)
            if not undecided:
                if self._commit_queue.waits(None):
                    # The earlier call may not have waited for its sync.
                    yield Durable(nothing)
                return
            endings = self._read_endings(undecided, kind)
            if endings is not None and (yield Durable(self._plan, (kind, endings, marks))):
                return
            # Another call has decided or relocated one of them. Look them up again.

    def _check_before(
        self, before: Sequence[Decided], kind: Kind, marks: Sequence[MarkChange], *, alone: bool
    ) -> None:
        """Raise AlreadyDecided if the decisions `before` do not agree with this one. `alone` says
        that nothing is left to be decided.

        A mark moves once, together with all transactions of its decision.
        """
        others = [each for each in before if each.kind != kind]
        if not others and marks:
            others = [each for each in before if not alone or _mark_of(each) != marks[0][:2]]
        if others:
            raise AlreadyDecided(outcome_of(others[0], []), _some([each.tx_id for each in others]))

    def _read_endings(self, entries: Sequence[Entry], kind: Kind) -> list[Ending] | None:
        """Read what the endings need. Return None if another call has decided one first. Raises
        Impaired.
        """
        endings = []
        for entry in entries:
            lost = entry.lost(self._ledger.damaged)
            if lost and kind == COMMIT:
                reasons = [self._ledger.damaged[run.position] for run in lost]
                raise Impaired(entry.prepare.tx_id, sum(run.count for run in lost), reasons)
            decided = decision_on(entry.prepare, kind, asked=entry.asked)
            ending = self._decisions.read_ending(entry, decided, frozenset())
            if ending is None:
                return None
            endings.append(ending)
        return endings

    def _plan(self, what: tuple[Kind, list[Ending], MarkBuffer]) -> bool:
        """Plan the decision and all endings. Return False if another call was faster."""
        kind, endings, marks = what
        if not all(map(self._decisions.is_due, endings)):
            return False
        check_marks(self._ledger, marks)
        joint = Joint(kind, marks.changes(), [ending.entry.tx for ending in endings])
        journal = self._writer.journal
        if (size := measured([joint])) > journal.append_bytes_max:
            what_is = f"a decision over {len(endings):,} transactions in bytes"
            raise TooLarge(what_is, size, journal.append_bytes_max, "segment_bytes")
        # Once the JOINT is planned, nothing may be refused. So make up for room that is lacking.
        journal.spares.make_up()
        self._writer.send([joint], ordinary=False)
        self._end(joint, endings)
        return True

    def _end(self, joint: Joint, endings: list[Ending]) -> None:
        """Plan the last `endings` of `joint`."""
        of = len(joint.transactions)
        for place, ending in enumerate(endings, of - len(endings)):
            ending.decided.extension = with_joint(joint.position, place, of, joint.marks)
            self._decisions.plan(ending)

    def complete(self) -> None:
        """Write the endings that a crash has left out of a joint decision. Nothing else was
        appended since.
        """
        left, joint = self._ledger.endings_left, self._ledger.joint
        if not left or joint is None:
            return
        endings = []
        for tx in joint.transactions[-left:]:
            entry = self._ledger.undecided[tx]
            lost = {run.position for run in entry.lost(self._ledger.damaged)}
            if lost:
                logger.error("%r is decided, without its damaged messages", entry.prepare.tx_id)
            decided = decision_on(entry.prepare, Kind(joint.decision))
            ending = self._decisions.read_ending(entry, decided, lost)
            assert ending is not None, "no other call runs yet"
            endings.append(ending)
        self._commit_queue.run(lambda what: self._end(joint, what), endings, None)


def check_ids(tx_ids: object) -> list[str]:
    """Return `tx_ids`, each once. Raises TypeError or BadName, or BadOption if there is none."""
    if isinstance(tx_ids, (str, bytes)) or not isinstance(tx_ids, Iterable):
        raise TypeError(f"tx_ids={tx_ids!r:.80}: is a list of ids. Nothing was changed.")
    ids = [*dict.fromkeys(map(check_tx_id, tx_ids))]
    if not ids:
        raise BadOption(
            "tx_ids is empty, and a decision is about one transaction at least. Nothing was "
            "changed; a mark alone moves with an empty engine.transaction()."
        )
    return ids


def _kind_of(decision: object) -> Kind:
    if decision == "commit":
        return Kind.COMMIT
    if decision == "rollback":
        return Kind.ROLLBACK
    raise BadOption(f"decision {decision!r}: must be 'commit' or 'rollback'. Nothing was changed.")


def _buffer_of(mark: object) -> MarkBuffer:
    buffer = MarkBuffer()
    if mark is not None:
        if not isinstance(mark, (tuple, list)) or len(mark) != 3:
            raise TypeError(
                f"mark={mark!r:.80}: is a tuple of a name, the new value, and the value that is "
                "expected before, or None. Nothing was changed."
            )
        name, value, expect = mark
        buffer.set(name, value, b"", expect)
    return buffer


def _mark_of(decided: Decided) -> tuple[str, int] | None:
    """Return name and value of the mark that has moved with a decision."""
    joint = joint_in(decided.extension)
    return None if joint is None or joint.mark is None else joint.mark[:2]


def _some(tx_ids: Sequence[str]) -> str:
    """Return the ids as a text, the first ones if they are many."""
    named = ", ".join(map(repr, tx_ids[:NAMED_MAX]))
    more = f" and {len(tx_ids) - NAMED_MAX} more" if len(tx_ids) > NAMED_MAX else ""
    return named + more
