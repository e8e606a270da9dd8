"""Targets by address: which one `postgresql://host/shop` means."""

from __future__ import annotations

from fmq.errors import BadOption, ExtraMissing
from fmq.relay.target import RelayTarget

POSTGRES = ("postgresql://", "postgres://")


def target_at(address: str, name: str, *, create: bool = False) -> RelayTarget:
    """Return the target at `address` for the relay `name`. With `create`, make what it needs there.

    Raises BadOption for an address of nothing that is known, and ExtraMissing.
    """
    if not address.startswith(POSTGRES):
        raise BadOption(
            f"{address!r}: a relay copies to postgresql://HOST/DATABASE. Other systems need a "
            "class of four methods, see docs/relay.md. Nothing was changed."
        )
    try:
        from fmq.relay.postgres_target import PostgresTarget, create_tables
    except ImportError as error:
        raise ExtraMissing("a relay into PostgreSQL", "psycopg", "postgres") from error
    if create:
        create_tables(address)
    return PostgresTarget(address, name)
