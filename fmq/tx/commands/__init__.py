"""What a call asks of the journal: sends, transactions, decisions, delays and limits."""
