"""The two-phase verbs of Python's database API (PEP 249), for a coordinator that drives fmq.

A coordinator gives one global transaction a branch in each of its stores. It prepares all branches,
writes its decision down, and commits or rolls back each. After a crash it lists what is prepared
and undecided in each store, and decides it as it has written down.

The errors are those of fmq. In the place of PEP 249's ProgrammingError are WrongState for a verb
out of order, BadName for an impossible xid, UnknownTransaction for one that is not prepared here,
and AlreadyDecided for one that was decided otherwise. In the place of OperationalError are
StorageFull and EngineFailed.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from typing import Any, NamedTuple, Protocol

from fmq import Engine, Transaction
from fmq.errors import BadName, WrongState
from fmq.tx.names import check_name

FORMAT_ID_MAX = 2**31 - 1
PART_BYTES_MAX = 64  # the limit of XA for a global id, and for a branch
TX_ID = re.compile(r"(\d{1,10})_([A-Za-z0-9+/]+={0,2})_([A-Za-z0-9+/]*={0,2})")


class XidLike(Protocol):
    """An xid of any driver: a sequence of its three parts."""

    def __getitem__(self, index: int, /) -> Any: ...


class Xid(NamedTuple):
    """A branch of a global transaction, as XA names it."""

    format_id: int
    gtrid: str
    bqual: str

    @property
    def tx_id(self) -> str:
        """The three parts as one name, as JDBC and psycopg write it."""
        parts = (b64encode(part.encode()).decode() for part in (self.gtrid, self.bqual))
        return "_".join((str(self.format_id), *parts))


class Connection:
    """An engine as a store of a coordinator: one transaction at a time, in one thread."""

    def __init__(self, engine: Engine, *, producer: str) -> None:
        """Connect a coordinator. `tpc_recover` lists what its `producer` has prepared."""
        self._engine = engine
        self._producer = check_name("producer", producer)
        self._transaction: Transaction | None = None

    @property
    def transaction(self) -> Transaction:
        """The transaction that `tpc_begin` began, to send with. Raises WrongState without one."""
        if self._transaction is None:
            raise WrongState(
                "no transaction is begun on this connection; tpc_begin(xid) begins one, and after "
                "a crash tpc_commit(xid) and tpc_rollback(xid) end one that tpc_recover() lists. "
                "Nothing was changed."
            )
        return self._transaction

    def xid(self, format_id: int, gtrid: str, bqual: str) -> Xid:
        """Return the name of a branch. Raises BadName for parts that XA does not allow."""
        return xid_of((format_id, gtrid, bqual))

    def tpc_begin(self, xid: XidLike) -> None:
        """Begin the branch `xid`, which this connection or another driver has made."""
        self._refuse_inside("tpc_begin")
        tx_id = xid_of(xid).tx_id
        self._transaction = self._engine.transaction(tx_id=tx_id, producer=self._producer)

    def tpc_prepare(self) -> None:
        """Make the branch durable and sealed, so that it can be committed after any crash."""
        self.transaction.prepare()

    def tpc_commit(self, xid: XidLike | None = None) -> None:
        """Commit the begun branch, or commit a recovered `xid`.

        A branch that is not prepared commits in one phase.
        """
        if xid is None:
            self.transaction.commit()
            self._transaction = None
        else:
            self._refuse_inside("tpc_commit(xid)")
            self._engine.decide(xid_of(xid).tx_id, "commit", decided_by=self._producer)

    def tpc_rollback(self, xid: XidLike | None = None) -> None:
        """Roll back the begun branch, or roll back a recovered `xid`."""
        if xid is None:
            self.transaction.rollback()
            self._transaction = None
        else:
            self._refuse_inside("tpc_rollback(xid)")
            self._engine.decide(xid_of(xid).tx_id, "rollback", decided_by=self._producer)

    def tpc_recover(self) -> list[Xid]:
        """Return the branches that are prepared and undecided, the oldest first."""
        found = (
            _parsed(undecided.tx_id)
            for undecided in self._engine.undecided()
            if undecided.producer == self._producer
        )
        return [xid for xid in found if xid is not None]

    def _refuse_inside(self, verb: str) -> None:
        if self._transaction is not None:
            raise WrongState(
                f"transaction {self._transaction.tx_id!r} is begun on this connection and not "
                f"ended, so {verb} cannot follow. Nothing was changed; tpc_commit() or "
                "tpc_rollback() ends it, or use another connection."
            )


def xid_of(parts: XidLike) -> Xid:
    """Return the Xid of three parts. Raises BadName if XA does not allow them."""
    number, gtrid, bqual = (parts[index] for index in range(3))
    if type(number) is not int or not 0 <= number <= FORMAT_ID_MAX:
        raise BadName(f"format id {number!r}: must be a number from 0 to {FORMAT_ID_MAX}")
    for what, part, least in (("global id", gtrid, 1), ("branch", bqual, 0)):
        if not isinstance(part, str) or not least <= len(part.encode()) <= PART_BYTES_MAX:
            raise BadName(f"{what} {part!r}: must be text of {least} to {PART_BYTES_MAX} bytes")
    return Xid(number, gtrid, bqual)


def _parsed(tx_id: str) -> Xid | None:
    """Return the Xid that `tx_id` names, or None."""
    found = TX_ID.fullmatch(tx_id)
    if found is None:
        return None
    try:
        gtrid, bqual = (b64decode(part, validate=True).decode() for part in found.groups()[1:])
    except ValueError:
        return None
    xid = Xid(int(found[1]), gtrid, bqual)
    return xid if xid.tx_id == tx_id else None
