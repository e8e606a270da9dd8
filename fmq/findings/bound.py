"""Why no person should decide a transaction that is bound to a database."""

from __future__ import annotations

import shlex

import fmq
from fmq.findings.text import plain


def ask_its_database(path: str, tx: fmq.UndecidedTransaction) -> str:
    """Return the command that has the database of a transaction decide it."""
    return shlex.join(["fmq", "tx", "ask", path, "--resolve", f"{tx.producer}=ADDRESS"])


def bound_said(path: str, tx: fmq.UndecidedTransaction) -> str:
    """Say why nobody but its database should decide a transaction."""
    return (
        f"transaction {plain(tx.tx_id)} is bound to the database of {plain(tx.producer or '')}, "
        "which alone knows how it ends: a process of its program may have committed its rows, or "
        f"may do so yet. Nothing was changed. `{ask_its_database(path, tx)}` asks that database, "
        "and decides. If that database is gone for good, decide by `fmq tx decide --force`."
    )
