"""The PostgreSQL server that tests/bind has, also for relays."""

from tests.bind.conftest import address

__all__ = ["address"]
