"""The errors of a client to which no engine process answers."""

from __future__ import annotations

from fmq.arguments.path import ADDRESS
from fmq.errors import NotAllowed, NotServed, OutcomeUnknown
from fmq.wire.frames import ONCE


def not_allowed(where: str, error: OSError) -> NotAllowed:
    """Return the error for a user who may not use the socket."""
    return NotAllowed(
        f"{where}: this user may not use the directory or its socket ({error}). Nothing "
        "was changed by this call. It is for the directory's owner and for root; others may "
        "be served over TCP, with a token."
    )


def refused(where: str, seconds: float, error: OSError) -> NotServed:
    """Return the error for `seconds` in which the engine process accepted no connection."""
    return NotServed(f"{where}: the engine process took no connection for {seconds:g} s: {error}")


def not_served(where: str, seconds: float, error: OSError) -> NotServed:
    """Return the error for `seconds` without an engine process."""
    if not ADDRESS.match(where):
        what = (
            "If a client started the process, SERVER.log in the directory says more. Start it "
            f"yourself: fmq serve {where}"
        )
    elif where.startswith(("tcp://", "unix:")):
        what = "Look whether the address is right, and whether `fmq serve` runs there"
    else:
        what = (
            f"`fmq home {where}` says which machine has it, and since when. Start it there, or "
            f"another one: fmq standby {where} DIR --listen HOST:PORT"
        )
    return NotServed(
        f"{no_answer(where, seconds, error)}. Nothing was changed by this call. {what}"
    )


def no_answer(where: str, seconds: float, error: OSError) -> str:
    """Return the text that there was no engine process for `seconds`."""
    if isinstance(error, BlockingIOError):
        error = TimeoutError("it takes connections and says nothing, as a stopped one does")
    return f"{where}: no engine process answered for {seconds:g} s ({error})"


def unanswered(op: int, why: str) -> NotServed | OutcomeUnknown:
    """Return the error of a request that was sent and got no answer."""
    if op not in ONCE:
        return NotServed(f"{why}. Ask again.")
    return OutcomeUnknown(
        f"{why.rstrip('.')}, so it is not known whether what this call wrote is durable. "
        "Nothing that was acknowledged is lost. Ask once the directory is served again: "
        "engine.outcome(tx_id) for a transaction, engine.read for messages, engine.groups for "
        "groups."
    )
