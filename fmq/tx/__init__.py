"""Transactions: what may follow what, and what the journal says so far."""
