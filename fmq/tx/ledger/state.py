"""The states of a transaction, and which record may follow in each.

Every rule about the order of a transaction's records is in NEXT and nowhere else. A Step (apply.py)
asks it for each record, in a replay and before the running engine writes one. So whatever the
engine may write, recovery can read.
"""

from __future__ import annotations

from enum import IntEnum

from fmq.store.bytes.kinds import Kind


class State(IntEnum):
    """How far a transaction has come in the journal."""

    ABSENT = 0
    UNDECIDED = 1
    # The runs or acks of a transaction were read, and its COMMIT was not. This happens only within
    # one append.
    COMMITTING = 2
    COMMITTED = 3
    ROLLED_BACK = 4


class IllegalStep(Exception):
    """A record that must not follow those before it."""

    def __init__(self, what: str, *, is_first: bool = False) -> None:
        """`is_first` says that no earlier record of its append has changed the ledger."""
        super().__init__(what)
        self.is_first = is_first


NEXT: dict[tuple[State, int], State] = {
    (State.ABSENT, Kind.PREPARE): State.UNDECIDED,
    (State.ABSENT, Kind.TX_MESSAGE): State.COMMITTING,  # a transaction of one phase has no PREPARE
    (State.ABSENT, Kind.TIMER): State.COMMITTING,
    (State.ABSENT, Kind.ACK): State.COMMITTING,
    (State.ABSENT, Kind.MARK): State.COMMITTING,
    (State.ABSENT, Kind.COMMIT): State.COMMITTED,  # an empty transaction of one phase
    (State.UNDECIDED, Kind.PREPARE): State.UNDECIDED,  # the PREPARE of a relocation
    (State.UNDECIDED, Kind.PRE_MESSAGE): State.UNDECIDED,
    # A MARK follows its PREPARE, or comes before its COMMIT.
    (State.UNDECIDED, Kind.MARK): State.UNDECIDED,
    (State.UNDECIDED, Kind.REF_MESSAGE): State.COMMITTING,
    (State.UNDECIDED, Kind.TX_MESSAGE): State.COMMITTING,
    (State.UNDECIDED, Kind.TIMER): State.COMMITTING,
    (State.UNDECIDED, Kind.ACK): State.COMMITTING,
    (State.UNDECIDED, Kind.COMMIT): State.COMMITTED,  # a prepared transaction without messages
    (State.UNDECIDED, Kind.ROLLBACK): State.ROLLED_BACK,
    (State.COMMITTING, Kind.REF_MESSAGE): State.COMMITTING,
    (State.COMMITTING, Kind.TX_MESSAGE): State.COMMITTING,
    (State.COMMITTING, Kind.TIMER): State.COMMITTING,
    (State.COMMITTING, Kind.ACK): State.COMMITTING,
    (State.COMMITTING, Kind.MARK): State.COMMITTING,
    (State.COMMITTING, Kind.COMMIT): State.COMMITTED,
}


def after(state: State, kind: int) -> State:
    """Return the state after a record of `kind`. Raises IllegalStep if it must not follow."""
    try:
        return NEXT[state, kind]
    except KeyError:
        words = state.name.lower().replace("_", " ")
        raise IllegalStep(f"{Kind(kind).name} cannot follow {words}") from None
