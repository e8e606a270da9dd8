"""What may follow what inside one transaction.

Every rule about the order of a transaction's records is in NEXT and nowhere else. `apply`
asks for each record, of the running engine and of a replay alike; as both ask the same
table, whatever the engine may write, recovery can read.
"""

from __future__ import annotations

from enum import Enum

from fmq.store.kinds import Kind


class State(Enum):
    """Where a transaction is."""

    ABSENT = "absent"
    UNDECIDED = "undecided"
    COMMITTING = "committing"  # published, COMMIT not yet: lives for one append
    COMMITTED = "committed"
    ROLLED_BACK = "rolled back"


class IllegalStep(Exception):
    """A record that may not stand where it stands."""


NEXT = {
    (State.ABSENT, Kind.PREPARE): State.UNDECIDED,
    (State.UNDECIDED, Kind.PREPARE): State.UNDECIDED,  # a relocation
    (State.UNDECIDED, Kind.PRE_MESSAGE): State.UNDECIDED,
    (State.UNDECIDED, Kind.REF_MESSAGE): State.COMMITTING,
    (State.UNDECIDED, Kind.TX_MESSAGE): State.COMMITTING,
    (State.UNDECIDED, Kind.ACK): State.COMMITTING,
    (State.UNDECIDED, Kind.COMMIT): State.COMMITTED,  # a transaction without messages
    (State.UNDECIDED, Kind.ROLLBACK): State.ROLLED_BACK,
    (State.COMMITTING, Kind.REF_MESSAGE): State.COMMITTING,
    (State.COMMITTING, Kind.TX_MESSAGE): State.COMMITTING,
    (State.COMMITTING, Kind.ACK): State.COMMITTING,
    (State.COMMITTING, Kind.COMMIT): State.COMMITTED,
}


def after(state: State, kind: Kind) -> State:
    """The state once a record of `kind` has followed, or IllegalStep if it may not."""
    try:
        return NEXT[state, kind]
    except KeyError:
        raise IllegalStep(f"{Kind(kind).name} cannot follow {state.value}") from None
