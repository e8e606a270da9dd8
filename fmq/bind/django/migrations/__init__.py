"""The migrations of the marker table, which Django finds here."""
